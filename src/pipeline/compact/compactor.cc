// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "pipeline/compact/compaction.h"
#include "pipeline/compact/dropper.h"
#include "pipeline/compact/planner.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "query/core/peaks.h"
#include "tables/reader.h"
#include "trace/live/live_trace.h"
#include "util/owned_file.h"
#include "util/size_text.h"

namespace vramscope::compact {
namespace {

// Younger records may still be in progress in a thread.
constexpr int64_t kTooYoungNs = 50'000'000;
// Faults of the recorded program wait while a hole is made.
constexpr uint64_t kHoleBytes = 1 << 20;
constexpr std::chrono::milliseconds kLockStep{20};
constexpr std::chrono::seconds kLockFor{5};
constexpr uint32_t kMostProcesses = 64;

uint64_t SpaceOf(const util::UniqueFd& file) {
  struct stat info {};
  return fstat(file.get(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
}

std::string NameIn(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

class Compactor {
 public:
  explicit Compactor(CompactOptions options) : options_(std::move(options)) {}
  util::Status Run();

 private:
  struct Made {
    std::string name;  // of the live file
    CompactionFile past;
  };

  uint64_t LiveSpace() const;
  // False if nothing can become past now.
  bool Plan(const trace::LiveTrace& trace, const tables::Recording& recording);
  util::Status FindInstants(const trace::LiveTrace& trace, const tables::Recording& recording);
  util::Status Make();
  // The same without a look at anything but the oldest chunks.
  util::Status Drop();
  util::Status GiveBack();
  // The instants that are kept, for the launcher to hand to a drop.
  void PrintInstants(const trace::LiveTrace& trace) const;

  CompactOptions options_;
  util::OwnedDirectory live_;
  std::vector<CompactionPlan> plans_;
  std::vector<std::vector<int64_t>> instants_;
  std::vector<Made> made_;
};

uint64_t Compactor::LiveSpace() const {
  uint64_t bytes = 0;
  for (const std::string& name : live_.Names()) {
    if (!name.ends_with(".vrl"))
      continue;
    if (const auto file = live_.Open(name, nullptr); file)
      bytes += SpaceOf(*file);
  }
  return bytes;
}

bool Compactor::Plan(const trace::LiveTrace& trace, const tables::Recording& recording) {
  const uint64_t live = LiveSpace();
  if (live <= options_.to_bytes)
    return false;
  uint64_t left = live - options_.to_bytes;
  int64_t until_ns = INT64_MIN;
  const int64_t youngest_ns = trace.until_ns() - kTooYoungNs;
  for (const OldChunk& chunk : FindOldChunks(trace)) {
    if (left == 0 || chunk.end_ns > youngest_ns)
      break;
    left -= std::min<uint64_t>(left, chunk.size_bytes);
    until_ns = chunk.end_ns;
  }
  if (until_ns == INT64_MIN)
    return false;
  const int64_t before_ns = trace.session().history_ns.value_or(INT64_MIN);
  until_ns = std::max(until_ns, before_ns);

  // Processes are cut where an iteration ends: nothing is then under way.
  const tables::Tables& tables = recording.tables();
  struct Iterations {
    int64_t count = 0;
    int64_t cut_ns = INT64_MIN;
    int64_t last_ns = INT64_MIN;
  };
  std::vector<Iterations> of_process(trace.processes().size());
  for (const tables::IterationRow& row : tables.iterations) {
    if (row.process.value == 0 || row.process.value > of_process.size())
      continue;
    Iterations& of = of_process[row.process.value - 1];
    // The last one may continue.
    if (of.last_ns != INT64_MIN && of.last_ns <= until_ns) {
      of.count = row.number;
      of.cut_ns = of.last_ns;
    }
    of.last_ns = row.end_ns;
  }
  int64_t first_cut_ns = until_ns;
  plans_.resize(trace.files().size());
  for (size_t i = 0; i < plans_.size(); ++i) {
    const trace::ProcessId process = trace.context(i).process;
    CompactionPlan& plan = plans_[i];
    plan.file = i;
    plan.cut_ns = until_ns;
    if (process == trace::kNoProcess)
      continue;
    const Iterations& of = of_process[process.value];
    if (of.cut_ns > before_ns)
      plan.cut_ns = of.cut_ns;
    plan.iterations = static_cast<uint64_t>(std::max<int64_t>(of.count, 0));
    plan.by_marks =
        tables.processes[process.value + size_t{1}].iterations_by == tables::IterationsBy::kMarks;
    first_cut_ns = std::min(first_cut_ns, plan.cut_ns);
  }
  bool has_chunks = false;
  for (CompactionPlan& plan : plans_) {
    if (trace.files()[plan.file].is_launcher())
      plan.cut_ns = first_cut_ns;
    ChooseChunks(trace, &plan);
    has_chunks = has_chunks || plan.has_chunks();
  }
  return has_chunks;
}

// The highest of each device, and of each process on it where there are several.
util::Status Compactor::FindInstants(const trace::LiveTrace& trace,
                                     const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  instants_.resize(trace.devices().size());
  const auto add = [&](const std::vector<tables::PeakRow>& peaks) {
    for (const tables::PeakRow& peak : peaks) {
      if (peak.device.value != 0 && peak.device.value <= instants_.size())
        instants_[peak.device.value - 1].push_back(peak.time_ns);
    }
  };
  add(tables.peaks);
  const auto allocated = query::AllocatedPeaks(recording);
  if (!allocated)
    return allocated.status();
  add(*allocated);
  const std::vector<query::TimeSpan> all(tables.devices.size());
  const auto processes = static_cast<uint32_t>(tables.processes.size());
  for (uint32_t i = 1; processes > 2 && i < std::min(processes, kMostProcesses); ++i) {
    auto peaks = query::FindPeaks(recording, all,
                                  [i](tables::ProcessId process) { return process.value == i; });
    if (!peaks)
      return peaks.status();
    add(*peaks);
  }
  return {};
}

util::Status Compactor::Make() {
  auto opened = trace::LiveTrace::Open(options_.directory, options_.directory,
                                       cli::UpToNow(options_.directory, {.native_names = false}));
  if (!opened)
    return opened.status();
  auto& trace = static_cast<trace::LiveTrace&>(**opened);
  const util::UniqueFd memory(memfd_create("vramscope", MFD_CLOEXEC));
  VRAMSCOPE_RETURN_IF_ERROR(cli::WriteResolved(trace, memory.get(), options_.directory, {}));
  const auto recording = tables::OpenDescriptor(memory.get(), options_.directory);
  if (!recording)
    return recording.status();
  if (!Plan(trace, **recording))
    return {};
  VRAMSCOPE_RETURN_IF_ERROR(FindInstants(trace, **recording));
  PrintInstants(trace);
  CompactionPlanner planner(trace, std::move(instants_), &plans_);
  VRAMSCOPE_RETURN_IF_ERROR(
      trace.ForEachEvent([&](std::span<const trace::Event> events) { planner.Apply(events); }));
  planner.Finish();
  for (const CompactionPlan& plan : plans_) {
    const trace::LiveFile& file = trace.files()[plan.file];
    if (plan.has_chunks())
      made_.push_back(
          {NameIn(file.path()), MakePastFile(file, *trace.context(plan.file).clock, plan, &trace)});
  }
  return {};
}

void Compactor::PrintInstants(const trace::LiveTrace& trace) const {
  std::string text;
  for (size_t i = 0; i < trace.files().size(); ++i) {
    for (const auto& [local, device] : trace.context(i).devices) {
      if (device.value < 0 || trace.files()[i].is_launcher())
        continue;
      for (const int64_t ns : instants_[static_cast<size_t>(device.value)])
        text += fmt::format("{}:{}:{}\n", NameIn(trace.files()[i].path()), local, ns);
    }
  }
  (void)cli::PrintOut(text);
}

util::Status Compactor::Drop() {
  const uint64_t live = LiveSpace();
  if (live <= options_.to_bytes)
    return {};
  std::map<std::string, Dropper::Instants> instants;
  for (const std::string& text : options_.instants) {
    const size_t ns = text.rfind(':');
    const size_t device = text.rfind(':', ns - 1);
    if (ns == std::string::npos || device == std::string::npos)
      continue;
    const auto number = util::WholeNumber<int64_t>(text.substr(device + 1, ns - device - 1));
    const auto at_ns = util::WholeNumber<int64_t>(text.substr(ns + 1));
    if (number && at_ns)
      instants[text.substr(0, device)][*number].insert(*at_ns);
  }
  trace::LossCounter losses;
  std::vector<trace::LiveFile> files;
  for (const std::string& name : live_.Names()) {
    if (!name.ends_with(".vrl"))
      continue;
    if (auto file = trace::LiveFile::Open(options_.directory + "/" + name, &losses, true); file)
      files.push_back(std::move(*file));
  }
  for (CompactionPlan& plan :
       ChooseOldest(files, live - options_.to_bytes, base::MonotonicNs() - kTooYoungNs)) {
    if (!plan.has_chunks())
      continue;
    const trace::LiveFile& file = files[plan.file];
    const std::string name = NameIn(file.path());
    const trace::TickClock clock = ClockOfChunks(file);
    Dropper(file, clock, instants[name], &plan).Run();
    made_.push_back({name, MakePastFile(file, clock, plan)});
  }
  return {};
}

// Nothing is read by now. A reader that still uses the replaced ranges holds a lock.
util::Status Compactor::GiveBack() {
  const auto deadline = std::chrono::steady_clock::now() + kLockFor;
  while (flock(live_.fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK)
      break;
    // The next one gives that back too.
    if (std::chrono::steady_clock::now() >= deadline)
      return util::Status::Error(kHeldByReader);
    std::this_thread::sleep_for(kLockStep);
  }
  for (const Made& made : made_) {
    const auto file = live_.Open(made.name, nullptr);
    if (!file)
      return file.status();
    for (const auto& [begin, end] : made.past.ranges) {
      for (uint64_t at = begin; at < end; at += kHoleBytes) {
        if (const int error = util::PunchHole(*file, at, std::min(kHoleBytes, end - at)))
          return util::Status::Error(
              fmt::format("{}: cannot give space back: {}", made.name, util::ErrnoText(error)));
      }
    }
  }
  return {};
}

util::Status Compactor::Run() {
  auto live = util::OwnedDirectory::Open(options_.directory);
  if (!live)
    return live.status();
  live_ = std::move(*live);
  VRAMSCOPE_RETURN_IF_ERROR(cli::RemoveUnfinishedFiles(live_));
  VRAMSCOPE_RETURN_IF_ERROR(options_.drop ? Drop() : Make());
  for (const Made& made : made_) {
    const util::Content* content = cli::LiveFileContent();
    auto past = util::AtomicFile::Create(live_, NameIn(trace::PastPathOf(made.name)), content);
    if (!past)
      return past.status();
    VRAMSCOPE_RETURN_IF_ERROR(past->Write(made.past.bytes));
    VRAMSCOPE_RETURN_IF_ERROR(past->Commit());
  }
  return made_.empty() ? util::Status() : GiveBack();
}

}  // namespace

util::Status Compact(CompactOptions options) {
  return Compactor(std::move(options)).Run();
}

}  // namespace vramscope::compact
