// SPDX-License-Identifier: Apache-2.0
#include "top/recorded.h"

#include <fmt/core.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "base/clock.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "pipeline/survivors.h"
#include "query/dimensions/iteration_times.h"
#include "query/dimensions/report.h"
#include "query/history/metrics.h"
#include "tables/row_of.h"
#include "util/file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

constexpr int kPausePerCpuTime = 99;
constexpr int64_t kMinuteNs = 60'000'000'000;
constexpr size_t kMostLines = 50;

int64_t CpuNs() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Iterations a minute, by those of the last minute before `end_ns`, and at least by one.
double IterationsPerMinute(const query::ProcessIterations& of, int64_t end_ns) {
  if (of.empty())
    return 0;
  const int64_t last = of.count() - 1;
  int64_t first = last;
  while (first > of.first() && end_ns - of.BeginOf(first) < kMinuteNs)
    --first;
  const auto span_ns = static_cast<double>(end_ns - of.BeginOf(first));
  return span_ns <= 0 ? 0 : static_cast<double>(last + 1 - first) * kMinuteNs / span_ns;
}

class RecordingReading {
 public:
  // `has_history`: the recording has what was freed, too.
  RecordingReading(const tables::Recording& recording,
                   const std::string& live_directory,
                   bool has_history)
      : recording_(recording),
        tables_(recording.tables()),
        live_directory_(live_directory),
        has_history_(has_history),
        running_(recording, live_directory),
        iterations_(tables_) {}

  util::Result<std::vector<RecordedProcess>> Read() {
    VRAMSCOPE_ASSIGN_OR_RETURN(const query::Metrics metrics, query::MakeMetrics(recording_));
    std::vector<RecordedProcess> out;
    for (const query::AccountMetrics& account : metrics.accounts) {
      if (!running_.Has(account.process))
        continue;
      VRAMSCOPE_ASSIGN_OR_RETURN(RecordedProcess process, ReadAccount(account));
      out.push_back(std::move(process));
    }
    for (uint32_t i = 1; i < tables_.processes.size(); ++i)
      AddWithoutDevice(tables::ProcessId{i}, &out);
    return out;
  }

 private:
  void AddWithoutDevice(tables::ProcessId id, std::vector<RecordedProcess>* out) const {
    const tables::ProcessRow& row = RowOf(tables_.processes, id);
    const bool has_device =
        std::any_of(out->begin(), out->end(), [&](const auto& one) { return one.pid == row.pid; });
    if (has_device || !running_.Has(id))
      return;
    RecordedProcess& process = out->emplace_back();
    process.pid = row.pid;
    process.command = recording_.string(row.command);
    process.details = std::make_shared<TopDetails>();
    process.details->recording = live_directory_;
    process.details->read_ns = base::MonotonicNs();
  }

  util::Result<RecordedProcess> ReadAccount(const query::AccountMetrics& account) {
    const tables::ProcessRow& row = RowOf(tables_.processes, account.process);
    const tables::DeviceRow& device = RowOf(tables_.devices, account.device);
    auto details = std::make_shared<TopDetails>();
    details->recording = live_directory_;
    details->read_ns = base::MonotonicNs();
    if (has_history_)
      details->peak_bytes = account.peak_bytes;
    details->reserved_bytes = account.reserved_bytes;
    const double rate =
        IterationsPerMinute(iterations_.Of(account.process), tables_.session.end_ns);
    for (const query::CategoryMetrics& category : account.categories) {
      TopCategory one{format::CategoryName(category.category), category.live_bytes, {}};
      if (category.growth && has_history_)
        one.growth = *category.growth * rate;
      if (one.growth)
        details->growth = details->growth.value_or(0) + *one.growth;
      details->bytes += one.bytes;
      if (one.bytes != 0 || one.growth.value_or(0) != 0)
        details->categories.push_back(std::move(one));
    }
    std::stable_sort(details->categories.begin(), details->categories.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    VRAMSCOPE_ASSIGN_OR_RETURN(details->lines, ReadLines(row.pid, account.device));
    return RecordedProcess{.pid = row.pid,
                           .command = std::string(recording_.string(row.command)),
                           .has_device = true,
                           .kind = device.kind,
                           .index = device.index,
                           .uuid = std::string(recording_.string(device.uuid)),
                           .details = std::move(details)};
  }

  util::Result<std::vector<query::TopLine>> ReadLines(uint32_t pid, tables::DeviceId device) {
    auto [known, is_new] = reports_.try_emplace(pid);
    if (is_new) {
      query::ReportQuery query;
      query.at.kind = query::Instant::Kind::kEnd;
      query.where = {{query::Dimension::kProcess, std::to_string(pid)}};
      VRAMSCOPE_ASSIGN_OR_RETURN(known->second, query::MakeReport(recording_, query));
    }
    std::vector<query::TopLine> lines;
    for (const query::TopLine& line : known->second.top_lines) {
      if (line.device == device && lines.size() < kMostLines)
        lines.push_back(line);
    }
    return lines;
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const std::string& live_directory_;
  const bool has_history_;
  const RunningProcesses running_;
  const query::IterationTimes iterations_;
  std::map<uint32_t, query::Report> reports_;
};

util::Result<std::vector<RecordedProcess>> ReadRecording(const std::string& live_directory,
                                                         Follower* follower,
                                                         int64_t* cpu_ns) {
  try {
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto recording, follower != nullptr
                                                         ? follower->Read(cpu_ns)
                                                         : OpenRecording(live_directory));
    return RecordingReading(*recording, live_directory, follower == nullptr).Read();
  } catch (const std::exception& error) {
    return util::Status::Error(fmt::format("{}: cannot be read: {}", live_directory, error.what()));
  }
}

}  // namespace

std::optional<double> GrowthHistory::Add(int64_t time_ns, uint64_t bytes) {
  constexpr int64_t kShortestNs = 9'000'000'000;
  past_.emplace_back(time_ns, bytes);
  while (past_.size() > 2 && time_ns - past_[1].first >= kMinuteNs)
    past_.pop_front();
  const int64_t third_ns = (time_ns - past_.front().first) / 3;
  if (3 * third_ns < kShortestNs)
    return std::nullopt;
  // The lowest of the first third and of the last one.
  std::pair<int64_t, uint64_t> low[2] = {past_.front(), past_.back()};
  for (const auto& sample : past_) {
    if (sample.first <= past_.front().first + third_ns && sample.second < low[0].second)
      low[0] = sample;
    if (sample.first >= time_ns - third_ns && sample.second < low[1].second)
      low[1] = sample;
  }
  return (static_cast<double>(low[1].second) - static_cast<double>(low[0].second)) * kMinuteNs /
         static_cast<double>(low[1].first - low[0].first);
}

util::Result<TopTarget> TopTarget::Make(const std::string& what) {
  TopTarget self;
  const std::optional<pid_t> pid = util::WholeNumber<pid_t>(what);
  if (pid) {
    if (*pid <= 0 || !IsRunning(*pid))
      return util::Status::Error(fmt::format("process {} does not exist", what));
    self.pid_ = static_cast<uint32_t>(*pid);
    return self;
  }
  self.all_ = what.empty();
  if (!what.empty() && access(what.c_str(), F_OK) == 0 && access(what.c_str(), R_OK | X_OK) != 0 &&
      IsFolder(what)) {
    return util::Status::Error(what + " belongs to another user: run the command as that user");
  }
  std::vector<std::string> names;
  if (!what.empty())
    names.push_back(what);
  VRAMSCOPE_ASSIGN_OR_RETURN(self.recordings_, LiveRecordings::Make(names));
  std::vector<std::string> notes;
  if (!self.all_ && self.recordings_->Find(&notes).empty()) {
    return util::Status::Error(notes.empty() ? what + ": contains no live recording"
                                             : notes[0] +
                                                   ": nothing records into it: `vramscope report` "
                                                   "shows what it has");
  }
  return self;
}

std::vector<std::string> TopTarget::FindRecordings(std::vector<std::string>* notes) const {
  if (recordings_) {
    std::vector<std::string> ended;
    return recordings_->Find(&ended);
  }
  auto directory = LiveDirectoryOfProcess(static_cast<pid_t>(pid_));
  if (directory)
    return {*directory};
  // One that is not recorded is shown as such.
  int error = 0;
  if (!util::ReadProc(static_cast<pid_t>(pid_), "maps", &error) && error != ENOENT)
    notes->push_back(directory.status().message());
  return {};
}

void RecordingsReader::FindRecordings() {
  notes_.clear();
  const std::vector<std::string> found = target_.FindRecordings(&notes_);
  std::erase_if(recordings_, [&](const auto& known) {
    return !std::binary_search(found.begin(), found.end(), known.first);
  });
  for (const std::string& directory : found)
    recordings_.try_emplace(directory);
}

int64_t RecordingsReader::Read(const std::string& directory, bool once, Recording* recording) {
  int64_t cpu_ns = 0;
  if (!once && recording->follower == nullptr)
    recording->follower = std::make_unique<Follower>(directory);
  auto processes = ReadRecording(directory, recording->follower.get(), &cpu_ns);
  if (!processes && !once)
    processes = ReadRecording(directory, nullptr, &cpu_ns);
  // A recording that has just ended is not an error.
  recording->error = processes || !IsRecorded(directory) ? "" : processes.status().message();
  recording->processes = processes ? std::move(*processes) : std::vector<RecordedProcess>();
  for (const RecordedProcess& process : recording->processes) {
    TopDetails& details = *process.details;
    for (TopCategory& category : details.categories) {
      // Without iterations the growth is that of the last minute.
      GrowthHistory& history =
          recording
              ->histories[fmt::format("{} {} {} {}", process.pid, static_cast<int>(process.kind),
                                      process.index, category.name)];
      const std::optional<double> growth = history.Add(details.read_ns, category.bytes);
      if (!category.growth)
        category.growth = growth;
    }
  }
  return cpu_ns;
}

void RecordingsReader::ReadDue(int64_t period_ns) {
  const auto paced = [&](int64_t* next_ns, size_t shares, const auto& work) {
    if (base::MonotonicNs() < *next_ns)
      return;
    const int64_t began_ns = base::MonotonicNs();
    const int64_t cpu_ns = CpuNs();
    const int64_t others_ns = work();
    const auto pause = static_cast<int64_t>(shares) * kPausePerCpuTime;
    *next_ns = std::max(began_ns + period_ns,
                        base::MonotonicNs() + pause * (CpuNs() - cpu_ns + others_ns));
  };
  if (hurries_.exchange(false)) {
    next_find_ns_ = 0;
    for (auto& [directory, recording] : recordings_)
      recording.next_ns = 0;
  }
  const size_t shares = std::max<size_t>(recordings_.size(), 1);
  paced(&next_find_ns_, shares, [this] {
    FindRecordings();
    return int64_t{0};
  });
  for (auto& [directory, recording] : recordings_) {
    paced(&recording.next_ns, shares, [&] { return Read(directory, period_ns == 0, &recording); });
    Publish();
  }
  Publish();
}

void RecordingsReader::Publish() {
  RecordedProcesses all{.processes = {}, .notes = notes_};
  for (const auto& [directory, recording] : recordings_) {
    all.processes.insert(all.processes.end(), recording.processes.begin(),
                         recording.processes.end());
    if (!recording.error.empty())
      all.notes.push_back(recording.error);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  published_ = std::move(all);
}

void RecordingsReader::ReadOnce() {
  ReadDue(0);
}

void RecordingsReader::Start(int64_t period_ns) {
  worker_.Start([this, period_ns] {
    do
      ReadDue(period_ns);
    while (worker_.Rest(std::chrono::nanoseconds(period_ns)));
  });
}

void RecordingsReader::Hurry() {
  hurries_ = true;
  worker_.Wake();
}

RecordedProcesses RecordingsReader::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return published_;
}

}  // namespace vramscope::cli
