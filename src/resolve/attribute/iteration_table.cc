// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/iteration_table.h"

#include <algorithm>
#include <string_view>

#include "format/enums.h"

namespace vramscope::resolve {

void IterationTable::OnFirstEvent(trace::ProcessId process, int64_t time_ns) {
  std::optional<int64_t>& first = processes_[process.value].first_event_ns;
  if (!first)
    first = time_ns;
}

void IterationTable::OnForward(trace::ProcessId process, int64_t time_ns) {
  std::optional<int64_t>& first = processes_[process.value].first_forward_ns;
  if (!first)
    first = time_ns;
}

void IterationTable::On(const trace::EventContext& at, const trace::Step& e) {
  ProcessSteps& process = processes_[at.process.value];
  const std::string_view name = trace_.string(e.name);
  if (!name.empty() && !optimizers_.contains(name))
    optimizers_.emplace(name);
  if (e.kind == format::StepKind::kBegin) {
    process.under_way[e.optimizer] = process.steps.size();
    process.steps.push_back({e.optimizer, at.time_ns, 0});
    return;
  }
  const auto begun = process.under_way.find(e.optimizer);
  if (e.kind != format::StepKind::kEnd || begun == process.under_way.end())
    return;
  process.steps[begun->second].end_ns = at.time_ns;
  process.under_way.erase(begun);
}

bool IterationTable::OnMark(const trace::EventContext& at, const trace::Mark& e) {
  const std::string_view name = trace_.string(e.name);
  if (name != "iteration" && !name.starts_with("iteration "))
    return false;
  processes_[at.process.value].marks_ns.push_back(at.time_ns);
  return true;
}

void IterationTable::On(const trace::EventContext& at, const trace::XlaBlock& e) {
  ProcessSteps& process = processes_[at.process.value];
  process.last_xla_ns = at.time_ns;
  if (e.kind != format::XlaBlockKind::kOutput)
    return;
  Program& program = process.programs[e.name];
  program.result_bytes += e.size;
  // The results of one execution are recorded together.
  if (process.run_ns == at.begin_ns)
    return;
  process.run_ns = at.begin_ns;
  program.runs_ns.push_back(at.time_ns);
}

void IterationTable::On(const trace::EventContext& at, const trace::Past& e) {
  ProcessSteps& process = processes_[at.process.value];
  constexpr uint64_t kMost = uint64_t{1} << 40;
  process.result.first = static_cast<int64_t>(std::min(e.iterations, kMost));
  if (e.by_marks != 0)
    process.result.by = tables::IterationsBy::kMarks;
  if (e.iterations != 0)
    process.past_ns = at.time_ns;
  // Earlier executions are known only if their results lived on.
  process.programs.clear();
}

// The leader is the first optimizer that steps. A round ends before the leader steps again. If
// another optimizer steps repeatedly after the leader's last step, it becomes the leader.
std::vector<int64_t> IterationTable::EndsOf(const std::vector<Step>& steps) {
  std::vector<int64_t> ends;
  std::map<uint64_t, size_t> first_of;
  std::map<uint64_t, size_t> last_of;
  for (size_t i = 0; i < steps.size(); ++i) {
    first_of.try_emplace(steps[i].optimizer, i);
    last_of[steps[i].optimizer] = i;
  }
  if (steps.empty())
    return ends;
  uint64_t leader = steps[0].optimizer;
  int64_t last_end_ns = steps[0].end_ns;
  for (size_t i = 1; i < steps.size(); ++i) {
    const Step& step = steps[i];
    bool leads = step.optimizer == leader;
    if (!leads && i > last_of[leader] && first_of[step.optimizer] == i &&
        last_of[step.optimizer] > i) {
      leader = step.optimizer;
      leads = true;
    }
    if (leads)
      ends.push_back(last_end_ns);
    last_end_ns = std::max(last_end_ns, step.end_ns);
  }
  ends.push_back(last_end_ns);
  return ends;
}

void IterationTable::TakeProgram(ProcessSteps* process) {
  constexpr size_t kFewestRuns = 3;
  const Program* main = nullptr;
  for (const auto& [name, program] : process->programs) {
    if (program.runs_ns.size() >= kFewestRuns &&
        (main == nullptr || program.result_bytes > main->result_bytes))
      main = &program;
  }
  if (main == nullptr)
    return;
  const std::vector<int64_t>& runs = main->runs_ns;
  ProcessIterations& result = process->result;
  result.by = tables::IterationsBy::kProgram;
  result.begin_ns = process->past_ns.value_or(runs.front() - 1);
  // What a ring dropped ended within an iteration.
  for (size_t i = process->past_ns ? 0 : 1; i < runs.size(); ++i)
    result.ends_ns.push_back(runs[i] - 1);
  // What follows the last execution may be something else.
  const int64_t interval_ns = runs.back() - runs[runs.size() - 2];
  result.ends_ns.push_back(std::min(process->last_xla_ns, runs.back() + interval_ns));
}

void IterationTable::Finish() {
  for (ProcessSteps& process : processes_) {
    ProcessIterations& result = process.result;
    // A step without an end was not completed.
    std::erase_if(process.steps, [](const Step& step) { return step.end_ns == 0; });
    if (!process.marks_ns.empty())
      result.by = tables::IterationsBy::kMarks;
    result.ends_ns =
        result.by == tables::IterationsBy::kMarks ? process.marks_ns : EndsOf(process.steps);
    if (result.ends_ns.empty()) {
      TakeProgram(&process);
      continue;
    }
    if (process.past_ns) {
      result.begin_ns = std::min(*process.past_ns, result.ends_ns.front());
      continue;
    }
    // Just before that event: an iteration excludes the instant at which it begins.
    result.begin_ns = process.first_event_ns.value_or(result.ends_ns.front()) - 1;
    if (process.first_forward_ns && *process.first_forward_ns < result.ends_ns.front())
      result.begin_ns = *process.first_forward_ns - 1;
    result.begin_ns = std::min(result.begin_ns, result.ends_ns.front());
  }
}

const ProcessIterations& IterationTable::of(trace::ProcessId process) const {
  static const ProcessIterations kNone;
  return process.value < processes_.size() ? processes_[process.value].result : kNone;
}

}  // namespace vramscope::resolve
