// SPDX-License-Identifier: Apache-2.0
#include "pipeline/finish.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <system_error>

#include "output/answers.h"
#include "output/terminal.h"
#include "output/text/text.h"
#include "pipeline/console.h"
#include "pipeline/oom_reports.h"
#include "pipeline/open_recording.h"
#include "pipeline/session.h"
#include "query/diff/diff.h"
#include "query/dimensions/report.h"
#include "tables/reader.h"
#include "trace/finished_content.h"
#include "trace/trace.h"
#include "util/owned_file.h"
#include "util/size_text.h"

namespace vramscope::cli {
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
      // What nohup(1) has us ignore stays ignored.
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
  // What cannot be told is no reason to leave out the report.
  if (const auto ranks = query::RanksWithin(**recording); ranks.ok())
    options.ranks = output::RanksLine(*ranks, output::Printable(options.trace_path, style.utf8));
  const std::string summary = output::FormatRunSummary(*report, **recording, options);
  std::fwrite(summary.data(), 1, summary.size(), stderr);
  return page;
}

// In place of a report: what was not told while the program ran.
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
  if (!util::FindFile(path, trace::kFinishedContent))
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
  util::Result<util::AtomicFile> file = util::AtomicFile::Create(output, &trace::kFinishedContent);
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
  const Interruptible interruptible("\nvramscope: interrupted: there is no snapshot\n", kExitError);
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

}  // namespace vramscope::cli
