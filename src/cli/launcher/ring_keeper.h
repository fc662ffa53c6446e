// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cli/launcher/worker.h"
#include "util/status.h"

namespace vramscope::cli {

// Keeps a live directory within a size (docs/RING.md): looks at what it takes of the disk, and has
// what is old folded by a process of its own. What goes wrong there harms neither the recording nor
// its program; the directory then grows as it does without a ring.
class RingKeeper {
 public:
  RingKeeper(std::string live_directory, uint64_t size_bytes);
  ~RingKeeper();
  RingKeeper(const RingKeeper&) = delete;
  RingKeeper& operator=(const RingKeeper&) = delete;

  void Start();
  // One that is under way is given up. Idempotent.
  void Stop() { worker_.Stop(); }
  // What the user should know, "" where there is nothing. After Stop().
  const std::string& note() const { return note_; }
  // "" or why it ended early. After Stop().
  const std::string& failure() const { return worker_.failure(); }

 private:
  void Loop();
  // False: it will not work the next time either.
  bool Look();

  const std::string live_directory_;
  const uint64_t size_bytes_;
  std::string note_;
  Worker worker_;
};

// What --ring says, or why it cannot be.
util::Result<uint64_t> ParseRing(const std::string& text);

}  // namespace vramscope::cli
