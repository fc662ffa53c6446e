// SPDX-License-Identifier: Apache-2.0
// What each phase of an inference engine took and left.
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "query/core/sweep.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/report.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

constexpr char kNoPhase[] = "(no phase)";
constexpr char kNoLine[] = "(no Python code)";

// What one phase of an account had.
struct PhaseTotals {
  std::array<int64_t, format::kCategoryCount> left{};
  int64_t peak = 0;
  int64_t peak_ns = 0;
  size_t begun = 0;  // stretches that had begun at the peak
  bool seen = false;
};

// The stretches of a process, by time: each lasts until the next.
struct Stretch {
  int64_t begin_ns = 0;
  uint32_t name = 0;  // of Process::names
};
struct Process {
  std::vector<std::string> names = {kNoPhase};
  std::vector<uint64_t> counts = {0};
  std::vector<int64_t> durations_ns = {0};
  std::vector<Stretch> stretches;
  int64_t begin_ns = 0;
  int64_t end_ns = tables::kNever;

  uint32_t NumberOf(std::string_view name) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end())
      return static_cast<uint32_t>(found - names.begin());
    names.emplace_back(name);
    counts.push_back(0);
    durations_ns.push_back(0);
    return static_cast<uint32_t>(names.size() - 1);
  }
};
using Processes = std::map<tables::ProcessId, Process>;

// A stretch that a table lists.
struct Listed {
  tables::ProcessId process;
  std::string name;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

std::vector<Listed> ListPhases(const tables::Recording& recording) {
  std::vector<Listed> listed;
  for (const tables::PhaseRow& row : recording.tables().phases)
    listed.push_back(
        {row.process, std::string(recording.string(row.name)), row.begin_ns, row.end_ns});
  return listed;
}

// An engine is a library itself: the innermost frame that is not PyTorch's, such as the one of
// `with torch.cuda.graph(...)`.
tables::FrameId CapturingFrame(const tables::Recording& recording,
                               const ShownStacks& stacks,
                               tables::StackId stack) {
  for (const tables::FrameId frame : stacks.Of(stack).frames) {
    const std::string_view file = recording.string(recording.tables().frames[frame.value].file);
    if (file.find("/torch/") == std::string_view::npos && Basename(file) != "contextlib.py")
      return frame;
  }
  return {};
}

// Captures of one batch size, or at one line, are one row.
std::vector<Listed> ListGraphs(const tables::Recording& recording) {
  const ShownStacks stacks(recording);
  std::vector<Listed> listed;
  for (const tables::GraphRow& row : recording.tables().graphs) {
    std::string name(recording.string(row.size));
    if (const tables::FrameId frame = CapturingFrame(recording, stacks, row.stack);
        name.empty() && frame.value != 0) {
      name = FormatFrame(recording, frame);
    }
    listed.push_back({row.process, name.empty() ? kNoLine : name, row.begin_ns, row.end_ns});
  }
  return listed;
}

// Those of a process follow each other.
Processes ReadProcesses(const tables::Recording& recording, const std::vector<Listed>& listed) {
  const tables::Tables& tables = recording.tables();
  Processes processes;
  for (const Listed& row : listed) {
    if (row.process.value == 0 || row.process.value >= tables.processes.size())
      continue;
    Process& process = processes[row.process];
    const tables::ProcessRow& of = tables.processes[row.process.value];
    process.begin_ns = of.begin_ns;
    process.end_ns = of.exit_ns != 0 ? of.exit_ns : tables::kNever;
    if (!process.stretches.empty()) {
      // A damaged file may have them in any order.
      if (row.begin_ns < process.stretches.back().begin_ns)
        continue;
      if (process.stretches.back().begin_ns == row.begin_ns)
        process.stretches.pop_back();
    }
    const uint32_t name = process.NumberOf(row.name);
    // Marked twice, it goes on.
    const bool goes_on = !process.stretches.empty() && process.stretches.back().name == name;
    if (!goes_on)
      process.stretches.push_back({row.begin_ns, name});
    if (row.end_ns < process.end_ns)
      process.stretches.push_back({row.end_ns, 0});
    process.counts[name] += goes_on ? 0 : 1;
    process.durations_ns[name] +=
        std::max<int64_t>(0, std::min(row.end_ns, process.end_ns) - row.begin_ns);
  }
  return processes;
}

class PhaseTracker {
 public:
  PhaseTracker(const tables::Tables& tables, const Cells& cells, const Processes& processes)
      : accounts_(tables.accounts.size()) {
    for (const Cell& cell : cells.all())
      cells_.push_back(
          {cell.account.value, static_cast<uint32_t>(cell.category), cell.unbacked_of.value == 0});
    for (size_t i = 1; i < accounts_.size(); ++i) {
      const auto found = processes.find(tables.accounts[i].process);
      if (found == processes.end())
        continue;
      accounts_[i].process = &found->second;
      accounts_[i].phases.resize(found->second.names.size());
    }
  }

  void OnMove(uint32_t cell, int64_t bytes) {
    const CellFacts& facts = cells_[cell];
    Account& account = accounts_[facts.account];
    if (account.process == nullptr || !facts.counts)
      return;
    account.moves[facts.category] += bytes;
    if (!std::exchange(account.changed, true))
      changed_.push_back(facts.account);
  }

  void OnState(int64_t from_ns, int64_t /*to_ns*/) {
    for (const uint32_t index : changed_) {
      Account& account = accounts_[index];
      account.changed = false;
      if (from_ns <= account.process->end_ns) {
        account.ComeTo(from_ns);
        account.Apply(from_ns);
      }
      account.moves = {};
    }
    changed_.clear();
  }

  // Phases without a change see what the one before them left.
  void Finish() {
    for (Account& account : accounts_) {
      if (account.process != nullptr)
        account.ComeTo(account.process->end_ns);
    }
  }

  const std::vector<PhaseTotals>& Of(size_t account) const { return accounts_[account].phases; }
  int64_t TotalOf(size_t account) const { return accounts_[account].total; }

 private:
  struct CellFacts {
    uint32_t account = 0;
    uint32_t category = 0;
    bool counts = false;
  };
  struct Account {
    const Process* process = nullptr;
    std::vector<PhaseTotals> phases;
    std::array<int64_t, format::kCategoryCount> moves{};
    int64_t total = 0;
    size_t next = 0;   // stretch
    size_t begun = 0;  // stretches
    uint32_t current = 0;
    bool changed = false;

    void See(int64_t time_ns) {
      PhaseTotals& phase = phases[current];
      if (phase.seen && phase.peak >= total)
        return;
      phase.seen = true;
      phase.peak = total;
      phase.peak_ns = time_ns;
      phase.begun = begun;
    }
    // At the instant at which a phase begins, only what changes then counts.
    void ComeTo(int64_t time_ns) {
      const std::vector<Stretch>& stretches = process->stretches;
      for (; next < stretches.size() && stretches[next].begin_ns <= time_ns; ++next) {
        current = stretches[next].name;
        begun = next + 1;
        const int64_t end_ns =
            next + 1 < stretches.size() ? stretches[next + 1].begin_ns : INT64_MAX;
        if (stretches[next].begin_ns < time_ns && stretches[next].begin_ns < end_ns && total != 0)
          See(stretches[next].begin_ns);
      }
    }
    void Apply(int64_t time_ns) {
      PhaseTotals& phase = phases[current];
      for (size_t i = 0; i < moves.size(); ++i) {
        phase.left[i] += moves[i];
        total += moves[i];
      }
      See(time_ns);
    }
  };

  std::vector<CellFacts> cells_;
  std::vector<Account> accounts_;
  std::vector<uint32_t> changed_;
};

// The value of `--NAME=X`, `--NAME X` or `NAME=X`, with dashes or underscores; 0: none.
double ShareOf(std::string_view command, std::string_view name) {
  std::string plain(command);
  std::replace(plain.begin(), plain.end(), '-', '_');
  const size_t at = plain.find(name);
  if (at == std::string::npos)
    return 0;
  size_t begin = at + name.size();
  while (begin < command.size() && (command[begin] == '=' || command[begin] == ' '))
    ++begin;
  double share = 0;
  const auto end = std::from_chars(command.data() + begin, command.data() + command.size(), share);
  return end.ec == std::errc() && share > 0 && share <= 1 ? share : 0;
}

constexpr const char* kBudgetOptions[] = {"gpu_memory_utilization", "mem_fraction_static",
                                          "free_gpu_memory_fraction"};

// The engine may run in a child of the process that has the option.
void AddBudgets(const tables::Recording& recording,
                const std::map<tables::DeviceId, uint64_t>& peaks,
                EnginePhases* out) {
  const tables::Tables& tables = recording.tables();
  for (const char* const option : kBudgetOptions) {
    for (uint32_t i = 1; i < tables.processes.size(); ++i) {
      const double share = ShareOf(recording.string(tables.processes[i].command), option);
      if (share == 0)
        continue;
      for (const auto& [device, peak] : peaks) {
        const tables::DeviceRow& row = RowOf(tables.devices, device);
        if (row.kind != tables::DeviceKind::kGpu || row.total_bytes == 0)
          continue;
        out->budgets.push_back({tables::ProcessId{i}, device, option, share,
                                static_cast<uint64_t>(share * static_cast<double>(row.total_bytes)),
                                peak});
      }
      break;
    }
  }
}

// What a process had in each of its stretches, and outside of them, on each device.
util::Result<std::vector<EnginePhase>> TakeStock(const tables::Recording& recording,
                                                 const std::vector<Listed>& listed) {
  const tables::Tables& tables = recording.tables();
  const Processes processes = ReadProcesses(recording, listed);
  std::vector<EnginePhase> stock;
  if (processes.empty())
    return stock;
  const Cells cells(recording);
  PhaseTracker tracker(tables, cells, processes);
  VRAMSCOPE_RETURN_IF_ERROR(Sweep(recording, cells, {INT64_MIN, INT64_MAX}, &tracker));
  tracker.Finish();
  for (const auto& [id, process] : processes) {
    for (size_t i = 1; i < tables.accounts.size(); ++i) {
      if (tables.accounts[i].process != id)
        continue;
      const std::vector<PhaseTotals>& phases = tracker.Of(i);
      for (size_t number = 0; number < phases.size(); ++number) {
        const PhaseTotals& totals = phases[number];
        if (!totals.seen)
          continue;
        EnginePhase entry;
        entry.process = id;
        entry.device = tables.accounts[i].device;
        entry.name = process.names[number];
        entry.count = process.counts[number];
        entry.duration_ns = process.durations_ns[number];
        entry.peak_bytes = static_cast<uint64_t>(std::max<int64_t>(0, totals.peak));
        entry.peak_ns = totals.peak_ns;
        const std::vector<Stretch>& stretches = process.stretches;
        entry.begin_ns =
            totals.begun == 0 ? process.begin_ns : stretches[totals.begun - 1].begin_ns;
        entry.end_ns =
            totals.begun < stretches.size() ? stretches[totals.begun].begin_ns : process.end_ns;
        for (const format::Category category : format::kAllCategories) {
          const int64_t bytes = totals.left[static_cast<size_t>(category)];
          if (bytes == 0)
            continue;
          entry.left_bytes += bytes;
          entry.left.push_back({format::CategoryName(category), bytes});
        }
        std::stable_sort(entry.left.begin(), entry.left.end(),
                         [](const PhaseChange& a, const PhaseChange& b) {
                           return std::abs(a.bytes) > std::abs(b.bytes);
                         });
        stock.push_back(std::move(entry));
      }
    }
  }
  return stock;
}

}  // namespace

util::Result<EnginePhases> MakePhases(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  if (tables.phases.empty() && tables.graphs.empty()) {
    return util::Status::Error(
        "no phase of an inference engine was seen: name them with vramscope.mark(\"phase:NAME\")");
  }
  EnginePhases out;
  VRAMSCOPE_ASSIGN_OR_RETURN(out.phases, TakeStock(recording, ListPhases(recording)));
  VRAMSCOPE_ASSIGN_OR_RETURN(out.graphs, TakeStock(recording, ListGraphs(recording)));
  // The rest of the run, and memory that is not of a GPU.
  std::erase_if(out.graphs, [&](const EnginePhase& graph) {
    return graph.count == 0 || RowOf(tables.devices, graph.device).kind != tables::DeviceKind::kGpu;
  });
  std::map<tables::DeviceId, uint64_t> peaks;
  for (const EnginePhase& phase : out.phases) {
    uint64_t& peak = peaks[phase.device];
    peak = std::max(peak, phase.peak_bytes);
  }
  AddBudgets(recording, peaks, &out);
  return out;
}

}  // namespace vramscope::query
