// SPDX-License-Identifier: Apache-2.0
#include "trace/live/live_trace.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <optional>
#include <queue>
#include <set>
#include <system_error>
#include <thread>

#include "format/memory_words.h"
#include "tables/imported.h"
#include "trace/file/live_directory.h"
#include "trace/live/alternation.h"
#include "util/text.h"

namespace vramscope::trace {
namespace {

constexpr size_t kMaxProcesses = 0xfff0;
constexpr size_t kMaxDevices = 512;
constexpr unsigned kMostScanners = 8;
constexpr size_t kMaxSessionJsonBytes = 1u << 20;

std::string Basename(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

util::Result<std::unique_ptr<Trace>> LiveTrace::Open(const std::string& path,
                                                     const std::string& directory,
                                                     OpenOptions options) {
  LiveDirectory reading(directory);
  const auto finished = [&] {
    return util::Status::Error(directory +
                               ": was finished or replaced during reading: run the command again");
  };
  // First: what is in it was there before the files are listed.
  std::set<std::string> missing = ReadManifest(directory);
  auto paths = ListLiveFiles(directory);
  if (!paths.ok())
    return reading.IsAtItsPath() ? paths.status() : finished();
  for (const std::string& file_path : *paths)
    missing.erase(Basename(file_path));
  LossCounter losses;
  std::vector<LiveFile> files;
  util::Status first_error;
  for (const std::string& file_path : *paths) {
    auto file = options.at_present
                    ? LiveFile::OpenGrowing(file_path, &losses)
                    : LiveFile::Open(file_path, &losses, options.until_ns.has_value());
    if (file.ok()) {
      files.push_back(std::move(*file));
      continue;
    }
    if (first_error.ok())
      first_error = file.status();
    if (LiveFile::WasBeingMade(file_path))
      continue;  // nothing can have been recorded in it
    const std::optional<uint64_t> size_bytes = SizeOf(file_path);
    if (!size_bytes) {
      missing.insert(Basename(file_path));
      continue;
    }
    // An empty file is from a process that was killed at once, or it was cut: the two look the
    // same.
    losses.Add(*size_bytes == 0 ? format::Loss::kUnfinishedRecord : format::Loss::kDamagedBytes, 1,
               *size_bytes);
  }
  if (files.empty()) {
    if (!reading.IsAtItsPath())
      return finished();
    if (!first_error.ok())
      return first_error;
    if (!missing.empty())
      return util::Status::Error(directory + ": its files are missing: it had " +
                                 std::to_string(missing.size()));
    return util::Status::Error(directory +
                               ": contains no recording (no *.vrl file): the program did not start "
                               "or did not load the probe; see `vramscope doctor`");
  }
  SessionJson session;
  if (auto text = util::ReadFile(directory + "/" + format::kSessionFile, kMaxSessionJsonBytes,
                                 util::Links::kRefuse);
      text.ok()) {
    session = ParseSessionJson(*text);
  }
  AddUnrecorded(directory, &session, &losses);
  AddMissing(missing, &session, &losses);
  const std::string why = WhyNamedFilesAreNotRead(directory, session, *paths);
  if (!why.empty()) {
    options.native_names = false;
    session.notes.emplace_back("function names and source lines", "not looked up: " + why);
  }
  auto trace = FromFiles(path, std::move(files), session, std::move(losses), options);
  if (!trace.ok())
    return trace;
  auto& live = static_cast<LiveTrace&>(**trace);
  if (!why.empty())
    live.source_lines_.Close();
  live.NameCells(Cells::Read(directory));
  // Whoever follows a recording does not ask for them.
  if (session.xla_dumps == kXlaDumpFolder && !live.IsFollowed())
    live.session_.xla_dumps = directory + "/" + kXlaDumpFolder;
  else if (why.empty() && session.xla_dumps.starts_with("/") && !live.IsFollowed())
    live.session_.xla_dumps = session.xla_dumps;
  if (!reading.IsAtItsPath())
    return finished();
  live.directory_ = directory;
  // Who follows a recording must not keep it from being finished.
  if (!live.IsFollowed())
    live.lock_ = reading.TakeLock();
  return trace;
}

util::Result<std::unique_ptr<Trace>> LiveTrace::FromFiles(const std::string& path,
                                                          std::vector<LiveFile> files,
                                                          const SessionJson& session,
                                                          LossCounter losses,
                                                          OpenOptions options) {
  std::stable_sort(files.begin(), files.end(), [](const LiveFile& a, const LiveFile& b) {
    if (a.is_launcher() != b.is_launcher())
      return a.is_launcher();
    return a.start_ns() < b.start_ns();
  });
  std::unique_ptr<LiveTrace> trace(new LiveTrace);
  trace->files_ = std::move(files);
  trace->until_ns_ = options.until_ns.value_or(trace->until_ns_);
  trace->until_ticks_ = options.until_ticks;
  trace->running_ = options.running;
  trace->at_present_ = options.at_present;
  VRAMSCOPE_RETURN_IF_ERROR(trace->ScanFiles(path, &losses, options));
  trace->BuildClocks();
  trace->BuildDevices();
  trace->BuildProcesses();
  trace->AddHostSamples();
  trace->BuildSession(path, session);
  trace->losses_ = losses.Rows();
  return std::unique_ptr<Trace>(std::move(trace));
}

util::Status LiveTrace::ScanFiles(const std::string& path,
                                  LossCounter* losses,
                                  OpenOptions options) {
  uint64_t bytes = 0;
  for (const LiveFile& file : files_)
    bytes += file.file_bytes();
  util::Budget budget(bytes);
  dictionaries_.ChargeTo(&budget);
  NativeSymbols symbols;
  const size_t workers = std::clamp(std::thread::hardware_concurrency(), 1U, kMostScanners);
  ScanTables scan_tables{
      &dictionaries_, &threads_, {}, losses, options.native_names ? &symbols : nullptr};
  scan_tables_ = {
      &dictionaries_, &threads_, {}, &later_losses_, options.native_names ? &symbols_ : nullptr};
  scans_.reserve(files_.size());
  for (LiveFile& file : files_) {
    if (IsFollowed() && !file.Grow(losses))
      return util::Status::Error(file.path() + ": cannot be followed");
    FileContext context{.file = &file};
    if (!file.is_launcher() && processes_.size() < kMaxProcesses) {
      context.process = ProcessId{static_cast<uint16_t>(processes_.size())};
      processes_.push_back({.pid = file.pid(),
                            .parent_pid = file.parent_pid(),
                            .rank = {},
                            .command = file.command(),
                            .executable = file.executable(),
                            .start_ns = file.start_ns(),
                            .end_ns = file.start_ns(),
                            .is_forked = file.is_forked(),
                            .closed_cleanly = file.closed_cleanly(),
                            .wait_status = {}});
    }
    contexts_.push_back(context);
    if (IsFollowed()) {
      growing_.push_back(std::make_unique<GrowingScan>(file, context.process, &scan_tables_,
                                                       &scans_.emplace_back()));
      growing_.back()->Continue();
    } else {
      scans_.push_back(ScanFile(file, context.process, &scan_tables, workers));
    }
    if (budget.IsOver())
      return budget.Refusal(path);
  }
  dictionaries_.ChargeTo(nullptr);
  losses->Add(format::Loss::kDamagedBytes, dictionaries_.cut_frames());
  session_.sampled = processes_.empty() && !scans_.empty() && !scans_[0].sampled.empty();
  return {};
}

// A notebook cell's code is known by its number. Its text comes from here, because it is not in a
// file.
void LiveTrace::NameCells(const Cells& cells) {
  if (cells.empty())
    return;
  std::map<uint32_t, StringId> names;  // by the file's string; 0: not a cell
  dictionaries_.EditFrames([&](tables::FrameRow& frame) {
    if (frame.kind != tables::FrameKind::kPython || frame.file.value == 0)
      return;
    const auto [name, is_new] = names.try_emplace(frame.file.value);
    const Cells::Cell* const cell = is_new ? cells.Find(string(frame.file)) : nullptr;
    if (cell != nullptr) {
      name->second = dictionaries_.AddText(cell->name());
      source_lines_.Add(cell->name(), cell->text);
    }
    if (name->second.value != 0)
      frame.file = name->second;
  });
}

void LiveTrace::BuildClocks() {
  const auto make = [&](size_t i, std::optional<double> fallback_rate) {
    const LiveFile& file = files_[i];
    if (!file.ticks_are_tsc())
      return TickClock();
    std::vector<TickClock::Anchor> anchors = scans_[i].anchors;
    if (until_ticks_ != 0)
      anchors.push_back({until_ticks_, until_ns_});
    if (file.anchor_ns() != 0)
      anchors.push_back({file.anchor_ticks(), file.anchor_ns()});
    return TickClock({file.start_ticks(), file.start_ns()}, std::move(anchors), fallback_rate);
  };
  // A process whose looks at the clocks are all of one moment borrows the machine's rate from
  // another file of the session.
  std::optional<double> machine_rate;
  for (size_t i = 0; i < files_.size(); ++i) {
    clocks_.push_back(make(i, std::nullopt));
    if (!machine_rate)
      machine_rate = clocks_.back().measured_rate();
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].ticks_are_tsc() && !clocks_[i].measured_rate())
      clocks_[i] = make(i, machine_rate);
    contexts_[i].clock = &clocks_[i];
  }
}

// Writers number devices each in its own way: the launcher as NVML does, a process as CUDA does
// under its CUDA_VISIBLE_DEVICES. The uuid says which are the same.
DeviceId LiveTrace::AddDevice(int64_t local, const LocalDevice& described, bool from_launcher) {
  if (local < format::kHostDevice || local > std::numeric_limits<int16_t>::max() ||
      devices_.size() >= kMaxDevices) {
    return kNoDevice;
  }
  const tables::DeviceKind kind = local == format::kCpuDevice    ? tables::DeviceKind::kCpu
                                  : local == format::kHostDevice ? tables::DeviceKind::kHost
                                                                 : tables::DeviceKind::kGpu;
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    if (device.kind != kind)
      continue;
    const bool same = kind != tables::DeviceKind::kGpu ||
                      (described.uuid.empty() ? device.index == local && !from_launcher
                                              : device.uuid == described.uuid);
    if (!same)
      continue;
    if (device.total_bytes == 0)
      device.total_bytes = described.total_bytes;
    if (device.name.empty())
      device.name = described.name;
    return DeviceId{static_cast<int16_t>(i)};
  }
  const char* name = kind == tables::DeviceKind::kCpu    ? "CPU"
                     : kind == tables::DeviceKind::kHost ? "host"
                                                         : "";
  devices_.push_back({.kind = kind,
                      .index = static_cast<int32_t>(local),
                      .uuid = described.uuid,
                      .name = described.name.empty() ? name : described.name,
                      .total_bytes = described.total_bytes});
  return DeviceId{static_cast<int16_t>(devices_.size() - 1)};
}

void LiveTrace::BuildDevices() {
  // Described devices first, so that a process that only mentions a number finds it.
  for (const bool described : {true, false}) {
    for (size_t i = 0; i < files_.size(); ++i) {
      for (const auto& [local, device] : scans_[i].devices) {
        if (device.uuid.empty() == described)
          continue;
        contexts_[i].devices[local] = AddDevice(local, device, files_[i].is_launcher());
      }
    }
  }
  // GPUs by number, then host, then cpu.
  std::vector<size_t> order(devices_.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (devices_[a].kind != devices_[b].kind)
      return devices_[a].kind < devices_[b].kind;
    return devices_[a].index < devices_[b].index;
  });
  std::vector<Device> sorted;
  std::vector<DeviceId> renamed(devices_.size());
  for (const size_t i : order) {
    renamed[i] = DeviceId{static_cast<int16_t>(sorted.size())};
    sorted.push_back(std::move(devices_[i]));
  }
  devices_ = std::move(sorted);
  for (FileContext& context : contexts_) {
    for (auto& [local, device] : context.devices) {
      if (device != kNoDevice)
        device = renamed[static_cast<size_t>(device.value)];
    }
  }
}

std::vector<LiveTrace::Exit> LiveTrace::Exits() const {
  std::vector<Exit> exits;
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const ExitRecord& record : scans_[i].exits) {
      exits.push_back({record.pid, clocks_[i].ToNs(record.ticks), record.status});
    }
  }
  std::sort(exits.begin(), exits.end(),
            [](const Exit& a, const Exit& b) { return a.time_ns < b.time_ns; });
  return exits;
}

void LiveTrace::AddHostSamples() {
  for (size_t i = 0; i < files_.size(); ++i) {
    for (auto& [ticks, sample] : scans_[i].host_samples) {
      sample.time_ns = clocks_[i].ToNs(ticks);
      if (sample.time_ns <= until_ns_)
        host_samples_.push_back(sample);
    }
  }
  std::stable_sort(host_samples_.begin(), host_samples_.end(),
                   [](const HostSample& a, const HostSample& b) { return a.time_ns < b.time_ns; });
}

// The processes of a sampled recording, which has no live files of theirs.
void LiveTrace::AddSampledProcesses() {
  for (size_t i = 0; i < files_.size(); ++i) {
    for (SampledProcess& found : scans_[i].sampled) {
      if (processes_.size() >= kMaxProcesses)
        return;
      const int64_t start_ns = clocks_[i].ToNs(found.ticks);
      processes_by_pid_[found.pid].emplace_back(
          start_ns, ProcessId{static_cast<uint16_t>(processes_.size())});
      processes_.push_back({.pid = found.pid,
                            .parent_pid = found.parent_pid,
                            .rank = {},
                            .command = std::move(found.command),
                            .executable = std::move(found.executable),
                            .start_ns = start_ns,
                            .end_ns = start_ns,
                            .closed_cleanly = false,
                            .wait_status = {}});
    }
  }
}

// Whether a process has not ended by the instant up to which is read.
bool LiveTrace::GoesOn(ProcessId process, bool has_exit, int64_t end_ns) const {
  if (end_ns > until_ns_)
    return true;
  const uint32_t pid = processes_[process.value].pid;
  return !has_exit && processes_by_pid_.at(pid).back().second == process &&
         std::find(running_.begin(), running_.end(), pid) != running_.end();
}

void LiveTrace::BuildProcesses() {
  if (session_.sampled)
    AddSampledProcesses();
  for (size_t i = 0; i < files_.size(); ++i) {
    if (contexts_[i].process == kNoProcess)
      continue;
    Process& process = processes_[contexts_[i].process.value];
    const int64_t last_ns = std::min(clocks_[i].ToNs(scans_[i].last_ticks), until_ns_);
    process.end_ns = std::max(process.start_ns, last_ns);
    processes_by_pid_[process.pid].emplace_back(process.start_ns, contexts_[i].process);
    bool has_torch_rank = false;
    for (const auto& [key, value] : scans_[i].runtime) {
      process.unnamed = process.unnamed || format::SaysNamesAreOff(key, value);
      // A launcher that starts one process a node has a rank for the node, and its children inherit
      // it. PyTorch's is unique.
      const bool is_torch = key == format::kTorchRankNote;
      has_torch_rank = has_torch_rank || is_torch;
      if (!is_torch && (has_torch_rank || (key != "RANK" && key != "rank")))
        continue;
      int32_t rank = 0;
      const auto end = std::from_chars(value.data(), value.data() + value.size(), rank);
      if (end.ec == std::errc() && rank >= 0)
        process.rank = rank;
    }
  }
  // Finds the end of each process. After exec a number has two processes: the first ends where the
  // second begins, the exit is the last one's.
  std::vector<int64_t> ends(processes_.size());
  std::vector<bool> has_exit(processes_.size());
  for (auto& [pid, incarnations] : processes_by_pid_) {
    std::sort(incarnations.begin(), incarnations.end());
    for (size_t i = 0; i < incarnations.size(); ++i) {
      const size_t process = incarnations[i].second.value;
      ends[process] = processes_[process].end_ns;
      if (i + 1 < incarnations.size())
        ends[process] = std::max(ends[process], incarnations[i + 1].first);
    }
  }
  // An exit is that of the latest process of its number that had begun and not ended yet.
  struct Begun {
    size_t next = 0;
    std::vector<ProcessId> running;
  };
  std::map<uint32_t, Begun> begun_by_pid;
  for (const Exit& exit : Exits()) {
    const auto it = processes_by_pid_.find(exit.pid);
    if (it == processes_by_pid_.end())
      continue;
    Begun& begun = begun_by_pid[exit.pid];
    for (; begun.next < it->second.size() && it->second[begun.next].first <= exit.time_ns;
         ++begun.next) {
      begun.running.push_back(it->second[begun.next].second);
    }
    if (begun.running.empty())
      continue;
    const ProcessId ended = begun.running.back();
    begun.running.pop_back();
    has_exit[ended.value] = true;
    processes_[ended.value].wait_status = exit.status;
    ends[ended.value] = std::max(processes_[ended.value].end_ns, exit.time_ns);
  }
  // A process whose end was not seen is alive while NVML lists it, though it may be idle.
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const auto& [pid, ticks] : scans_[i].listed) {
      const auto it = processes_by_pid_.find(pid);
      if (it == processes_by_pid_.end() || has_exit[it->second.back().second.value])
        continue;
      int64_t& end_ns = ends[it->second.back().second.value];
      end_ns = std::max(end_ns, clocks_[i].ToNs(ticks) + 1);
    }
  }
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (GoesOn(ProcessId{static_cast<uint16_t>(i)}, has_exit[i], ends[i]))
      continue;
    Event event;
    ProcessExit exit{.pid = processes_[i].pid, .status = format::kStatusNotKnown};
    if (processes_[i].wait_status)
      exit.status = static_cast<uint64_t>(*processes_[i].wait_status);
    event.Become(exit);
    event.process = ProcessId{static_cast<uint16_t>(i)};
    event.time_ns = event.begin_ns = event.end_ns = ends[i];
    process_ends_.push_back(event);
  }
  std::stable_sort(process_ends_.begin(), process_ends_.end(),
                   [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  for (FileContext& context : contexts_)
    context.processes_by_pid = &processes_by_pid_;
}

void LiveTrace::BuildSession(const std::string& path, const SessionJson& session) {
  session_.path = path;
  session_.version = session.version;
  session_.name = session.name;
  if (session_.name.empty() && !session.command.empty()) {
    session_.name = Basename(session.command.front());
  }
  if (session_.name.empty() && !processes_.empty()) {
    session_.name = Basename(processes_.front().executable);
  }
  if (session_.name.empty())
    session_.name = Basename(path);

  // Files are sorted: the first process's file, or if there is none the launcher's.
  const auto first = std::find_if(files_.begin(), files_.end(),
                                  [](const LiveFile& file) { return !file.is_launcher(); });
  const LiveFile& first_file = first != files_.end() ? *first : files_.front();
  session_.start_ns = first_file.start_ns();
  session_.start_wall_ns = first_file.start_wall_ns();
  if (session_.start_wall_ns == 0)
    session_.start_wall_ns = session.start_wall_ns;
  session_.end_ns = session_.start_ns;
  for (size_t i = 0; i < files_.size(); ++i) {
    session_.end_ns =
        std::max(session_.end_ns, std::min(clocks_[i].ToNs(scans_[i].last_ticks), until_ns_));
    session_.event_count += scans_[i].event_count;
    session_.file_bytes += files_[i].file_bytes();
  }
  for (size_t i = 0; i < files_.size(); ++i) {
    if (scans_[i].past_ticks)
      session_.history_ns =
          std::max(session_.history_ns.value_or(std::numeric_limits<int64_t>::min()),
                   clocks_[i].ToNs(*scans_[i].past_ticks));
  }
  session_.event_count += process_ends_.size();
  for (const Event& event : process_ends_)
    session_.end_ns = std::max(session_.end_ns, event.time_ns);
  if (processes_.empty()) {
    // A program that used nothing that is recorded.
    for (const Exit& exit : Exits())
      session_.end_ns = std::max(session_.end_ns, exit.time_ns);
  }

  session_.host = util::ValidUtf8(session.host);
  session_.notes = session.notes;
  if (session_.sampled)
    session_.notes.emplace_back(format::kModeNote, format::kSampledMode);
  std::map<std::string, std::string> first_value;
  for (size_t i = 0; i < files_.size(); ++i) {
    for (const auto& [key, value] : scans_[i].runtime) {
      // The mode is not for a program to say, and processes have their ranks.
      if (key == format::kModeNote || key == format::kTorchRankNote)
        continue;
      if (key == format::kPlaceNote) {
        session_.notes.emplace_back(tables::kPlaceNote + std::to_string(files_[i].pid()), value);
        continue;
      }
      // A rank notes its mesh again when it has more groups, and the last note counts.
      if (key.starts_with(tables::kMeshNote)) {
        session_.notes.emplace_back(key, value);
        continue;
      }
      const auto [known, is_new] = first_value.try_emplace(key, value);
      if (!is_new && known->second == value)
        continue;
      session_.notes.emplace_back(
          is_new ? key : key + " (pid " + std::to_string(files_[i].pid()) + ")", value);
    }
  }
}

std::string_view LiveTrace::SourceLine(StringId file, uint32_t line) const {
  if (file.value == 0)
    return {};
  return source_lines_.Line(std::string(string(file)), line);
}

bool LiveTrace::Advance(const OpenOptions::Present& present) {
  until_ns_ = present.ns;
  until_ticks_ = present.ticks;
  const auto paths = ListLiveFiles(directory_);
  if (!paths.ok() || paths->size() != files_.size())
    return false;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!files_[i].Grow(&later_losses_))
      return false;
    growing_[i]->Continue();
    if (scans_[i].devices.size() != contexts_[i].devices.size())
      return false;
  }
  clocks_.clear();  // they keep their places
  BuildClocks();
  session_.end_ns = std::max(session_.end_ns, until_ns_);
  return true;
}

util::Status LiveTrace::ForEachEvent(const EventSink& sink) {
  std::deque<StreamSource> sources;
  std::vector<std::pair<size_t, size_t>> places;  // file and stream of each
  // Those of new streams; the others go on.
  const auto open_sources = [&] {
    for (size_t i = 0; i < places.size(); ++i) {
      const auto& [file, stream] = places[i];
      sources[i].Continue(files_[file].streams()[stream], scans_[file].logs[stream]);
    }
    for (size_t file = 0; file < files_.size(); ++file) {
      const auto& streams = files_[file].streams();
      for (size_t stream = 0; stream < streams.size(); ++stream) {
        if (std::find(places.begin(), places.end(), std::pair(file, stream)) != places.end())
          continue;
        sources.emplace_back(contexts_[file], streams[stream], scans_[file].logs[stream],
                             sources.size());
        places.emplace_back(file, stream);
      }
    }
  };
  open_sources();
  // The k-way merge. Process ends are one source more, and the last at equal times.
  struct Head {
    int64_t time_ns;
    size_t source;
    bool operator<(const Head& other) const {  // std::priority_queue keeps the greatest on top
      return time_ns != other.time_ns ? time_ns > other.time_ns : source > other.source;
    }
  };
  std::priority_queue<Head> heads;
  size_t next_end = 0;
  constexpr size_t ends_source = SIZE_MAX;
  const auto fill_heads = [&] {
    heads = {};
    for (size_t i = 0; i < sources.size(); ++i) {
      if (const Event* event = sources[i].Peek())
        heads.push({event->time_ns, i});
    }
    if (next_end < process_ends_.size())
      heads.push({process_ends_[next_end].time_ns, ends_source});
  };
  fill_heads();

  AlternationRepair out(sink);
  int64_t last_ns = std::numeric_limits<int64_t>::min();
  const auto push = [&](const Event& event) {
    if (event.time_ns >= last_ns) {
      last_ns = event.time_ns;
      out.Push(event);
      return;
    }
    // Later than the window could mend: the order is a promise, the call's own stamps stay.
    Event late = event;
    late.time_ns = last_ns;
    out.Push(late);
  };
  for (;;) {
    if (heads.empty() || heads.top().time_ns > until_ns_) {
      out.Finish();
      const auto present = at_present_ ? at_present_() : std::nullopt;
      if (!present)
        return {};
      if (!Advance(*present))
        return util::Status::Error(session_.path + ": has to be opened anew");
      open_sources();
      fill_heads();
      continue;
    }
    const Head head = heads.top();
    heads.pop();
    if (head.source == ends_source) {
      push(process_ends_[next_end++]);
      if (next_end < process_ends_.size())
        heads.push({process_ends_[next_end].time_ns, ends_source});
      continue;
    }
    // Events of one thread come in runs: stay with it for as long as it is the earliest.
    StreamSource& source = sources[head.source];
    const Event* event = source.Peek();
    do {
      push(*event);
      source.Pop();
      event = source.Peek();
    } while (event != nullptr && event->time_ns <= until_ns_ &&
             (heads.empty() || heads.top() < Head{event->time_ns, head.source}));
    if (event != nullptr)
      heads.push({event->time_ns, head.source});
  }
}

util::Result<std::unique_ptr<Trace>> OpenTrace(const std::string& path, OpenOptions options) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_directory(path, error))
    return LiveTrace::Open(path, path, options);
  const bool exists = fs::exists(path, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    return util::Status::Error(path + ": cannot be opened: " + error.message());
  }
  if (!exists) {
    const std::string live = path + ".d";
    if (fs::is_directory(live, error))
      return LiveTrace::Open(path, live, options);
    return util::Status::Error(path + ": does not exist, and neither does " + live +
                               ": check the name");
  }
  return util::Status::Error(path + ": is not a live recording: use a directory NAME.vram.d");
}

}  // namespace vramscope::trace
