// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace vramscope::resolve {

// Where a process's iterations begin and end. Iteration k is (end of k-1, end of k]; the first one
// begins at `begin_ns`.
struct ProcessIterations {
  int64_t begin_ns = 0;
  std::vector<int64_t> ends_ns;  // ascending
  int64_t first = 0;             // the number of the first one that is kept: ends_ns begins with it
  bool by_marks = false;         // marks named `iteration`, not optimizer steps

  bool empty() const { return ends_ns.empty(); }
  // Behind the last one's number.
  int64_t count() const { return first + static_cast<int64_t>(ends_ns.size()); }
  int64_t BeginOf(int64_t number) const {
    return number == first ? begin_ns : ends_ns[static_cast<size_t>(number - first - 1)];
  }
  int64_t EndOf(int64_t number) const { return ends_ns[static_cast<size_t>(number - first)]; }
};

// Finds the iterations of all processes. An iteration ends with the last optimizer step before the
// first optimizer steps again, or with a mark `iteration` where the program makes some.
class IterationTable {
 public:
  explicit IterationTable(const trace::Trace& trace)
      : trace_(trace), processes_(trace.processes().size()) {}

  void OnFirstEvent(trace::ProcessId process, int64_t time_ns);
  void OnForward(trace::ProcessId process, int64_t time_ns);
  void On(const trace::EventContext& at, const trace::Step& e);
  // True if the mark ends an iteration.
  bool OnMark(const trace::EventContext& at, const trace::Mark& e);
  // Up to now there is of the process what a ring keeps; the event says how many had ended.
  void On(const trace::EventContext& at, const trace::Past& e);
  // After all events, before what follows.
  void Finish();

  const ProcessIterations& of(trace::ProcessId process) const;
  // The classes that stepped, of all processes.
  const std::set<std::string, std::less<>>& optimizers() const { return optimizers_; }

 private:
  struct Step {
    uint64_t optimizer = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;  // 0: under way
  };
  struct ProcessSteps {
    std::optional<int64_t> first_event_ns;
    std::optional<int64_t> first_forward_ns;
    std::vector<Step> steps;  // in order of their begin
    std::map<uint64_t, size_t> under_way;
    std::vector<int64_t> marks_ns;
    std::optional<int64_t> past_ns;  // the end of the last one that a ring does not keep
    ProcessIterations result;
  };
  static std::vector<int64_t> EndsOf(const std::vector<Step>& steps);

  const trace::Trace& trace_;
  std::vector<ProcessSteps> processes_;
  std::set<std::string, std::less<>> optimizers_;
};

}  // namespace vramscope::resolve
