// SPDX-License-Identifier: Apache-2.0
// Compares a recording of random_driver with the fake driver's books at every instant of the truth
// log: compare LIVE_DIRECTORY TRUTH. The directory is resolved as every command
// does it, and asked as `report --at` asks; its events say only which instant is when, and which
// figures can be known then.
//
// Exit status: 0 the recording is right, 1 it is not (what is wrong is printed), 2 it could not
// look.
#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "differential/settled.h"
#include "differential/truth_reader.h"
#include "format/enums.h"
#include "format/memory_words.h"
#include "pipeline/open_recording.h"
#include "query/core/live_set.h"
#include "query/core/residual.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "trace/trace.h"

namespace differential {
namespace {

namespace cli = vramscope::cli;
namespace format = vramscope::format;
namespace query = vramscope::query;
namespace tables = vramscope::tables;
namespace trace = vramscope::trace;
using format::Part;
using vramscope::util::Result;
using vramscope::util::Status;

constexpr size_t kMaxComplaints = 12;

// When the instants of the truth log are, and what can be known then.
struct Times {
  std::map<size_t, int64_t> instants;  // by place in the log
  SettledTimes settled;
};

// Resolving gives each event a time of its own, no earlier than it says.
Result<Times> ReadTimes(trace::Trace& recording, size_t instants) {
  Times times{{}, SettledTimes(recording)};
  int64_t now_ns = INT64_MIN;
  const Status read = recording.ForEachEvent([&](std::span<const trace::Event> events) {
    for (const trace::Event& event : events) {
      now_ns = now_ns == INT64_MIN ? event.time_ns : std::max(event.time_ns, now_ns + 1);
      times.settled.Apply(event, now_ns);
      const uint64_t named = event.Is<trace::Name>() ? event.As<trace::Name>().address : 0;
      if (named > kInstantBase && named - kInstantBase <= instants)
        times.instants[named - kInstantBase - 1] = now_ns;
    }
  });
  if (!read.ok())
    return read;
  times.settled.Finish();
  return times;
}

// What tells the driver's allocations apart.
enum class Kind : uint8_t { kOther, kLinear, kArray, kPhysical, kImported };

struct Sums {
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// Of a device at an instant.
struct Figures {
  std::map<Kind, Sums> kinds;
  std::map<Part, int64_t> parts;
  int64_t total = 0;
  int64_t of_processes = 0;
  uint64_t block_bytes = 0;
  uint64_t unbacked_bytes = 0;
  uint64_t pool_bytes = 0;
  std::vector<std::pair<uint64_t, uint64_t>> pools;  // reserved bytes, allocations
};

// A row that a segment is made of.
struct BackingRow {
  int64_t begin_ns;
  int64_t end_ns;
  tables::SiteId site;
};

class Comparison {
 public:
  Comparison(const tables::Recording& recording, const TruthLog& truth, Times times)
      : recording_(recording),
        tables_(recording.tables()),
        truth_(truth),
        times_(std::move(times)) {
    for (uint32_t i = 1; i < tables_.devices.size(); ++i) {
      if (KindOf(i) == tables::DeviceKind::kGpu)
        gpus_[tables_.devices[i].index] = i;
    }
    for (const tables::SiteRow& site : tables_.sites)
      kinds_.push_back(KindOfSite(site));
  }

  // An error where the recording cannot be asked.
  Status Run();
  bool right() const { return complaints_ == 0; }
  void PrintCounts() const {
    std::printf("%zu of %zu instants compared, %zu device figures settled, %zu not yet known\n",
                compared_, truth_.instants.size(), settled_, unsettled_);
    std::printf("%zu of %zu samples have a residual\n", samples_with_residual_, samples_);
  }

 private:
  tables::DeviceKind KindOf(uint32_t device) const { return tables_.devices[device].kind; }
  // By the call that made it: in the tables linear and physical memory are both `allocated`.
  Kind KindOfSite(const tables::SiteRow& site) const;
  uint32_t DeviceOf(const tables::SiteRow& site) const {
    return tables_.accounts[site.account.value].device.value;
  }
  bool IsSettled(uint32_t device, int64_t time_ns) const {
    return times_.settled.IsSettled(device - 1, time_ns);
  }
  Status ReadBackingRows();
  Status Compare(const Instant& instant, int64_t time_ns);
  std::vector<Figures> FiguresOf(const Instant& instant,
                                 const query::LiveSet& live,
                                 int64_t time_ns);
  void CompareDevice(const Instant& instant,
                     const DeviceLine& truth,
                     const Figures& figures,
                     bool is_known);
  void ComparePools(const Instant& instant, const DeviceLine& truth, const Figures& figures);
  void CompareHost(const Instant& instant,
                   const query::LiveSet& live,
                   const std::vector<Figures>& devices);
  void CompareWhole();
  void CountSamples();
  void Expect(const Instant& instant,
              int device,
              const char* what,
              uint64_t expected,
              int64_t found);
  __attribute__((format(printf, 2, 3))) void Complain(const char* format, ...);

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const TruthLog& truth_;
  const Times times_;
  std::map<int32_t, uint32_t> gpus_;  // by CUDA's number: the table's
  std::vector<Kind> kinds_;           // by SiteId
  std::vector<BackingRow> backing_;
  std::map<uint32_t, uint64_t> highest_;  // by device: of the instants at which it is known
  int64_t managed_since_ns_ = INT64_MAX;  // the first managed memory came then
  bool had_managed_ = false;
  size_t compared_ = 0;
  size_t settled_ = 0;
  size_t unsettled_ = 0;
  size_t complaints_ = 0;
  // Counted only: a sample is taken at any moment, and the books say nothing about that one.
  size_t samples_ = 0;
  size_t samples_with_residual_ = 0;
};

void Comparison::Complain(const char* format, ...) {
  if (++complaints_ > kMaxComplaints)
    return;
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
}

void Comparison::Expect(const Instant& instant,
                        int device,
                        const char* what,
                        uint64_t expected,
                        int64_t found) {
  const auto difference = found - static_cast<int64_t>(expected);
  if (difference == 0)
    return;
  Complain("operation %" PRIu64 " (%s), instant %" PRIu64
           ", after %s -> %d: device %d, %s: expected %" PRIu64 ", found %" PRId64 " (%+" PRId64
           " = %+.2f MiB)",
           instant.operation, instant.operation_name.c_str(), instant.number, instant.call.c_str(),
           instant.result, device, what, expected, found, difference,
           static_cast<double>(difference) / (1 << 20));
}

Kind Comparison::KindOfSite(const tables::SiteRow& site) const {
  const std::string_view api = recording_.string(site.api);
  switch (site.part) {
    case Part::kArrays:
      return Kind::kArray;
    case Part::kImported:
      return api.starts_with("cuIpcOpenMemHandle") ? Kind::kImported : Kind::kOther;
    case Part::kAllocated:
    case Part::kUncut:
    case Part::kCached:
      if (site.stream != 0 || query::IsBlock(site))
        return Kind::kOther;
      // Mappings, which segments of reservations are made of, have no call.
      if (api.empty() || api.starts_with("cuMemCreate"))
        return Kind::kPhysical;
      return api.starts_with("cuMemAlloc") ? Kind::kLinear : Kind::kOther;
    default:
      return Kind::kOther;
  }
}

Status Comparison::ReadBackingRows() {
  tables::AllocationFrame frame;
  for (size_t i = 0; i < recording_.frame_count(); ++i) {
    const uint32_t wanted = tables::kBeginNs | tables::kEndNs | tables::kBytes | tables::kSite;
    if (const Status read = recording_.Read(i, wanted, &frame); !read.ok())
      return read;
    for (size_t row = 0; row < frame.rows; ++row) {
      const tables::SiteId site{frame.site[row]};
      if (tables_.sites[site.value].part == Part::kManaged)
        managed_since_ns_ = std::min(managed_since_ns_, frame.begin_ns[row]);
      if (tables_.sites[site.value].backing != 0 && frame.bytes[row] != 0)
        backing_.push_back({frame.begin_ns[row], frame.end_ns[row], site});
    }
  }
  return {};
}

// By device of the table.
std::vector<Figures> Comparison::FiguresOf(const Instant& instant,
                                           const query::LiveSet& live,
                                           int64_t time_ns) {
  std::vector<Figures> devices(tables_.devices.size());
  query::ForEachLeaf(recording_, live, [&](const query::Leaf& leaf) {
    Figures& figures = devices[leaf.device.value];
    const auto bytes = static_cast<int64_t>(leaf.bytes);
    figures.parts[leaf.site.part] += bytes;
    figures.total += bytes;
    figures.of_processes += leaf.process.value != 0 ? bytes : 0;
  });
  for (uint32_t i = 1; i < live.sites.size(); ++i) {
    const query::LiveSum& sum = live.sites[i];
    Figures& figures = devices[DeviceOf(tables_.sites[i])];
    if (tables_.sites[i].unbacked != 0) {
      figures.unbacked_bytes += sum.bytes + sum.rounding_bytes;
      continue;
    }
    if (query::IsBlock(tables_.sites[i]))
      figures.block_bytes += sum.bytes + sum.rounding_bytes;
    figures.kinds[kinds_[i]].bytes += sum.bytes + sum.rounding_bytes;
    figures.kinds[kinds_[i]].count += sum.count;
  }
  for (const BackingRow& row : backing_) {
    if (row.begin_ns <= time_ns && time_ns < row.end_ns)
      ++devices[DeviceOf(tables_.sites[row.site.value])].kinds[kinds_[row.site.value]].count;
  }
  for (uint32_t i = 1; i < live.segments.size(); ++i) {
    const query::SegmentState& segment = live.segments[i];
    const auto in_use = tables_.segments[i].part_in_use;
    const uint32_t site = tables_.segments[i].site.value;
    Figures& figures = devices[DeviceOf(tables_.sites[site])];
    const uint64_t held = segment.held_bytes;
    // No more blocks than the segment has bytes; what pools hold cannot be asked during a capture.
    if (static_cast<int64_t>(held) < 0 ||
        (held < segment.used_bytes &&
         (in_use == Part::kFragmentation || in_use == Part::kSlabSlack)))
      Complain("instant %" PRIu64 ", after %s: segment %u has %" PRIu64 " bytes in %" PRId64,
               instant.number, instant.call.c_str(), i, segment.used_bytes,
               static_cast<int64_t>(held));
    if (in_use == Part::kSlabSlack) {
      // Of small requests the pages count.
      figures.kinds[Kind::kLinear].bytes += held - segment.used_bytes;
    } else if (in_use == Part::kFragmentation) {
      figures.kinds[kinds_[site]].bytes += held;
    } else {
      figures.pool_bytes += held;
      figures.pools.emplace_back(held, segment.used_count);
    }
  }
  for (uint32_t i = 1; i < live.counters.size(); ++i) {
    if (live.counters[i] < 0)
      Complain("instant %" PRIu64 ", after %s: counter %u is %" PRId64, instant.number,
               instant.call.c_str(), i, live.counters[i]);
  }
  return devices;
}

bool IsDriverPart(Part part) {
  return (part >= Part::kContext && part <= Part::kOtherDriver) || part == Part::kRmInternal;
}

void Comparison::CompareDevice(const Instant& instant,
                               const DeviceLine& truth,
                               const Figures& figures,
                               bool is_known) {
  const auto expect = [&](const char* what, uint64_t expected, auto found) {
    Expect(instant, truth.device, what, expected, static_cast<int64_t>(found));
  };
  const auto of_kind = [&](Kind kind) {
    const auto found = figures.kinds.find(kind);
    return found == figures.kinds.end() ? Sums() : found->second;
  };
  const auto of_part = [&](Part part) {
    const auto found = figures.parts.find(part);
    return found == figures.parts.end() ? 0 : found->second;
  };
  expect("sum of the processes",
         static_cast<uint64_t>(figures.total - of_part(Part::kOtherProcesses) -
                               of_part(Part::kRmInternal) - of_part(Part::kUvmDriver) -
                               of_part(Part::kUnexplained)),
         figures.of_processes);
  expect("linear memory", truth.linear_charged, of_kind(Kind::kLinear).bytes);
  expect("linear allocations", truth.linear_count, of_kind(Kind::kLinear).count);
  expect("arrays", truth.array_count, of_kind(Kind::kArray).count);
  expect("physical memory", truth.physical_bytes, of_kind(Kind::kPhysical).bytes);
  expect("physical handles", truth.physical_count, of_kind(Kind::kPhysical).count);
  expect("imports", truth.imported_count, of_kind(Kind::kImported).count);
  expect("blocks", truth.block_bytes, figures.block_bytes);
  expect("blocks without memory", truth.unbacked_bytes, figures.unbacked_bytes);
  // The contents of pools and graphs cannot be queried while a stream is captured.
  if (instant.host.capturing == 0) {
    expect("graph memory", truth.graph_reserved,
           of_part(Part::kGraphUsed) + of_part(Part::kGraphCached));
    expect("reserved of pools", truth.pool_reserved, figures.pool_bytes);
  }
  ComparePools(instant, truth, figures);
  if (!is_known) {
    ++unsettled_;
    return;
  }
  ++settled_;
  int64_t driver = 0;
  for (const auto& [part, bytes] : figures.parts)
    driver += IsDriverPart(part) ? bytes : 0;
  const int64_t managed = of_part(Part::kManaged);
  const int64_t uvm = managed + of_part(Part::kUvmDriver);
  const uint64_t arrays = of_kind(Kind::kArray).bytes;
  // Where threads make arrays beside other things, only the sum is known. Pages of managed memory
  // may have come with a launch: NVML's list of processes would tell, and is read seldom.
  if (truth_.has_threads || had_managed_) {
    expect("arrays, driver-owned and managed memory",
           truth.array_charged + truth.driver_bytes + truth.uvm,
           static_cast<int64_t>(arrays) + driver + uvm);
  } else {
    expect("array memory", truth.array_charged, arrays);
    expect("driver-owned memory", truth.driver_bytes, driver);
  }
  if (!had_managed_)
    expect("the process", static_cast<uint64_t>(truth.device_bytes),
           figures.of_processes + of_part(Part::kRmInternal));
  if (managed > static_cast<int64_t>(instant.host.managed_bytes))
    expect("managed memory on the device, at most", instant.host.managed_bytes, managed);
  expect("the device", truth.used, figures.total);
  expect("unexplained", 0, of_part(Part::kUnexplained));
}

// A pool's number is in no table: each must be found by what it holds, and no two the same one.
void Comparison::ComparePools(const Instant& instant,
                              const DeviceLine& truth,
                              const Figures& figures) {
  std::vector<std::pair<uint64_t, uint64_t>> found = figures.pools;
  for (const PoolLine& pool : instant.pools) {
    if (pool.device != truth.device || (pool.reserved == 0 && pool.allocations == 0))
      continue;
    const auto it = std::find_if(found.begin(), found.end(), [&](const auto& one) {
      return one.second == pool.allocations &&
             (one.first == pool.reserved || instant.host.capturing != 0);
    });
    if (it == found.end())
      Complain("operation %" PRIu64 " (%s), instant %" PRIu64
               ", after %s: device %d, no pool has %" PRIu64 " allocations in %" PRIu64 " bytes",
               instant.operation, instant.operation_name.c_str(), instant.number,
               instant.call.c_str(), pool.device, pool.allocations, pool.reserved);
    else
      found.erase(it);
  }
}

void Comparison::CompareHost(const Instant& instant,
                             const query::LiveSet& live,
                             const std::vector<Figures>& devices) {
  std::map<Part, Sums> sums;
  for (uint32_t i = 1; i < live.sites.size(); ++i) {
    Sums& sum = sums[tables_.sites[i].part];
    sum.bytes += live.sites[i].bytes + live.sites[i].rounding_bytes;
    sum.count += live.sites[i].count;
  }
  const auto expect = [&](const char* what, uint64_t expected, uint64_t found) {
    Expect(instant, -2, what, expected, static_cast<int64_t>(found));
  };
  const HostLine& truth = instant.host;
  expect("pinned", truth.pinned_bytes, sums[Part::kPinned].bytes);
  expect("pinned allocations", truth.pinned_count, sums[Part::kPinned].count);
  expect("registered", truth.registered_bytes, sums[Part::kRegistered].bytes);
  expect("registered ranges", truth.registered_count, sums[Part::kRegistered].count);
  // The part on an unknown device: its bytes are in no row.
  expect("managed", 0, sums[Part::kManaged].bytes);
  expect("managed allocations", truth.managed_count, sums[Part::kManaged].count);
  for (uint32_t i = 1; i < devices.size(); ++i) {
    if (KindOf(i) == tables::DeviceKind::kHost)
      expect("host total", truth.pinned_bytes + truth.registered_bytes,
             static_cast<uint64_t>(devices[i].total));
  }
}

Status Comparison::Compare(const Instant& instant, int64_t time_ns) {
  ++compared_;
  had_managed_ = managed_since_ns_ <= time_ns;
  const Result<query::LiveSet> live =
      query::ReadLiveSet(recording_, query::AllAt(tables_, time_ns));
  if (!live)
    return live.status();
  const std::vector<Figures> devices = FiguresOf(instant, *live, time_ns);
  for (const DeviceLine& truth : instant.devices) {
    const auto found = gpus_.find(truth.device);
    if (found == gpus_.end())
      continue;
    // Nothing can be queried while a stream is captured.
    const bool is_known = instant.host.capturing == 0 && IsSettled(found->second, time_ns);
    CompareDevice(instant, truth, devices[found->second], is_known);
    if (is_known)
      highest_[found->second] = std::max(highest_[found->second], truth.used);
  }
  CompareHost(instant, *live, devices);
  return {};
}

// Checks of the whole recording.
void Comparison::CompareWhole() {
  if (compared_ < truth_.instants.size())
    Complain("%zu of %zu instants are in the recording", compared_, truth_.instants.size());
  for (const tables::ViolationRow& violation : tables_.violations)
    Complain("violation %d: %" PRIu64 ", %s", static_cast<int>(violation.invariant),
             violation.count, std::string(recording_.string(violation.first)).c_str());
  for (const tables::LossRow& loss : tables_.losses) {
    const std::string name(recording_.string(loss.name));
    if (name == format::LossName(static_cast<uint64_t>(format::Loss::kUnknownFree)) ||
        name == format::LossName(static_cast<uint64_t>(format::Loss::kDoubleAlloc)))
      Complain("loss: %s, %" PRIu64, name.c_str(), loss.count);
  }
  for (const tables::PeakRow& peak : tables_.peaks) {
    if (const auto highest = highest_.find(peak.device.value);
        highest != highest_.end() && peak.bytes < highest->second)
      Complain("device %u: its peak is %" PRIu64 ", and an instant was at %" PRIu64,
               peak.device.value, peak.bytes, highest->second);
  }
}

void Comparison::CountSamples() {
  for (const tables::SampleRow& sample : tables_.samples) {
    if (!IsSettled(sample.device.value, sample.time_ns))
      continue;
    ++samples_;
    if (sample.counted != 0 && query::JudgeSample(sample).residual_bytes != 0)
      ++samples_with_residual_;
  }
}

Status Comparison::Run() {
  if (const Status read = ReadBackingRows(); !read.ok())
    return read;
  for (const auto& [number, time_ns] : times_.instants) {
    if (const Status compared = Compare(truth_.instants[number], time_ns); !compared.ok())
      return compared;
  }
  CompareWhole();
  CountSamples();
  const Result<query::Report> report = query::MakeReport(recording_, {});
  if (!report)
    return report.status();
  for (const query::Invariant& invariant : report->invariants) {
    // Of samples the books know nothing.
    if (!invariant.holds && invariant.name.find("NVML") == std::string::npos)
      Complain("%s: %s", invariant.name.c_str(), invariant.detail.c_str());
  }
  return {};
}

Result<bool> Run(const char* directory, const TruthLog& truth) {
  const Result<std::unique_ptr<trace::Trace>> events =
      trace::OpenTrace(directory, {.native_names = false});
  if (!events)
    return events.status();
  Result<Times> times = ReadTimes(**events, truth.instants.size());
  if (!times)
    return times.status();
  const Result<std::unique_ptr<tables::Recording>> recording =
      cli::OpenRecording(directory, {.native_names = false});
  if (!recording)
    return recording.status();
  Comparison comparison(**recording, truth, std::move(*times));
  if (const Status run = comparison.Run(); !run.ok())
    return run;
  comparison.PrintCounts();
  return comparison.right();
}

int Main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "differential_compare LIVE_DIRECTORY TRUTH\n");
    return 2;
  }
  TruthLog truth;
  if (!ReadTruth(argv[2], &truth)) {
    std::fprintf(stderr, "%s: cannot be read\n", argv[2]);
    return 2;
  }
  const Result<bool> right = Run(argv[1], truth);
  if (!right) {
    std::fprintf(stderr, "%s\n", right.status().message().c_str());
    return 2;
  }
  return *right ? 0 : 1;
}

}  // namespace
}  // namespace differential

int main(int argc, char** argv) {
  return differential::Main(argc, argv);
}
