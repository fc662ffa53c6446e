// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>
#include <tuple>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/peaks.h"
#include "query/diff/diff.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"

namespace vramscope::query {
namespace {

using format::Part;
using tables::DeviceKind;

constexpr uint64_t kShareOfExcess = 100;
constexpr uint64_t kLeastExcessOfGpu = uint64_t{4} << 20;  // what the driver has differs, too

int64_t TimeOf(const std::vector<tables::PeakRow>& peaks, uint32_t device) {
  int64_t time_ns = 0;
  for (const tables::PeakRow& row : peaks)
    time_ns = row.device.value == device ? row.time_ns : time_ns;
  return time_ns;
}

using ByRank = std::map<std::pair<uint32_t, uint32_t>, RankMemory>;  // by process and device

// What each process has on each device.
util::Result<ByRank> MemoryAt(const tables::Recording& recording, const Instants& at) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto live, ReadLiveSet(recording, at));
  ByRank found;
  ForEachLeaf(recording, live, [&](const Leaf& leaf) {
    if (leaf.process.value == 0 || leaf.bytes == 0)
      return;
    RankMemory& rank = found[{leaf.process.value, leaf.device.value}];
    const std::string category = format::CategoryName(leaf.site.category);
    rank.bytes += leaf.bytes;
    rank.categories[category] += leaf.bytes;
    rank.layers[{std::string(recording.string(leaf.site.module)), category}] += leaf.bytes;
  });
  return found;
}

// GPUs if there are any, otherwise CPU tensors.
DeviceKind MainKind(const ByRank& found, const tables::Tables& tables) {
  for (const auto& [key, rank] : found) {
    if (tables.devices[key.second].kind == DeviceKind::kGpu)
      return DeviceKind::kGpu;
  }
  return DeviceKind::kCpu;
}

// Adds what a process has on another device to its row.
void Merge(const RankMemory& from, RankMemory* into) {
  into->bytes += from.bytes;
  for (const auto& [category, bytes] : from.categories)
    into->categories[category] += bytes;
  for (const auto& [key, bytes] : from.layers)
    into->layers[key] += bytes;
}

// "gpu0": where it has more than a hundredth of its memory.
std::string DevicesOf(const tables::Tables& tables,
                      const std::map<uint32_t, uint64_t>& bytes_on,
                      uint64_t bytes) {
  std::string devices;
  for (const auto& [device, of] : bytes_on) {
    const tables::DeviceRow& row = tables.devices[device];
    if (of > bytes / kShareOfExcess)
      devices += (devices.empty() ? "" : ",") + DeviceMark(row.kind, row.index);
  }
  return devices;
}

// Of a rank one row, at the device where it has most, with what it has on others' (NCCL maps its
// peers' memory); of a process without a number one for each device.
ByRank RowsOf(const tables::Tables& tables, ByRank all, DeviceKind kind) {
  ByRank rows;
  for (auto it = all.begin(); it != all.end();) {
    const uint32_t process = it->first.first;
    const bool is_rank = tables.processes[process].rank >= 0;
    RankMemory whole;
    std::map<uint32_t, uint64_t> bytes_on;
    uint32_t most = 0;
    for (; it != all.end() && it->first.first == process; ++it) {
      const uint32_t device = it->first.second;
      if (tables.devices[device].kind != kind)
        continue;
      const uint64_t bytes = it->second.bytes;
      if (!is_rank) {
        it->second.on = DevicesOf(tables, {{device, bytes}}, bytes);
        rows[it->first] = std::move(it->second);
        continue;
      }
      bytes_on[device] = bytes;
      most = bytes_on.contains(most) && bytes_on[most] >= bytes ? most : device;
      Merge(it->second, &whole);
    }
    if (bytes_on.empty())
      continue;
    whole.on = DevicesOf(tables, bytes_on, whole.bytes);
    rows[{process, most}] = std::move(whole);
  }
  return rows;
}

// Adds a row without bytes for each rank that has none, if it had memory at another time.
void AddOthers(const tables::Tables& tables, DeviceKind kind, ByRank* rows) {
  std::set<int32_t> numbers;
  for (const auto& [key, rank] : *rows)
    numbers.insert(tables.processes[key.first].rank);
  for (size_t i = 1; i < tables.accounts.size(); ++i) {
    const tables::AccountRow& account = tables.accounts[i];
    const tables::ProcessRow& process = RowOf(tables.processes, account.process);
    const tables::DeviceRow& device = RowOf(tables.devices, account.device);
    if (account.process.value == 0 || process.rank < 0 || device.kind != kind ||
        !numbers.insert(process.rank).second)
      continue;
    RankMemory& rank = (*rows)[{account.process.value, account.device.value}];
    rank.on = DeviceMark(device.kind, device.index);
  }
}

// Whether a rank started this process, which inherited its number: a data loader, for example.
bool IsHelper(const tables::Tables& tables, const ByRank& rows, uint32_t process) {
  const tables::ProcessRow& own = tables.processes[process];
  return own.rank >= 0 && std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
           const tables::ProcessRow& other = tables.processes[row.first.first];
           return other.rank == own.rank && other.pid == own.parent_pid && other.host == own.host &&
                  row.first.first != process;
         });
}

// The instant at which a device was fullest says nothing of ranks that share it: each of those at
// its own.
util::Status AtPeaksOfTheirOwn(const tables::Recording& recording, DeviceKind kind, ByRank* rows) {
  const tables::Tables& tables = recording.tables();
  std::vector<size_t> ranks_on(tables.devices.size());
  for (const auto& [key, rank] : *rows)
    ranks_on[key.second] += tables.processes[key.first].rank >= 0 ? 1u : 0u;
  for (auto& [key, rank] : *rows) {
    const auto [process, device] = key;
    if (ranks_on[device] < 2 || tables.processes[process].rank < 0)
      continue;
    const auto peaks = FindPeaks(recording, std::vector<TimeSpan>(tables.devices.size()),
                                 [of = process](tables::ProcessId id) { return id.value == of; });
    if (!peaks.ok())
      return peaks.status();
    VRAMSCOPE_ASSIGN_OR_RETURN(auto then, MemoryAt(recording, AtPeaks(tables, *peaks)));
    for (auto& [of, own] : RowsOf(tables, std::move(then), kind)) {
      if (of.first == process)
        rank = std::move(own);
    }
    rank.peak_ns = TimeOf(*peaks, device);
  }
  return {};
}

// The device's timelines have a band for each process.
void TellHistory(const tables::Tables& tables,
                 tables::DeviceId device,
                 const std::vector<Timeline>& timelines,
                 RankMemory* rank) {
  const int64_t to_wall_ns = tables.session.begin_wall_ns - tables.session.begin_ns;
  const auto timeline = std::find_if(timelines.begin(), timelines.end(),
                                     [&](const Timeline& of) { return of.device == device; });
  if (timeline == timelines.end() || timeline->time_ns.empty())
    return;
  const auto band =
      std::find(timeline->groups.begin(), timeline->groups.end(), std::to_string(rank->pid));
  for (size_t i = 0; i < timeline->time_ns.size(); ++i) {
    const auto row = static_cast<size_t>(band - timeline->groups.begin());
    const uint64_t bytes = band == timeline->groups.end() ? 0 : timeline->peak[row][i];
    rank->history.push_back({timeline->time_ns[i] + to_wall_ns, bytes});
  }
  rank->end_wall_ns = std::max(tables.session.end_ns, timeline->time_ns.back()) + to_wall_ns;
}

std::vector<RankExcess> ExcessOf(const RankMemory& heaviest, const RankMemory& median) {
  std::map<std::string, std::map<std::string, int64_t>> layers;  // by category
  for (const auto& [key, bytes] : heaviest.layers)
    layers[key.second][key.first] += static_cast<int64_t>(bytes);
  for (const auto& [key, bytes] : median.layers)
    layers[key.second][key.first] -= static_cast<int64_t>(bytes);
  std::vector<RankExcess> excess;
  for (const auto& [category, of] : layers) {
    RankExcess sum;
    sum.category = category;
    for (const auto& [layer, bytes] : of)
      sum.bytes += bytes;
    if (sum.bytes == 0)
      continue;
    // A layer that has most of it is named with its own bytes; the sum of the others is beside it.
    RankExcess named;
    named.category = category;
    for (const auto& [layer, bytes] : of) {
      if (!layer.empty() && std::abs(bytes - sum.bytes) * 5 <= std::abs(sum.bytes)) {
        named.layer = layer;
        named.bytes = bytes;
      }
    }
    sum.bytes -= named.bytes;
    for (const RankExcess& part : {named, sum}) {
      if (part.bytes != 0)
        excess.push_back(part);
    }
  }
  std::stable_sort(excess.begin(), excess.end(), [](const auto& a, const auto& b) {
    return std::abs(a.bytes) > std::abs(b.bytes);
  });
  return excess;
}

// "python train.py" of a command line with arguments.
std::string ProgramOf(std::string_view command) {
  std::string program;
  bool is_module = false;
  for (size_t begin = 0; begin < command.size();) {
    const size_t end = std::min(command.find(' ', begin), command.size());
    const std::string_view word = command.substr(begin, end - begin);
    begin = end + 1;
    if (program.empty() && !word.empty())
      program = word.substr(word.rfind('/') + 1);
    else if (is_module || word.ends_with(".py"))
      return program + " " + std::string(word.substr(word.rfind('/') + 1));
    is_module = word == "-m";
  }
  return program;
}

// Recordings of a folder that are not of one program, or of several runs of it.
std::string WhyNotCompared(const std::vector<RankMemory>& ranks) {
  std::set<std::string> programs;
  std::map<int32_t, const RankMemory*> first;
  std::string twice;
  for (const RankMemory& rank : ranks) {
    if (rank.file != ranks[0].file || rank.program != ranks[0].program)
      programs.insert({rank.program, ranks[0].program});
    const auto [known, added] = first.try_emplace(rank.number, &rank);
    if (added || rank.number < 0)
      continue;
    const std::string name = "rank " + std::to_string(rank.number);
    if (known->second->file != rank.file)
      twice = name + " is in several recordings, so they are of several runs";
    else if (twice.empty())
      twice = name + " is two processes, " + std::to_string(known->second->pid) + " and " +
              std::to_string(rank.pid) + ", so they are of several jobs";
  }
  programs.erase("");
  if (programs.size() > 1)
    return std::to_string(programs.size()) + " programs: " + *programs.begin() + ", " +
           *std::next(programs.begin()) + (programs.size() > 2 ? ", ..." : "");
  return twice;
}

// Ranks of one number: the name of each has its process, too. Sorted by number.
void NameTwins(std::vector<RankMemory>* ranks) {
  for (size_t begin = 0, end = 0; begin < ranks->size(); begin = end) {
    const int32_t number = (*ranks)[begin].number;
    while (end < ranks->size() && (*ranks)[end].number == number)
      ++end;
    for (size_t i = begin; number >= 0 && end - begin > 1 && i < end; ++i)
      (*ranks)[i].name += " (" + std::to_string((*ranks)[i].pid) + ")";
  }
}

}  // namespace

int32_t RankMemory::Rank() const {
  return number;
}

uint64_t RankReport::excess_bytes() const {
  return ranks.empty() || !not_compared.empty() ? 0 : ranks[heaviest].bytes - ranks[median].bytes;
}
std::string RankReport::MedianName() const {
  return ranks.empty() || !not_compared.empty() ? "" : ranks[median].name;
}
std::string RankReport::HeaviestName() const {
  return ranks.empty() || !not_compared.empty() ? "" : ranks[heaviest].name;
}

// More than noise.
bool RankReport::IsUneven() const {
  return !ranks.empty() && excess_bytes() > std::max(of_gpus ? kLeastExcessOfGpu : 0,
                                                     ranks[median].bytes / kShareOfExcess);
}

util::Status RankFold::Add(const std::string& file, const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto peak, ResolveInstant(recording, Instant{}));
  VRAMSCOPE_ASSIGN_OR_RETURN(auto found, MemoryAt(recording, peak));
  const DeviceKind main = MainKind(found, tables);
  ByRank rows = RowsOf(tables, std::move(found), main);
  AddOthers(tables, main, &rows);
  for (auto& [key, rank] : rows)
    rank.peak_ns = TimeOf(tables.peaks, key.second);
  if (const util::Status own = AtPeaksOfTheirOwn(recording, main, &rows); !own.ok())
    return own;
  const tables::Session& session = tables.session;
  const bool first = report_.first_wall_ns == 0;
  report_.first_wall_ns =
      first ? session.begin_wall_ns : std::min(report_.first_wall_ns, session.begin_wall_ns);
  last_wall_ns_ = first ? session.begin_wall_ns : std::max(last_wall_ns_, session.begin_wall_ns);
  ++report_.recordings;
  report_.of_gpus = report_.of_gpus || main == DeviceKind::kGpu;
  std::vector<Timeline> timelines;
  if (stretches_ > 0) {
    VRAMSCOPE_ASSIGN_OR_RETURN(timelines,
                               MakeTimelinesBy(recording, stretches_, Dimension::kProcess));
  }
  std::set<uint32_t> with_memory;
  for (auto& [key, rank] : rows) {
    const tables::DeviceRow& device = tables.devices[key.second];
    const tables::ProcessRow& process = tables.processes[key.first];
    with_memory.insert(key.first);
    const bool is_helper = IsHelper(tables, rows, key.first);
    rank.number = is_helper ? -1 : process.rank;
    rank.file = file;
    rank.name = process.rank >= 0 ? "rank " + std::to_string(process.rank)
                                  : std::filesystem::path(file).stem().string();
    if (is_helper)
      rank.name += "'s " + std::to_string(process.pid);
    if (process.host.value < tables.hosts.size())
      rank.host = recording.string(tables.hosts[process.host.value].name);
    rank.pid = process.pid;
    rank.process = tables::ProcessId{key.first};
    rank.on_device = tables::DeviceId{key.second};
    rank.program = ProgramOf(recording.string(process.command));
    rank.device = device.index;
    rank.total_bytes = device.total_bytes;
    rank.peak_wall_ns = session.begin_wall_ns + (rank.peak_ns - session.begin_ns);
    TellHistory(tables, tables::DeviceId{key.second}, timelines, &rank);
    report_.bytes += rank.bytes;
    for (const auto& [category, bytes] : rank.categories)
      report_.categories[category] += bytes;
    report_.ranks.push_back(std::move(rank));
  }
  report_.processes_without_memory += tables.processes.size() - 1 - with_memory.size();
  return {};
}

RankReport RankFold::Finish() && {
  std::vector<RankMemory>& ranks = report_.ranks;
  std::stable_sort(ranks.begin(), ranks.end(), [](const RankMemory& a, const RankMemory& b) {
    return std::tie(a.number, a.name, a.device) < std::tie(b.number, b.name, b.device);
  });
  NameTwins(&ranks);
  report_.starts_apart_ns = last_wall_ns_ - report_.first_wall_ns;
  if (ranks.empty())
    return std::move(report_);
  std::set<int32_t> numbers;
  for (const RankMemory& rank : ranks)
    numbers.insert(rank.number);
  // A number that a hostile file gives must not make a list of two thousand million.
  for (int32_t last = -1; const int32_t number : numbers) {
    for (int32_t i = last + 1; i < number && report_.missing.size() < ranks.size() + 64; ++i)
      report_.missing.push_back(i);
    last = number;
  }
  std::vector<size_t> by_bytes(ranks.size());
  for (size_t i = 0; i < by_bytes.size(); ++i)
    by_bytes[i] = i;
  std::stable_sort(by_bytes.begin(), by_bytes.end(),
                   [&](size_t a, size_t b) { return ranks[a].bytes < ranks[b].bytes; });
  report_.median = by_bytes[(by_bytes.size() - 1) / 2];
  report_.heaviest = by_bytes.back();
  report_.not_compared = WhyNotCompared(ranks);
  if (report_.not_compared.empty())
    report_.excess = ExcessOf(ranks[report_.heaviest], ranks[report_.median]);
  return std::move(report_);
}

util::Result<RankReport> RanksWithin(const tables::Recording& recording) {
  std::set<int32_t> numbers;
  for (size_t i = 1; i < recording.tables().processes.size(); ++i)  // row 0 means "none"
    numbers.insert(recording.tables().processes[i].rank);
  numbers.erase(-1);
  if (numbers.size() < 2)
    return RankReport{};
  RankFold fold;
  if (util::Status added = fold.Add("", recording); !added.ok())
    return added;
  return std::move(fold).Finish();
}

}  // namespace vramscope::query
