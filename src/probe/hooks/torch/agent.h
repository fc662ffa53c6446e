// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "probe/session/session.h"
#include "probe/stack/python/api.h"

// Shared by agent.cc, agent_builtins.cc and steps.cc. All of it is called with the GIL.
namespace vramscope::probe {

// Tells the agent of tensors that no known module has, a list; it looks for their modules. False
// if it did not run: it has only just done so, or another thread is in it. `*interrupted` is set
// where an exception of the program's (a signal handler's) is left to be passed on.
bool AgentSearch(Object tensors, bool* interrupted);

// Before a step, which may be one of those at which the agent looks at the buffers of all models.
// `*interrupted` as above.
void AgentBeforeStep(bool* interrupted);

// Calls a function of the agent's; `argument` may be null. A new reference, or null after an
// error. `*interrupted` as above.
Object AgentCall(Object function, Object argument, bool* interrupted);

// Whether anything is to be written now.
bool AgentMayRecord();

// Builtins: step_begin(optimizer), step_end(optimizer), called by hooks around Optimizer.step.
Object StepBegin(Object self, Object optimizer);
Object StepEnd(Object self, Object optimizer);
// name_optimizer(optimizer): its parameters, their gradients and its state, between two steps.
Object NameOptimizer(Object self, Object optimizer);
// watch_graphs(CUDAGraphTreeManager, function of tensors that a graph made, of those that are
// gone): whether it could.
Object WatchGraphs(Object self, Object const* values, ptrdiff_t count);
// gone_of(outputs that live: number -> address, the tensors that the compiler keeps, its weak
// references): a list of the numbers of those that are gone.
Object GoneOf(Object self, Object const* values, ptrdiff_t count);
// Makes what they need. False when Python is short of memory.
bool StepsPrepare();
// In a forked child.
void StepsForget();

// Shared by agent.cc, which runs the agent, and agent_builtins.cc, which serves it.

inline constexpr uint64_t kRestFactor = 100;  // after a run of 1 ms there is none for 100 ms

// Measures how long the agent works. A busy machine, where other threads run in between, makes no
// run long.
class WorkTime {
 public:
  void Start();
  int64_t ThreadNs() const;  // of this thread's own time, since Start()
  uint64_t Ticks() const;    // the same as ticks: a thread's clock may be coarse, they never are 0

 private:
  uint64_t ticks_ = 0;
  int64_t ns_ = 0;
  int64_t thread_ns_ = 0;
};

// Members that are not atomic are used under the GIL alone.
struct Agent {
  std::atomic<bool> asked{false};
  // Searches can be long: they rest by themselves, so that they keep nothing else waiting.
  // In ticks: an event may look again and again, and asking the system takes as long as an event.
  std::atomic<uint64_t> next_look{0}, next_search{0};
  // Looks for models that are being built have a share of their own, so that the first forward
  // never waits for them; so have scans of all that lives.
  std::atomic<uint64_t> next_building{0}, next_scan{0};
  // Before an optimizer's step, and now and then in a forward, the agent checks whether known
  // models have other tensors now. `next_check` counts steps.
  std::atomic<uint64_t> next_check{0}, next_walk{0};
  std::atomic<bool> walk_due{false};
  std::atomic<uint64_t> walk_rested{0};  // where memory with a name was freed: then at the latest
  WorkTime walk;
  uint64_t walk_gap = 1;  // grows while nothing is new
  long steps_to_check = 0;
  std::atomic<bool> look_asked{false};  // not only for a model that is being built
  std::atomic<int64_t> building_since_ns{0};
  WorkTime scan;
  int64_t scan_ns = INT64_MAX;             // of its thread's time, that the last one took
  uint64_t scanned = 0;                    // ticks of this run, which do not count in its own rest
  uint64_t scan_gap = 1;                   // grows while scans find nothing
  std::atomic<bool> module_wanted{false};  // a look was asked for because of one without a name
  std::atomic<bool> refused{false};        // memory, since the last look
  std::atomic<bool> moved{false};          // a module, since the last look that found none moving
  bool built = false;
  bool running = false;  // under the GIL, but a run may let go of it
  // From the end of a session until TorchLook() in the next one. Before, the memory that names are
  // for is not recorded: it is older than the recording.
  std::atomic<bool> held{false};
  std::atomic<bool> gradients_wanted{false};
  std::atomic<bool> survey_wanted{false};
  std::atomic<bool> pools_wanted{false};  // a graph was captured since private pools were looked at
  int runs = 0;
  int failures = 0;
  Object look = nullptr, search = nullptr, check = nullptr, last = nullptr;
  // The agent's dicts, by address: a weak reference, the root's address, the path below that.
  Object known = nullptr, roots = nullptr, paths = nullptr;
  Object watchers = nullptr;  // address -> what that weak reference calls
};
extern constinit Agent g_agent;

inline bool IsPast(const std::atomic<uint64_t>& ticks) {
  return Now() >= ticks.load(std::memory_order_relaxed);
}

// Writes a line about the recording itself.
void NoteRuntime(const char* key, const char* value, size_t size_bytes);

// A module is built or moved, or memory was refused.
void BeginBuilding(bool moves);

// Puts the functions that the agent calls into its globals, under their names.
bool PutBuiltins(Object globals);

}  // namespace vramscope::probe
