// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
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

// A row of `allocations` that begins or ends; what of its bytes is rounding comes as one more.
struct Change {
  struct What {
    uint32_t site : 30 = 0;
    uint32_t ends : 1 = 0;
    uint32_t is_rounding : 1 = 0;
    uint32_t segment = 0;
  };
  int64_t time_ns = 0;
  uint64_t bytes = 0;
  What what;
};
static_assert(sizeof(Change) == 24);

// All changes within a span, in order of time.
//
//   frames of allocations (by lifetime)     |---| |------| |--|
//                                              \     |     /
//   windows of time                         [    ][    ][    ][    ]   sorted one at a time
//                                             ^ Next() gives them one by one
//
// Sweep() reads it. Memory holds one window, and the ends of rows that were read and are still
// live. Each frame is read once. Nothing larger than a window is ever sorted.
class ChangeStream {
 public:
  ChangeStream(const tables::Recording& recording, TimeSpan span);
  ChangeStream(const ChangeStream&) = delete;
  ChangeStream& operator=(const ChangeStream&) = delete;

  // The next of them; empty behind the last. Holds until the next call.
  util::Result<std::span<const Change>> Next();

 private:
  // Where the last change of a kind went: the next ones mostly go there, too, if their times are in
  // (after_ns, last_ns].
  struct Place {
    size_t window = 0;
    int64_t after_ns = INT64_MAX;
    int64_t last_ns = INT64_MIN;
  };
  // Some changes of a window. Most windows hold a few for long, of rows that live on.
  struct Block {
    static constexpr uint32_t kChanges = 84;  // 2 KiB
    Block* next = nullptr;
    uint32_t count = 0;
    std::array<Change, kChanges> changes;
  };

  // What a row of a shape changes.
  struct Kind {
    uint64_t bytes = 0;
    uint64_t rounding_bytes = 0;
    Change::What what;
  };

  void PlanWindows();
  util::Status ReadFrame(size_t frame);
  void Push(int64_t time_ns, uint64_t bytes, Change::What what, Place* place);
  // False where that time is none of the span's.
  bool Find(int64_t time_ns, Place* place) const;
  Block* NewBlock(Block* next);
  // What a window has, in order, becomes current_.
  void TakeWindow(size_t window);

  const tables::Recording& recording_;
  TimeSpan span_;
  std::vector<size_t> frames_;  // that have changes within the span, by their first
  size_t next_frame_ = 0;
  int64_t first_ns_ = INT64_MAX;  // of what their zones say
  int64_t final_ns_ = INT64_MIN;
  std::vector<int64_t> last_ns_;  // by window: the last instant that is in it
  std::vector<Block*> pending_;   // by window: changes read so far
  std::deque<Block> blocks_;      // in use or spare
  Block* spare_ = nullptr;
  std::vector<uint32_t> bucket_ends_;
  size_t made_ = 0;  // windows before this one are over
  tables::AllocationFrame frame_;
  std::vector<Kind> kinds_;  // by shape of the frame
  std::vector<Change> current_;
  size_t current_count_ = 0;  // it only grows
};

}  // namespace vramscope::query
