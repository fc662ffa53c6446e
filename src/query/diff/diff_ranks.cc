// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "query/core/residual.h"
#include "query/diff/diff.h"
#include "query/diff/diff_side.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

constexpr uint64_t kShareOfMedian = 100;  // an outlier is off by more than a hundredth

struct RankSet {
  std::vector<DiffRank> ranks;     // in the order of their numbers
  std::vector<size_t> recordings;  // by rank: which of those that were given
  size_t median = 0;
  std::optional<size_t> outlier;

  uint64_t median_bytes() const { return ranks[median].peak_bytes; }
  int64_t off(size_t rank) const {
    return static_cast<int64_t>(ranks[rank].peak_bytes) - static_cast<int64_t>(median_bytes());
  }
};

int32_t RankOf(const DiffSubject& subject) {
  if (subject.rank)
    return *subject.rank;
  const tables::Recording& recording = *subject.recording;
  for (const tables::ProcessRow& process : recording.tables().processes) {
    if (process.rank > 0)
      return process.rank;
  }
  // Row 0 means "no process", but its rank is 0.
  const auto& processes = recording.tables().processes;
  return processes.size() > 1 ? processes[1].rank : -1;
}

util::Result<RankSet> ReadRanks(const std::vector<RankRecording>& recordings) {
  struct Read {
    DiffRank rank;
    size_t recording;
  };
  std::vector<Read> all;
  for (size_t i = 0; i < recordings.size(); ++i) {
    DiffWords words;
    VRAMSCOPE_ASSIGN_OR_RETURN(
        const auto side, ReadSide(recordings[i].subject, *recordings[i].subject.recording, &words));
    Read read;
    read.recording = i;
    read.rank.number = RankOf(recordings[i].subject);
    read.rank.name = read.rank.number >= 0
                         ? "rank " + std::to_string(read.rank.number)
                         : std::filesystem::path(recordings[i].file).stem().string();
    for (const auto& [key, sum] : side.peak)
      read.rank.peak_bytes += sum.bytes;
    all.push_back(std::move(read));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Read& x, const Read& y) { return x.rank.number < y.rank.number; });
  RankSet set;
  std::vector<size_t> by_peak;
  for (Read& read : all) {
    by_peak.push_back(set.ranks.size());
    set.ranks.push_back(std::move(read.rank));
    set.recordings.push_back(read.recording);
  }
  std::stable_sort(by_peak.begin(), by_peak.end(), [&](size_t x, size_t y) {
    return set.ranks[x].peak_bytes < set.ranks[y].peak_bytes;
  });
  set.median = by_peak[(by_peak.size() - 1) / 2];
  set.ranks[set.median].compared = true;
  if (set.ranks.size() < kFewestForOutlier)
    return set;
  const auto furthest = [&](size_t x, size_t y) {
    return std::abs(set.off(x)) < std::abs(set.off(y));
  };
  const size_t rank = *std::max_element(by_peak.begin(), by_peak.end(), furthest);
  const uint64_t limit =
      std::max(ResidualLimit(set.median_bytes()), set.median_bytes() / kShareOfMedian);
  if (static_cast<uint64_t>(std::abs(set.off(rank))) > limit) {
    set.outlier = rank;
    set.ranks[rank].outlier = true;
  }
  return set;
}

// "rank 2 of B is 1.20 GiB above the median of its 8 ranks: activations of ... grew by ...".
util::Result<std::string> OutlierText(const char* side,
                                      const RankSet& set,
                                      const std::vector<RankRecording>& recordings) {
  const size_t outlier = *set.outlier;
  const auto of = [&](size_t rank) { return recordings[set.recordings[rank]].subject; };
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto why, MakeDiff(of(set.median), of(outlier)));
  const int64_t off = set.off(outlier);
  std::string text = set.ranks[outlier].name + " of " + side + " is " +
                     util::FormatBytes(static_cast<uint64_t>(std::abs(off))) +
                     (off > 0 ? " above" : " below") + " the median of its " +
                     std::to_string(set.ranks.size()) + " ranks";
  if (!why.causes.empty())
    text += ": " + why.causes[0];
  return text;
}

}  // namespace

std::vector<RankRecording> RanksIn(const std::string& file, const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  std::set<int32_t> numbers;
  for (const tables::SiteRow& site : tables.sites) {
    if (site.allocated_count == 0 || site.account.value >= tables.accounts.size())
      continue;
    const tables::ProcessId process = tables.accounts[site.account.value].process;
    if (process.value != 0 && process.value < tables.processes.size() &&
        tables.processes[process.value].rank >= 0)
      numbers.insert(tables.processes[process.value].rank);
  }
  if (numbers.size() < 2)
    return {{file, {&recording, std::nullopt}}};
  std::vector<RankRecording> ranks;
  for (const int32_t number : numbers)
    ranks.push_back({file, {&recording, number}});
  return ranks;
}

util::Result<Diff> MakeRanksDiff(const std::vector<RankRecording>& a,
                                 const std::vector<RankRecording>& b,
                                 size_t* compared_a,
                                 size_t* compared_b) {
  VRAMSCOPE_ASSIGN_OR_RETURN(auto ranks_a, ReadRanks(a));
  VRAMSCOPE_ASSIGN_OR_RETURN(auto ranks_b, ReadRanks(b));
  *compared_a = ranks_a.recordings[ranks_a.median];
  *compared_b = ranks_b.recordings[ranks_b.median];
  auto diff = MakeDiff(a[*compared_a].subject, b[*compared_b].subject);
  if (!diff.ok())
    return diff;
  diff->notes.insert(diff->notes.begin(), std::to_string(a.size()) + " ranks in A, " +
                                              std::to_string(b.size()) +
                                              " in B: those with the median peak are compared, " +
                                              ranks_a.ranks[ranks_a.median].name + " of A and " +
                                              ranks_b.ranks[ranks_b.median].name + " of B");
  if (ranks_b.outlier) {
    VRAMSCOPE_ASSIGN_OR_RETURN(auto text, OutlierText("B", ranks_b, b));
    const auto change = std::abs(ranks_b.off(*ranks_b.outlier));
    if (ranks_a.outlier)
      diff->notes.push_back(text);
    else if (change > std::abs(diff->delta_bytes()))
      diff->causes.insert(diff->causes.begin(), text);
    else
      diff->causes.push_back(text);
    diff->same = diff->causes.empty();
  }
  if (ranks_a.outlier) {
    VRAMSCOPE_ASSIGN_OR_RETURN(auto text, OutlierText("A", ranks_a, a));
    diff->notes.push_back(text);
  }
  diff->a_ranks = std::move(ranks_a.ranks);
  diff->b_ranks = std::move(ranks_b.ranks);
  return diff;
}

}  // namespace vramscope::query
