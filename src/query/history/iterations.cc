// SPDX-License-Identifier: Apache-2.0
// What each iteration of each process had at most and at its end, and the model's parameters.
#include "query/history/iterations.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "query/core/parallel.h"
#include "query/core/peaks.h"
#include "query/core/sweep.h"
#include "query/dimensions/iteration_times.h"
#include "query/dimensions/report.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;
using tables::AccountId;

// What is followed through an iteration: the categories by their numbers, then sums of rows.
constexpr size_t kTotalFigure = format::kCategoryCount;
constexpr size_t kAllocatedFigure = format::kCategoryCount + 1;
constexpr size_t kReservedFigure = format::kCategoryCount + 2;
constexpr size_t kBackwardFigure = format::kCategoryCount + 3;  // temporaries of backward
constexpr size_t kBeforeFigure = format::kCategoryCount + 4;    // of before the recording, unnamed
constexpr size_t kUsedFigure = format::kCategoryCount + 5;      // what Height compares
constexpr size_t kFigures = format::kCategoryCount + 6;
using Figures = std::array<int64_t, kFigures>;
constexpr uint32_t kAllFigures = (uint32_t{1} << kFigures) - 1;

uint64_t Positive(int64_t bytes) {
  return bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

// The figures that the bytes of a cell count in, as bits.
uint32_t FiguresOf(const Cell& cell) {
  const auto bit = [](size_t figure) { return uint32_t{1} << figure; };
  static_assert(kFigures <= 32);
  if (cell.unbacked_of.value != 0)
    return 0;
  uint32_t figures = bit(kTotalFigure) | bit(static_cast<size_t>(cell.category));
  if (cell.allocated)
    figures |= bit(kAllocatedFigure);
  if (cell.reserved)
    figures |= bit(kReservedFigure);
  if (IsUse(cell.part))
    figures |= bit(kUsedFigure);
  if (cell.part == Part::kBeforeRecording)
    figures |= bit(kBeforeFigure);
  if (cell.block && cell.category == Category::kTemporary && cell.backward)
    figures |= bit(kBackwardFigure);
  return figures;
}

// What one iteration of one account had.
struct Extent {
  bool open = false;  // it has begun: something is known of it
  Figures peak{};
  Figures end{};
  Height highest;
  int64_t peak_ns = 0;
  int64_t allocated_ns = 0;  // when most was allocated

  // A state within it, later than the one before. `risen`: the figures that may be higher now.
  void See(const Figures& now, uint32_t risen, int64_t time_ns) {
    See(now, risen, {now[kTotalFigure], now[kUsedFigure]}, time_ns);
  }
  void See(const Figures& now, uint32_t risen, const Height& height, int64_t time_ns) {
    if (!open || height > highest) {
      highest = height;
      peak_ns = time_ns;
    }
    if (!open || now[kAllocatedFigure] > peak[kAllocatedFigure])
      allocated_ns = time_ns;
    if (!open)
      peak = now;
    for (; risen != 0; risen &= risen - 1) {
      const auto figure = static_cast<size_t>(std::countr_zero(risen));
      peak[figure] = std::max(peak[figure], now[figure]);
    }
    open = true;
  }
  // The beginning of it.
  void Prepend(const Extent& earlier) {
    if (!earlier.open)
      return;
    if (!open || peak[kAllocatedFigure] <= earlier.peak[kAllocatedFigure])
      allocated_ns = earlier.allocated_ns;
    Extent all = earlier;
    if (open)
      all.See(peak, kAllFigures, highest, peak_ns);
    peak = all.peak;
    highest = all.highest;
    peak_ns = all.peak_ns;
    open = true;
  }
};

// Whatever an iteration finds counts for its peaks, too, from its first instant on.
class IterationTracker {
 public:
  IterationTracker(const tables::Tables& tables, const Cells& cells, const IterationTimes& times)
      : accounts_(tables.accounts.size()) {
    for (const Cell& cell : cells.all())
      cells_.push_back({cell.account.value, FiguresOf(cell)});
    for (size_t i = 0; i < accounts_.size(); ++i) {
      const ProcessIterations& of = times.Of(tables.accounts[i].process);
      if (tables.accounts[i].process.value != 0 && !of.empty())
        accounts_[i].times = &of;
    }
  }

  void OnMove(uint32_t cell, int64_t bytes) {
    const CellFacts& facts = cells_[cell];
    Account& account = accounts_[facts.account];
    if (account.times == nullptr)
      return;
    account.Add(facts.figures, bytes);
    account.used = true;
  }

  void OnTransfer(uint32_t from, uint32_t to, int64_t bytes) {
    const CellFacts& gives = cells_[from];
    const CellFacts& takes = cells_[to];
    Account& account = accounts_[gives.account];
    if (account.times == nullptr)
      return;
    account.Add(gives.figures & ~takes.figures, -bytes);
    account.Add(takes.figures & ~gives.figures, bytes);
    account.used = true;
  }

  void OnState(int64_t first_ns, int64_t last_ns) {
    for (Account& account : accounts_) {
      if (account.times != nullptr && (account.risen != 0 || last_ns >= account.until_ns))
        Look(&account, first_ns, last_ns);
    }
    last_ns_ = last_ns;
  }

  // What the piece of time before had. Iterations that were over by then are its.
  void Prepend(const IterationTracker& earlier) {
    for (size_t i = 0; i < accounts_.size(); ++i) {
      Account& account = accounts_[i];
      const Account& before = earlier.accounts_[i];
      account.used = account.used || before.used;
      const size_t over = std::min(before.over.size(), account.over.size());
      std::copy_n(before.over.begin(), over, account.over.begin());
      Extent& next = over < account.over.size() ? account.over[over] : account.under_way;
      next.Prepend(before.under_way);
    }
  }

  // By process, device and number.
  std::vector<Iteration> Take(const tables::Tables& tables) {
    std::vector<Iteration> out;
    for (size_t i = 1; i < accounts_.size(); ++i) {
      Account& account = accounts_[i];
      // Pairs of process and device that never held anything say nothing.
      if (!account.used)
        continue;
      // What is under way ends with the recording.
      Look(&account, last_ns_, INT64_MAX - 1);
      for (size_t number = 0; number < account.over.size(); ++number) {
        Iteration iteration = IterationOf(*account.times, number, account.over[number]);
        iteration.process = tables.accounts[i].process;
        iteration.device = tables.accounts[i].device;
        out.push_back(std::move(iteration));
      }
    }
    std::stable_sort(out.begin(), out.end(), [](const Iteration& a, const Iteration& b) {
      return a.process != b.process ? a.process < b.process : a.device < b.device;
    });
    return out;
  }

 private:
  struct CellFacts {
    uint32_t account;
    uint32_t figures;
  };
  struct Account {
    const ProcessIterations* times = nullptr;  // null: none
    Figures now{};
    uint32_t risen = kAllFigures;  // since the last look
    bool used = false;
    std::vector<Extent> over;      // by number, from the first that is known
    Extent under_way;              // the one after them, or the next
    int64_t until_ns = INT64_MIN;  // no iteration begins or ends before

    void Add(uint32_t figures, int64_t bytes) {
      risen |= bytes > 0 ? figures : 0;
      for (; figures != 0; figures &= figures - 1)
        now[static_cast<size_t>(std::countr_zero(figures))] += bytes;
    }
  };

  // The state lasted from first_ns to last_ns: in the iteration under way, or several.
  static void Look(Account* account, int64_t first_ns, int64_t last_ns) {
    const ProcessIterations& times = *account->times;
    const uint32_t risen = std::exchange(account->risen, 0);
    // Within the iteration under way, as most are.
    if (account->under_way.open && last_ns < account->until_ns) {
      account->under_way.See(account->now, risen, first_ns);
      return;
    }
    account->until_ns = INT64_MAX;
    for (auto number = times.first() + static_cast<int64_t>(account->over.size());
         number < times.count(); ++number) {
      const int64_t begin_ns = times.BeginOf(number);
      const int64_t end_ns = times.EndOf(number);
      account->until_ns = begin_ns + 1;
      if (last_ns <= begin_ns && last_ns < end_ns)
        return;
      // Otherwise it ended before the first allocation.
      if (end_ns >= first_ns || account->under_way.open) {
        account->under_way.See(account->now, risen,
                               std::max(first_ns, std::min(begin_ns + 1, end_ns)));
        account->until_ns = end_ns;
        if (last_ns < end_ns)
          return;
        account->under_way.end = account->now;
      }
      account->over.push_back(account->under_way);
      account->under_way = {};
    }
  }

  static Iteration IterationOf(const ProcessIterations& times,
                               size_t number,
                               const Extent& extent) {
    const Figures& peak = extent.peak;
    const Figures& end = extent.end;
    Iteration out;
    out.number = times.first() + static_cast<int64_t>(number);
    out.begin_ns = times.BeginOf(out.number);
    out.end_ns = times.EndOf(out.number);
    out.peak_ns = extent.open ? extent.peak_ns : out.begin_ns;
    out.peak_bytes = Positive(peak[kTotalFigure]);
    out.end_bytes = Positive(end[kTotalFigure]);
    out.peak_allocated = Positive(peak[kAllocatedFigure]);
    out.peak_allocated_ns = extent.open ? extent.allocated_ns : out.begin_ns;
    out.end_allocated = Positive(end[kAllocatedFigure]);
    out.peak_reserved = Positive(peak[kReservedFigure]);
    out.end_reserved = Positive(end[kReservedFigure]);
    out.backward_temporary_peak = Positive(peak[kBackwardFigure]);
    out.before_recording_peak = Positive(peak[kBeforeFigure]);
    for (size_t i = 0; i < format::kCategoryCount; ++i) {
      out.category_peak.push_back(Positive(peak[i]));
      out.category_end.push_back(Positive(end[i]));
    }
    return out;
  }

  std::vector<CellFacts> cells_;
  std::vector<Account> accounts_;
  int64_t last_ns_ = 0;
};

// One parameter's memory, its gradient's, or its optimizer state's.
enum Role : uint8_t { kParameter, kGradient, kState, kRoles };

std::optional<Role> RoleOf(const tables::SiteRow& site) {
  if (site.parameter.value == 0 || site.backing != 0)
    return std::nullopt;
  switch (site.category) {
    case Category::kParameter:
      return kParameter;
    case Category::kGradient:
      return kGradient;
    case Category::kOptimizerState:
      return kState;
    default:
      return std::nullopt;
  }
}

// Bytes that begin or end at an instant.
using Steps = std::vector<std::pair<int64_t, int64_t>>;

// The highest sum within (begin_ns, end_ns].
uint64_t HighestWithin(Steps steps, int64_t begin_ns, int64_t end_ns) {
  // At one instant what goes makes room first.
  std::sort(steps.begin(), steps.end());
  int64_t now = 0;
  int64_t highest = 0;
  for (const auto& [time_ns, bytes] : steps) {
    if (time_ns > end_ns)
      break;
    if (time_ns > begin_ns)
      highest = std::max(highest, now);
    now += bytes;
  }
  return Positive(std::max(highest, now));
}

// The parameters of each process's last iteration, by process and device, in the order in which
// they were allocated, which is the model's.
util::Result<std::vector<ParameterBytes>> FindParameters(const tables::Recording& recording,
                                                         const IterationTimes& times) {
  const tables::Tables& tables = recording.tables();
  struct Entry {
    int64_t order_ns = INT64_MAX;
    std::array<Steps, kRoles> steps;
  };
  using Key = std::tuple<AccountId, tables::StringId, tables::StringId>;  // module, parameter
  const auto span_of = [&](AccountId account) {
    TimeSpan span{INT64_MAX, INT64_MIN};
    if (account.value >= tables.accounts.size())
      return span;
    const ProcessIterations& of = times.Of(tables.accounts[account.value].process);
    if (!of.empty())
      span = {of.BeginOf(of.count() - 1), of.EndOf(of.count() - 1)};
    return span;
  };
  std::vector<std::optional<Role>> roles;
  std::vector<TimeSpan> spans;
  TimeSpan all{INT64_MAX, INT64_MIN};
  for (const tables::SiteRow& site : tables.sites) {
    roles.push_back(RoleOf(site));
    spans.push_back(span_of(site.account));
    if (!roles.back())
      continue;
    all.from_ns = std::min(all.from_ns, spans.back().from_ns);
    all.to_ns = std::max(all.to_ns, spans.back().to_ns);
  }
  std::vector<size_t> frames;
  uint64_t rows = 0;
  for (size_t i = 0; i < recording.frame_count(); ++i) {
    const tables::FrameZone& zone = recording.zone(i);
    if (zone.min_begin_ns > all.to_ns || zone.max_end_ns <= all.from_ns)
      continue;
    frames.push_back(i);
    rows += zone.rows;
  }
  std::vector<std::map<Key, Entry>> found(WorkersFor(rows));
  VRAMSCOPE_RETURN_IF_ERROR(ForEachFrame(
      recording, frames, tables::kAllColumns, found.size(),
      [&](size_t worker, const tables::AllocationFrame& frame) {
        for (size_t i = 0; i < frame.rows; ++i) {
          const uint32_t site = frame.site[i];
          if (site >= roles.size() || !roles[site] || frame.begin_ns[i] > spans[site].to_ns ||
              frame.end_ns[i] <= spans[site].from_ns)
            continue;
          const tables::SiteRow& row = tables.sites[site];
          Entry& entry = found[worker][{row.account, row.module, row.parameter}];
          if (*roles[site] == kParameter)
            entry.order_ns = std::min(entry.order_ns, frame.alloc_ns[i]);
          const auto bytes = static_cast<int64_t>(
              frame.bytes[i] - std::min(frame.bytes[i], frame.rounding_bytes[i]));
          Steps& steps = entry.steps[*roles[site]];
          steps.emplace_back(frame.begin_ns[i], bytes);
          if (frame.end_ns[i] != tables::kNever)
            steps.emplace_back(frame.end_ns[i], -bytes);
        }
      }));
  std::map<Key, Entry> entries;
  for (const std::map<Key, Entry>& part : found) {
    for (const auto& [key, entry] : part) {
      Entry& sum = entries[key];
      sum.order_ns = std::min(sum.order_ns, entry.order_ns);
      for (size_t role = 0; role < kRoles; ++role)
        sum.steps[role].insert(sum.steps[role].end(), entry.steps[role].begin(),
                               entry.steps[role].end());
    }
  }
  std::vector<std::pair<int64_t, ParameterBytes>> ordered;
  for (const auto& [key, entry] : entries) {
    const auto& [account_id, module, parameter] = key;
    const TimeSpan span = span_of(account_id);
    const auto highest = [&steps = entry.steps, &span](Role role) {
      return HighestWithin(steps[role], span.from_ns, span.to_ns);
    };
    const tables::AccountRow& account = tables.accounts[account_id.value];
    ordered.emplace_back(entry.order_ns,
                         ParameterBytes{std::string(recording.string(parameter)), account.process,
                                        account.device, highest(kParameter), highest(kGradient),
                                        highest(kState), std::string(recording.string(module))});
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.second.process, a.second.device, a.first) <
           std::tuple(b.second.process, b.second.device, b.first);
  });
  std::vector<ParameterBytes> out;
  for (auto& [order_ns, parameter] : ordered)
    out.push_back(std::move(parameter));
  return out;
}

}  // namespace

util::Result<std::vector<Iteration>> FindIterations(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  const IterationTimes times(tables);
  if (times.count() == 0)
    return std::vector<Iteration>();
  const Cells cells(recording);
  const std::vector<TimeSpan> pieces = PiecesOf(recording, {});
  VRAMSCOPE_ASSIGN_OR_RETURN(
      auto trackers, SweepPieces(recording, cells, pieces, IterationTracker(tables, cells, times)));
  for (size_t i = 1; i < trackers.size(); ++i)
    trackers[i].Prepend(trackers[i - 1]);
  return trackers.back().Take(tables);
}

util::Result<Iterations> MakeIterations(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  const IterationTimes times(tables);
  if (times.count() == 0) {
    return util::Status::Error("no iterations: " + WhatEndsIterations(recording));
  }
  Iterations out;
  VRAMSCOPE_ASSIGN_OR_RETURN(out.iterations, FindIterations(recording));
  VRAMSCOPE_ASSIGN_OR_RETURN(out.parameters, FindParameters(recording, times));
  constexpr const char* kSourceNames[] = {"optimizer steps", "marks", "profiler steps",
                                          "executions of XLA's main program"};  // IterationsBy
  std::set<size_t> sources;
  for (uint32_t i = 1; i < tables.processes.size(); ++i) {
    if (!times.Of(tables::ProcessId{i}).empty())
      sources.insert(std::min<size_t>(tables::ToWord(tables.processes[i].iterations_by),
                                      std::size(kSourceNames) - 1));
  }
  for (const size_t source : sources)
    out.source += (out.source.empty() ? "" : " and ") + std::string(kSourceNames[source]);
  return out;
}

}  // namespace vramscope::query
