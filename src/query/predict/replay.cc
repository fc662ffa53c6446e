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
using PiecesByPlace = std::unordered_map<uint64_t, Indexes>;

// The most that some pieces of a course hold at once.
double MostAlive(const Course& course, const Indexes& pieces) {
  std::vector<std::pair<int64_t, double>> changes;
  for (const uint32_t index : pieces) {
    const CoursePiece& piece = course.pieces[index];
    const auto bytes = static_cast<double>(piece.bytes);
    changes.emplace_back(piece.begin_ns, bytes);
    if (piece.end_ns != tables::kNever)
      changes.emplace_back(piece.end_ns, -bytes);
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
      open_[i].assign(courses[i]->pieces.size(), true);
    curves_.resize(courses[base]->pieces.size());
  }

  std::vector<Curve> Fit(std::vector<bool>* unmatched) {
    for (uint8_t narrowness = kOfStack; narrowness < kNarrownesses; ++narrowness)
      FitPlaces(narrowness);
    // Nothing is known of them: they grow with the size.
    const std::vector<CoursePiece>& pieces = courses_[base_]->pieces;
    unmatched->assign(pieces.size(), false);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (!open_[base_][i] || pieces[i].bytes == 0)
        continue;
      (*unmatched)[i] = true;
      const auto bytes = static_cast<double>(pieces[i].bytes);
      curves_[i] =
          StaysAtAnySize(pieces[i].category) ? Curve{bytes} : Curve{0, bytes / sizes_[base_]};
    }
    return std::move(curves_);
  }

 private:
  PiecesByPlace PlacesOf(size_t course, uint8_t narrowness) const {
    PiecesByPlace places;
    const std::vector<CoursePiece>& pieces = courses_[course]->pieces;
    for (uint32_t i = 0; i < pieces.size(); ++i) {
      if (open_[course][i])
        places[pieces[i].places[narrowness]].push_back(i);
    }
    return places;
  }

  void FitPlaces(uint8_t narrowness) {
    std::vector<PiecesByPlace> places;
    for (size_t i = 0; i < courses_.size(); ++i)
      places.push_back(PlacesOf(i, narrowness));
    for (const auto& [place, own] : places[base_]) {
      std::vector<const Indexes*> all;
      bool equal = true;
      for (const PiecesByPlace& of_course : places) {
        const auto found = of_course.find(place);
        if (found == of_course.end())
          break;
        all.push_back(&found->second);
        equal = equal && found->second.size() == own.size();
      }
      if (all.size() != courses_.size())
        continue;
      // Memory of several layers has no order that says which is which.
      if (equal && narrowness == kOfStack)
        FitEach(all);
      else
        FitTogether(all);
      for (size_t i = 0; i < all.size(); ++i) {
        for (const uint32_t piece : *all[i])
          open_[i][piece] = false;
      }
    }
  }

  void FitEach(const std::vector<const Indexes*>& all) {
    std::vector<double> bytes(all.size());
    for (size_t at = 0; at < all[base_]->size(); ++at) {
      for (size_t i = 0; i < all.size(); ++i)
        bytes[i] = static_cast<double>(courses_[i]->pieces[(*all[i])[at]].bytes);
      curves_[(*all[base_])[at]] = FitCurve(sizes_, bytes);
    }
  }

  void FitTogether(const std::vector<const Indexes*>& all) {
    std::vector<double> bytes;
    for (size_t i = 0; i < all.size(); ++i)
      bytes.push_back(MostAlive(*courses_[i], *all[i]));
    if (bytes[base_] == 0)
      return;
    const Curve curve = FitCurve(sizes_, bytes) * (1 / bytes[base_]);
    for (const uint32_t piece : *all[base_])
      curves_[piece] = curve * static_cast<double>(courses_[base_]->pieces[piece].bytes);
  }

  const std::vector<const Course*>& courses_;
  const std::vector<double>& sizes_;
  const size_t base_;
  std::vector<std::vector<bool>> open_;  // by course and piece: without a curve
  std::vector<Curve> curves_;
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
  curves_ = CurveFitter(courses, sizes, base).Fit(&unmatched_);
}

Replay::Replay(const Course& course, double size) : base_(&course) {
  for (const CoursePiece& piece : course.pieces) {
    const auto bytes = static_cast<double>(piece.bytes);
    curves_.push_back(StaysAtAnySize(piece.category) ? Curve{bytes} : Curve{0, bytes / size});
  }
  unmatched_.resize(curves_.size());
}

Replay::Bytes Replay::BytesAt(uint32_t piece, double size) const {
  Bytes bytes;
  bytes.requested = curves_[piece].At(size);
  if (base_->rounds)
    bytes.rounding =
        std::ceil(bytes.requested / kRoundedToBytes) * kRoundedToBytes - bytes.requested;
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
    if (i == last)
      state.phase = piece.phase;
  }
  return state;
}

}  // namespace vramscope::query
