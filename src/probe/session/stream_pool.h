// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vramscope::probe {

class Stream;

// Hands streams to threads and takes them back when threads end. Bounded: kMaxStreams at once.
class StreamPool {
 public:
  static constexpr uint32_t kMaxStreams = 4096;

  static void Load();
  // A stream of this recording for the calling thread, with a Thread record written; nullptr beyond
  // the bound. `old`: the thread's stream of an ended recording, or nullptr.
  static Stream* Take(Stream* old);
  // Another stream for the calling thread, for one event inside of another, and its return.
  static Stream* Borrow();
  static void GiveBack(Stream* stream);
  // In a forked child: the streams are the parent's.
  static void ForgetAll();

 private:
  static Stream* Find(Stream* old, bool is_owner);
  static void ThreadEnds(void* stream);
};

}  // namespace vramscope::probe
