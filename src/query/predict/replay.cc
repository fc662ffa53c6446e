// SPDX-License-Identifier: Apache-2.0
#include "query/predict/replay.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "tables/ids.h"

namespace vramscope::query {
namespace {

using format::Category;

// PyTorch's allocator gives multiples of it.
constexpr double kRoundedToBytes = 512;

using Indexes = std::vector<uint32_t>;
using AllocationsByPlace = std::unordered_map<uint64_t, Indexes>;

// The most that some allocations of a course hold at once.
double MostAlive(const Course& course, const Indexes& allocations) {
  std::vector<std::pair<int64_t, double>> changes;
  for (const uint32_t index : allocations) {
    const CourseAllocation& allocation = course.allocations[index];
    for (uint32_t i = allocation.first_piece; i < allocation.end_piece; ++i) {
      const CoursePiece& piece = course.pieces[i];
      const auto bytes = static_cast<double>(piece.bytes);
      changes.emplace_back(piece.begin_ns, bytes);
      if (piece.end_ns != tables::kNever)
        changes.emplace_back(piece.end_ns, -bytes);
    }
  }
  std::sort(changes.begin(), changes.end());
  double now = 0;
  double most = 0;
  for (const auto& [time_ns, bytes] : changes) {
    now += bytes;
    most = std::max(most, now);
  }
  return most;
}

// Gives each piece of the base a curve.
class CurveFitter {
 public:
  CurveFitter(const std::vector<const Course*>& courses,
              const std::vector<double>& sizes,
              size_t base)
      : courses_(courses), sizes_(sizes), base_(base), open_(courses.size()) {
    for (size_t i = 0; i < courses.size(); ++i)
      open_[i].assign(courses[i]->allocations.size(), true);
    const size_t pieces = courses[base]->pieces.size();
    curves.resize(pieces);
    unmatched.resize(pieces);
    uncertain.resize(pieces);
  }

  void Fit() {
    FitEachOfPlaces();
    for (uint8_t narrowness = kOfStack; narrowness < kNarrownesses; ++narrowness)
      FitPlacesTogether(narrowness);
    // Nothing is known of them: they grow with the size.
    const Course& course = *courses_[base_];
    for (uint32_t i = 0; i < course.allocations.size(); ++i) {
      const auto bytes = static_cast<double>(course.allocations[i].bytes);
      if (!open_[base_][i] || bytes == 0)
        continue;
      const bool stays = StaysAtAnySize(course.pieces[course.allocations[i].first_piece].category);
      SetCurve(i, (stays ? Curve{bytes} : Curve{0, bytes / sizes_[base_]}) * (1 / bytes));
      ForEachPiece(i, [&](uint32_t piece) { unmatched[piece] = true; });
    }
  }

  std::vector<Curve> curves;
  std::vector<bool> unmatched;
  std::vector<bool> uncertain;

 private:
  // Allocations without a curve by their places.
  AllocationsByPlace PlacesOf(size_t course, uint8_t narrowness) const {
    AllocationsByPlace places;
    const Course& of = *courses_[course];
    for (uint32_t i = 0; i < of.allocations.size(); ++i) {
      if (open_[course][i])
        places[of.pieces[of.allocations[i].first_piece].places[narrowness]].push_back(i);
    }
    return places;
  }

  // Calls visit(allocations of each course) for each place that all have.
  template <class Visit>
  void ForEachPlace(uint8_t narrowness, const Visit& visit) const {
    std::vector<AllocationsByPlace> places;
    for (size_t i = 0; i < courses_.size(); ++i)
      places.push_back(PlacesOf(i, narrowness));
    for (const auto& [place, own] : places[base_]) {
      std::vector<const Indexes*> all;
      for (const AllocationsByPlace& of_course : places) {
        if (const auto found = of_course.find(place); found != of_course.end())
          all.push_back(&found->second);
      }
      if (all.size() == courses_.size())
        visit(all);
    }
  }

  void FitEachOfPlaces() {
    std::vector<double> bytes(courses_.size());
    ForEachPlace(kOfStack, [&](const std::vector<const Indexes*>& all) {
      const size_t count = all[base_]->size();
      if (std::any_of(all.begin(), all.end(), [&](const auto* of) { return of->size() != count; }))
        return;
      for (size_t at = 0; at < count; ++at) {
        for (size_t i = 0; i < all.size(); ++i)
          bytes[i] = static_cast<double>(courses_[i]->allocations[(*all[i])[at]].bytes);
        const auto fit = FitCurve(sizes_, bytes);
        if (!fit.certain)
          continue;
        if (bytes[base_] > 0)
          SetCurve((*all[base_])[at], fit.curve * (1 / bytes[base_]));
        for (size_t i = 0; i < all.size(); ++i)
          open_[i][(*all[i])[at]] = false;
      }
    });
  }

  void FitPlacesTogether(uint8_t narrowness) {
    ForEachPlace(narrowness, [&](const std::vector<const Indexes*>& all) {
      std::vector<double> bytes;
      for (size_t i = 0; i < all.size(); ++i)
        bytes.push_back(MostAlive(*courses_[i], *all[i]));
      const auto fit = FitCurve(sizes_, bytes);
      if (!fit.certain && narrowness != kOfCategory)
        return;
      for (const uint32_t allocation : *all[base_]) {
        if (bytes[base_] > 0)
          SetCurve(allocation, fit.curve * (1 / bytes[base_]));
        ForEachPiece(allocation, [&](uint32_t piece) { uncertain[piece] = !fit.certain; });
      }
      for (size_t i = 0; i < all.size(); ++i) {
        for (const uint32_t allocation : *all[i])
          open_[i][allocation] = false;
      }
    });
  }

  template <class Visit>
  void ForEachPiece(uint32_t allocation, const Visit& visit) const {
    const CourseAllocation& of = courses_[base_]->allocations[allocation];
    for (uint32_t piece = of.first_piece; piece < of.end_piece; ++piece)
      visit(piece);
  }

  // `curve`: of a byte of it.
  void SetCurve(uint32_t allocation, const Curve& curve) {
    ForEachPiece(allocation, [&](uint32_t piece) {
      curves[piece] = curve * static_cast<double>(courses_[base_]->pieces[piece].bytes);
    });
  }

  const std::vector<const Course*>& courses_;
  const std::vector<double>& sizes_;
  const size_t base_;
  std::vector<std::vector<bool>> open_;  // by course and allocation: without a curve
};

}  // namespace

bool StaysAtAnySize(Category category) {
  return category == Category::kParameter || category == Category::kGradient ||
         category == Category::kOptimizerState || category == Category::kBuffer ||
         category == Category::kDriver;
}

Replay::Replay(const std::vector<const Course*>& courses, const std::vector<double>& sizes) {
  const auto base =
      static_cast<size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
  base_ = courses[base];
  CurveFitter fitter(courses, sizes, base);
  fitter.Fit();
  curves_ = std::move(fitter.curves);
  unmatched_ = std::move(fitter.unmatched);
  uncertain_ = std::move(fitter.uncertain);
}

Replay::Replay(const Course& course, double size) : base_(&course) {
  for (const CoursePiece& piece : course.pieces) {
    const auto bytes = static_cast<double>(piece.bytes);
    curves_.push_back(StaysAtAnySize(piece.category) ? Curve{bytes} : Curve{0, bytes / size});
  }
  unmatched_.resize(curves_.size());
  uncertain_.resize(curves_.size());
}

Replay::Bytes Replay::BytesAt(uint32_t piece, double size) const {
  const auto rounding_of = [](double bytes) {
    return std::ceil(bytes / kRoundedToBytes) * kRoundedToBytes - bytes;
  };
  Bytes bytes;
  bytes.requested = curves_[piece].At(size);
  if (base_->rounds) {
    // A block keeps what is too little for another one.
    const CoursePiece& of = base_->pieces[piece];
    const double kept =
        static_cast<double>(of.rounding_bytes) - rounding_of(static_cast<double>(of.bytes));
    bytes.rounding = rounding_of(bytes.requested) + std::max(0.0, kept);
  }
  return bytes;
}

Replay::Peak Replay::PeakAt(double size) const {
  Peak peak;
  double now = 0;
  for (size_t i = 0; i < base_->steps.size(); ++i) {
    const CourseStep& step = base_->steps[i];
    const Bytes bytes = BytesAt(step.piece, size);
    now += (step.begins ? 1 : -1) * (bytes.requested + bytes.rounding);
    if (now > peak.bytes)
      peak = {now, i};
  }
  return peak;
}

Replay::State Replay::StateAt(double size, size_t last) const {
  State state;
  for (size_t i = 0; i <= last && i < base_->steps.size(); ++i) {
    const CourseStep& step = base_->steps[i];
    const CoursePiece& piece = base_->pieces[step.piece];
    const double sign = step.begins ? 1 : -1;
    const Bytes bytes = BytesAt(step.piece, size);
    Part& part = state.categories[tables::ToWord(piece.category)];
    part.curve += curves_[step.piece] * sign;
    part.bytes += sign * bytes.requested;
    state.categories[tables::ToWord(Category::kRounding)].bytes += sign * bytes.rounding;
    if (unmatched_[step.piece])
      state.unmatched_bytes += sign * bytes.requested;
    if (uncertain_[step.piece])
      state.uncertain_bytes += sign * bytes.requested;
    if (i == last)
      state.phase = piece.phase;
  }
  return state;
}

}  // namespace vramscope::query
