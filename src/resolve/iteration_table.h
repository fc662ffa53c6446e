// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace vramscope::resolve {

// Where a process's iterations begin and end. Iteration k is (end of k-1, end of k]; the first one
// begins at `begin_ns`.
struct ProcessIterations {
  int64_t begin_ns = 0;
  std::vector<int64_t> ends_ns;  // ascending
  bool by_marks = false;         // marks named `iteration`, not optimizer steps

  bool empty() const { return ends_ns.empty(); }
  int64_t count() const { return static_cast<int64_t>(ends_ns.size()); }
  int64_t BeginOf(int64_t number) const {
    return number == 0 ? begin_ns : ends_ns[static_cast<size_t>(number - 1)];
  }
  int64_t EndOf(int64_t number) const { return ends_ns[static_cast<size_t>(number)]; }
  // The iteration that an instant is in: -1 before the first, count() after the last. Only where
  // there are some.
  int64_t NumberAt(int64_t time_ns) const;
};

// Finds the iterations of all processes. An iteration ends with the last optimizer step before the
// first optimizer steps again, or with a mark `iteration` where the program makes some.
class IterationTable {
 public:
  explicit IterationTable(const trace::Trace& trace)
      : trace_(trace), processes_(trace.processes().size()) {}

  void OnFirstEvent(trace::ProcessId process, int64_t time_ns);
  void OnForward(trace::ProcessId process, int64_t time_ns);
  void OnStep(const trace::Event& event);
  // True if the mark ends an iteration.
  bool OnMark(const trace::Event& event);
  // After all events, before what follows.
  void Finish();

  const ProcessIterations& of(trace::ProcessId process) const;
  // Of any process.
  bool any() const;

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
    ProcessIterations result;
  };
  static std::vector<int64_t> EndsOf(const std::vector<Step>& steps);

  const trace::Trace& trace_;
  std::vector<ProcessSteps> processes_;
};

}  // namespace vramscope::resolve
