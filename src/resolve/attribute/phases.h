// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "resolve/attribute/names.h"
#include "resolve/attribute/stack_facts.h"
#include "trace/trace.h"

namespace vramscope::resolve {

// What a mark that begins an engine's phase begins with, and how many phases are listed.
inline constexpr std::string_view kPhaseMark = "phase:";
inline constexpr size_t kMostEnginePhases = size_t{1} << 16;

// Follows the phase of each process and thread event by event, and decides the category of memory.
//
// Categories depend on how long memory lives: an activation is forward memory that is still live
// when the next backward begins. So each process counts the ends of its phases. Memory keeps the
// count at its allocation. A higher count at its free shows that it outlived the phase:
//
//   forward, other:  backwards begun      backward: backwards over      optimizer: steps over
class Phases {
 public:
  explicit Phases(const trace::Trace& trace);

  // Fills the origin of memory allocated at `at`, except names and category. `sequence` is a
  // BlockAlloc's, else 0.
  void OnAllocated(const trace::EventContext& at,
                   tables::StackId stack,
                   tables::StackId native,
                   uint64_t sequence,
                   Origin* origin);
  void On(const trace::EventContext& at, const trace::Step& e);
  // PyTorch named memory of that size.
  void OnName(trace::ProcessId process,
              format::NameKind kind,
              const Origin& origin,
              uint64_t size_bytes);
  // The main program ended, and with it any backward.
  void OnTeardown(trace::ProcessId process) { EndBackward(processes_[process.value]); }
  // Until now, only what a ring keeps of the process is recorded.
  void On(const trace::EventContext& at, const trace::Past& e);
  // An engine's phase began: it ends when the next of its process begins.
  struct EnginePhase {
    trace::ProcessId process;
    std::string name;  // empty: none
    int64_t begin_ns = 0;
  };
  // In the order of time. There is a limit to their number, and a count of those beyond it.
  const std::vector<EnginePhase>& engine_phases() const { return engine_phases_; }
  uint64_t unlisted_phases() const { return unlisted_phases_; }
  // A mark "phase:NAME" begins a phase, and from then on only marks do. "phase:" ends it.
  void On(const trace::EventContext& at, const trace::Mark& e);
  // A call that may take memory of the driver's, as a context does. An engine's first ones begin
  // its phase.
  void OnCall(const trace::EventContext& at, tables::StackId stack);
  // Live memory of the process lost its device memory, or got it back: an engine sleeps meanwhile.
  void OnUnbacked(trace::ProcessId process, int64_t bytes, int64_t time_ns);
  // A mark ended an iteration, and so its forward.
  void OnIteration(const trace::EventContext& at) { ThreadOf(at).in_forward = false; }

  // Decides the category of memory that the program frees now (`freed`) or keeps to the end.
  // Without `by_phase`, only names and the stack decide.
  void Decide(trace::ProcessId process,
              const Names& names,
              bool freed,
              bool by_phase,
              uint64_t size_bytes,
              Origin* origin);
  // Whether live memory outlived its phase.
  bool Outlived(trace::ProcessId process, const Origin& origin) const {
    return Outlived(processes_[process.value], origin);
  }
  // Whether any phase of that process is known. If not, no memory is an input or temporary.
  bool Knows(trace::ProcessId process) const { return processes_[process.value].knows; }
  bool HasPython(trace::ProcessId process) const { return processes_[process.value].has_python; }

 private:
  // Counts of the ended phases.
  struct Ends {
    uint32_t backwards_begun = 0;
    uint32_t backwards_over = 0;
    uint32_t steps_over = 0;
  };
  // Values of Origin::epoch for memory from before a ring's history, when counts are unknown.
  static constexpr uint32_t kLivedOn = UINT32_MAX;  // it outlived them
  static constexpr uint32_t kEndedWithin = UINT32_MAX - 1;
  static constexpr uint32_t kOfPast = UINT32_MAX - 2;  // not by then
  // A forward allocation, and autograd's next node number after it.
  struct Recorded {
    uint64_t number = UINT64_MAX;
    tables::StackId stack;
    tables::StringId scope;
    tables::ThreadId thread;
  };
  // The operator of the last node that an autograd thread evaluated.
  struct Operator {
    tables::StackId stack;
    tables::StringId scope;
  };
  struct ThreadState {
    uint64_t next_number = 0;
    bool has_number = false;
    bool in_forward = false;
    bool is_program = false;   // it ran a forward, backward or optimizer itself
    bool is_autograd = false;  // autograd's own thread, which only evaluates nodes
    bool records = false;      // it recorded a node since it last ran an engine
    uint32_t steps = 0;        // optimizer steps under way
    uint32_t backward = 0;     // number of the current backward
    Operator evaluated;
    Operator recomputed;  // the last module call inside a backward
  };
  struct ProcessState {
    bool knows = false;
    bool unnamed = false;  // memory outside of phases may be a parameter or an input
    bool has_python = false;
    bool in_backward = false;
    bool in_optimizer = false;
    bool stepped = false;
    bool has_names = false;       // parameters are named, so gradients are too
    uint32_t steps = 0;           // under way
    Phase engine = Phase::kNone;  // the current one of all threads
    Phase before_sleep = Phase::kNone;
    bool has_phase_marks = false;
    bool has_unlisted_phases = false;
    int64_t unbacked_bytes = 0;
    int64_t phase_begin_ns = INT64_MIN;
    Ends ends;
    Ends past;                       // at the begin of a ring's history
    uint64_t last_number = 0;        // the highest number that a forward recorded
    ThreadState no_thread;           // for events without a thread
    std::vector<Recorded> recorded;  // the latest, by number
    // Operator of the forward, and size, of named gradients.
    std::set<std::pair<tables::StackId, uint64_t>> gradients;
    // If not, no memory is an activation.
    bool trains() const { return stepped || ends.backwards_begun != 0; }
  };

  ThreadState& ThreadOf(const trace::EventContext& at);
  static Phase PhaseOf(trace::AutogradNode node,
                       const StackFacts& facts,
                       ProcessState& process,
                       ThreadState& thread);
  static void Record(const trace::EventContext& at,
                     tables::StackId stack,
                     uint64_t number,
                     ProcessState& process);
  void Join(const Operator& here,
            trace::AutogradNode node,
            const StackFacts& facts,
            const ProcessState& process,
            ThreadState& thread,
            Origin* origin);
  const Recorded* Find(const ProcessState& process, uint64_t number) const;
  static uint32_t CountOf(const Ends& ends, Phase phase);
  bool Outlived(const ProcessState& process, const Origin& origin) const;
  static void TakeOrigin(const trace::EventContext& at, Phase by_stack, Origin* origin);
  void Enter(trace::ProcessId process, Phase phase, int64_t time_ns);
  void AddEnginePhase(trace::ProcessId process, std::string_view name, int64_t time_ns);
  Phase EngineOf(const trace::EventContext& at,
                 const StackFacts& facts,
                 Phase phase,
                 ProcessState& process,
                 ThreadState& thread);
  static Category ByPhase(const ProcessState& process, bool kept, const Origin& origin);
  Category OfBackward(const ProcessState& process,
                      bool freed,
                      uint64_t size_bytes,
                      const Origin& origin) const;
  Category SaidBy(tables::StringId text);
  void EndBackward(ProcessState& process);
  void EndOptimizer(ProcessState& process);

  const trace::Trace& trace_;
  StackFactsTable facts_;
  std::vector<ProcessState> processes_;
  std::vector<ThreadState> threads_;
  std::vector<EnginePhase> engine_phases_;
  uint64_t unlisted_phases_ = 0;
  std::vector<uint8_t> said_;  // by string: the category that it names + 1; 0: not looked up yet
};

}  // namespace vramscope::resolve
