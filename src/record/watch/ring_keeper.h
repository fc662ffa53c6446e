// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "record/watch/worker.h"
#include "util/status.h"

namespace vramscope::cli {

// Keeps a live directory within a size (docs/FORMAT.md): looks at what it takes of the disk, and has
// what is old compacted by a process of its own; where that takes too long, the oldest is dropped.
// What goes wrong there harms neither the recording nor its program; the directory then grows as it
// does without a ring.
class RingKeeper {
 public:
  RingKeeper(std::string live_directory, uint64_t size_bytes);
  ~RingKeeper();
  RingKeeper(const RingKeeper&) = delete;
  RingKeeper& operator=(const RingKeeper&) = delete;

  void Start();
  // A compaction that is under way is given up. Idempotent.
  void Stop() { worker_.Stop(); }
  // By how much the size was exceeded and why; "" where it was not. After Stop().
  std::string note();
  // "" or why it ended early. After Stop().
  const std::string& failure() const { return worker_.failure(); }

 private:
  struct Space {
    uint64_t live = 0;
    uint64_t past = 0;
    uint64_t total() const { return live + past; }
  };
  enum class Outcome : uint8_t { kDone, kStopped, kTooSlow, kHeld, kFailed };

  void Loop();
  Space Measure();
  // What is over three quarters of the ring is compacted, so that the rest is there while that is
  // done, down to a half: each byte then is looked at twice or so. Earlier where the program writes
  // so fast that a compaction would come too late. False: it will not work the next time either.
  bool Look();
  bool Compact(uint64_t to_bytes, uint64_t limit_bytes);
  bool Drop(uint64_t to_bytes);
  // Until the directory takes so much.
  Outcome Run(const std::vector<std::string>& words, uint64_t limit_bytes);
  std::chrono::nanoseconds Pause() const;

  const std::string live_directory_;
  const uint64_t size_bytes_;
  Space now_;
  double bytes_each_second_ = 0;  // by which it grew when it was looked at last
  std::chrono::steady_clock::time_point measured_;
  uint64_t high_bytes_ = 0;
  double compacted_each_second_ = 5e6;  // bytes, by the last compaction; before it a guess
  unsigned too_slow_ = 0;               // compactions in a row
  unsigned drops_only_ = 0;             // looks for which no compaction is tried
  std::vector<std::string> instants_;   // that the last compaction kept

  // For the note.
  uint64_t most_bytes_ = 0;
  uint64_t most_past_bytes_ = 0;
  bool was_held_ = false;
  std::string failed_;
  Worker worker_;
};

// What --ring says, or why it cannot be.
util::Result<uint64_t> ParseRing(const std::string& text);

}  // namespace vramscope::cli
