// SPDX-License-Identifier: Apache-2.0
// How long questions take on a finished recording of a made-up training.
//
//   query_bench [EVENTS] [FILE]
//
// Without FILE a temporary one is written, and removed. An event is an allocation or a free.
#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "format/memory_words.h"
#include "query/allocator/allocator_model.h"
#include "query/allocator/whatif.h"
#include "query/core/peaks.h"
#include "query/diff/diff.h"
#include "query/dimensions/report.h"
#include "tables/reader.h"
#include "tables/writer.h"

namespace vramscope::query {
namespace {

using Clock = std::chrono::steady_clock;
using format::Category;
using format::Part;

constexpr uint32_t kPlaces = 4000;
constexpr uint32_t kLayers = 400;
constexpr int64_t kStepNs = 100;
constexpr char kPyTorchVersion[] = "2.13.0";
constexpr uint64_t kDeviceBytes = uint64_t{80} << 30;

struct Cost {
  double seconds = 0;
  double cpu_seconds = 0;  // of all threads
};

Cost CostOf(const std::function<void()>& work) {
  const auto cpu = [] {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const auto begin = Clock::now();
  const double cpu_begin = cpu();
  work();
  return {std::chrono::duration<double>(Clock::now() - begin).count(), cpu() - cpu_begin};
}

Cost Slower(Cost a, Cost b) {
  return a.seconds > b.seconds ? a : b;
}

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "query_bench: %s\n", message.c_str());
  std::exit(2);
}

template <class Row>
uint32_t Append(std::vector<Row>& table, const Row& row) {
  table.push_back(row);
  return static_cast<uint32_t>(table.size() - 1);
}

// One process on one GPU: its sites, the segments of its allocator, its context.
tables::Tables MakeTables(int64_t end_ns,
                          uint64_t allocations_per_iteration,
                          std::vector<tables::SegmentRow> segments) {
  tables::Tables tables;
  tables.session.begin_ns = 1;
  tables.session.end_ns = end_ns;
  tables::NoteRow version;
  version.key = tables.strings.Add("PyTorch");
  version.value = tables.strings.Add(kPyTorchVersion);
  Append(tables.notes, version);
  tables::DeviceRow device;
  device.total_bytes = kDeviceBytes;
  Append(tables.devices, device);
  tables::ProcessRow process;
  process.pid = 7;
  process.rank = -1;
  process.begin_ns = 1;
  process.end_ns = process.exit_ns = end_ns;
  const tables::ProcessId process_id{Append(tables.processes, process)};
  tables::AccountRow account;
  account.process = process_id;
  account.device = tables::DeviceId{1};
  account.end_ns = tables::kNever;
  const tables::AccountId account_id{Append(tables.accounts, account)};
  const auto pytorch = tables.strings.Add("PyTorch");
  std::vector<tables::StringId> modules;
  for (uint32_t i = 0; i < kLayers; ++i)
    modules.push_back(tables.strings.Add("model.layers." + std::to_string(i)));
  tables::FrameRow frame;
  frame.file = tables.strings.Add("train.py");
  for (uint32_t i = 1; i <= kPlaces; ++i) {
    frame.line = i;
    Append(tables.frames, frame);
    Append(tables.stacks, {tables::StackId{i / 3}, tables::FrameId{i}});
  }
  tables::SiteRow site;
  site.account = account_id;
  site.owner = pytorch;
  site.part = Part::kCached;
  site.category = Category::kCached;
  const tables::SiteId free{Append(tables.sites, site)};  // 1
  site.backing = 1;
  Append(tables.sites, site);  // 2
  site.backing = 0;
  site.allocator = pytorch;
  site.part = Part::kAllocated;
  for (uint32_t i = 1; i <= kPlaces; ++i) {
    site.stack = site.place = tables::StackId{i};
    site.module = modules[i % kLayers];
    site.category = i % 2 == 0 ? Category::kActivation : Category::kTemporary;
    site.allocated_count = 1;
    Append(tables.sites, site);  // from 3 on
  }
  for (tables::SegmentRow& segment : segments) {
    segment.site = free;
    segment.part_in_use = Part::kFragmentation;
    Append(tables.segments, segment);
  }
  const int64_t iteration_ns = static_cast<int64_t>(allocations_per_iteration) * 2 * kStepNs;
  for (int64_t k = 0; (k + 1) * iteration_ns < end_ns; ++k)
    tables.iterations.push_back({process_id, k, k * iteration_ns, (k + 1) * iteration_ns});
  return tables;
}

// PyTorch's allocator, and rows of what it does.
class MadeUpProcess : public AllocatorListener {
 public:
  explicit MadeUpProcess(tables::Writer* writer)
      : writer_(writer),
        driver_(kDeviceBytes),
        model_(RulesOf(kPyTorchVersion), kDeviceBytes, &driver_, this) {}

  struct Live {
    AllocatorBlock* block;
    tables::AllocationRow row;
  };
  Live Allocate(uint64_t bytes, uint32_t site) {
    Live live;
    live.block = model_.Allocate(bytes, 0);
    if (live.block == nullptr)
      Die("the made-up training does not fit");
    live.row.begin_ns = live.row.alloc_ns = now_ns_ += kStepNs;
    live.row.address = live.block->address;
    live.row.bytes = live.block->bytes;
    live.row.rounding_bytes = live.block->bytes - bytes;
    live.row.site = tables::SiteId{site};
    live.row.segment = std::prev(segments_at_.upper_bound(live.row.address))->second;
    return live;
  }
  void Free(const Live& live) {
    model_.Free(live.block);
    End(live.row, now_ns_ += kStepNs);
  }
  void Finish(const std::vector<Live>& stay) {
    for (const tables::AllocationRow& row : backing_)
      End(row, tables::kNever);
    for (const Live& live : stay)
      End(live.row, tables::kNever);
  }
  void OnAllocatorEvent(const AllocatorEvent& event) override {
    if (event.action != AllocatorAction::kSegmentAlloc)
      return;
    tables::SegmentRow segment;
    segment.address = event.address;
    segment.size_bytes = event.bytes;
    segments_.push_back(segment);
    tables::AllocationRow row;
    row.begin_ns = row.alloc_ns = now_ns_ += kStepNs;
    row.address = event.address;
    row.bytes = event.bytes;
    row.site = tables::SiteId{2};
    row.segment = tables::SegmentId{static_cast<uint32_t>(segments_.size())};
    segments_at_[event.address] = row.segment;
    backing_.push_back(row);
  }
  int64_t now_ns() const { return now_ns_; }
  const std::vector<tables::SegmentRow>& segments() const { return segments_; }

 private:
  void End(tables::AllocationRow row, int64_t end_ns) {
    row.end_ns = end_ns;
    if (const util::Status status = writer_->Add(row); !status.ok())
      Die(status.message());
  }

  tables::Writer* writer_;
  int64_t now_ns_ = 1;
  std::vector<tables::SegmentRow> segments_;
  std::map<uint64_t, tables::SegmentId> segments_at_;
  std::vector<tables::AllocationRow> backing_;
  SimulatedDriver driver_;
  AllocatorModel model_;
};

// Forwards that leave every other block behind, and backwards that free them in turn; a block in a
// thousand stays.
void WriteRecording(int fd, const std::string& path, uint64_t events) {
  tables::Writer writer(fd, path);
  MadeUpProcess process(&writer);
  const uint64_t allocations = events / 2;
  const uint64_t per_iteration = 10'000;
  std::vector<MadeUpProcess::Live> kept;
  std::vector<MadeUpProcess::Live> stay;
  for (uint64_t i = 0; i < allocations; ++i) {
    const MadeUpProcess::Live live =
        process.Allocate(512 * (1 + (i * 7919) % 2000), static_cast<uint32_t>(3 + i % kPlaces));
    if (i % 1000 == 999)
      stay.push_back(live);
    else if (i % 2 == 0)
      kept.push_back(live);
    else
      process.Free(live);
    if ((i + 1) % per_iteration == 0) {
      for (; !kept.empty(); kept.pop_back())
        process.Free(kept.back());
    }
  }
  for (; !kept.empty(); kept.pop_back())
    process.Free(kept.back());
  process.Finish(stay);
  // Resolve fills the peaks; here the instant is as good as any.
  tables::Tables tables = MakeTables(process.now_ns() + 1, per_iteration, process.segments());
  tables::PeakRow peak;
  peak.device = tables::DeviceId{1};
  peak.time_ns = process.now_ns() / 2;
  peak.bytes = kDeviceBytes;
  tables.peaks.push_back(peak);
  NoteAllocatedPeaks(tables.peaks, &tables);
  if (const util::Status status = writer.Finish(tables); !status.ok())
    Die(status.message());
  std::printf("written: %llu allocations, %.2f bytes an event\n",
              static_cast<unsigned long long>(allocations),
              static_cast<double>(writer.file_bytes()) / static_cast<double>(events));
}

void Ask(const tables::Recording& recording, const std::string& at, std::vector<Dimension> by) {
  ReportQuery query;
  query.at = *ParseInstant(at);
  query.by = std::move(by);
  const auto report = MakeReport(recording, query);
  if (!report.ok())
    Die(report.status().message());
}

void PrintTime(const char* what, Cost cost) {
  std::printf("%-40s %8.3f s %8.3f s of CPU\n", what, cost.seconds, cost.cpu_seconds);
}

int Main(int argc, char** argv) {
  const uint64_t events = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  std::string path = argc > 2 ? argv[2] : "/tmp/query_bench.XXXXXX";
  const bool temporary = argc <= 2;
  const int fd = temporary ? mkstemp(path.data())
                           : open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0)
    Die("cannot write " + path);
  PrintTime("write", CostOf([&] { WriteRecording(fd, path, events); }));
  std::unique_ptr<tables::Recording> recording;
  PrintTime("open", CostOf([&] {
              auto opened = tables::Open(path);
              if (!opened.ok())
                Die(opened.status().message());
              recording = std::move(*opened);
            }));
  PrintTime("report at the peak", CostOf([&] { Ask(*recording, "peak", {}); }));
  Cost worst;
  std::mt19937_64 random(2);
  const int64_t end_ns = recording->tables().session.end_ns;
  for (int i = 0; i < 20; ++i) {
    const auto at_ns = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(end_ns - 1));
    worst = Slower(worst, CostOf([&] { Ask(*recording, "@" + std::to_string(at_ns), {}); }));
  }
  PrintTime("report at 20 instants, the slowest", worst);
  worst = {};
  for (size_t d = 0; d < kDimensionCount; ++d) {
    worst =
        Slower(worst, CostOf([&] {
                 Ask(*recording, "@" + std::to_string(end_ns / 3 * 2), {static_cast<Dimension>(d)});
               }));
  }
  PrintTime("report by any dimension, the slowest", worst);
  PrintTime("report at iter:5", CostOf([&] { Ask(*recording, "iter:5", {}); }));
  PrintTime("report at the end", CostOf([&] { Ask(*recording, "end", {}); }));
  PrintTime("peaks", CostOf([&] { (void)FindPeaks(*recording).ok(); }));
  PrintTime("timelines", CostOf([&] { (void)MakeTimelines(*recording, 1000).ok(); }));
  PrintTime("iterations", CostOf([&] { (void)MakeIterations(*recording).ok(); }));
  PrintTime("diff with itself, both read anew", CostOf([&] {
              const auto other = tables::Open(path);
              if (!other.ok() || !MakeDiff(*recording, **other).ok())
                Die("no diff");
            }));
  PrintTime("what if", CostOf([&] {
              const auto answer = MakeWhatIf(*recording, {});
              if (!answer.ok() || !answer->IsReproduced())
                Die("no replay");
            }));
  PrintTime("leaks", CostOf([&] { (void)MakeLeaks(*recording, {}).ok(); }));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("highest memory: %ld MiB\n", usage.ru_maxrss / 1024);
  close(fd);
  if (temporary)
    unlink(path.c_str());
  return 0;
}

}  // namespace
}  // namespace vramscope::query

int main(int argc, char** argv) {
  return vramscope::query::Main(argc, argv);
}
