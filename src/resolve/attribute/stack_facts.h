// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "format/memory_words.h"
#include "resolve/attribute/owners.h"
#include "trace/event.h"
#include "trace/trace.h"

namespace vramscope::resolve {

using format::Phase;

// Facts from the frames of one stack. docs/NAMES.md has the rules.
struct StackFacts {
  tables::StackId module;          // innermost entry that runs a module's method; 0: none
  Phase phase = Phase::kOther;     // kOther: unknown from the frames
  bool module_inside : 1 = false;  // the module runs inside the frame that decided the phase
  bool user_inside : 1 = false;    // the user's code runs inside that frame
  bool in_backward : 1 = false;    // the stack has a backward's frame
  bool in_step : 1 = false;        // the stack has an optimizer's frame
  bool checkpoint : 1 =
      false;  // the stack has the backward of a checkpoint, which has its own graph
  bool communication : 1 = false;  // torch.distributed's own code runs, not code that it calls
  bool collective : 1 = false;     // the code of a collective operation
  bool workspace : 1 = false;      // a library's scratch memory
  bool of_library : 1 = false;     // `engine` holds for this stack alone
  // Of an inference engine (engines.def): the outermost frame's phase and the innermost's category.
  Phase engine = Phase::kNone;
  Category category = Category::kUnknown;
};

// Facts by stack id. Each stack is examined once: its facts are its caller's, changed by one more
// frame.
class StackFactsTable {
 public:
  explicit StackFactsTable(const trace::Trace& trace) : trace_(trace) {}

  const StackFacts& Of(tables::StackId stack) {
    if (stack.value < known_.size() && known_[stack.value])
      return facts_[stack.value];
    return Find(stack);
  }

 private:
  // What a single frame shows.
  enum class FrameSays : uint8_t {
    kNotAsked,
    kNothing,
    kUser,
    kBackward,
    kCheckpoint,
    kOptimizer,
    kLoad,
    kSetUp,  // a module's method that builds or moves the module
    kCommunication,
    kCollective,
    kWorkspace,
    kGenerated,  // written by PyTorch's compilers
  };

  const StackFacts& Find(tables::StackId stack);
  FrameSays SaysOf(tables::FrameId frame);
  FrameSays Ask(const tables::FrameRow& frame) const;
  const struct EngineFrame* EngineOf(tables::FrameId frame);
  void Extend(StackFacts& facts, tables::StackId stack);

  const trace::Trace& trace_;
  std::vector<StackFacts> facts_;
  std::vector<bool> known_;
  std::vector<FrameSays> frames_;
  std::vector<uint16_t> engine_frames_;  // by frame: number in the list + 2; 0: not asked, 1: none
  std::vector<tables::StackId> pending_;
};

// The purpose of memory by its stack or its allocator, independent of the phase.
enum class Purpose : uint8_t {
  kNone,
  kCommunication,
  kCollective,  // copies made by a collective operation, which are not gradients
  kWorkspace,
  kPrior,  // allocated before recording: only names show its purpose
  // Of XLA, where no name shows another one.
  kTemporary,  // of a running program
  kInput,      // copied from the host
  kResult,     // of a program
};

// Where memory comes from in the program. Its names and its category derive from this.
struct Origin {
  tables::StackId forward;  // for memory of a backward: the stack of the forward operator
  tables::StringId scope;
  uint32_t names = 0;                  // a set of Names
  uint32_t epoch = 0;                  // count of its phase at the allocation: see phases.h
  Phase phase = Phase::kOther;         // of a training
  Phase engine = Phase::kNone;         // of an inference engine
  Category made = Category::kUnknown;  // by an inference engine's function
  Purpose purpose = Purpose::kNone;
  // Set when its lifetime or the recording ends. The second is for processes whose phases are
  // unknown.
  Category category = Category::kUnknown;
  Category without_phases = Category::kUnknown;
  // Number of modules of the process that were destroyed by then. Modules are named by address, and
  // addresses are reused.
  uint32_t module_epoch = 0;

  Phase shown_phase() const { return engine != Phase::kNone ? engine : phase; }
};

}  // namespace vramscope::resolve
