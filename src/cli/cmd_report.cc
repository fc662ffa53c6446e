// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/keyword_options.h"
#include "cli/launcher/session.h"
#include "cli/open_trace.h"
#include "report/away_lines.h"
#include "report/csv.h"
#include "report/html.h"
#include "report/json.h"
#include "report/keywords.h"
#include "report/terminal.h"
#include "report/text.h"
#include "report/trust_lines.h"

namespace vramscope::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> files;
  std::string at = "peak";
  std::vector<std::string> by;
  std::vector<std::string> where;
  uint64_t top = 0;
  bool json = false;
  bool csv = false;
  std::string html;
  KeywordOptions keywords;
};

util::Result<engine::ReportQuery> ParseQuery(const ReportArguments& arguments) {
  engine::ReportQuery query;
  util::Result<engine::Instant> instant = engine::ParseInstant(arguments.at);
  if (!instant.ok())
    return instant.status();
  query.at = *instant;
  for (const std::string& list : arguments.by) {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      const std::string name = list.substr(begin, end - begin);
      util::Result<engine::Dimension> dimension = engine::ParseDimension(name);
      if (!dimension.ok())
        return dimension.status();
      if (std::find(query.by.begin(), query.by.end(), *dimension) != query.by.end()) {
        return util::Status::Error(
            fmt::format("--by names the dimension '{}' twice: name each once", name));
      }
      query.by.push_back(*dimension);
      begin = end + 1;
    }
  }
  for (const std::string& condition : arguments.where) {
    const size_t equals = condition.find('=');
    if (equals == std::string::npos) {
      return util::Status::Error(
          fmt::format("--where {}: write DIM=VALUE, such as category=activation", condition));
    }
    util::Result<engine::Dimension> dimension = engine::ParseDimension(condition.substr(0, equals));
    if (!dimension.ok())
      return dimension.status();
    query.where.push_back({*dimension, condition.substr(equals + 1)});
  }
  query.top = arguments.top;
  return query;
}

util::Status WritePage(const ReportArguments& arguments, engine::Analysis& analysis) {
  if (arguments.html.empty())
    return {};
  VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.html, arguments.files[0]));
  Progress progress("writing " + arguments.html);
  return report::WriteHtml(analysis, arguments.html);
}

// Entries of a category that text shows where --top does not say; JSON and CSV have all.
constexpr uint64_t kTopEntries = 20;

util::Status ShowKeywords(const ReportArguments& arguments, const engine::ReportQuery& report) {
  if (!report.by.empty()) {
    return util::Status::Error(
        "--by and --keywords exclude each other: a dictionary says itself what it looks over");
  }
  util::Result<engine::KeywordQuery> query = ParseKeywordOptions(arguments.keywords);
  if (!query.ok())
    return query.status();
  const bool text_wanted = !arguments.json && !arguments.csv;
  query->at = report.at;
  query->where = report.where;
  query->top = report.top == 0 && text_wanted ? kTopEntries : report.top;
  report::KeywordsTextOptions options;
  options.style = report::DetectStyle(STDOUT_FILENO);
  std::vector<report::NamedKeywords> reports;  // of --json and --csv: all of them or none
  for (const std::string& file : arguments.files) {
    util::Result<std::unique_ptr<engine::Analysis>> analysis = OpenAnalysis(file);
    if (!analysis.ok())
      return analysis.status();
    util::Result<engine::KeywordReport> keywords = engine::MakeKeywordReport(**analysis, *query);
    if (!keywords.ok())
      return keywords.status();
    VRAMSCOPE_RETURN_IF_ERROR(WritePage(arguments, **analysis));
    if (!text_wanted) {
      reports.push_back({file, std::move(*keywords)});
      continue;
    }
    const trace::Trace& trace = (*analysis)->trace();
    options.closing = {report::TraceLine(trace, file, options.style)};
    std::string text = report::KeywordsText(*keywords, trace, options);
    if (file != arguments.files.front())
      text.insert(0, "\n");
    VRAMSCOPE_RETURN_IF_ERROR(PrintOut(text));
  }
  if (arguments.json)
    return PrintOut(report::KeywordsJson(reports));
  if (arguments.csv)
    return PrintOut(report::KeywordsCsv(reports));
  return {};
}

// Its launcher was killed, and so were its programs.
bool WasCutOff(const trace::Trace& trace, const std::string& file) {
  if (trace.session().finished)
    return false;
  const std::string live = IsLiveDirectory(file) ? file : LiveDirectoryOf(file);
  return IsLiveDirectory(live) && !LauncherIsAlive(live) && LiveRecorders(live).empty();
}

util::Status ShowReports(const ReportArguments& arguments) {
  util::Result<engine::ReportQuery> query = ParseQuery(arguments);
  if (!query.ok())
    return query.status();
  const bool several = arguments.files.size() > 1;
  if (several && !arguments.html.empty()) {
    return util::Status::Error("--html makes the page of one recording: name one FILE");
  }
  if (!arguments.keywords.dictionaries.empty())
    return ShowKeywords(arguments, *query);
  if (!arguments.keywords.expected.empty()) {
    return util::Status::Error(
        "--expected-sum says what --keywords should sum to: give --keywords, too");
  }
  const report::Style style = report::DetectStyle(STDOUT_FILENO);
  std::vector<report::NamedReport> reports;  // of --json and --csv: all of them or none
  for (const std::string& file : arguments.files) {
    util::Result<std::unique_ptr<engine::Analysis>> analysis = OpenAnalysis(file);
    if (!analysis.ok())
      return analysis.status();
    util::Result<engine::Report> report = (*analysis)->MakeReport(*query);
    if (!report.ok())
      return report.status();
    VRAMSCOPE_RETURN_IF_ERROR(WritePage(arguments, **analysis));
    if (arguments.json || arguments.csv) {
      reports.push_back({file, std::move(*report)});
      continue;
    }
    report::TextOptions options;
    options.style = style;
    options.away = report::AwayLines(**analysis);
    options.closing.push_back(report::TraceLine((*analysis)->trace(), file, style));
    if (WasCutOff((*analysis)->trace(), file)) {
      options.closing.push_back(
          fmt::format("Nobody records into it any more: `vramscope finish {}` makes one file of it",
                      report::Printable(file, style.utf8)));
    }
    if (!arguments.html.empty()) {
      options.closing.push_back("Page:  " + report::Printable(arguments.html, style.utf8));
    }
    std::string text = report::FormatText(*report, (*analysis)->trace(), *query, options);
    if (several && file != arguments.files.front())
      text.insert(0, "\n");
    VRAMSCOPE_RETURN_IF_ERROR(PrintOut(text));
  }
  if (arguments.json)
    return PrintOut(report::ReportsJson(reports));
  if (arguments.csv)
    return PrintOut(report::ReportCsv(reports, query->by));
  return {};
}

}  // namespace

void RegisterReport(CLI::App& app, int* exit_code) {
  CLI::App* const report = app.add_subcommand("report", "Who had the memory, at any instant");
  auto arguments = std::make_shared<ReportArguments>();
  report
      ->add_option("FILE", arguments->files, "NAME.vram, or NAME.vram.d of an unfinished recording")
      ->required();
  // Options of one value each: a FILE behind them must stay a FILE.
  report
      ->add_option("--at", arguments->at,
                   "peak, end, SECONDS from the start, @NS (CLOCK_MONOTONIC), iter:N, mark:NAME")
      ->option_text("WHEN");
  std::string dimensions;
#define VRAMSCOPE_DIMENSION(dimension, text)    \
  dimensions += dimensions.empty() ? "" : ", "; \
  dimensions += text;
#include "engine/query/dimensions.def"
  report->add_option("--by", arguments->by, "Group by dimensions, outermost first: " + dimensions)
      ->option_text("DIM[,DIM...]")
      ->allow_extra_args(false);
  report->add_option("--where", arguments->where, "Only rows of that value; can be repeated")
      ->option_text("DIM=VALUE")
      ->allow_extra_args(false);
  report->add_option("--top", arguments->top, "Only the N largest rows; the rest as one")
      ->check(CheckCount)
      ->option_text("N");
  AddKeywordOptions(*report, &arguments->keywords);
  CLI::Option* const json = report->add_flag(
      "--json", arguments->json,
      "The schema vramscope.report/1 (with --keywords vramscope.keywords/1), exact bytes");
  report->add_flag("--csv", arguments->csv, "The rows as a table, exact bytes")->excludes(json);
  report->add_option("--html", arguments->html, "Write a page that works offline, too")
      ->option_text("FILE");
  report->callback([arguments, exit_code] {
    const util::Status status = ShowReports(*arguments);
    if (!status.ok())
      *exit_code = Fail(status.message());
  });
}

}  // namespace vramscope::cli
