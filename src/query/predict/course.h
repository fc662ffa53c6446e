// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/memory_words.h"
#include "tables/recording.h"
#include "util/status.h"

// What an iteration of a recording allocates and frees, so that it can be run through again with
// other sizes.
namespace vramscope::query {

// Where memory comes from, from the narrowest to the widest: its stack and name, its layer, its
// category. Equal numbers are equal places in all recordings of a program. What passes is one
// category: another algorithm of a library may keep what was temporary.
enum Narrowness : uint8_t { kOfStack, kOfLayer, kOfCategory, kNarrownesses };

// An allocation, while nothing about it changed.
struct CoursePiece {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t alloc_ns = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;  // requested
  uint64_t rounding_bytes = 0;
  format::Category category = format::Category::kUnknown;
  format::Phase phase = format::Phase::kNone;
  std::array<uint64_t, kNarrownesses> places{};
};

// All pieces of one allocation.
struct CourseAllocation {
  uint32_t first_piece = 0;
  uint32_t end_piece = 0;
  uint64_t bytes = 0;  // its most
};

// A begin or an end of a piece, by time. What ends makes room first.
struct CourseStep {
  uint32_t piece = 0;
  bool begins = false;
};

using BytesOfCategories = std::array<double, format::kCategoryCount>;

struct Course {
  tables::ProcessId process;
  tables::DeviceId device;
  tables::DeviceKind kind = tables::DeviceKind::kCpu;
  std::optional<int64_t> iteration;  // none: of the whole recording
  int64_t iterations = 0;            // that the process has
  bool rounds = false;               // its allocator rounds sizes up
  uint64_t peak_bytes = 0;           // most allocated within it
  uint64_t outside_bytes = 0;        // most allocated at any time of the recording
  uint64_t cached_bytes = 0;         // of a caching allocator beyond the peak
  uint64_t driver_bytes = 0;
  uint64_t processes = 0;                      // that have memory of this kind
  format::Phase phase = format::Phase::kNone;  // of the peak
  BytesOfCategories categories{};              // at the peak
  std::vector<CoursePiece> pieces;             // by the time of their allocation
  std::vector<CourseAllocation> allocations;
  std::vector<CourseStep> steps;
};

// Of the process and device that had most, GPUs before CPU tensors: the iteration after the first
// one that had most, as optimizers make their state in the first. An error where nothing was
// allocated.
util::Result<Course> ReadCourse(const tables::Recording& recording);

}  // namespace vramscope::query
