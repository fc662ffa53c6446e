// SPDX-License-Identifier: Apache-2.0
#include "query/core/residual.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "format/memory_words.h"
#include "query/dimensions/dimensions.h"
#include "tables/row_of.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

constexpr uint64_t kSmallResidual = uint64_t{4} << 20;

// The lower, the better: 0 is a clean sample of just this state.
template <class Sample>
const Sample* Better(const Sample* a, int rank_a, const Sample* b, int rank_b, int64_t time_ns) {
  if (a == nullptr || rank_b < rank_a)
    return b;
  const bool nearer = std::abs(b->end_ns - time_ns) < std::abs(a->end_ns - time_ns);
  return rank_b == rank_a && nearer ? b : a;
}

}  // namespace

std::vector<tables::DeviceId> ShownDevices(const tables::Tables& tables) {
  std::vector<tables::DeviceId> touched;
  std::vector<tables::DeviceId> sampled;
  for (uint32_t i = 1; i < tables.devices.size(); ++i) {
    const tables::DeviceId device{i};
    const bool used =
        std::any_of(tables.accounts.begin(), tables.accounts.end(), [&](const auto& account) {
          return account.device == device && account.process.value != 0;
        });
    if (used)
      touched.push_back(device);
    const bool gpu = tables.devices[i].kind == tables::DeviceKind::kGpu;
    const bool seen = std::any_of(tables.samples.begin(), tables.samples.end(),
                                  [&](const auto& sample) { return sample.device == device; });
    if (gpu && seen)
      sampled.push_back(device);
  }
  return touched.empty() ? sampled : touched;
}

namespace {

template <class Sample>
SampleVerdict Judge(const Sample& sample) {
  SampleVerdict verdict;
  const int64_t difference = static_cast<int64_t>(sample.used_bytes) - sample.ledger_bytes;
  if (difference == 0)
    return verdict;
  if (difference >= -sample.low_bytes && difference <= sample.high_bytes) {
    verdict.in_transit_bytes = difference;
    verdict.explained_by_transit = true;
  } else {
    verdict.in_transit_bytes = difference > 0 ? sample.high_bytes : -sample.low_bytes;
    verdict.residual_bytes = difference - verdict.in_transit_bytes;
  }
  return verdict;
}

}  // namespace

SampleVerdict JudgeSample(const tables::SampleRow& sample) {
  return Judge(sample);
}

SampleVerdict JudgeSample(const tables::ProcessSampleRow& sample) {
  return Judge(sample);
}

uint64_t ResidualLimit(uint64_t used_bytes) {
  return std::max(kSmallResidual, used_bytes / 1000);
}

DeviceSamples::DeviceSamples(const tables::Tables& tables, tables::DeviceId device)
    : tables_(tables) {
  for (const tables::SampleRow& sample : tables.samples) {
    if (sample.device == device)
      samples_.push_back(&sample);
  }
  for (const tables::ChangeRow& change : tables.changes) {
    if (change.device == device)
      changes_ns_.push_back(change.time_ns);
  }
}

uint64_t DeviceSamples::VersionAt(int64_t time_ns) const {
  return static_cast<uint64_t>(std::upper_bound(changes_ns_.begin(), changes_ns_.end(), time_ns) -
                               changes_ns_.begin());
}

ResidualSummary DeviceSamples::Summarize() const {
  ResidualSummary summary;
  std::vector<std::pair<uint64_t, uint64_t>> sizes;  // |residual|, samples
  for (const tables::SampleRow* sample : samples_) {
    if (sample->counted == 0)
      continue;
    const SampleVerdict verdict = JudgeSample(*sample);
    const uint64_t count = 1 + uint64_t{sample->repeats};
    if (summary.samples == 0)
      summary.worst_at_ns = sample->end_ns;
    summary.samples += count;
    summary.samples_in_transit += verdict.explained_by_transit ? 1 : 0;
    sizes.emplace_back(static_cast<uint64_t>(std::abs(verdict.residual_bytes)), count);
    if (std::abs(verdict.residual_bytes) > std::abs(summary.worst_bytes)) {
      summary.worst_bytes = verdict.residual_bytes;
      summary.worst_at_ns = sample->end_ns;
    }
  }
  // The smallest figure that at least 99 % of the samples do not exceed.
  std::sort(sizes.begin(), sizes.end());
  const uint64_t wanted = (summary.samples * 99 + 99) / 100;
  uint64_t seen = 0;
  for (const auto& [bytes, count] : sizes) {
    summary.p99_bytes = bytes;
    if ((seen += count) >= wanted)
      break;
  }
  return summary;
}

const tables::SampleRow* DeviceSamples::At(uint64_t version,
                                           uint64_t total,
                                           int64_t time_ns) const {
  const tables::SampleRow* best = nullptr;
  int best_rank = 0;
  for (const tables::SampleRow* sample : samples_) {
    const int64_t in_transit = JudgeSample(*sample).in_transit_bytes;
    const bool same_state = VersionAt(sample->time_ns) == version;
    // Bytes counted early by the ledger cannot be shown as a row: no row is negative.
    if (in_transit < 0 || (!same_state && sample->ledger_bytes != static_cast<int64_t>(total)))
      continue;
    const int rank = (same_state ? 0 : 2) + (in_transit == 0 ? 0 : 1);
    const tables::SampleRow* better = Better(best, best_rank, sample, rank, time_ns);
    best_rank = better == best ? best_rank : rank;
    best = better;
  }
  return best;
}

const tables::ProcessSampleRow* DeviceSamples::AtProcess(tables::AccountId account,
                                                         uint64_t version,
                                                         uint64_t total,
                                                         int64_t time_ns) const {
  const tables::ProcessSampleRow* best = nullptr;
  int best_rank = 0;
  for (const tables::ProcessSampleRow& sample : tables_.process_samples) {
    if (sample.account != account)
      continue;
    const bool same_state = VersionAt(sample.time_ns) == version;
    if (!same_state && sample.ledger_bytes != static_cast<int64_t>(total))
      continue;
    const int rank = same_state ? 0 : 2;
    const tables::ProcessSampleRow* better = Better(best, best_rank, &sample, rank, time_ns);
    best_rank = better == best ? best_rank : rank;
    best = better;
  }
  return best;
}

namespace {

// "cm.py:8", or the innermost function of a native stack.
std::string WhereText(const DimensionValues& texts, const tables::SiteRow& site) {
  if (site.stack.value == 0 && site.native_stack.value == 0)
    return {};
  return texts.Of(site.stack.value != 0 ? Dimension::kLine : Dimension::kNative, site, nullptr);
}

}  // namespace

std::vector<Unexplained> FindUnexplained(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  std::vector<Unexplained> found;
  std::vector<bool> is_seen(tables.counters.size());
  for (const tables::StepRow& step : tables.steps) {
    const uint32_t counter = step.counter.value;
    if (counter >= is_seen.size() || is_seen[counter])
      continue;
    is_seen[counter] = true;
    const tables::SiteRow& site = RowOf(tables.sites, tables.counters[counter].site);
    if (site.part != format::Part::kUnexplained)
      continue;
    Unexplained entry;
    entry.device = RowOf(tables.accounts, site.account).device;
    entry.bytes = step.bytes;
    entry.since_ns = step.time_ns;
    entry.near = std::string(recording.string(site.trigger));
    const std::string where = WhereText(DimensionValues(recording), site);
    if (!where.empty())
      entry.near += " in " + where;
    found.push_back(std::move(entry));
  }
  return found;
}

std::string UnexplainedText(const tables::Recording& recording, const Unexplained& unexplained) {
  const tables::Tables& tables = recording.tables();
  std::string text = util::FormatSignedBytes(unexplained.bytes) + " since " +
                     util::FormatDuration(unexplained.since_ns - tables.session.begin_ns);
  if (!unexplained.near.empty())
    text += ", " + unexplained.near;
  return text + ": no known cause";
}

}  // namespace vramscope::query
