// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "output/answers.h"
#include "query/dimensions/fold_names.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

using util::FormatBytes;

// A screen of rows: of more ranks, the heaviest and the lightest.
constexpr size_t kMostRanks = 32;
constexpr size_t kMostRankNames = 8;

std::vector<std::pair<std::string, uint64_t>> Largest(
    const std::map<std::string, uint64_t>& categories) {
  std::vector<std::pair<std::string, uint64_t>> sorted(categories.begin(), categories.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

// "768 MiB of activation in blocks.2, -4.00 MiB of input": by how much the heaviest differs, the
// first `most` of it and the rest in one sum.
std::string Excess(const query::RankReport& report, size_t most) {
  std::string text;
  auto rest = static_cast<int64_t>(report.excess_bytes());
  for (size_t i = 0; i < std::min(report.excess.size(), most); ++i) {
    const auto& excess = report.excess[i];
    const std::string bytes = excess.bytes < 0 ? util::FormatSignedBytes(excess.bytes)
                                               : FormatBytes(static_cast<uint64_t>(excess.bytes));
    const bool is_rest =
        std::any_of(report.excess.begin(), report.excess.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const auto& of) { return of.category == excess.category; });
    text += fmt::format("{}{} of {}{}", i == 0 ? "" : ", ", bytes, excess.category,
                        !excess.layer.empty() ? " in " + query::LayerWords(excess.layer)
                        : is_rest             ? " elsewhere"
                                              : "");
    rest -= excess.bytes;
  }
  if (rest != 0)
    text += fmt::format(" (others: {})", util::FormatSignedBytes(rest));
  return text;
}

std::string Heaviest(const query::RankReport& report) {
  if (!report.not_compared.empty())
    return "not compared: " + report.not_compared;
  const std::string name = report.ranks[report.heaviest].name;
  const std::string bytes = FormatBytes(report.excess_bytes());
  const std::string median = report.ranks[report.median].name;
  // Of two the lighter one is the median.
  const std::string other = report.ranks.size() == 2 ? median : "the median, " + median;
  if (report.excess_bytes() == 0)
    return "evenly: no rank holds more than the median";
  return fmt::format("{}{} holds {} more than {}, each at its own peak",
                     report.IsUneven() ? "" : "evenly: the heaviest, ",
                     report.IsUneven() ? name : name + ",", bytes, other);
}

}  // namespace

std::string NumberRanges(const std::vector<int32_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1)
      ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (end > i)
      text += fmt::format("-{}", numbers[end]);
    i = end + 1;
  }
  return text;
}

std::string ImbalanceText(const query::RankReport& report) {
  const std::string excess = report.IsUneven() ? Excess(report, 3) : "";
  return Heaviest(report) + (excess.empty() ? "" : ": " + excess);
}

std::string FormatRanks(const query::RankReport& report, const Style& style) {
  std::string text;
  const auto line = [&](const std::string& words) { text += Printable(words, style.utf8) + "\n"; };
  if (report.ranks.empty()) {
    line("no process had memory in these recordings");
  } else {
    line(fmt::format("{} ranks, {} together, each at its peak", report.ranks.size(),
                     FormatBytes(report.bytes)));
    line("  " + ImbalanceText(report));
    if (!report.missing.empty())
      line("  missing: rank " + NumberRanges(report.missing) + ": no recording");
    if (report.processes_without_memory > 0)
      line(fmt::format("  without device memory, and not listed: {} {}",
                       util::FormatCount(report.processes_without_memory),
                       report.processes_without_memory == 1 ? "process" : "processes"));
    if (report.recordings > 1)
      line(fmt::format("  the first and the last recording began {} apart by their hosts' clocks",
                       util::FormatDuration(report.starts_apart_ns)));
    line("");
    line(fmt::format("  {:<16} {:<16} {:>8} {:>4} {:>10} {:>10}  {}", "rank", "host", "pid", "on",
                     "peak", "after", "most of it"));
    std::vector<size_t> shown(report.ranks.size());
    for (size_t i = 0; i < shown.size(); ++i)
      shown[i] = i;
    if (shown.size() > kMostRanks) {
      std::stable_sort(shown.begin(), shown.end(), [&](size_t a, size_t b) {
        return report.ranks[a].bytes > report.ranks[b].bytes;
      });
      shown.erase(shown.begin() + kMostRanks / 2, shown.end() - kMostRanks / 2);
    }
    for (const size_t i : shown) {
      const query::RankMemory& rank = report.ranks[i];
      const auto largest = Largest(rank.categories);
      const std::string most =
          largest.empty() ? "-" : largest[0].first + " " + FormatBytes(largest[0].second);
      line(fmt::format("  {:<16} {:<16} {:>8} {:>4} {:>10} {:>10}  {}", rank.name, rank.host,
                       rank.pid, rank.on, FormatBytes(rank.bytes),
                       util::FormatDuration(rank.peak_wall_ns - report.first_wall_ns), most));
    }
    if (shown.size() < report.ranks.size())
      line(fmt::format("  ({} in between; --json has all)", report.ranks.size() - shown.size()));
    text += "\nall ranks\n";
    const auto largest = Largest(report.categories);
    for (size_t i = 0; i < std::min(largest.size(), kMostRankNames); ++i)
      line(fmt::format("  {:>10}  {}", FormatBytes(largest[i].second), largest[i].first));
  }
  for (const std::string& why : report.unread)
    line("not read: " + why);
  return text;
}

std::string RanksLine(const query::RankReport& report, const std::string& file) {
  if (report.ranks.size() < 2)
    return {};
  std::string line = fmt::format("Ranks: {}; {}\n", report.ranks.size(), Heaviest(report));
  if (report.IsUneven() && !report.excess.empty())
    line += "       " + Excess(report, 1) + "\n";
  return line + "       vramscope report --ranks " + file;
}

}  // namespace vramscope::output
