// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/residual.h"
#include "query/diff/diff.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/iteration_times.h"
#include "query/dimensions/report.h"
#include "query/history/iterations.h"
#include "query/history/leak_parts.h"
#include "query/oom/out_of_memory.h"
#include "tables/imported.h"
#include "tables/reader.h"
#include "tables/row_of.h"

// The summary of a recording: the rows that `fleet` compares over thousands of ranks.
namespace vramscope::query {
namespace {

// Limits of one rank, with which its JSON stays below 64 KiB (export_test.cc has the longest).
constexpr size_t kMostIterations = 96;
constexpr size_t kMostParts = 48;
constexpr size_t kMostGrowing = 8;
constexpr size_t kMostFailures = 1;
constexpr size_t kMostSettings = 16;
constexpr size_t kLongestText = 80;
constexpr char kOtherLayers[] = "(others)";

// Cut in the middle, where names differ least, and never inside a UTF-8 sequence.
std::string Short(std::string_view text) {
  if (text.size() <= kLongestText)
    return std::string(text);
  const auto is_inside = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  size_t head = kLongestText / 2;
  while (head > 0 && is_inside(head))
    --head;
  size_t tail = text.size() - kLongestText / 2;
  while (tail < text.size() && is_inside(tail))
    ++tail;
  return std::string(text.substr(0, head)) + "..." + std::string(text.substr(tail));
}

// As a shell reports it.
std::optional<int32_t> ExitStatusOf(int32_t wait_status) {
  if (wait_status < 0)
    return std::nullopt;
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

class Summarizer {
 public:
  explicit Summarizer(const tables::Recording& recording)
      : recording_(recording), tables_(recording.tables()), iterations_(tables_) {}

  util::Result<Summary> Make() {
    out_.run = tables_.session.name;
    out_.finished = tables_.session.finished;
    if (tables_.hosts.size() > 1)
      out_.host = recording_.string(tables_.hosts[1].name);
    RankFold fold;
    VRAMSCOPE_RETURN_IF_ERROR(fold.Add("", recording_));
    ranks_ = std::move(fold).Finish();
    for (const RankMemory& rank : ranks_.ranks) {
      AddRank(rank);
      AddParts(rank);
      AddSettings(out_.ranks.back());
    }
    VRAMSCOPE_RETURN_IF_ERROR(AddFailures());
    if (iterations_.count() > 0) {
      VRAMSCOPE_RETURN_IF_ERROR(AddIterations());
      VRAMSCOPE_RETURN_IF_ERROR(AddGrowing());
    }
    return std::move(out_);
  }

 private:
  int64_t WallOf(int64_t time_ns) const {
    return tables_.session.begin_wall_ns + (time_ns - tables_.session.begin_ns);
  }

  std::optional<int64_t> IterationOf(tables::ProcessId process, int64_t time_ns) const {
    const ProcessIterations& iterations = iterations_.Of(process);
    if (iterations.empty())
      return std::nullopt;
    return iterations.NumberAt(time_ns);
  }

  template <class Row>
  static Row Of(const SummaryRank& rank) {
    Row row;
    row.rank = rank.rank;
    row.host = rank.host;
    row.pid = rank.pid;
    return row;
  }

  void AddRank(const RankMemory& from) {
    const tables::DeviceRow& device = RowOf(tables_.devices, from.on_device);
    const tables::ProcessRow& process = RowOf(tables_.processes, from.process);
    SummaryRank rank;
    rank.process = from.process;
    rank.on_device = from.on_device;
    rank.rank = from.number;
    rank.host = from.host;
    rank.pid = from.pid;
    rank.device = from.device;
    rank.device_uuid = recording_.string(device.uuid);
    rank.device_name = recording_.string(device.name);
    rank.program = Short(from.program);
    rank.mesh = Short(NoteOf(tables::kMeshNote + std::to_string(from.number)));
    AddPlace(NoteOf(tables::kPlaceNote + std::to_string(from.pid)), &rank);
    rank.version = tables_.session.version;
    rank.begin_wall_ns = WallOf(process.begin_ns);
    rank.end_wall_ns = WallOf(process.end_ns);
    rank.exit_status = ExitStatusOf(process.wait_status);
    rank.total_bytes = from.total_bytes;
    rank.peak_bytes = from.bytes;
    rank.peak_wall_ns = from.peak_wall_ns;
    rank.peak_iteration = IterationOf(from.process, from.peak_ns);
    const ProcessIterations& iterations = iterations_.Of(from.process);
    rank.iterations = iterations.empty() ? 0 : static_cast<uint64_t>(iterations.count());
    if (const DeviceSamples samples(tables_, from.on_device); !samples.empty())
      rank.worst_residual_bytes = samples.Summarize().worst_bytes;
    out_.ranks.push_back(std::move(rank));
  }

  // Notes are of the recording: those of a rank or process have its number in their key.
  std::string_view NoteOf(const std::string& key) const {
    std::string_view value;
    // The last one: it was noted again when the program had made more groups.
    for (const tables::NoteRow& note : tables_.notes) {
      if (recording_.string(note.key) == key)
        value = recording_.string(note.value);
    }
    return value;
  }

  // `local_rank=0,node=n1`.
  static void AddPlace(std::string_view place, SummaryRank* rank) {
    rank->node = rank->host;
    for (size_t begin = 0; begin < place.size();) {
      const size_t end = std::min(place.find(',', begin), place.size());
      const std::string_view pair = place.substr(begin, end - begin);
      const size_t equals = std::min(pair.find('='), pair.size());
      const std::string_view key = pair.substr(0, equals);
      const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
      int64_t number = 0;
      const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
      const bool is_number = read.ec == std::errc() && number >= 0;
      if (key == "local_rank" && is_number)
        rank->local_rank = number;
      else if (key == "group_rank" && is_number)
        rank->group_rank = number;
      else if (key == "node")
        rank->node = Short(value);
      else if (key == "pod")
        rank->pod = Short(value);
      begin = end + 1;
    }
  }

  void AddParts(const RankMemory& rank) {
    // Long names that are equal when they are cut are one row.
    BytesOfLayers layers;
    for (const auto& [key, bytes] : rank.layers)
      layers[{Short(key.first), key.second}] += bytes;
    std::vector<SummaryPart> parts;
    for (const auto& [key, bytes] : layers) {
      auto part = Of<SummaryPart>(out_.ranks.back());
      part.layer = key.first;
      part.category = key.second;
      part.bytes = bytes;
      parts.push_back(std::move(part));
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    std::map<std::string, uint64_t> rest;
    for (size_t i = kMostParts; i < parts.size(); ++i)
      rest[parts[i].category] += parts[i].bytes;
    parts.resize(std::min(parts.size(), kMostParts));
    for (const auto& [category, bytes] : rest) {
      auto part = Of<SummaryPart>(out_.ranks.back());
      part.category = category;
      part.layer = kOtherLayers;
      part.bytes = bytes;
      parts.push_back(std::move(part));
    }
    std::move(parts.begin(), parts.end(), std::back_inserter(out_.parts));
  }

  void AddSettings(const SummaryRank& rank) {
    size_t count = 0;
    for (const tables::NoteRow& note : tables_.notes) {
      const std::string_view name = recording_.string(note.key);
      // Figures and names of processes are no settings; nor is what differs from rank to rank.
      if (name.starts_with("allocated peak of ") || name.starts_with("process ") ||
          name.starts_with(tables::kMeshNote) || name.starts_with(tables::kPlaceNote) ||
          name == "host" || name == "rank" || name.starts_with("rank (pid "))
        continue;
      if (++count > kMostSettings)
        return;
      auto setting = Of<SummarySetting>(rank);
      setting.name = Short(name);
      setting.value = Short(recording_.string(note.value));
      out_.settings.push_back(std::move(setting));
    }
  }

  util::Status AddFailures() {
    VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<Refusal> refusals, FindRefusals(recording_));
    for (SummaryRank& rank : out_.ranks) {
      for (const Refusal& refusal : refusals) {
        if (refusal.served || RowOf(tables_.accounts, refusal.account).process != rank.process)
          continue;
        if (++rank.failures <= kMostFailures)
          VRAMSCOPE_RETURN_IF_ERROR(AddFailure(rank, refusal));
      }
    }
    return {};
  }

  util::Status AddFailure(const SummaryRank& rank, const Refusal& refusal) {
    VRAMSCOPE_ASSIGN_OR_RETURN(const LiveSet live,
                               ReadLiveSet(recording_, AllAt(tables_, refusal.time_ns)));
    std::map<std::string, uint64_t> held;
    const tables::DeviceId device = RowOf(tables_.accounts, refusal.account).device;
    ForEachLeaf(recording_, live, [&](const Leaf& leaf) {
      if (leaf.process == rank.process && leaf.device == device && leaf.bytes > 0)
        held[format::CategoryName(leaf.site.category)] += leaf.bytes;
    });
    VRAMSCOPE_ASSIGN_OR_RETURN(const OutOfMemory why, ExplainRefusal(recording_, refusal));
    for (const auto& [category, bytes] : held) {
      auto row = Of<SummaryFailure>(rank);
      row.wall_ns = WallOf(refusal.time_ns);
      row.iteration = IterationOf(rank.process, refusal.time_ns);
      row.requested_bytes = refusal.requested_bytes;
      row.place = Short(why.place);
      row.category = category;
      row.held_bytes = bytes;
      out_.failures.push_back(std::move(row));
    }
    return {};
  }

  util::Status AddIterations() {
    VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<Iteration> all, FindIterations(recording_));
    for (const SummaryRank& rank : out_.ranks) {
      std::vector<const Iteration*> own;
      for (const Iteration& iteration : all) {
        if (iteration.process == rank.process && iteration.device == rank.on_device)
          own.push_back(&iteration);
      }
      for (const Iteration* iteration : Thinned(own)) {
        auto row = Of<SummaryIteration>(rank);
        row.iteration = iteration->number;
        row.end_wall_ns = WallOf(iteration->end_ns);
        row.peak_bytes = iteration->peak_bytes;
        row.end_bytes = iteration->end_bytes;
        row.peak_allocated_bytes = iteration->peak_allocated;
        row.end_allocated_bytes = iteration->end_allocated;
        row.peak_reserved_bytes = iteration->peak_reserved;
        out_.iterations.push_back(std::move(row));
      }
    }
    return {};
  }

  // Of each of kMostIterations - 1 stretches the highest iteration, and the last one.
  static std::vector<const Iteration*> Thinned(const std::vector<const Iteration*>& all) {
    if (all.size() <= kMostIterations)
      return all;
    std::vector<const Iteration*> kept;
    const size_t others = all.size() - 1;
    constexpr size_t kStretches = kMostIterations - 1;
    for (size_t i = 0; i < kStretches; ++i) {
      kept.push_back(*std::max_element(
          all.begin() + static_cast<ptrdiff_t>(i * others / kStretches),
          all.begin() + static_cast<ptrdiff_t>((i + 1) * others / kStretches),
          [](const auto* a, const auto* b) { return a->peak_bytes < b->peak_bytes; }));
    }
    kept.push_back(all.back());
    return kept;
  }

  util::Status AddGrowing() {
    VRAMSCOPE_ASSIGN_OR_RETURN(const Leaks leaks, FindGrowth());
    if (!leaks.IsJudged())
      return {};
    for (const Growth& growth : leaks.growing) {
      const auto is_here = [&](const SummaryRank& rank) { return rank.on_device == growth.device; };
      const auto first = std::find_if(out_.ranks.begin(), out_.ranks.end(), is_here);
      if (first == out_.ranks.end())
        continue;
      auto row = Of<SummaryGrowth>(*first);
      if (std::count_if(first, out_.ranks.end(), is_here) > 1)
        row.rank = -1;
      row.device = first->device;
      row.place = Short(growth.place);
      row.layer = Short(growth.module);
      row.category = growth.category;
      row.bytes_per_iteration = growth.bytes_per_iteration;
      row.first_bytes = growth.first_bytes;
      row.last_bytes = growth.last_bytes;
      row.steady = growth.steady;
      out_.growing.push_back(std::move(row));
    }
    return {};
  }

  // Without the memory that was never freed.
  util::Result<Leaks> FindGrowth() const {
    const std::vector<std::string> no_suppressions;
    LeakGroups groups(recording_, no_suppressions);
    Leaks leaks;
    VRAMSCOPE_RETURN_IF_ERROR(FindGrowing(recording_, &groups, &leaks));
    leaks.growing.resize(std::min(leaks.growing.size(), kMostGrowing));
    return leaks;
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  IterationTimes iterations_;
  RankReport ranks_;
  Summary out_;
};

}  // namespace

util::Result<Summary> MakeSummary(const tables::Recording& recording) {
  tables::KeepFrames(recording);
  return Summarizer(recording).Make();
}

}  // namespace vramscope::query
