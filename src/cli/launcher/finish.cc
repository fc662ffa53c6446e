// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/finish.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <system_error>

#include "cli/commands.h"
#include "cli/launcher/session.h"
#include "engine/query/report.h"
#include "report/html.h"
#include "report/summary.h"
#include "report/terminal.h"
#include "trace/trace.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

// As people would type it from here.
std::string ShortPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path relative = std::filesystem::proximate(path, error);
  if (error || relative.empty() || relative.string().starts_with(".."))
    return path;
  return relative.string();
}

util::Status PrintSummary(const std::string& path, const std::string& html) {
  util::Result<std::unique_ptr<trace::Trace>> trace = trace::OpenTrace(path);
  if (!trace)
    return trace.status();
  util::Result<std::unique_ptr<engine::Analysis>> analysis = [&] {
    Progress progress("analysing " + ShortPath(path));
    return engine::Analysis::Create(std::move(*trace),
                                    [&progress](double share) { progress.Update(share); });
  }();
  if (!analysis)
    return analysis.status();
  util::Status page;
  if (!html.empty()) {
    Progress progress("writing " + html);
    page = report::WriteHtml(**analysis, html);
  }
  const report::Style style = report::DetectStyle(STDERR_FILENO);
  report::SummaryOptions options;
  options.columns = style.columns;
  options.colour = style.colour;
  options.utf8 = style.utf8;
  options.trace_path = ShortPath(path);
  if (page.ok())
    options.html_path = html;
  util::Result<std::string> summary = report::FormatRunSummary(**analysis, options);
  if (!summary)
    return summary.status();
  std::fwrite(summary->data(), 1, summary->size(), stderr);
  return page;
}

}  // namespace

util::Status FinishRecording(const std::string& live_directory, const std::string& output) {
  util::Result<std::unique_ptr<trace::Trace>> trace = trace::OpenTrace(live_directory);
  if (!trace)
    return trace.status();
  {
    Progress progress("writing " + ShortPath(output));
    VRAMSCOPE_RETURN_IF_ERROR(trace::WriteFinished(
        **trace, output, [&progress](double share) { progress.Update(share); }));
  }
  trace->reset();
  return RemoveLiveDirectory(live_directory);
}

bool PrintRecording(const std::string& path, const ReportOptions& options) {
  if (options.no_report && options.html.empty()) {
    std::error_code error;
    const uintmax_t size_bytes = std::filesystem::file_size(path, error);
    Note(fmt::format("{} ({})", ShortPath(path), util::FormatBytes(error ? 0 : size_bytes)));
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
