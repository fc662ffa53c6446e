// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/answers.h"
#include "output/keywords.h"
#include "output/terminal.h"
#include "output/text/text.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "query/advice/advice.h"
#include "query/diff/diff.h"
#include "query/dimensions/report.h"
#include "query/oom/out_of_memory.h"

namespace vramscope::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> files;
  std::vector<std::string> at = {"peak"};
  std::vector<std::string> by;
  std::vector<std::string> where;
  std::vector<std::string> own;
  uint64_t top = 0;
  std::optional<uint64_t> timeline;  // buckets
  std::string oom;  // which refusal, "0": the last one that was for good; empty: not asked for
  bool ranks = false;
  bool phases = false;
  bool xla_hlo = false;
  bool advice = false;
  std::string budget;
  bool json = false;
  bool csv = false;
  bool is_temporary = false;  // the recording will be deleted
  std::string holders;        // a file, of `dump --holders --json`
  std::string html;
  KeywordOptions keywords;
};

// All but the instant.
util::Result<query::ReportQuery> ParseQuery(const ReportArguments& arguments) {
  query::ReportQuery query;
  for (const std::string& list : arguments.by) {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      VRAMSCOPE_RETURN_IF_ERROR(query::AddDimension(list.substr(begin, end - begin), &query.by));
      begin = end + 1;
    }
  }
  for (const std::string& condition : arguments.where) {
    VRAMSCOPE_ASSIGN_OR_RETURN(query::ReportQuery::Where where, query::ParseWhere(condition));
    query.where.push_back(std::move(where));
  }
  query.own = arguments.own;
  query.top = arguments.top;
  return query;
}

util::Result<std::vector<query::Instant>> ParseInstants(const ReportArguments& arguments) {
  std::vector<query::Instant> instants;
  for (const std::string& text : arguments.at) {
    VRAMSCOPE_ASSIGN_OR_RETURN(query::Instant instant, query::ParseInstant(text));
    instants.push_back(std::move(instant));
  }
  return instants;
}

util::Status WritePage(const ReportArguments& arguments, const tables::Recording& recording) {
  if (arguments.html.empty())
    return {};
  VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.html, arguments.files[0]));
  Progress progress("writing " + arguments.html);
  return output::WriteHtml(recording, arguments.html);
}

// Entries of a category that text shows where --top does not say; JSON and CSV have all.
constexpr uint64_t kTopEntries = 20;

// Several recordings, or those of a folder, are one sheet.
util::Status ShowKeywordSheet(const ReportArguments& arguments,
                              const query::KeywordQuery& query,
                              uint64_t top) {
  if (!arguments.html.empty())
    return util::Status::Error("--html makes the page of one recording: name one FILE");
  std::vector<output::NamedKeywords> reports;
  for (const std::string& path : arguments.files) {
    const bool is_folder = IsFolder(path);
    const std::vector<std::string> files =
        is_folder ? RecordingsIn(path) : std::vector<std::string>{path};
    if (files.empty())
      return util::Status::Error(path + ": contains no recording (*.vram)");
    for (const std::string& file : files) {
      util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(file);
      // One of a folder that is damaged says so, and the others are reported.
      if (!recording.ok() && is_folder) {
        Note("left out: " + recording.status().message());
        continue;
      }
      if (!recording.ok())
        return recording.status();
      util::Result<query::KeywordReport> keywords = query::MakeKeywordReport(**recording, query);
      if (!keywords.ok())
        return util::Status::Error(file + ": " + keywords.status().message());
      reports.push_back({file, std::move(*keywords)});
    }
  }
  if (reports.empty())
    return util::Status::Error(arguments.files.front() + ": no recording in it can be read");
  if (arguments.json)
    return PrintOut(output::KeywordSheetJson(reports));
  if (arguments.csv)
    return PrintOut(output::KeywordSheetCsv(reports));
  return PrintOut(output::KeywordSheetText(reports, top, output::DetectStyle(STDOUT_FILENO)));
}

util::Status ShowKeywords(const ReportArguments& arguments, const query::ReportQuery& report) {
  if (!report.by.empty()) {
    return util::Status::Error(
        "--by and --keywords cannot be used together: a dictionary defines its own groups");
  }
  util::Result<query::KeywordQuery> query = ParseKeywordOptions(arguments.keywords);
  if (!query.ok())
    return query.status();
  const bool text_wanted = !arguments.json && !arguments.csv;
  query->at = report.at;
  query->where = report.where;
  query->top = report.top;
  const uint64_t text_top = report.top == 0 ? kTopEntries : report.top;
  const std::string& file = arguments.files.front();
  if (arguments.files.size() > 1 || IsFolder(file)) {
    // What several have is added up before it is cut.
    query->top = text_wanted ? 0 : report.top;
    return ShowKeywordSheet(arguments, *query, text_top);
  }
  if (text_wanted)
    query->top = text_top;
  VRAMSCOPE_ASSIGN_OR_RETURN(std::unique_ptr<tables::Recording> recording, OpenRecording(file));
  VRAMSCOPE_ASSIGN_OR_RETURN(query::KeywordReport keywords,
                             query::MakeKeywordReport(*recording, *query));
  VRAMSCOPE_RETURN_IF_ERROR(WritePage(arguments, *recording));
  if (arguments.json)
    return PrintOut(output::KeywordsJson(keywords));
  if (arguments.csv)
    return PrintOut(output::KeywordsCsv(keywords));
  output::KeywordsTextOptions options;
  options.style = output::DetectStyle(STDOUT_FILENO);
  options.closing = {output::TraceLine(*recording, file, options.style)};
  return PrintOut(output::KeywordsText(keywords, *recording, options));
}

// The failed allocation that --oom means: the N-th, or the last that no retry served, or the last.
const query::Refusal& ChosenRefusal(const std::vector<query::Refusal>& refusals, uint64_t number) {
  if (number > 0)
    return refusals[number - 1];
  const auto last = std::find_if(refusals.rbegin(), refusals.rend(),
                                 [](const query::Refusal& refusal) { return !refusal.served; });
  return last == refusals.rend() ? refusals.back() : *last;
}

// The allocator of CPU tensors fails without a record of it.
std::string NoRefusal(const tables::Tables& tables) {
  const bool has_cpu = std::any_of(
      tables.devices.begin(), tables.devices.end(),
      [](const tables::DeviceRow& row) { return row.kind == tables::DeviceKind::kCpu; });
  return has_cpu ? "no failed allocation of GPU memory; failures of CPU tensors are not recorded"
                 : "no failed allocation";
}

util::Status ShowOutOfMemory(const ReportArguments& arguments) {
  if (arguments.csv || !arguments.by.empty() || !arguments.where.empty())
    return util::Status::Error("--oom cannot be used with --csv, --by or --where: leave them out");
  uint64_t number = 0;
  const char* const end = arguments.oom.data() + arguments.oom.size();
  if (std::from_chars(arguments.oom.data(), end, number).ec != std::errc())
    return util::Status::Error("--oom=" + arguments.oom +
                               ": is not a number of a failed allocation");
  const output::Style style = output::DetectStyle(STDOUT_FILENO);
  std::vector<std::string> objects;
  for (const std::string& file : arguments.files) {
    VRAMSCOPE_ASSIGN_OR_RETURN(std::unique_ptr<tables::Recording> recording, OpenRecording(file));
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto refusals, query::FindRefusals(*recording));
    if (number > refusals.size()) {
      return util::Status::Error(fmt::format(
          "{}: has no failed allocation {}: the recording has {}", file, number, refusals.size()));
    }
    query::Refusals answer{refusals, {}};
    std::vector<query::OutOfMemory>& explained = answer.explained;
    if (!refusals.empty()) {
      VRAMSCOPE_ASSIGN_OR_RETURN(
          auto what, query::ExplainRefusal(*recording, ChosenRefusal(refusals, number)));
      explained.push_back(std::move(what));
    }
    if (arguments.json) {
      objects.push_back(output::OutOfMemoryJson(answer, *recording));
      continue;
    }
    std::string text = explained.empty()
                           ? fmt::format("{}: {}\n", output::Printable(file, style.utf8),
                                         NoRefusal(recording->tables()))
                           : output::FormatOutOfMemory(explained[0], *recording, style);
    if (refusals.size() > 1)
      text += "\nfailed allocations, for --oom=N\n" +
              output::FormatRefusals(refusals, *recording, style);
    VRAMSCOPE_RETURN_IF_ERROR(PrintOut(text));
  }
  return arguments.json ? PrintOut(output::JsonOfFiles(objects)) : util::Status();
}

util::Status ShowRanks(const ReportArguments& arguments) {
  if (arguments.csv || !arguments.by.empty() || !arguments.where.empty() ||
      !arguments.oom.empty() || arguments.at.front() != "peak")
    return util::Status::Error(
        "the report of several ranks shows their peaks: of the options, only --json and --html can "
        "be used");
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<std::string> files, RankFiles(arguments.files));
  for (const std::string& file : files) {
    if (!arguments.html.empty())
      VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.html, file));
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::RankReport ranks,
                             ReadRanks(files, !arguments.html.empty()));
  if (!arguments.html.empty())
    VRAMSCOPE_RETURN_IF_ERROR(output::WriteRanksHtml(ranks, arguments.html));
  return PrintOut(arguments.json ? output::RanksJson(ranks)
                                 : output::FormatRanks(ranks, output::DetectStyle(STDOUT_FILENO)));
}

// Of an answer that is no report of an instant, about one recording.
util::Status CheckAlone(const ReportArguments& arguments, const char* option) {
  if (arguments.csv || !arguments.by.empty() || !arguments.where.empty() ||
      !arguments.oom.empty() || !arguments.html.empty())
    return util::Status::Error(fmt::format("{} can only be used with --json", option));
  for (const std::string& file : arguments.files) {
    if (IsFolder(file))
      return util::Status::Error(
          fmt::format("{} is a folder: with {} name a recording", file, option));
  }
  return {};
}

util::Status ShowPhases(const ReportArguments& arguments) {
  VRAMSCOPE_RETURN_IF_ERROR(CheckAlone(arguments, "--phases"));
  std::vector<std::string> objects;
  for (const std::string& file : arguments.files) {
    VRAMSCOPE_ASSIGN_OR_RETURN(std::unique_ptr<tables::Recording> recording, OpenRecording(file));
    const util::Result<query::EnginePhases> phases = query::MakePhases(*recording);
    if (!phases)
      return util::Status::Error(file + ": " + phases.status().message());
    if (arguments.json)
      objects.push_back(output::PhasesJson(*phases, *recording));
    else
      VRAMSCOPE_RETURN_IF_ERROR(
          PrintOut(output::FormatPhases(*phases, *recording, output::DetectStyle(STDOUT_FILENO))));
  }
  return arguments.json ? PrintOut(output::JsonOfFiles(objects)) : util::Status();
}

util::Status ShowXlaPrograms(const ReportArguments& arguments) {
  VRAMSCOPE_RETURN_IF_ERROR(CheckAlone(arguments, "--xla-hlo"));
  std::vector<std::string> objects;
  for (const std::string& file : arguments.files) {
    VRAMSCOPE_ASSIGN_OR_RETURN(std::unique_ptr<tables::Recording> recording, OpenRecording(file));
    const util::Result<query::XlaPrograms> programs = query::MakeXlaPrograms(*recording);
    if (!programs)
      return util::Status::Error(file + ": " + programs.status().message());
    if (arguments.json)
      objects.push_back(output::XlaProgramsJson(*programs, *recording));
    else
      VRAMSCOPE_RETURN_IF_ERROR(
          PrintOut(output::FormatXlaPrograms(*programs, output::DetectStyle(STDOUT_FILENO))));
  }
  return arguments.json ? PrintOut(output::JsonOfFiles(objects)) : util::Status();
}

// *fits: whether all recordings stay within the budget.
util::Status ShowSavings(const ReportArguments& arguments, bool* fits) {
  VRAMSCOPE_RETURN_IF_ERROR(CheckAlone(arguments, "--advice and --budget"));
  std::optional<uint64_t> budget_bytes;
  if (!arguments.budget.empty()) {
    util::Result<uint64_t> size = util::ParseSize(arguments.budget);
    if (!size)
      return util::Status::Error("--budget: " + size.status().message());
    budget_bytes = *size;
  }
  std::vector<std::string> objects;
  for (const std::string& file : arguments.files) {
    VRAMSCOPE_ASSIGN_OR_RETURN(std::unique_ptr<tables::Recording> recording, OpenRecording(file));
    const util::Result<query::Savings> savings = query::FindSavings(*recording, budget_bytes);
    if (!savings)
      return util::Status::Error(file + ": " + savings.status().message());
    *fits = *fits && savings->over_bytes.value_or(0) == 0;
    if (arguments.json)
      objects.push_back(output::SavingsJson(*savings, *recording));
    else
      VRAMSCOPE_RETURN_IF_ERROR(PrintOut(
          output::FormatSavings(*savings, *recording, output::DetectStyle(STDOUT_FILENO))));
  }
  return arguments.json ? PrintOut(output::JsonOfFiles(objects)) : util::Status();
}

// Its launcher was killed, and so were its programs.
bool WasCutOff(const tables::Recording& recording, const std::string& file) {
  if (recording.tables().session.finished)
    return false;
  const std::string live = IsLiveDirectory(file) ? file : LiveDirectoryOf(file);
  return IsLiveDirectory(live) && !LauncherIsAlive(live) && LiveRecorders(live).empty();
}

std::string TextOf(const ReportArguments& arguments,
                   const std::string& file,
                   const tables::Recording& recording,
                   const query::ReportQuery& query,
                   const query::Report& report) {
  const output::Style style = output::DetectStyle(STDOUT_FILENO);
  output::TextOptions options;
  options.style = style;
  options.rows = isatty(STDOUT_FILENO) != 0 ? output::kScreenRows : 0;
  if (!arguments.is_temporary)
    options.closing.push_back(output::TraceLine(recording, file, style));
  if (WasCutOff(recording, file)) {
    options.closing.push_back(
        fmt::format("This recording is unfinished: `vramscope finish {}` completes it",
                    output::Printable(file, style.utf8)));
  }
  // The report is printed even if the failed allocations cannot be read.
  if (const auto refusals = query::FindRefusals(recording); refusals.ok()) {
    const std::string line = output::RefusalsLine(*refusals, output::Printable(file, style.utf8));
    if (!line.empty())
      options.closing.push_back(line);
  }
  if (const auto ranks = query::RanksWithin(recording); ranks.ok()) {
    const std::string line = output::RanksLine(*ranks, output::Printable(file, style.utf8));
    if (!line.empty())
      options.closing.push_back(line);
  }
  const bool has_page = !arguments.html.empty();
  if (has_page)
    options.closing.push_back("Page:  " + output::Printable(arguments.html, style.utf8));
  if (!arguments.is_temporary)
    options.next = output::NextLines(report, recording, query, {file, has_page, style.utf8});
  return output::FormatText(report, recording, query, options);
}

// Of --json and --csv all reports or none; texts as they come.
struct Shown {
  std::vector<output::NamedReport> reports;
  std::vector<std::string> objects;
  bool any_text = false;
};

util::Status ShowReport(const ReportArguments& arguments,
                        const std::string& file,
                        const tables::Recording& recording,
                        const query::ReportQuery& query,
                        Shown* shown) {
  VRAMSCOPE_ASSIGN_OR_RETURN(query::Report report, query::MakeReport(recording, query));
  // Text cuts the tree that it makes of the rows.
  if (arguments.json || arguments.csv)
    query::CutRows(query.top, &report.rows);
  if (arguments.json) {
    if (arguments.timeline) {
      VRAMSCOPE_ASSIGN_OR_RETURN(report.timelines,
                                 query::MakeTimelines(recording, *arguments.timeline));
    }
    std::string holders;
    if (!arguments.holders.empty()) {
      constexpr size_t kMostBytes = size_t{64} << 20;
      VRAMSCOPE_ASSIGN_OR_RETURN(holders, util::ReadFile(arguments.holders, kMostBytes));
    }
    shown->objects.push_back(output::ReportJson(report, recording, holders));
  } else if (arguments.csv) {
    shown->reports.push_back({file, std::move(report)});
  } else {
    std::string text = TextOf(arguments, file, recording, query, report);
    if (std::exchange(shown->any_text, true))
      text.insert(0, "\n");
    return PrintOut(text);
  }
  return {};
}

util::Status ShowReports(const ReportArguments& arguments) {
  if (const util::Status buckets = query::CheckBuckets(arguments.timeline.value_or(1));
      !buckets.ok())
    return util::Status::Error("--timeline: " + buckets.message());
  if (arguments.phases)
    return ShowPhases(arguments);
  if (arguments.xla_hlo)
    return ShowXlaPrograms(arguments);
  const bool has_folder = std::any_of(arguments.files.begin(), arguments.files.end(), IsFolder);
  if (arguments.ranks || (has_folder && arguments.keywords.dictionaries.empty()))
    return ShowRanks(arguments);
  if (!arguments.oom.empty())
    return ShowOutOfMemory(arguments);
  util::Result<query::ReportQuery> query = ParseQuery(arguments);
  if (!query.ok())
    return query.status();
  const util::Result<std::vector<query::Instant>> instants = ParseInstants(arguments);
  if (!instants.ok())
    return instants.status();
  query->at = instants->front();
  if (arguments.files.size() > 1 && !arguments.html.empty()) {
    return util::Status::Error(
        "--html writes the page of one recording: use one FILE, or --ranks for the ranks of a "
        "program");
  }
  if (!arguments.keywords.dictionaries.empty()) {
    if (instants->size() > 1)
      return util::Status::Error("--keywords shows one instant: use --at once");
    return ShowKeywords(arguments, *query);
  }
  if (!arguments.keywords.expected.empty()) {
    return util::Status::Error("--expected-sum is the total for --keywords: use --keywords too");
  }
  Shown shown;
  for (const std::string& file : arguments.files) {
    VRAMSCOPE_ASSIGN_OR_RETURN(std::unique_ptr<tables::Recording> recording, OpenRecording(file));
    VRAMSCOPE_RETURN_IF_ERROR(WritePage(arguments, *recording));
    for (const query::Instant& instant : *instants) {
      query->at = instant;
      VRAMSCOPE_RETURN_IF_ERROR(ShowReport(arguments, file, *recording, *query, &shown));
    }
  }
  if (arguments.json)
    return PrintOut(output::JsonOfFiles(shown.objects));
  if (arguments.csv)
    return PrintOut(
        output::ReportCsv(shown.reports, query->by,
                          {.file = arguments.files.size() > 1, .at_ns = instants->size() > 1}));
  return {};
}

}  // namespace

void RegisterReport(CLI::App& app, int* exit_code) {
  CLI::App* const report =
      app.add_subcommand("report", "Show what holds the memory, at the peak or any instant");
  auto arguments = std::make_shared<ReportArguments>();
  report
      ->add_option("FILE", arguments->files,
                   "A recording: NAME.vram, or NAME.vram.d of a program that still runs or was "
                   "killed. A directory with the recordings of a program's ranks is one report. "
                   "With --keywords several FILEs are one table")
      ->required();
  // Each of these options takes one value: a FILE after it must stay a FILE.
  report
      ->add_option("--at", arguments->at,
                   "Show this instant; can be repeated:\n"
                   "peak            highest total (default)\n"
                   "allocated-peak  highest without cached memory\n"
                   "own-peak        highest of what --where selects\n"
                   "end             end of the recording\n"
                   "SECONDS         seconds from the start\n"
                   "iter:N          peak within iteration N\n"
                   "mark:NAME       vramscope.mark(\"NAME\")\n"
                   "@NS             nanoseconds of CLOCK_MONOTONIC")
      ->option_text("WHEN")
      ->allow_extra_args(false);
  report
      ->add_option("--by", arguments->by,
                   "Group by one or more dimensions, outermost first:\n"
                   "purpose  category, phase, iteration\n"
                   "model    module, class, parameter\n"
                   "code     line, python, native (stacks), tag\n"
                   "library  owner, allocator, api, communicator\n"
                   "place    host, device, process, rank, thread,\n"
                   "         stream, holder\n"
                   "size     size_class, lifetime")
      ->option_text("DIM[,DIM...]")
      ->allow_extra_args(false);
  report
      ->add_option("--where", arguments->where,
                   "Show only rows with this value, as in category=activation; can be repeated")
      ->option_text("DIM=VALUE")
      ->allow_extra_args(false);
  report->add_option("--top", arguments->top, "Show the N largest rows; the others are one row")
      ->check(CheckCount)
      ->option_text("N");
  report
      ->add_option("--own", arguments->own,
                   "Treat this Python package as your code when naming lines; can be repeated")
      ->option_text("PACKAGE")
      ->allow_extra_args(false);
  report->add_flag("--ranks", arguments->ranks,
                   "Show several FILEs as one report: the ranks of one program");
  report->add_flag("--phases", arguments->phases,
                   "Show what each phase of an inference engine took and left");
  report->add_flag("--xla-hlo", arguments->xla_hlo,
                   "Show what XLA's programs hold at their peak, by operation (`run --xla-hlo`)");
  report->add_flag("--advice", arguments->advice,
                   "Show what would lower the peak, and by how much");
  report
      ->add_option("--budget", arguments->budget,
                   "The same, for a device of this size, such as 24GiB; exit with 1 if the peak "
                   "exceeds it")
      ->option_text("SIZE");
  report
      ->add_flag("--oom{0}", arguments->oom,
                 "Explain why an allocation failed: the last failure, or number N")
      ->option_text("N")
      ->check(CheckCount);
  AddKeywordOptions(*report, &arguments->keywords);
  CLI::Option* const json =
      report->add_flag("--json", arguments->json,
                       "Print JSON with exact bytes (schema vramscope.report/1; with --keywords "
                       "vramscope.keywords/1)");
  report
      ->add_option("--timeline", arguments->timeline,
                   "With --json: add the history in N buckets (at most 1,000,000)")
      ->check(CheckCount)
      ->option_text("N")
      ->needs(json);
  report->add_flag("--temporary", arguments->is_temporary)->group("");
  report->add_option("--holders", arguments->holders)->group("");
  report->add_flag("--csv", arguments->csv, "Print the rows as CSV with exact bytes")
      ->excludes(json);
  report->add_option("--html", arguments->html, "Also write an HTML page that works offline")
      ->option_text("FILE");
  report->callback([arguments, exit_code] {
    bool fits = true;
    *exit_code =
        ExitOf(arguments->advice || !arguments->budget.empty() ? ShowSavings(*arguments, &fits)
                                                               : ShowReports(*arguments));
    if (*exit_code == kExitOk && !fits)
      *exit_code = kExitLimitExceeded;
  });
}

}  // namespace vramscope::cli
