// SPDX-License-Identifier: Apache-2.0
#include "query/predict/course.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <tuple>
#include <utility>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/parallel.h"
#include "query/core/peaks.h"
#include "query/dimensions/cells.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/iteration_times.h"
#include "query/history/iterations.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using format::Category;
using tables::DeviceKind;

// Numbers of places, which are the same in every recording of a program.
class PlaceNumbers {
 public:
  explicit PlaceNumbers(const tables::Recording& recording) : recording_(recording) {
    // A caller's stack is an earlier row.
    const std::vector<tables::StackRow>& stacks = recording.tables().stacks;
    stacks_.resize(stacks.size());
    for (size_t i = 1; i < stacks.size(); ++i) {
      const uint32_t parent = stacks[i].parent.value;
      stacks_[i] = Mix(parent < i ? stacks_[parent] : 0, OfFrame(stacks[i].frame));
    }
  }

  std::array<uint64_t, kNarrownesses> Of(const tables::SiteRow& site) const {
    const uint64_t category = IsPassing(site.category) ? 1 : Mix(2, tables::ToWord(site.category));
    const uint64_t layer =
        Mix(Mix(category, tables::ToWord(site.phase)), OfText(recording_.string(site.module)));
    uint64_t own = Mix(layer, OfText(recording_.string(site.parameter)));
    own = Mix(own, OfText(recording_.string(site.tag)));
    // What belongs to a parameter may come from anywhere.
    if (site.parameter.value == 0 && site.place.value < stacks_.size())
      own = Mix(own, stacks_[site.place.value]);
    return {own, layer, category};
  }

 private:
  static uint64_t Mix(uint64_t seed, uint64_t value) {
    seed ^= value + 0x9e3779b97f4a7c15 + (seed << 12) + (seed >> 4);
    return seed * 0xff51afd7ed558ccd;
  }
  static uint64_t OfText(std::string_view text) { return std::hash<std::string_view>()(text); }
  uint64_t OfFrame(tables::FrameId frame) const {
    const tables::FrameRow& row = RowOf(recording_.tables().frames, frame);
    uint64_t number = Mix(row.line, OfText(recording_.string(row.function)));
    number = Mix(number, OfText(Basename(recording_.string(row.file))));
    return number;
  }

  const tables::Recording& recording_;
  std::vector<uint64_t> stacks_;
};

struct CourseWindow {
  tables::AccountId account;
  TimeSpan span{INT64_MIN, INT64_MAX};  // (from, to]
  std::optional<int64_t> iteration;
  int64_t iterations = 0;
};

// The rows of an account that are allocated in a span.
class CourseReader {
 public:
  CourseReader(const tables::Recording& recording, tables::AccountId account)
      : recording_(recording), account_(account), sites_(recording.tables(), account) {}

  util::Status Read(TimeSpan span, Course* course) const {
    const PlaceNumbers places(recording_);
    std::vector<size_t> frames;
    for (size_t i = 0; i < recording_.frame_count(); ++i) {
      const tables::FrameZone& zone = recording_.zone(i);
      if (zone.min_begin_ns <= span.to_ns && zone.max_end_ns > span.from_ns &&
          zone.MayHoldAccount(account_))
        frames.push_back(i);
    }
    const std::vector<tables::SiteRow>& sites = recording_.tables().sites;
    VRAMSCOPE_RETURN_IF_ERROR(ForEachFrame(
        recording_, frames, tables::kAllColumns, 1,
        [&](size_t, const tables::AllocationFrame& frame) {
          for (size_t i = 0; i < frame.rows; ++i) {
            const uint32_t site = frame.site[i];
            if (!sites_.Has(site) || frame.begin_ns[i] > span.to_ns ||
                frame.end_ns[i] <= span.from_ns)
              continue;
            CoursePiece piece;
            piece.begin_ns = std::max(frame.begin_ns[i], span.from_ns);
            piece.end_ns = frame.end_ns[i];
            piece.alloc_ns = frame.alloc_ns[i];
            piece.address = frame.address[i];
            const uint64_t rounding = std::min(frame.rounding_bytes[i], frame.bytes[i]);
            piece.bytes = frame.bytes[i] - rounding;
            piece.rounding_bytes = sites_.HasRounding(site) ? rounding : 0;
            piece.category = sites[site].category;
            piece.phase = sites[site].phase;
            piece.places = places.Of(sites[site]);
            course->rounds = course->rounds || piece.rounding_bytes > 0;
            course->pieces.push_back(piece);
          }
        }));
    AddCounters(span, places, course);
    GroupPieces(course);
    return {};
  }

 private:
  // An allocation has its own time, but in logs of other tools.
  static void GroupPieces(Course* course) {
    std::vector<CoursePiece>& pieces = course->pieces;
    std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.alloc_ns, a.address, a.begin_ns, a.bytes) <
             std::tuple(b.alloc_ns, b.address, b.begin_ns, b.bytes);
    });
    for (uint32_t i = 0; i < pieces.size(); ++i) {
      const bool same = i > 0 && pieces[i].alloc_ns == pieces[i - 1].alloc_ns &&
                        pieces[i].address == pieces[i - 1].address &&
                        pieces[i].begin_ns >= pieces[i - 1].end_ns;
      if (!same)
        course->allocations.push_back({i});
      CourseAllocation& allocation = course->allocations.back();
      allocation.end_piece = i + 1;
      allocation.bytes = std::max(allocation.bytes, pieces[i].bytes);
    }
  }

  // Memory that readings tell: a piece from each reading to the next.
  void AddCounters(TimeSpan span, const PlaceNumbers& places, Course* course) const {
    const tables::Tables& tables = recording_.tables();
    std::vector<CoursePiece> open(tables.counters.size());
    std::vector<int64_t> levels(tables.counters.size());
    const auto close = [&](size_t counter, int64_t time_ns) {
      CoursePiece& piece = open[counter];
      piece.end_ns = time_ns;
      if (levels[counter] <= 0 || piece.begin_ns > span.to_ns || piece.end_ns <= span.from_ns)
        return;
      piece.begin_ns = std::max(piece.begin_ns, span.from_ns);
      piece.bytes = static_cast<uint64_t>(levels[counter]);
      course->pieces.push_back(piece);
    };
    for (size_t i = 1; i < open.size(); ++i) {
      const tables::SiteRow& site = RowOf(tables.sites, tables.counters[i].site);
      open[i].category = site.category;
      open[i].phase = site.phase;
      open[i].places = places.Of(site);
    }
    const auto counts = [&](uint32_t counter) {
      return counter != 0 && counter < open.size() && sites_.HasCounter(tables.counters[counter]);
    };
    for (const tables::StepRow& step : tables.steps) {
      const uint32_t counter = step.counter.value;
      if (!counts(counter))
        continue;
      close(counter, step.time_ns);
      levels[counter] += step.bytes;
      open[counter].begin_ns = open[counter].alloc_ns = step.time_ns;
    }
    for (uint32_t i = 1; i < open.size(); ++i) {
      if (counts(i))
        close(i, tables::kNever);
    }
  }

  const tables::Recording& recording_;
  tables::AccountId account_;
  const AllocatedSites sites_;
};

void OrderSteps(int64_t last_ns, Course* course) {
  const std::vector<CoursePiece>& pieces = course->pieces;
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    course->steps.push_back({i, true});
    if (pieces[i].end_ns <= last_ns && pieces[i].end_ns != tables::kNever)
      course->steps.push_back({i, false});
  }
  const auto key = [&](const CourseStep& step) {
    const CoursePiece& piece = pieces[step.piece];
    return std::tuple(step.begins ? piece.begin_ns : piece.end_ns, step.begins, step.piece);
  };
  std::sort(course->steps.begin(), course->steps.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

void MeasurePeak(Course* course) {
  int64_t now = 0;
  size_t highest = 0;
  for (size_t i = 0; i < course->steps.size(); ++i) {
    const CourseStep& step = course->steps[i];
    const CoursePiece& piece = course->pieces[step.piece];
    const auto bytes = static_cast<int64_t>(piece.bytes + piece.rounding_bytes);
    now += step.begins ? bytes : -bytes;
    if (now > static_cast<int64_t>(course->peak_bytes)) {
      course->peak_bytes = static_cast<uint64_t>(now);
      highest = i;
    }
  }
  for (size_t i = 0; i <= highest && i < course->steps.size(); ++i) {
    const CourseStep& step = course->steps[i];
    const CoursePiece& piece = course->pieces[step.piece];
    const double sign = step.begins ? 1 : -1;
    course->categories[tables::ToWord(piece.category)] += sign * static_cast<double>(piece.bytes);
    course->categories[tables::ToWord(Category::kRounding)] +=
        sign * static_cast<double>(piece.rounding_bytes);
    if (i == highest)
      course->phase = piece.phase;
  }
}

util::Result<tables::AccountId> FindAccount(const tables::Recording& recording, Course* course) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const LargestAccount largest, FindLargestAccount(recording));
  if (largest.bytes == 0) {
    return util::Status::Error(
        tables::IsSampled(recording)
            ? "was sampled, and has no allocations: record the program with `vramscope run`"
            : "nothing was allocated in this recording: `vramscope run --cpu` records CPU tensors");
  }
  const tables::Tables& tables = recording.tables();
  const tables::AccountRow& account = RowOf(tables.accounts, largest.account);
  course->processes = largest.processes;
  course->process = account.process;
  course->device = account.device;
  course->kind = RowOf(tables.devices, course->device).kind;
  course->outside_bytes = largest.bytes;
  return largest.account;
}

util::Result<CourseWindow> FindWindow(const tables::Recording& recording,
                                      tables::AccountId account,
                                      Course* course) {
  CourseWindow window{account};
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<Iteration> all, FindIterations(recording));
  std::vector<const Iteration*> own;
  for (const Iteration& iteration : all) {
    if (iteration.process == course->process && iteration.device == course->device)
      own.push_back(&iteration);
  }
  window.iterations = static_cast<int64_t>(own.size());
  if (own.empty())
    return window;
  for (const Iteration* iteration : own)
    course->outside_bytes = std::max(course->outside_bytes, iteration->peak_allocated);
  const Iteration* const best = *std::max_element(
      own.begin() + (own.size() > 1 ? 1 : 0), own.end(),
      [](const auto* a, const auto* b) { return a->peak_allocated < b->peak_allocated; });
  window.span = {best->begin_ns, best->end_ns};
  window.iteration = best->number;
  return window;
}

// What the allocator and the driver keep beside what is allocated, at the highest instant.
util::Status AddBeside(const tables::Recording& recording,
                       const CourseWindow& window,
                       Course* course) {
  const tables::Tables& tables = recording.tables();
  VRAMSCOPE_ASSIGN_OR_RETURN(
      const auto peaks,
      FindPeaks(recording, std::vector<TimeSpan>(tables.devices.size(), window.span),
                [&](tables::ProcessId process) { return process == course->process; }));
  VRAMSCOPE_ASSIGN_OR_RETURN(const LiveSet live, ReadLiveSet(recording, AtPeaks(tables, peaks)));
  const AllocatedRule rule(tables);
  uint64_t reserved = 0;
  ForEachLeaf(recording, live, [&](const Leaf& leaf) {
    if (leaf.process != course->process || leaf.device != course->device)
      return;
    if (rule.IsReserved(leaf.site))
      reserved += leaf.bytes;
    else if (!rule.IsAllocated(leaf.site))
      course->driver_bytes += leaf.bytes;
  });
  course->cached_bytes = reserved - std::min(reserved, course->peak_bytes);
  return {};
}

}  // namespace

util::Result<Course> ReadCourse(const tables::Recording& recording) {
  Course course;
  VRAMSCOPE_ASSIGN_OR_RETURN(const tables::AccountId account, FindAccount(recording, &course));
  VRAMSCOPE_ASSIGN_OR_RETURN(const CourseWindow window, FindWindow(recording, account, &course));
  course.iteration = window.iteration;
  course.iterations = window.iterations;
  VRAMSCOPE_RETURN_IF_ERROR(CourseReader(recording, account).Read(window.span, &course));
  OrderSteps(window.span.to_ns, &course);
  MeasurePeak(&course);
  if (course.kind == DeviceKind::kGpu)
    VRAMSCOPE_RETURN_IF_ERROR(AddBeside(recording, window, &course));
  return course;
}

}  // namespace vramscope::query
