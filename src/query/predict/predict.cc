// SPDX-License-Identifier: Apache-2.0
#include "query/predict/predict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <set>
#include <utility>

#include "query/predict/course.h"
#include "query/predict/replay.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using format::Category;
using tables::DeviceKind;

constexpr double kNotableError = 0.05;
constexpr double kNotableShare = 0.01;
constexpr uint64_t kDefaultFactor = 2;

uint64_t Whole(double bytes) {
  // What is far too large stays so.
  return bytes > 0 ? static_cast<uint64_t>(std::llround(std::min(bytes, 9e18))) : 0;
}

// "batch 32", "argument 1 = 32".
std::string SizeText(const std::string& variable, uint64_t size) {
  return variable + " " + util::FormatCount(size);
}

std::string SignedPercent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", share * 100);
  return text;
}

double ErrorOf(uint64_t predicted, uint64_t measured) {
  return measured == 0 ? 0 : static_cast<double>(predicted) / static_cast<double>(measured) - 1;
}

// ---- what differs

// The name of the sizes that the user gave, if the commands have it.
std::string NameOfSizes(const std::vector<PredictInput>& inputs,
                        const std::vector<std::string>& commands) {
  for (const CommandNumber& number : DifferingNumbers(commands)) {
    bool same = true;
    for (size_t i = 0; i < inputs.size(); ++i)
      same = same && number.values[i] == inputs[i].size;
    if (same)
      return number.name;
  }
  return "size";
}

// Gives each input its size. The name of what differs.
util::Result<std::string> FindSizes(std::vector<PredictInput>* inputs) {
  std::vector<std::string> commands;
  std::string without;
  for (const PredictInput& input : *inputs) {
    commands.push_back(input.command);
    if (!input.size && without.empty())
      without = input.file;
  }
  std::string name;
  const bool none = std::none_of(inputs->begin(), inputs->end(),
                                 [](const PredictInput& input) { return input.size; });
  if (without.empty()) {
    name = NameOfSizes(*inputs, commands);
  } else if (inputs->size() == 1) {
    return util::Status::Error("one recording does not say what its size is: `predict " + without +
                               "=4`, or add recordings of other sizes");
  } else if (!none) {
    return util::Status::Error(without + ": has no size: say that of each recording, or of none");
  } else {
    VRAMSCOPE_ASSIGN_OR_RETURN(CommandNumber number, FindSize(commands));
    for (size_t i = 0; i < inputs->size(); ++i)
      (*inputs)[i].size = number.values[i];
    name = std::move(number.name);
  }
  std::stable_sort(inputs->begin(), inputs->end(),
                   [](const auto& a, const auto& b) { return *a.size < *b.size; });
  const uint64_t first = *inputs->front().size;
  if (inputs->size() > 1 && first == *inputs->back().size) {
    return util::Status::Error("all recordings are of " + SizeText(name, first) +
                               ": record another size");
  }
  return name;
}

// ---- the prediction

class Predictor {
 public:
  Predictor(std::vector<PredictInput> inputs, const PredictOptions& options)
      : inputs_(std::move(inputs)), options_(options) {}

  util::Result<Prediction> Make() {
    VRAMSCOPE_ASSIGN_OR_RETURN(out_.variable, FindSizes(&inputs_));
    VRAMSCOPE_RETURN_IF_ERROR(ReadCourses());
    single_ = inputs_.size() == 1;
    replay_ = single_ ? std::make_unique<Replay>(courses_[0], sizes_[0])
                      : std::make_unique<Replay>(Pointers(SIZE_MAX), sizes_);
    out_.kind = courses_.back().kind;
    out_.cached_bytes = courses_.back().cached_bytes;
    out_.driver_bytes = courses_.back().driver_bytes;
    ChooseSize();
    AddPeak();
    AddSources();
    AddCategories();
    AddNotes();
    return std::move(out_);
  }

 private:
  util::Status ReadCourses() {
    for (const PredictInput& input : inputs_) {
      util::Result<Course> course = ReadCourse(*input.recording);
      if (!course.ok())
        return util::Status::Error(input.file + ": " + course.status().message());
      courses_.push_back(std::move(*course));
      sizes_.push_back(static_cast<double>(*input.size));
      if (courses_.back().kind != courses_.front().kind) {
        return util::Status::Error(input.file + ": " + inputs_[0].file +
                                   " is of another kind of memory: compare recordings of GPUs, or "
                                   "of CPU tensors (`run --cpu`)");
      }
    }
    return {};
  }

  std::vector<const Course*> Pointers(size_t without) const {
    std::vector<const Course*> pointers;
    for (size_t i = 0; i < courses_.size(); ++i) {
      if (i != without)
        pointers.push_back(&courses_[i]);
    }
    return pointers;
  }

  // From one recording: what does not grow stays as it was.
  double AllocatedAt(double size) const {
    return replay_->PeakAt(single_ ? std::max(size, sizes_[0]) : size).bytes;
  }
  double BesideBytes() const { return static_cast<double>(out_.cached_bytes + out_.driver_bytes); }

  // By halves: nothing shrinks with the size.
  std::optional<uint64_t> LargestThatFits(uint64_t card_bytes) const {
    const auto fits = [&](uint64_t size) {
      return AllocatedAt(static_cast<double>(size)) + BesideBytes() <=
             static_cast<double>(card_bytes);
    };
    if (fits(kLargestSize))
      return std::nullopt;
    uint64_t least = 0;
    uint64_t beyond = 1;
    for (; fits(beyond); beyond *= 2)
      least = beyond;
    while (beyond - least > 1) {
      const uint64_t middle = least + (beyond - least) / 2;
      (fits(middle) ? least : beyond) = middle;
    }
    return least;
  }

  void ChooseSize() {
    out_.card_bytes = options_.card_bytes;
    if (options_.card_bytes)
      out_.largest_size = LargestThatFits(*options_.card_bytes);
    out_.size_given = options_.size.has_value();
    const uint64_t twice = kDefaultFactor * *inputs_.back().size;
    out_.size =
        options_.size.value_or(out_.largest_size.value_or(0) != 0 ? *out_.largest_size : twice);
  }

  void AddPeak() {
    const auto size = static_cast<double>(out_.size);
    peak_size_ = single_ ? std::max(size, sizes_[0]) : size;
    const Replay::Peak peak = replay_->PeakAt(peak_size_);
    state_ = replay_->StateAt(peak_size_, peak.step);
    out_.allocated_bytes = Whole(peak.bytes);
    out_.peak_bytes = out_.allocated_bytes + out_.cached_bytes + out_.driver_bytes;
    out_.phase = format::PhaseName(state_.phase);
    out_.unmatched_bytes = Whole(state_.unmatched_bytes);
    out_.uncertain_bytes = Whole(state_.uncertain_bytes);
    if (single_) {
      const double least = replay_->PeakAt(std::min(size, sizes_[0])).bytes;
      out_.least_bytes = Whole(least) + out_.driver_bytes;
    }
    if (out_.card_bytes)
      out_.fits = out_.peak_bytes <= *out_.card_bytes;
  }

  void AddSources() {
    const bool leave_out = std::set<double>(sizes_.begin(), sizes_.end()).size() >= 3;
    for (size_t i = 0; i < courses_.size(); ++i) {
      const Course& course = courses_[i];
      PredictSource source;
      source.file = inputs_[i].file;
      source.command = inputs_[i].command;
      source.size = *inputs_[i].size;
      source.iteration = course.iteration;
      source.phase = format::PhaseName(course.phase);
      source.peak_bytes = course.peak_bytes;
      const Replay::Peak peak = replay_->PeakAt(sizes_[i]);
      source.fitted_bytes = Whole(peak.bytes);
      fitted_.push_back(replay_->StateAt(sizes_[i], peak.step));
      if (leave_out) {
        std::vector<double> others = sizes_;
        others.erase(others.begin() + static_cast<ptrdiff_t>(i));
        source.left_out_bytes = Whole(Replay(Pointers(i), others).PeakAt(sizes_[i]).bytes);
      }
      out_.sources.push_back(std::move(source));
    }
  }

  void AddCategories() {
    for (const Category category : format::kAllCategories) {
      const size_t number = tables::ToWord(category);
      const Replay::Part& part = state_.categories[number];
      PredictCategory row;
      row.category = format::CategoryName(category);
      uint64_t most = Whole(part.bytes);
      for (size_t i = 0; i < courses_.size(); ++i) {
        row.measured_bytes.push_back(Whole(courses_[i].categories[number]));
        row.fitted_bytes.push_back(Whole(fitted_[i].categories[number].bytes));
        most = std::max(most, row.measured_bytes.back());
      }
      if (most == 0)
        continue;
      row.constant_bytes = part.curve.constant;
      row.linear_bytes = part.curve.linear;
      row.square_bytes = part.curve.square;
      row.bytes = Whole(part.bytes);
      row.form = single_ && !StaysAtAnySize(category) && category != Category::kRounding
                     ? "constant to linear"
                     : part.curve.FormAt(peak_size_);
      out_.categories.push_back(std::move(row));
    }
    std::stable_sort(out_.categories.begin(), out_.categories.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  }

  void Note(std::string text) { out_.notes.push_back(std::move(text)); }

  void AddNotes() {
    const uint64_t largest = *inputs_.back().size;
    if (out_.size / kFarFactor > largest || out_.size > largest * kFarFactor) {
      Note("More than " + std::to_string(kFarFactor) + " times the largest recorded " +
           out_.variable + ": an extrapolation, to be checked by a larger recording.");
    }
    if (single_) {
      Note(
          "From one recording only parameters, gradients and optimizer state are certain. The "
          "rest is taken for constant at the least and for linear at the most; with a sequence "
          "length attention may grow with its square.");
    } else if (std::set<double>(sizes_.begin(), sizes_.end()).size() == 2) {
      Note("Two sizes leave no residual that would show an error: a third recording does.");
    }
    AddFitNotes();
    AddRecordingNotes();
  }

  void AddFitNotes() {
    double worst = 0;
    std::string worst_text;
    for (const PredictSource& source : out_.sources) {
      const double residual = ErrorOf(source.fitted_bytes, source.peak_bytes);
      if (std::abs(residual) > kNotableError) {
        Note("The fit misses the peak at " + SizeText(out_.variable, source.size) + " by " +
             SignedPercent(residual) + ": other sizes may be as wrong.");
      }
      const double left_out =
          ErrorOf(source.left_out_bytes.value_or(source.peak_bytes), source.peak_bytes);
      if (std::abs(left_out) > std::max(kNotableError, std::abs(worst))) {
        worst = left_out;
        worst_text = "The other recordings predict " + SizeText(out_.variable, source.size) +
                     " with an error of " + SignedPercent(left_out) +
                     ": this prediction may be as wrong.";
      }
    }
    if (!worst_text.empty())
      Note(std::move(worst_text));
    if (static_cast<double>(out_.uncertain_bytes) >
        kNotableError * static_cast<double>(out_.allocated_bytes)) {
      Note(util::FormatBytes(out_.uncertain_bytes) +
           " follow the size only roughly: they depend on the data, or libraries use other "
           "algorithms at other sizes. Larger recordings tell more." +
           (2 * out_.uncertain_bytes > out_.allocated_bytes ? " Are all of one program?" : ""));
    }
    if (static_cast<double>(out_.unmatched_bytes) >
        kNotableShare * static_cast<double>(out_.allocated_bytes)) {
      Note(util::FormatBytes(out_.unmatched_bytes) +
           " are of places that the smaller recordings do not have, and are taken for linear. Are "
           "all of one program?");
    }
  }

  void AddRecordingNotes() {
    const bool any_iteration = std::any_of(courses_.begin(), courses_.end(),
                                           [](const Course& course) { return course.iteration; });
    for (size_t i = 0; i < courses_.size(); ++i) {
      const Course& course = courses_[i];
      if (static_cast<double>(course.outside_bytes) >
          (1 + kNotableShare) * static_cast<double>(course.peak_bytes)) {
        Note(inputs_[i].file + ": had more, " + util::FormatBytes(course.outside_bytes) +
             ", outside the iteration that is fitted: the peak of a run may be higher.");
      }
      if (!course.iteration && any_iteration) {
        Note(inputs_[i].file + ": has no iterations, and is fitted as a whole. Others have some.");
      }
      if (course.iterations == 1) {
        Note(inputs_[i].file +
             ": has one iteration alone. Optimizers make their state at its end: record two.");
      }
    }
    const Course& largest = courses_.back();
    if (!any_iteration)
      Note("No iterations are known: the whole recordings are fitted.");
    if (largest.processes > 1) {
      Note("Of " + std::to_string(largest.processes) +
           " processes with such memory, the one with most.");
    }
    if (largest.kind == DeviceKind::kCpu) {
      Note(
          "These are CPU tensors. On a GPU the context, libraries and fragmentation come on top, "
          "and kernels may need other workspaces.");
    } else if (largest.kind == DeviceKind::kGpu && !single_) {
      Note("Cache and driver are as measured at the largest size.");
    }
  }

  std::vector<PredictInput> inputs_;  // by size
  const PredictOptions& options_;
  std::vector<Course> courses_;  // of the inputs
  std::vector<double> sizes_;
  bool single_ = false;
  std::unique_ptr<Replay> replay_;
  double peak_size_ = 0;  // at which the peak is computed
  Replay::State state_;   // at the predicted peak
  std::vector<Replay::State> fitted_;
  Prediction out_;
};

}  // namespace

util::Result<Prediction> MakePrediction(std::vector<PredictInput> inputs,
                                        const PredictOptions& options) {
  return Predictor(std::move(inputs), options).Make();
}

}  // namespace vramscope::query
