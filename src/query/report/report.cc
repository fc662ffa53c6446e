// SPDX-License-Identifier: Apache-2.0
#include "query/dimensions/report.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "query/core/aggregator.h"
#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/peaks.h"
#include "query/core/residual.h"
#include "query/dimensions/dimensions.h"
#include "query/report/report_parts.h"

namespace vramscope::query {
namespace {

using tables::DeviceId;

// What the leaves of a device sum to.
struct DeviceTotals {
  uint64_t all = 0;  // of every leaf
  uint64_t allocated = 0;
  uint64_t reserved = 0;
  uint64_t matched = 0;         // of those that the conditions let through
  uint64_t unbacked_bytes = 0;  // the same of what has no device memory
  uint64_t unbacked_count = 0;
  std::map<tables::ProcessId, uint64_t> by_process;
};

bool IsPeak(Instant::Kind kind) {
  return kind == Instant::Kind::kPeak || kind == Instant::Kind::kAllocatedPeak ||
         kind == Instant::Kind::kOwnPeak;
}

class ReportMaker {
 public:
  ReportMaker(const tables::Recording& recording, const ReportQuery& query)
      : recording_(recording),
        tables_(recording.tables()),
        query_(query),
        texts_(recording, query.own),
        rule_(recording.tables()),
        iterations_(tables_),
        budget_(tables_.session.file_bytes, kTextBaseBytes, kTextBytesPerFileByte),
        aggregator_(recording, texts_, query, &budget_),
        unbacked_(recording, texts_, query, &budget_),
        tops_(recording, texts_, &budget_) {}

  util::Result<Report> Make() {
    report_.sampled = tables::IsSampled(recording_);
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto at, ResolveInstant(recording_, query_));
    VRAMSCOPE_ASSIGN_OR_RETURN(
        const auto live,
        ReadLiveSet(recording_, at, Aggregator::KeyOfRows(recording_, texts_, query_)));
    shown_ = ShownDevices(tables_);
    VRAMSCOPE_RETURN_IF_ERROR(FindOtherPeaks());
    ForEachLeaf(recording_, live, [&](const Leaf& leaf) { Add(leaf); });
    ForEachUnbackedLeaf(recording_, live, [&](const Leaf& leaf) { AddUnbacked(leaf); });
    for (const DeviceId device : shown_)
      AddDevice(device, at);
    report_.rows = aggregator_.Take();
    report_.unbacked = unbacked_.Take();
    TakeUnbackedCategories();
    tops_.MoveTo(&report_);
    if (query_.where.empty() && IsPeak(query_.at.kind)) {
      VRAMSCOPE_ASSIGN_OR_RETURN(report_.cached, FindCached(recording_, at, live));
    }
    VRAMSCOPE_ASSIGN_OR_RETURN(report_.overflow, FindOverflow(recording_));
    VRAMSCOPE_ASSIGN_OR_RETURN(report_.open_memory, MakeOpenMemory(recording_, &at));
    VRAMSCOPE_ASSIGN_OR_RETURN(report_.kept_memory, MakeOpenMemory(recording_, nullptr));
    report_.host_memory = MakeHostMemory(recording_);
    report_.nvtx_counters = MakeNvtxCounters(recording_);
    VRAMSCOPE_ASSIGN_OR_RETURN(report_.unbacked_peaks, FindUnbackedPeaks(recording_));
    for (const tables::LossRow& loss : tables_.losses)
      report_.losses.push_back({Text(loss.name), loss.count, loss.bytes});
    if (budget_.IsOver())
      return budget_.Refusal(tables_.session.path);
    report_.unexplained = FindUnexplained(recording_);
    DeviceSums peak_sums;
    for (const DeviceId device : shown_) {
      if (query_.at.kind == Instant::Kind::kPeak)
        peak_sums.emplace_back(device, totals_[device].all);
    }
    VRAMSCOPE_RETURN_IF_ERROR(CheckInvariants(recording_, peak_sums, &report_));
    return std::move(report_);
  }

 private:
  std::string Text(tables::StringId id) {
    const std::string_view text = recording_.string(id);
    return std::string(budget_.Charge("bytes of names", text.size()) ? text : "");
  }

  void Add(const Leaf& leaf) {
    if (std::find(shown_.begin(), shown_.end(), leaf.device) == shown_.end())
      return;
    DeviceTotals& totals = totals_[leaf.device];
    totals.all += leaf.bytes;
    totals.allocated += rule_.IsAllocated(leaf.site) ? leaf.bytes : 0;
    totals.reserved += rule_.IsReserved(leaf.site) ? leaf.bytes : 0;
    if (!aggregator_.Add(leaf))
      return;
    tops_.Add(leaf);
    totals.matched += leaf.bytes;
    // NVML counts the UVM driver's memory in no process.
    if (!format::IsOfUvm(leaf.site.part))
      totals.by_process[leaf.process] += leaf.bytes;
  }

  // The peaks beside the query's instant: of what is allocated, and of what the conditions select.
  util::Status FindOtherPeaks() {
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto allocated, AllocatedPeaks(recording_));
    for (const tables::PeakRow& peak : allocated)
      allocated_peaks_[peak.device] = {peak.bytes, peak.time_ns};
    const bool by_row = std::any_of(
        query_.where.begin(), query_.where.end(),
        [](const ReportQuery::Where& where) { return DimensionValues::IsOfRows(where.dimension); });
    if (query_.SelectsWholeDevices() || by_row || query_.at.kind != Instant::Kind::kPeak)
      return {};
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto own, FindOwnPeaks(recording_, query_));
    for (const tables::PeakRow& peak : own)
      own_peaks_[peak.device] = {peak.bytes, peak.time_ns};
    return {};
  }

  void AddUnbacked(const Leaf& leaf) {
    if (std::find(shown_.begin(), shown_.end(), leaf.device) == shown_.end() ||
        !unbacked_.Add(leaf))
      return;
    CategoryEntry& sum = unbacked_sums_[{leaf.device, leaf.site.category}];
    sum.bytes += leaf.bytes;
    sum.count += leaf.count;
    totals_[leaf.device].unbacked_bytes += leaf.bytes;
    totals_[leaf.device].unbacked_count += leaf.count;
  }

  void TakeUnbackedCategories() {
    std::vector<CategoryEntry>& out = report_.unbacked_categories;
    for (auto& [key, entry] : unbacked_sums_) {
      entry.device = key.first;
      entry.category = format::CategoryName(key.second);
      out.push_back(std::move(entry));
    }
    std::stable_sort(out.begin(), out.end(), [](const CategoryEntry& a, const CategoryEntry& b) {
      return a.device != b.device ? a.device < b.device : a.bytes > b.bytes;
    });
  }

  // For `end` of several processes NVML's figure says something only if nothing moved between
  // their ends.
  std::optional<uint64_t> VersionAt(DeviceId device,
                                    const DeviceSamples& samples,
                                    const Instants& at) const {
    std::optional<uint64_t> version;
    for (const int64_t time_ns : at.OfDevice(tables_, device)) {
      const uint64_t then = samples.VersionAt(time_ns);
      if (version && *version != then)
        return std::nullopt;
      version = then;
    }
    return version;
  }

  void AddDevice(DeviceId device, const Instants& at) {
    const tables::DeviceRow& row = tables_.devices[device.value];
    DeviceTotals& totals = totals_[device];
    DeviceReport out;
    out.device = device;
    out.index = row.index;
    out.kind = row.kind;
    out.uuid = Text(row.uuid);
    out.name = Text(row.name);
    if (row.total_bytes != 0)
      out.total_bytes = row.total_bytes;
    out.at_kind = InstantKindName(query_.at.kind);
    // Where nothing ever happened, the begin.
    out.at_ns = tables_.session.begin_ns;
    for (const int64_t time_ns : at.OfDevice(tables_, device))
      out.at_ns = std::max(out.at_ns, time_ns);
    const DeviceSamples samples(tables_, device);
    const bool is_whole =
        query_.where.empty() || (query_.SelectsWholeDevices() && totals.matched > 0);
    const std::optional<uint64_t> version =
        is_whole ? VersionAt(device, samples, at) : std::nullopt;
    const tables::SampleRow* sample =
        version ? samples.At(*version, totals.all, out.at_ns) : nullptr;
    if (sample != nullptr) {
      out.nvml_bytes = sample->used_bytes;
      out.in_transit_bytes = JudgeSample(*sample).in_transit_bytes;
      if (out.in_transit_bytes > 0)
        AddInTransit(device, static_cast<uint64_t>(out.in_transit_bytes), &totals);
    }
    out.ledger_bytes = totals.matched;
    out.allocated_bytes = totals.allocated;
    out.reserved_bytes = totals.reserved;
    if (const auto found = allocated_peaks_.find(device); found != allocated_peaks_.end())
      out.allocated_peak = found->second;
    if (const auto found = own_peaks_.find(device); found != own_peaks_.end())
      out.own_peak = found->second;
    out.unbacked_bytes = totals.unbacked_bytes;
    out.unbacked_count = totals.unbacked_count;
    // Rows that are made of the samples leave none.
    if (sample != nullptr && !report_.sampled)
      out.residual_bytes =
          static_cast<int64_t>(sample->used_bytes) - static_cast<int64_t>(out.ledger_bytes);
    for (uint32_t i = 1; i < tables_.accounts.size(); ++i) {
      if (tables_.accounts[i].device == device && tables_.accounts[i].process.value != 0)
        AddProcess(tables::AccountId{i}, samples, version, out.at_ns, totals);
    }
    out.at_iteration = query_.at.kind == Instant::Kind::kIteration
                           ? query_.at.iteration
                           : IterationAt(tables_, iterations_, device, out.at_ns);
    report_.devices.push_back(std::move(out));
    if (!samples.empty())
      AddResidual(device, samples);
  }

  // The device's account that is of no recorded process: conditions on the device find it by that.
  tables::AccountId AccountOfNobody(DeviceId device) const {
    for (uint32_t i = 1; i < tables_.accounts.size(); ++i) {
      if (tables_.accounts[i].device == device && tables_.accounts[i].process.value == 0)
        return tables::AccountId{i};
    }
    return {};
  }

  void AddInTransit(DeviceId device, uint64_t bytes, DeviceTotals* totals) {
    Leaf leaf;
    leaf.device = device;
    leaf.site.part = format::Part::kInTransit;
    leaf.site.category = format::PartCategory(format::Part::kInTransit);
    leaf.site.account = AccountOfNobody(device);
    leaf.bytes = bytes;
    if (!aggregator_.Add(leaf))
      return;
    tops_.Add(leaf);
    totals->matched += bytes;
  }

  void AddProcess(tables::AccountId account,
                  const DeviceSamples& samples,
                  std::optional<uint64_t> version,
                  int64_t at_ns,
                  DeviceTotals& totals) {
    const tables::AccountRow& row = tables_.accounts[account.value];
    const tables::ProcessRow& process = tables_.processes[row.process.value];
    ProcessReport entry;
    entry.device = row.device;
    entry.process = row.process;
    entry.pid = process.pid;
    if (process.rank >= 0)
      entry.rank = process.rank;
    entry.command = Text(process.command);
    entry.ledger_bytes = totals.by_process[row.process];
    const tables::ProcessSampleRow* sample =
        version ? samples.AtProcess(account, *version, entry.ledger_bytes, at_ns) : nullptr;
    if (sample != nullptr) {
      entry.nvml_bytes = sample->used_bytes;
      entry.residual_bytes =
          static_cast<int64_t>(sample->used_bytes) - static_cast<int64_t>(entry.ledger_bytes);
    }
    report_.processes.push_back(std::move(entry));
  }

  void AddResidual(DeviceId device, const DeviceSamples& samples) {
    ResidualSummary summary = samples.Summarize();
    summary.device = device;
    for (const tables::PeakRow& peak : tables_.peaks) {
      if (peak.device != device)
        continue;
      summary.estimated_bytes = peak.estimated_bytes;
      summary.ledger_peak_bytes = peak.bytes;
    }
    report_.residuals.push_back(summary);
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const ReportQuery& query_;
  DimensionValues texts_;
  AllocatedRule rule_;
  IterationTimes iterations_;
  util::Budget budget_;  // for the texts of a report, which are in memory
  Aggregator aggregator_;
  Aggregator unbacked_;
  Tops tops_;
  std::vector<DeviceId> shown_;
  std::map<DeviceId, DeviceTotals> totals_;
  std::map<DeviceId, PeakFigure> allocated_peaks_;
  std::map<DeviceId, PeakFigure> own_peaks_;
  std::map<std::pair<DeviceId, format::Category>, CategoryEntry> unbacked_sums_;
  Report report_;
};

}  // namespace

util::Result<Report> MakeReport(const tables::Recording& recording, const ReportQuery& query) {
  return ReportMaker(recording, query).Make();
}

}  // namespace vramscope::query
