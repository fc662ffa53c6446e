// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "resolve/attribute/names.h"
#include "resolve/attribute/origin.h"
#include "resolve/attribute/stack_facts.h"
#include "trace/trace.h"

namespace vramscope::resolve {

// Follows what every process and thread is at, event by event, and decides what memory is for.
//
// Categories depend on how long memory lives: an activation is what the forward leaves behind when
// the next backward begins. So each process counts the ends of such times, memory remembers the
// count of its phase when it was allocated, and when it goes, a higher count says that it outlived
// them:
//
//   forward, other:  backwards begun      backward: backwards over      optimizer: steps over
class Phases {
 public:
  explicit Phases(const trace::Trace& trace);

  // Fills the origin of what was allocated there, names and category apart. `sequence` is a
  // BlockAlloc's; 0 of what is none.
  void OnAllocated(const trace::EventContext& at,
                   tables::StackId stack,
                   tables::StackId native,
                   uint64_t sequence,
                   Origin* origin);
  void On(const trace::EventContext& at, const trace::Step& e);
  // A name of PyTorch's for memory of that size.
  void OnName(trace::ProcessId process,
              format::NameKind kind,
              const Origin& origin,
              uint64_t size_bytes);
  // The main program ended: no backward is under way any more.
  void OnTeardown(trace::ProcessId process) { EndBackward(processes_[process.value]); }
  // Up to now there is of the process what a ring keeps.
  void On(const trace::EventContext& at, const trace::Past& e);
  // A mark that ends an iteration: so does its forward.
  void OnIteration(const trace::EventContext& at) { ThreadOf(at).in_forward = false; }

  // Decides the category of memory that the program frees now (`freed`), or keeps until its end or
  // that of the recording. Not `by_phase`, only its names and its stack can say what it is for.
  void Decide(trace::ProcessId process,
              const Names& names,
              bool freed,
              bool by_phase,
              uint64_t size_bytes,
              Origin* origin);
  // Whether memory that lives outlived the time that its phase is about.
  bool Outlived(trace::ProcessId process, const Origin& origin) const {
    return Outlived(processes_[process.value], origin);
  }
  // Whether anything told the phases of that process. If not, nothing is an input or temporary.
  bool Knows(trace::ProcessId process) const { return processes_[process.value].knows; }
  bool HasPython(trace::ProcessId process) const { return processes_[process.value].has_python; }

 private:
  // What ended so far of what memory can outlive.
  struct Ends {
    uint32_t backwards_begun = 0;
    uint32_t backwards_over = 0;
    uint32_t steps_over = 0;
  };
  // Origin::epoch of what the past of a ring keeps. Nothing counts so far.
  static constexpr uint32_t kLivedOn = UINT32_MAX;  // it outlived them
  static constexpr uint32_t kEndedWithin = UINT32_MAX - 1;
  static constexpr uint32_t kOfPast = UINT32_MAX - 2;  // not by then
  // The forward allocation after which autograd's next node number was `number`.
  struct Recorded {
    uint64_t number = UINT64_MAX;
    tables::StackId stack;
    tables::StringId scope;
    tables::ThreadId thread;
  };
  // Where an autograd thread is: the operator of the last node it evaluated.
  struct Operator {
    tables::StackId stack;
    tables::StringId scope;
  };
  struct ThreadState {
    uint64_t next_number = 0;
    bool has_number = false;
    bool in_forward = false;
    bool is_program = false;   // it ran forward, backward or optimizer of its own accord
    bool is_autograd = false;  // autograd's own thread: it evaluates nodes and nothing else
    uint32_t steps = 0;        // optimizer steps under way
    uint32_t backward = 0;     // the one that what follows is of
    Operator evaluated;
    Operator recomputed;  // the last module call inside of a backward
  };
  struct ProcessState {
    bool knows = false;
    bool unnamed = false;  // what is not of a phase can be a parameter as well as an input
    bool has_python = false;
    bool in_backward = false;
    bool in_optimizer = false;
    bool stepped = false;
    bool has_names = false;  // of parameters: then gradients have theirs, too
    uint32_t steps = 0;      // under way
    Ends ends;
    Ends past;                       // as they were where a ring's history begins
    uint64_t last_number = 0;        // the highest that a forward recorded
    ThreadState no_thread;           // events that name none
    std::vector<Recorded> recorded;  // by number, the latest of them
    // Of named gradients: the operator of the forward, and the size.
    std::set<std::pair<tables::StackId, uint64_t>> gradients;
    // If not, nothing is an activation.
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
  static void TakeOrigin(const trace::EventContext& at, Origin* origin);
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
  std::vector<uint8_t> said_;  // by string: the category that it names + 1, 0: not asked yet
};

}  // namespace vramscope::resolve
