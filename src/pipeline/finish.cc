// SPDX-License-Identifier: Apache-2.0

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "output/answers.h"
#include "output/terminal.h"
#include "output/text/text.h"
#include "pipeline/console.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "query/diff/diff.h"
#include "query/dimensions/report.h"
#include "query/oom/out_of_memory.h"
#include "tables/reader.h"
#include "trace/trace.h"
#include "util/owned_file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

// A program whose allocations fail in a loop leaves at most this many files.
constexpr size_t kMostFiles = 3;

constexpr util::Content kOutOfMemoryContent = {
    "an out-of-memory report of vramscope",
    [](std::span<const uint8_t> start, uint64_t size_bytes) {
      constexpr std::string_view kBegin = output::kOutOfMemoryBegin;
      return size_bytes == 0 || (start.size() >= kBegin.size() &&
                                 std::memcmp(start.data(), kBegin.data(), kBegin.size()) == 0);
    }};

std::string FileOf(const std::string& path, size_t number) {
  constexpr std::string_view kExtension = ".vram";
  const std::string name =
      path.ends_with(kExtension) ? path.substr(0, path.size() - kExtension.size()) : path;
  return fmt::format("{}.oom-{}", name, number);
}

void RemoveOldReports(const std::string& path) {
  for (size_t number = 1; number <= kMostFiles; ++number) {
    const std::string file = FileOf(path, number);
    if (const auto old = util::FindFile(file, kOutOfMemoryContent))
      (void)util::RemoveFile(file, *old);
  }
}

util::Status Save(const std::string& file, const std::string& text) {
  util::Result<util::AtomicFile> saved = util::AtomicFile::Create(file, &kOutOfMemoryContent);
  if (!saved)
    return saved.status();
  VRAMSCOPE_RETURN_IF_ERROR(saved->Write(text));
  return saved->Commit();
}

// The first ones, and the last: the one that ended the program, if any did.
std::vector<query::Refusal> WorthSaving(const std::vector<query::Refusal>& for_good) {
  std::vector<query::Refusal> chosen;
  for (const query::Refusal& refusal : for_good) {
    if (chosen.size() == kMostFiles)
      chosen.pop_back();
    chosen.push_back(refusal);
  }
  return chosen;
}

}  // namespace

std::string ShortPath(const std::string& path) {
  // proximate() with an error code throws all the same where the working directory was removed.
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (error)
    return path;
  const std::filesystem::path relative = std::filesystem::proximate(path, here, error);
  if (error || relative.empty() || relative.string().starts_with(".."))
    return path;
  return relative.string();
}

namespace {

// While it lives, Ctrl-C and its like end this process with a word on what to do, and leave nothing
// half-written. Afterwards they have their usual effect.
class Interruptible {
 public:
  Interruptible(std::string message, int exit_status) {
    g_message = std::move(message);
    g_exit_status = exit_status;
    for (size_t i = 0; i < kInterrupts.size(); ++i) {
      old_[i] = signal(kInterrupts[i], OnInterrupt);
      // A signal that nohup(1) ignores stays ignored.
      if (old_[i] == SIG_IGN)
        signal(kInterrupts[i], SIG_IGN);
    }
  }
  ~Interruptible() {
    for (size_t i = 0; i < kInterrupts.size(); ++i)
      signal(kInterrupts[i], old_[i]);
  }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  static void OnInterrupt(int) {
    util::AtomicFile::DiscardAll();
    (void)!write(STDERR_FILENO, g_message.data(), g_message.size());
    _exit(g_exit_status);
  }

  static constexpr std::array kInterrupts = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  // For the handler, which may only read what was complete before it was installed.
  static inline std::string g_message;
  static inline int g_exit_status = 0;
  std::array<sighandler_t, kInterrupts.size()> old_{};
};

util::Status PrintSummary(const std::string& path, const std::string& html) {
  util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(path);
  if (!recording)
    return recording.status();
  util::Result<query::Report> report = query::MakeReport(**recording, {});
  if (!report)
    return report.status();
  util::Status page;
  if (!html.empty()) {
    Progress progress("writing " + html);
    page = output::WriteHtml(**recording, html);
  }
  const output::Style style = output::DetectStyle(STDERR_FILENO);
  output::SummaryOptions options;
  options.columns = style.columns;
  options.colour = style.colour;
  options.utf8 = style.utf8;
  options.trace_path = ShortPath(path);
  if (page.ok())
    options.html_path = html;
  options.out_of_memory = SaveOutOfMemoryReports(**recording, options.trace_path, style).lines;
  // The report does not depend on the ranks' names.
  if (const auto ranks = query::RanksWithin(**recording); ranks.ok())
    options.ranks = output::RanksLine(*ranks, output::Printable(options.trace_path, style.utf8));
  const std::string summary = output::FormatRunSummary(*report, **recording, options);
  std::fwrite(summary.data(), 1, summary.size(), stderr);
  return page;
}

// Instead of a report: problems that were not printed while the program ran.
void NoteTroubles(const std::string& path, size_t told) {
  const util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(path);
  if (!recording)
    return Note(recording.status().message());
  if (const std::string trouble = output::OverflowTrouble(**recording); !trouble.empty())
    Note(trouble);
  const OutOfMemoryReports saved =
      SaveOutOfMemoryReports(**recording, ShortPath(path), output::DetectStyle(STDERR_FILENO));
  if (saved.refusals <= told && saved.refusals != 0)
    return;
  for (const std::string& line : saved.lines)
    Note(line);
}

}  // namespace

namespace {

// Whether the recording at `path` is of the same run as the one of `fd`, and has all of its
// processes and events: it was made when its directory was whole.
bool HasAllOf(int fd, const std::string& path) {
  if (!util::FindFile(path, cli::kFinishedContent))
    return false;
  const auto there = tables::Open(path);
  const auto made = tables::OpenDescriptor(fd, path);
  if (!there || !made)
    return false;
  const tables::Tables& a = (*there)->tables();
  const tables::Tables& b = (*made)->tables();
  const auto has = [&](const tables::ProcessRow& process) {
    return std::any_of(a.processes.begin(), a.processes.end(), [&](const tables::ProcessRow& row) {
      return row.pid == process.pid && row.begin_ns == process.begin_ns;
    });
  };
  const bool same_run =
      b.processes.size() > 1 || a.session.begin_wall_ns == b.session.begin_wall_ns;
  return same_run && std::all_of(b.processes.begin() + 1, b.processes.end(), has) &&
         a.session.event_count >= b.session.event_count;
}

enum class Kept { kAll, kLatest };

util::Status WriteFinishedFile(const std::string& live_directory,
                               const std::string& output,
                               Kept kept,
                               const trace::OpenOptions& options) {
  util::Result<std::unique_ptr<trace::Trace>> trace = trace::OpenTrace(live_directory, options);
  if (!trace)
    return trace.status();
  Progress progress("writing " + ShortPath(output));
  util::Result<util::AtomicFile> file = util::AtomicFile::Create(output, &cli::kFinishedContent);
  if (!file)
    return file.status();
  VRAMSCOPE_RETURN_IF_ERROR(WriteResolved(**trace, file->fd(), output,
                                          [&progress](double share) { progress.Update(share); }));
  return kept == Kept::kAll && HasAllOf(file->fd(), output) ? util::Status() : file->Commit();
}

}  // namespace

util::Status FinishRecording(const std::string& live_directory,
                             const std::string& output,
                             int interrupted_status) {
  const Interruptible interruptible(
      fmt::format("\nvramscope: interrupted: `vramscope finish {}` completes the recording\n",
                  ShortPath(live_directory)),
      interrupted_status);
  return WriteFinishedFile(live_directory, output, Kept::kAll, {});
}

util::Status WriteSnapshot(const std::string& live_directory, const std::string& output) {
  const Interruptible interruptible("\nvramscope: interrupted: no snapshot was written\n",
                                    kExitError);
  return WriteFinishedFile(live_directory, output, Kept::kLatest, UpToNow(live_directory, {}));
}

bool PrintRecording(const std::string& path, const ReportOptions& options) {
  if (options.no_report && options.html.empty()) {
    std::error_code error;
    const uintmax_t size_bytes = std::filesystem::file_size(path, error);
    Note(fmt::format("{} ({})", ShortPath(path), util::FormatBytes(error ? 0 : size_bytes)));
    NoteTroubles(path, options.refusals_told);
    return true;
  }
  const util::Status status = PrintSummary(path, options.html);
  if (!status.ok()) {
    Fail(status.message());
    Note(fmt::format("the recording is {}", ShortPath(path)));
  }
  return status.ok();
}

OutOfMemoryReports SaveOutOfMemoryReports(const tables::Recording& recording,
                                          const std::string& path,
                                          const output::Style& style,
                                          size_t told) {
  output::Style plain = style;
  plain.colour = false;  // in files
  const auto refusals = query::FindRefusals(recording);
  if (!refusals)
    return {0, {refusals.status().message()}};
  std::vector<query::Refusal> for_good = *refusals;
  std::erase_if(for_good, [](const query::Refusal& refusal) { return refusal.served; });
  if (told != 0 && for_good.size() <= told)
    return {for_good.size(), {}};
  RemoveOldReports(path);
  std::vector<std::string> lines;
  std::string where;
  size_t number = 0;
  for (const query::Refusal& refusal : WorthSaving(for_good)) {
    const auto what = query::ExplainRefusal(recording, refusal);
    if (!what)
      return {for_good.size(), {what.status().message()}};
    const std::string text = output::FormatOutOfMemory(*what, recording, plain);
    lines = output::OutOfMemoryLines(*what, recording, plain);
    const std::string file = FileOf(path, ++number);
    const util::Status saved = Save(file, text);
    where = "  " + (saved.ok() ? "saved: " + file : "not saved: " + saved.message());
  }
  if (!lines.empty())
    lines.push_back(output::Printable(where, style.utf8));
  return {for_good.size(), lines};
}

}  // namespace vramscope::cli
