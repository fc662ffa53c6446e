// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "format/memory_words.h"
#include "trace/trace.h"

namespace vramscope::resolve {

using format::Phase;

// What the frames of one stack say. docs/NAMES.md has the rules.
struct StackFacts {
  tables::StackId module;       // the innermost entry whose frame runs a module's method; 0: none
  Phase phase = Phase::kOther;  // kOther: the frames do not tell
  bool module_inside : 1 = false;  // that module runs inside of the frame that decided the phase
  bool user_inside : 1 = false;    // the user's own code runs inside of that frame
  bool in_backward : 1 = false;    // a backward's frame is somewhere in the stack
  bool in_step : 1 = false;        // an optimizer's frame is
  bool checkpoint : 1 = false;     // a checkpoint's own backward is, which runs a graph of its own
  bool communication : 1 = false;  // torch.distributed's own code runs, not what it calls
  bool collective : 1 = false;     // and it is a collective operation's
  bool workspace : 1 = false;      // native: a library's scratch memory
};

// Answers by stack id. Each stack is looked at once: its facts are those of its caller's stack and
// what one more frame changes.
class StackFactsTable {
 public:
  explicit StackFactsTable(const trace::Trace& trace) : trace_(trace) {}

  const StackFacts& Of(tables::StackId stack) {
    if (stack.value < known_.size() && known_[stack.value])
      return facts_[stack.value];
    return Find(stack);
  }

 private:
  // What a frame says by itself.
  enum class FrameSays : uint8_t {
    kNotAsked,
    kNothing,
    kUser,
    kBackward,
    kCheckpoint,
    kOptimizer,
    kLoad,
    kSetUp,  // a module's method that only builds or moves it
    kCommunication,
    kCollective,
    kWorkspace,
    kGenerated,  // PyTorch's compilers wrote it
  };

  const StackFacts& Find(tables::StackId stack);
  FrameSays SaysOf(tables::FrameId frame);
  FrameSays Ask(const tables::FrameRow& frame) const;
  void Extend(StackFacts& facts, tables::StackId stack);

  const trace::Trace& trace_;
  std::vector<StackFacts> facts_;
  std::vector<bool> known_;
  std::vector<FrameSays> frames_;
  std::vector<tables::StackId> pending_;
};

}  // namespace vramscope::resolve
