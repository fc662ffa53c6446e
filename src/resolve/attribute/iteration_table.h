// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tables/rows.h"
#include "trace/trace.h"

namespace vramscope::resolve {

// When a process's iterations begin and end. Iteration k is (end of k-1, end of k]; the first one
// begins at `begin_ns`.
struct ProcessIterations {
  int64_t begin_ns = 0;
  std::vector<int64_t> ends_ns;  // ascending
  int64_t first = 0;             // number of the iteration that ends at ends_ns[0]
  tables::IterationsBy by = tables::IterationsBy::kSteps;

  bool empty() const { return ends_ns.empty(); }
  // One past the last number.
  int64_t count() const { return first + static_cast<int64_t>(ends_ns.size()); }
  int64_t BeginOf(int64_t number) const {
    return number == first ? begin_ns : ends_ns[static_cast<size_t>(number - first - 1)];
  }
  int64_t EndOf(int64_t number) const { return ends_ns[static_cast<size_t>(number - first)]; }
};

// Finds the iterations of all processes. An iteration ends with a mark `iteration` if the program
// makes any; otherwise with the last optimizer step before the first optimizer steps again. Without
// optimizers, it ends when XLA's main program runs again: the one whose results have most bytes.
class IterationTable {
 public:
  explicit IterationTable(const trace::Trace& trace)
      : trace_(trace), processes_(trace.processes().size()) {}

  void OnFirstEvent(trace::ProcessId process, int64_t time_ns);
  void OnForward(trace::ProcessId process, int64_t time_ns);
  void On(const trace::EventContext& at, const trace::Step& e);
  // True if the mark ends an iteration.
  bool OnMark(const trace::EventContext& at, const trace::Mark& e);
  void On(const trace::EventContext& at, const trace::XlaBlock& e);
  // Until now, only what a ring keeps of the process is recorded. The event has the number of
  // iterations that ended before.
  void On(const trace::EventContext& at, const trace::Past& e);
  // Call after all events and before of().
  void Finish();

  const ProcessIterations& of(trace::ProcessId process) const;
  // Classes of all optimizers that stepped, over all processes.
  const std::set<std::string, std::less<>>& optimizers() const { return optimizers_; }

 private:
  struct Step {
    uint64_t optimizer = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;  // 0: under way
  };
  // A program of XLA's.
  struct Program {
    uint64_t result_bytes = 0;
    std::vector<int64_t> runs_ns;  // the first result of each execution
  };
  struct ProcessSteps {
    std::optional<int64_t> first_event_ns;
    std::optional<int64_t> first_forward_ns;
    std::vector<Step> steps;  // in order of their begin
    std::map<uint64_t, size_t> under_way;
    std::vector<int64_t> marks_ns;
    std::map<tables::StringId, Program> programs;
    int64_t run_ns = 0;  // the last execution, by the time of its record
    int64_t last_xla_ns = 0;
    std::optional<int64_t> past_ns;  // end of the last iteration that a ring dropped
    ProcessIterations result;
  };
  static std::vector<int64_t> EndsOf(const std::vector<Step>& steps);
  // Sets what the main program's executions say, if there is one.
  static void TakeProgram(ProcessSteps* process);

  const trace::Trace& trace_;
  std::vector<ProcessSteps> processes_;
  std::set<std::string, std::less<>> optimizers_;
};

}  // namespace vramscope::resolve
