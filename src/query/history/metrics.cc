// SPDX-License-Identifier: Apache-2.0
#include "query/history/metrics.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/parallel.h"
#include "query/core/residual.h"
#include "query/core/sweep.h"
#include "query/dimensions/cells.h"
#include "query/dimensions/iteration_times.h"
#include "query/dimensions/report.h"
#include "query/oom/out_of_memory.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

// By category, and of all.
constexpr size_t kSums = format::kCategoryCount + 1;
constexpr size_t kAll = format::kCategoryCount;

struct PeakOfSum {
  int64_t now = 0;
  int64_t highest = 0;
  bool changed = false;
};

// The highest bytes of each account, by category and of all.
class HighestSums : SweepSums<PeakOfSum> {
 public:
  HighestSums(const tables::Tables& tables, const Cells& cells) {
    items_.resize(tables.accounts.size() * kSums);
    for (const Cell& cell : cells.all()) {
      // Memory without device memory below it has no device.
      const bool counts = cell.device.value != 0 && cell.account.value < tables.accounts.size();
      const size_t first = (counts ? cell.account.value : 0) * kSums;
      cells_.push_back({static_cast<uint32_t>(first + static_cast<size_t>(cell.category)),
                        static_cast<uint32_t>(first + kAll)});
    }
    StartUnchanged();
  }

  void OnMove(uint32_t cell, int64_t bytes) {
    Add(cells_[cell].category, bytes);
    Add(cells_[cell].all, bytes);
  }

  void OnState(int64_t, int64_t) {
    LookAtChanged([](PeakOfSum& sum) {
      sum.highest = std::max(sum.highest, sum.now);
      return true;
    });
  }

  void Append(const HighestSums& later) {
    for (size_t i = 0; i < items_.size(); ++i)
      items_[i].highest = std::max(items_[i].highest, later.items_[i].highest);
  }

  uint64_t Of(size_t account, size_t sum) const {
    return static_cast<uint64_t>(items_[account * kSums + sum].highest);
  }

 private:
  struct SumsOfCell {
    uint32_t category = 0;
    uint32_t all = 0;
  };

  void Add(uint32_t sum, int64_t bytes) {
    items_[sum].now += bytes;
    Changed(sum);
  }

  std::vector<SumsOfCell> cells_;
};

util::Result<HighestSums> FindHighest(const tables::Recording& recording) {
  const Cells cells(recording);
  VRAMSCOPE_ASSIGN_OR_RETURN(auto parts,
                             SweepPieces(recording, cells, PiecesOf(recording, TimeSpan{}),
                                         HighestSums(recording.tables(), cells)));
  for (size_t i = 1; i < parts.size(); ++i)
    parts.front().Append(parts[i]);
  return std::move(parts.front());
}

struct Count {
  uint64_t allocations = 0;
  uint64_t bytes = 0;
};

// What each account has ever allocated.
util::Result<std::vector<Count>> CountAllocations(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  const AllocatedRule rule(tables);
  std::vector<uint32_t> account_of;  // by site; 0: does not count
  for (const tables::SiteRow& site : tables.sites) {
    const bool counts = rule.IsAllocated(site) && site.account.value < tables.accounts.size();
    account_of.push_back(counts ? site.account.value : 0);
  }
  std::vector<size_t> frames(recording.frame_count());
  std::iota(frames.begin(), frames.end(), size_t{0});
  uint64_t rows = 0;
  for (const size_t frame : frames)
    rows += recording.zone(frame).rows;
  std::vector<std::vector<Count>> counts(WorkersFor(rows),
                                         std::vector<Count>(tables.accounts.size()));
  const uint32_t wanted = tables::kBeginNs | tables::kAllocNs | tables::kBytes | tables::kSite;
  VRAMSCOPE_RETURN_IF_ERROR(ForEachFrame(
      recording, frames, wanted, counts.size(),
      [&](size_t worker, const tables::AllocationFrame& frame) {
        for (size_t i = 0; i < frame.rows; ++i) {
          // An allocation has another row from each change on.
          if (frame.begin_ns[i] != frame.alloc_ns[i] || frame.site[i] >= account_of.size())
            continue;
          Count& count = counts[worker][account_of[frame.site[i]]];
          ++count.allocations;
          count.bytes += frame.bytes[i];
        }
      }));
  for (size_t worker = 1; worker < counts.size(); ++worker) {
    for (size_t i = 0; i < counts[worker].size(); ++i) {
      counts[0][i].allocations += counts[worker][i].allocations;
      counts[0][i].bytes += counts[worker][i].bytes;
    }
  }
  return std::move(counts[0]);
}

class MetricsMaker {
 public:
  explicit MetricsMaker(const tables::Recording& recording)
      : recording_(recording),
        tables_(recording.tables()),
        live_(tables_.accounts.size() * kSums),
        growth_(live_.size()),
        failures_(tables_.accounts.size()) {}

  util::Result<Metrics> Make() {
    VRAMSCOPE_RETURN_IF_ERROR(ReadLive());
    VRAMSCOPE_RETURN_IF_ERROR(ReadGrowth());
    VRAMSCOPE_RETURN_IF_ERROR(ReadFailures());
    VRAMSCOPE_ASSIGN_OR_RETURN(const HighestSums highest, FindHighest(recording_));
    VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<Count> counts, CountAllocations(recording_));
    for (size_t account = 1; account < tables_.accounts.size(); ++account) {
      if (tables_.accounts[account].process.value != 0)
        AddAccount(account, highest, counts[account]);
    }
    AddResiduals();
    AddIterations();
    return std::move(out_);
  }

 private:
  size_t AccountOf(tables::ProcessId process, tables::DeviceId device) const {
    const auto found = std::find_if(
        tables_.accounts.begin() + 1, tables_.accounts.end(),
        [&](const auto& row) { return row.process == process && row.device == device; });
    return found == tables_.accounts.end() ? 0
                                           : static_cast<size_t>(found - tables_.accounts.begin());
  }

  util::Status ReadLive() {
    const AllocatedRule rule(tables_);
    VRAMSCOPE_ASSIGN_OR_RETURN(const Instants at,
                               ResolveInstant(recording_, Instant{Instant::Kind::kEnd, 0, 0, ""}));
    VRAMSCOPE_ASSIGN_OR_RETURN(const LiveSet live, ReadLiveSet(recording_, at));
    reserved_.resize(tables_.accounts.size());
    ForEachLeaf(recording_, live, [&](const Leaf& leaf) {
      const size_t account = AccountOf(leaf.process, leaf.device);
      live_[account * kSums + static_cast<size_t>(leaf.site.category)] += leaf.bytes;
      reserved_[account] += rule.IsReserved(leaf.site) ? leaf.bytes : 0;
    });
    return {};
  }

  util::Status ReadGrowth() {
    if (IterationTimes(tables_).count() == 0)
      return {};
    LeakOptions options;
    options.limit = SIZE_MAX;
    VRAMSCOPE_ASSIGN_OR_RETURN(const Leaks leaks, MakeLeaks(recording_, options));
    growth_is_known_ = leaks.IsJudged();
    for (const Growth& growth : leaks.growing) {
      const auto category = std::find_if(
          std::begin(format::kAllCategories), std::end(format::kAllCategories),
          [&](format::Category one) { return format::CategoryName(one) == growth.category; });
      if (category == std::end(format::kAllCategories))
        continue;
      growth_[AccountOf(growth.process, growth.device) * kSums + static_cast<size_t>(*category)] +=
          growth.bytes_per_iteration;
    }
    return {};
  }

  util::Status ReadFailures() {
    VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<Refusal> refusals, FindRefusals(recording_));
    for (const Refusal& refusal : refusals) {
      if (!refusal.served && refusal.account.value < failures_.size())
        ++failures_[refusal.account.value];
    }
    return {};
  }

  void AddAccount(size_t account, const HighestSums& highest, const Count& count) {
    AccountMetrics out;
    out.process = tables_.accounts[account].process;
    out.device = tables_.accounts[account].device;
    for (const format::Category category : format::kAllCategories) {
      const auto index = static_cast<size_t>(category);
      const uint64_t live_bytes = live_[account * kSums + index];
      const uint64_t peak_bytes = std::max(highest.Of(account, index), live_bytes);
      if (peak_bytes == 0)
        continue;
      CategoryMetrics row{category, live_bytes, peak_bytes, {}};
      if (growth_is_known_)
        row.growth = growth_[account * kSums + index];
      out.categories.push_back(row);
    }
    out.peak_bytes = highest.Of(account, kAll);
    out.reserved_bytes = reserved_[account];
    const bool is_sampled = tables::IsSampled(recording_);
    if (!is_sampled)
      out.failures = failures_[account];
    if (!is_sampled && !tables_.session.HasPast()) {
      out.allocations = count.allocations;
      out.allocated_bytes = count.bytes;
    }
    out_.accounts.push_back(std::move(out));
  }

  void AddResiduals() {
    // Rows that are made of the samples leave none.
    if (tables::IsSampled(recording_))
      return;
    for (uint32_t i = 1; i < tables_.devices.size(); ++i) {
      const DeviceSamples samples(tables_, tables::DeviceId{i});
      const bool is_used =
          std::any_of(out_.accounts.begin(), out_.accounts.end(),
                      [&](const AccountMetrics& account) { return account.device.value == i; });
      if (is_used && !samples.empty())
        out_.residual_bytes[tables::DeviceId{i}] =
            JudgeSample(*samples.all().back()).residual_bytes;
    }
  }

  void AddIterations() {
    const IterationTimes iterations(tables_);
    for (uint32_t i = 1; i < tables_.processes.size(); ++i) {
      const ProcessIterations& of = iterations.Of(tables::ProcessId{i});
      if (!of.empty())
        out_.iterations[tables::ProcessId{i}] = static_cast<uint64_t>(of.count());
    }
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  std::vector<uint64_t> live_;  // as HighestSums, by account and category
  std::vector<double> growth_;
  std::vector<uint64_t> reserved_;
  std::vector<uint64_t> failures_;
  bool growth_is_known_ = false;
  Metrics out_;
};

}  // namespace

util::Result<Metrics> MakeMetrics(const tables::Recording& recording) {
  return MetricsMaker(recording).Make();
}

}  // namespace vramscope::query
