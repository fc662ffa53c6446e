// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/residual.h"
#include "query/report/report_parts.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using tables::ProcessSampleRow;
using tables::SampleRow;

Invariant OfViolations(const tables::Recording& recording,
                       tables::InvariantKind kind,
                       const char* name,
                       const char* what) {
  Invariant invariant{name, true, ""};
  for (const tables::ViolationRow& row : recording.tables().violations) {
    if (row.invariant != kind || row.count == 0)
      continue;
    invariant.holds = false;
    invariant.detail = std::to_string(row.count) + " times" + what +
                       "; first: " + std::string(recording.string(row.first));
  }
  return invariant;
}

std::string DeviceText(const tables::Recording& recording, tables::DeviceId device) {
  const tables::DeviceRow& row = RowOf(recording.tables().devices, device);
  return row.index < 0 ? "the host's memory" : "GPU " + std::to_string(row.index);
}

// How far a sample's residual goes beyond what is small; at most 0 where it does not.
template <class Sample>
int64_t BeyondLimit(const Sample& sample) {
  return std::abs(JudgeSample(sample).residual_bytes) -
         static_cast<int64_t>(ResidualLimit(sample.used_bytes));
}

// Samples that were compared, how many of them are off, and the one that is off by most.
template <class Sample>
struct Comparison {
  void Add(const Sample& sample) {
    const int64_t beyond = BeyondLimit(sample);
    ++count;
    off += beyond > 0 ? 1 : 0;
    if (worst == nullptr || beyond > BeyondLimit(*worst))
      worst = &sample;
  }
  uint64_t count = 0;
  uint64_t off = 0;
  const Sample* worst = nullptr;
};

// Null without samples.
const SampleRow* WorstOf(const std::vector<SampleRow>& samples) {
  Comparison<SampleRow> all;
  for (const SampleRow& sample : samples) {
    if (sample.counted != 0)
      all.Add(sample);
  }
  return all.worst;
}

std::string MismatchText(const tables::Recording& recording,
                         const char* what,
                         tables::DeviceId device,
                         uint64_t rows,
                         int64_t ledger) {
  if (static_cast<int64_t>(rows) == ledger)
    return {};
  return std::string(what) + " of " + DeviceText(recording, device) + ": rows " +
         std::to_string(rows) + ", ledger " + std::to_string(ledger);
}

// Compares the sums of rows with the stored peaks and some samples. Returns the differences as
// text.
util::Result<std::string> FindWrongSum(const tables::Recording& recording,
                                       const DeviceSums& peak_sums) {
  const tables::Tables& tables = recording.tables();
  for (const auto& [device, sum] : peak_sums) {
    for (const tables::PeakRow& peak : tables.peaks) {
      if (peak.device != device)
        continue;
      std::string text =
          MismatchText(recording, "peak", device, sum, static_cast<int64_t>(peak.bytes));
      if (!text.empty())
        return text;
    }
  }
  if (tables.samples.empty())
    return std::string();
  for (const SampleRow* sample :
       {WorstOf(tables.samples), &tables.samples[tables.samples.size() / 2]}) {
    if (sample == nullptr || sample->device.value >= tables.devices.size())
      continue;
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto totals,
                               DeviceTotals(recording, AllAt(tables, sample->time_ns)));
    const std::string what = "NVML's sample at @" + std::to_string(sample->time_ns);
    std::string text = MismatchText(recording, what.c_str(), sample->device,
                                    totals[sample->device.value], sample->ledger_bytes);
    if (!text.empty())
      return text;
  }
  return std::string();
}

template <class Sample>
std::string OffText(const Comparison<Sample>& compared, const std::string& of) {
  const Sample& worst = *compared.worst;
  return std::to_string(compared.off) + " of " + std::to_string(compared.count) +
         " samples are off by more than 4 MiB and 0.1 %; worst: " + of + " at @" +
         std::to_string(worst.end_ns) + ": NVML " + std::to_string(worst.used_bytes) + ", rows " +
         std::to_string(worst.ledger_bytes) + ", calls under way explain -" +
         std::to_string(worst.low_bytes) + " to +" + std::to_string(worst.high_bytes);
}

void AddSentence(const std::string& sentence, std::string* text) {
  *text += text->empty() ? sentence : "; " + sentence;
}

// What processes that are not recorded do in between no row can follow: on a device that they have
// memory on, NVML's figures of the recorded processes are compared instead, where it lists them.
void CompareByProcess(const tables::Recording& recording,
                      tables::DeviceId device,
                      Invariant* invariant) {
  const tables::Tables& tables = recording.tables();
  Comparison<ProcessSampleRow> compared;
  for (const ProcessSampleRow& sample : tables.process_samples) {
    if (sample.account.value < tables.accounts.size() &&
        tables.accounts[sample.account.value].device == device)
      compared.Add(sample);
  }
  const std::string name = DeviceText(recording, device);
  if (compared.count == 0) {
    AddSentence("processes that are not recorded use " + name +
                    ", and NVML lists no recorded process there: not compared",
                &invariant->detail);
  } else if (compared.off != 0) {
    invariant->holds = false;
    AddSentence(OffText(compared, "a process on " + name), &invariant->detail);
  } else {
    AddSentence("processes that are not recorded use " + name + ": NVML's " +
                    std::to_string(compared.count) + " figures of the recorded ones were compared",
                &invariant->detail);
  }
}

// Nothing where NVML was not asked: a check of nothing proves nothing.
std::optional<Invariant> OfNvml(const tables::Recording& recording,
                                const std::vector<Unexplained>& unexplained_memory) {
  const tables::Tables& tables = recording.tables();
  Invariant invariant{"NVML and the rows differ by at most 4 MiB or 0.1 %", true, ""};
  std::vector<Comparison<SampleRow>> compared(tables.devices.size());
  for (const SampleRow& sample : tables.samples) {
    if (sample.counted != 0 && sample.device.value < compared.size())
      compared[sample.device.value].Add(sample);
  }
  // An unexplained row makes the sums right, but explains nothing.
  for (const Unexplained& unexplained : unexplained_memory) {
    invariant.holds = false;
    AddSentence(
        DeviceText(recording, unexplained.device) + ": " + UnexplainedText(recording, unexplained),
        &invariant.detail);
  }
  for (uint32_t i = 0; i < compared.size(); ++i) {
    const tables::DeviceRow& device = tables.devices[i];
    if (device.reading_offset_bytes != 0) {
      AddSentence("cuMemGetInfo reads " + std::to_string(device.reading_offset_bytes) +
                      " bytes more than NVML, taken into account",
                  &invariant.detail);
    }
    if (compared[i].off == 0)
      continue;
    if (device.shared != 0) {
      CompareByProcess(recording, tables::DeviceId{i}, &invariant);
      continue;
    }
    invariant.holds = false;
    AddSentence(OffText(compared[i], DeviceText(recording, tables::DeviceId{i})),
                &invariant.detail);
  }
  if (std::all_of(compared.begin(), compared.end(), [](const auto& of) { return of.count == 0; }))
    return std::nullopt;
  return invariant;
}

}  // namespace

util::Status CheckInvariants(const tables::Recording& recording,
                             const DeviceSums& peak_sums,
                             Report* report) {
  Invariant sums =
      OfViolations(recording, tables::InvariantKind::kOverfullSegment, "children sum to the parent",
                   " more blocks than their segment holds");
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto wrong, FindWrongSum(recording, peak_sums));
  if (!wrong.empty()) {
    sums.holds = false;
    sums.detail = wrong;
  }
  report->invariants.push_back(std::move(sums));
  // The rest is of allocations, or is so by how the rows were made.
  if (report->sampled)
    return {};
  report->invariants.push_back(
      OfViolations(recording, tables::InvariantKind::kFreedTwice, "nothing is freed twice", ""));
  report->invariants.push_back(OfViolations(recording, tables::InvariantKind::kOutsideSegment,
                                            "no live block outside a live segment", ""));
  if (std::optional<Invariant> nvml = OfNvml(recording, report->unexplained))
    report->invariants.push_back(std::move(*nvml));
  return {};
}

}  // namespace vramscope::query
