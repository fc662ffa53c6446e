// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// A stretch of time: after from_ns, up to and with to_ns.
struct TimeSpan {
  int64_t from_ns = INT64_MIN;
  int64_t to_ns = INT64_MAX;
  friend bool operator==(const TimeSpan&, const TimeSpan&) = default;
};

// A row of `allocations` that begins or ends.
struct Change {
  int64_t time_ns = 0;
  uint64_t bytes = 0;
  uint64_t rounding_bytes = 0;
  uint32_t site : 31 = 0;
  uint32_t ends : 1 = 0;
  uint32_t segment = 0;
};

// All changes within a span, in order of time, window by window: memory holds one window and the
// ends of the rows that were read and go on, and nothing is sorted but a window. While one window
// is looked at, a second thread makes the next.
class ChangeStream {
 public:
  ChangeStream(const tables::Recording& recording, TimeSpan span);
  ~ChangeStream();
  ChangeStream(const ChangeStream&) = delete;
  ChangeStream& operator=(const ChangeStream&) = delete;

  // The next window's; empty behind the last. Holds until the next call.
  util::Result<std::span<const Change>> Next();

 private:
  struct Window {
    util::Status status;
    std::vector<Change> changes;
  };

  void PlanWindows();
  Window Make(size_t window);
  util::Status ReadFrame(size_t frame);
  void Push(const Change& change, size_t* hint);

  const tables::Recording& recording_;
  TimeSpan span_;
  std::vector<size_t> frames_;  // that have changes within the span, by their first
  size_t next_frame_ = 0;
  std::vector<int64_t> last_ns_;              // by window: the last instant that is in it
  std::vector<std::vector<Change>> pending_;  // by window: what was read of it so far
  size_t made_ = 0;
  tables::AllocationFrame frame_;
  Window current_;
  std::future<Window> next_;
};

}  // namespace vramscope::query
