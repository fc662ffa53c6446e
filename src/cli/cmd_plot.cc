// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/plot/chart_parts.h"
#include "output/plot/figure.h"
#include "pipeline/open_recording.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"
#include "query/keywords/keyword_file.h"
#include "util/owned_file.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

// The dictionary that DefaultBars() makes of lines.
constexpr char kLines[] = "lines";

struct PlotArguments {
  std::vector<std::string> files;
  std::string kind;
  std::string output;
  std::string at = "peak";
  std::string by;
  std::string omit_below;
  std::string device;
  output::FigureLook look;
  KeywordOptions keywords;
  bool overlay = false;
  bool less_baseline = false;
  bool at_given = false;
};

// Which options a kind takes.
struct Kind {
  const char* name;
  bool keywords;  // --keywords, --expected-sum
  bool at;
  bool by;
};
constexpr Kind kKinds[] = {{"timeline", false, false, true},
                           {"two-bar", true, true, false},
                           {"compare", false, true, true},
                           {"categories", true, true, false}};

// The name in titles: empty for a single recording, which --title or the text around the figure
// names.
std::string NameOf(const PlotArguments& arguments, const std::string& file) {
  return arguments.files.size() > 1 ? std::filesystem::path(file).stem().string() : "";
}

// "2%", "0.02".
util::Result<double> ParseShare(const std::string& text) {
  double share = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, share);
  const std::string_view rest(stop, static_cast<size_t>(end - stop));
  if (rest == "%" || rest == " %")
    share /= 100;
  else if (!rest.empty())
    share = -1;
  if (error != std::errc() || !(share >= 0 && share < 1)) {
    return util::Status::Error(
        fmt::format("--omit-below {}: use a share below 1, as in 2% or 0.02", text));
  }
  return share;
}

util::Status CheckOptions(const PlotArguments& arguments) {
  const auto* const kind =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [&](const Kind& known) { return known.name == arguments.kind; });
  if (kind == std::end(kKinds)) {
    return util::Status::Error(fmt::format(
        "unknown --kind '{}': use timeline, two-bar, compare or categories", arguments.kind));
  }
  const auto refuse = [&](const char* options) {
    return util::Status::Error(fmt::format("{} not for --kind {}", options, arguments.kind));
  };
  const bool keywords =
      !arguments.keywords.dictionaries.empty() || !arguments.keywords.expected.empty();
  if (keywords && !kind->keywords)
    return refuse("--keywords and --expected-sum are");
  if (arguments.at_given && !kind->at)
    return refuse("--at is");
  if (!arguments.by.empty() && !kind->by)
    return refuse("--by is");
  const bool timeline = arguments.kind == "timeline";
  if (arguments.overlay && !timeline)
    return refuse("--overlay is");
  if (arguments.less_baseline && !arguments.overlay)
    return util::Status::Error(
        "--subtract-baseline can only be used with --kind timeline --overlay");
  if (arguments.overlay && (!arguments.by.empty() || !arguments.omit_below.empty()))
    return util::Status::Error("--overlay draws totals: leave out --by and --omit-below");
  if (!arguments.look.unit.empty() && output::UnitBytes(arguments.look.unit) == 0) {
    return util::Status::Error(
        fmt::format("--unit {}: use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB", arguments.look.unit));
  }
  return {};
}

// Leaves the chosen device alone in a list of a recording's: "1" or "gpu1", "cpu", "host".
template <class Entry, class KindAndIndex>
util::Status KeepDevice(const PlotArguments& arguments,
                        const std::string& file,
                        const KindAndIndex& of,
                        std::vector<Entry>* entries) {
  if (arguments.device.empty())
    return {};
  std::string marks;
  std::erase_if(*entries, [&](const Entry& entry) {
    const auto [kind, index] = of(entry);
    const std::string mark = query::DeviceMark(kind, index);
    marks += (marks.empty() ? "" : ", ") + mark;
    return arguments.device != mark &&
           (kind != tables::DeviceKind::kGpu || arguments.device != std::to_string(index));
  });
  if (!entries->empty())
    return {};
  return util::Status::Error(fmt::format("{}: has no device '{}': use one of {} for --device", file,
                                         arguments.device, marks));
}

util::Status KeepDevice(const PlotArguments& arguments,
                        const std::string& file,
                        query::Report* report) {
  return KeepDevice(
      arguments, file,
      [](const query::DeviceReport& device) { return std::pair(device.kind, device.index); },
      &report->devices);
}

util::Result<query::Report> ReportOf(const PlotArguments& arguments,
                                     const std::string& file,
                                     const tables::Recording& recording,
                                     const query::ReportQuery& query) {
  util::Result<query::Report> report = query::MakeReport(recording, query);
  if (report.ok())
    VRAMSCOPE_RETURN_IF_ERROR(KeepDevice(arguments, file, &*report));
  return report;
}

// For recordings without any allocation.
util::Status NothingToDraw(const PlotArguments& arguments) {
  return util::Status::Error(
      fmt::format("{}: has no memory to draw: `vramscope info {}` shows what was recorded",
                  arguments.files[0], arguments.files[0]));
}

// Others of a bar is spoken of from this share on: what is smaller is hardly seen.
constexpr uint64_t kSpokenPercent = 10;

// Says what is hidden behind Others, and what shows more.
void NoteOthers(const std::string& file, const query::KeywordReport& keywords) {
  for (size_t i = 0; i < keywords.dictionaries.size(); ++i) {
    // Of the device with the most.
    const query::KeywordTable* table = nullptr;
    for (const query::KeywordTable& each : keywords.tables) {
      if (each.dictionary == i && (table == nullptr || each.row_bytes > table->row_bytes))
        table = &each;
    }
    if (table == nullptr || table->row_bytes == 0)
      continue;
    const uint64_t percent = 100 * table->others.bytes / table->row_bytes;
    if (percent < kSpokenPercent)
      continue;
    std::string names;
    for (const query::KeywordEntry& entry : table->others.entries) {
      names += fmt::format("{}{} {}", names.empty() ? "" : ", ",
                           entry.name == query::kRest ? "others" : entry.name,
                           util::FormatBytes(entry.bytes));
    }
    const query::KeywordDictionary& dictionary = keywords.dictionaries[i];
    const std::string more =
        dictionary.name == kLines
            ? fmt::format("`vramscope report {} --by line`", file)
            : fmt::format("`vramscope report {} --keywords {}`", file, dictionary.name);
    Note(fmt::format("{}: {} % of the bar \"{}\" is {}: {}. {} lists all", file, percent,
                     dictionary.title, query::kOthers, names, more));
  }
}

// Of the files, in their order. A running program's is asked several questions about one state.
using Recordings = std::vector<std::unique_ptr<tables::Recording>>;

util::Result<Recordings> OpenAll(const std::vector<std::string>& files) {
  Recordings recordings;
  for (const std::string& file : files) {
    util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(file);
    if (!recording.ok())
      return recording.status();
    recordings.push_back(std::move(*recording));
  }
  return recordings;
}

struct FileBars {
  query::KeywordReport report;
  std::vector<output::BarPanel> panels;  // each has a bar a dictionary, in their order
};

util::Result<std::vector<FileBars>> BarsOf(const PlotArguments& arguments,
                                           const Recordings& recordings,
                                           const query::KeywordQuery& query) {
  std::vector<FileBars> bars;
  for (size_t i = 0; i < recordings.size(); ++i) {
    const std::string& file = arguments.files[i];
    VRAMSCOPE_ASSIGN_OR_RETURN(query::KeywordReport report,
                               query::MakeKeywordReport(*recordings[i], query));
    VRAMSCOPE_RETURN_IF_ERROR(KeepDevice(arguments, file, &report.report));
    std::vector<output::BarPanel> panels =
        output::BarPanels(report, *recordings[i], NameOf(arguments, file), arguments.look.unit);
    bars.push_back({std::move(report), std::move(panels)});
  }
  return bars;
}

// The share of Others in the bars of a dictionary.
double OthersShare(const std::vector<FileBars>& files, size_t dictionary) {
  double others = 0;
  double rows = 0;
  for (const FileBars& file : files) {
    for (const output::BarPanel& panel : file.panels) {
      const output::StackedBar& bar = panel.bars[dictionary];
      rows += static_cast<double>(bar.row_bytes);
      for (const output::Slice& slice : bar.slices)
        others += slice.kind == output::Slice::Kind::kOthers ? static_cast<double>(slice.bytes) : 0;
    }
  }
  return rows > 0 ? others / rows : 0;
}

// A category for each of the lines that have most, and for what has no line.
util::Result<query::KeywordDictionary> LinesDictionary(const PlotArguments& arguments,
                                                       const Recordings& recordings,
                                                       const query::Instant& at) {
  constexpr size_t kMostLines = 8;
  query::ReportQuery query;
  query.at = at;
  query.by = {query::Dimension::kLine};
  std::map<std::string, uint64_t> sums;
  for (size_t i = 0; i < recordings.size(); ++i) {
    VRAMSCOPE_ASSIGN_OR_RETURN(const query::Report report,
                               ReportOf(arguments, arguments.files[i], *recordings[i], query));
    for (const query::ReportRow& row : report.rows)
      sums[row.path[0]] += row.nameless != 0 || row.of_segment != 0 ? 0 : row.bytes;
  }
  std::vector<std::pair<std::string, uint64_t>> lines(sums.begin(), sums.end());
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  query::KeywordDictionary dictionary{kLines, "Line", {}};
  const auto add = [&](const std::string& category, std::vector<std::string> keywords,
                       query::Dimension over) {
    dictionary.rules.push_back({.category = category,
                                .group = "",
                                .keywords = std::move(keywords),
                                .over = {over},
                                .match = query::KeywordMatch::kExact,
                                .case_sensitive = true});
  };
  add("Kept by the allocator", {"cached", "fragmentation", "graph pool", "rounding"},
      query::Dimension::kCategory);
  add("Driver", {"driver"}, query::Dimension::kCategory);
  for (const auto& [line, bytes] : lines) {
    if (bytes != 0 && dictionary.rules.size() < kMostLines + 2)
      add(line, {line}, query::Dimension::kLine);
  }
  return dictionary;
}

// Without --keywords the bars are of the usual dictionaries. A dictionary that leaves more than
// half in Others is replaced by the built-in one that leaves least, or by lines if all leave more
// than half.
util::Result<std::vector<FileBars>> DefaultBars(const PlotArguments& arguments,
                                                const Recordings& recordings,
                                                query::KeywordQuery query) {
  constexpr double kMostOthers = 0.5;
  std::vector<std::string> usual = {"data-structures"};
  if (arguments.kind == "two-bar")
    usual.insert(usual.begin(), "layers");
  std::vector<std::string> names = usual;
  for (const std::string& name : query::BuiltInKeywordList()) {
    if (std::find(usual.begin(), usual.end(), name) == usual.end())
      names.push_back(name);
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(std::vector<query::KeywordDictionary> all, query::LoadKeywords(names));
  query.dictionaries.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(usual.size()));
  util::Result<std::vector<FileBars>> bars = BarsOf(arguments, recordings, query);
  if (!bars.ok())
    return bars.status();
  const auto is_poor = [&](const std::vector<FileBars>& of, size_t i) {
    return OthersShare(of, i) > kMostOthers;
  };
  size_t poor = 0;
  for (size_t i = 0; i < usual.size(); ++i)
    poor += static_cast<size_t>(is_poor(*bars, i));
  if (poor == 0)
    return bars;
  const util::Result<query::KeywordDictionary> lines =
      LinesDictionary(arguments, recordings, query.at);
  if (!lines.ok())
    return lines.status();
  all.push_back(*lines);
  query.dictionaries = all;
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<FileBars> tried,
                             BarsOf(arguments, recordings, query));
  // Those that may take a place: the best built-in one first, the lines last.
  std::vector<size_t> spare;
  for (size_t i = usual.size(); i < names.size(); ++i)
    spare.push_back(i);
  std::stable_sort(spare.begin(), spare.end(), [&](size_t a, size_t b) {
    return OthersShare(tried, a) < OthersShare(tried, b);
  });
  spare.push_back(names.size());
  std::erase_if(spare, [&](size_t i) { return is_poor(tried, i); });
  if (spare.empty() && poor == usual.size())
    return bars;  // nothing shows more
  std::vector<query::KeywordDictionary> chosen;
  for (size_t i = 0; i < usual.size(); ++i) {
    if (!is_poor(tried, i)) {
      chosen.push_back(all[i]);
      continue;
    }
    std::string instead = "it is left out";
    if (!spare.empty()) {
      chosen.push_back(all[spare.front()]);
      instead = fmt::format("\"{}\" takes its place", chosen.back().title);
      spare.erase(spare.begin());
    }
    Note(fmt::format("{} % of the bar \"{}\" would be {}: {} (--keywords {} draws it)",
                     static_cast<int>(100 * OthersShare(tried, i)), all[i].title, query::kOthers,
                     instead, usual[i]));
  }
  query.dictionaries = std::move(chosen);
  return BarsOf(arguments, recordings, query);
}

util::Result<output::Figure> MakeBars(const PlotArguments& arguments, double omit_below) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::Instant at, query::ParseInstant(arguments.at));
  VRAMSCOPE_ASSIGN_OR_RETURN(query::KeywordQuery query, ParseKeywordOptions(arguments.keywords));
  query.at = at;
  query.top = 3;  // entries are not drawn, but may be named
  VRAMSCOPE_ASSIGN_OR_RETURN(const Recordings recordings, OpenAll(arguments.files));
  VRAMSCOPE_ASSIGN_OR_RETURN(std::vector<FileBars> bars,
                             query.dictionaries.empty() ? DefaultBars(arguments, recordings, query)
                                                        : BarsOf(arguments, recordings, query));
  std::vector<output::BarPanel> panels;
  for (size_t i = 0; i < bars.size(); ++i) {
    NoteOthers(arguments.files[i], bars[i].report);
    std::move(bars[i].panels.begin(), bars[i].panels.end(), std::back_inserter(panels));
  }
  const bool any = std::any_of(panels.begin(), panels.end(), [](const output::BarPanel& panel) {
    return std::any_of(panel.bars.begin(), panel.bars.end(), [](const output::StackedBar& bar) {
      return bar.row_bytes > 0 || bar.whole_bytes > 0;
    });
  });
  if (!any)
    return NothingToDraw(arguments);
  if (omit_below > 0)
    output::OmitBelow(omit_below, &panels);
  return arguments.kind == "two-bar" ? output::TwoBarFigure(arguments.look, panels)
                                     : output::CategoryFigure(arguments.look, panels);
}

util::Result<output::Figure> MakeComparison(const PlotArguments& arguments, double omit_below) {
  const util::Result<query::Instant> at = query::ParseInstant(arguments.at);
  if (!at.ok())
    return at.status();
  query::ReportQuery query;
  query.at = *at;
  VRAMSCOPE_RETURN_IF_ERROR(
      query::AddDimension(arguments.by.empty() ? "category" : arguments.by, &query.by));
  std::vector<output::StackedBar> bars;
  for (const std::string& file : arguments.files) {
    VRAMSCOPE_ASSIGN_OR_RETURN(const std::unique_ptr<tables::Recording> recording,
                               OpenRecording(file));
    VRAMSCOPE_ASSIGN_OR_RETURN(const query::Report report,
                               ReportOf(arguments, file, *recording, query));
    const std::string name = std::filesystem::path(file).stem().string();
    for (output::StackedBar& bar : output::PeakBars(report, name))
      bars.push_back(std::move(bar));
  }
  if (std::all_of(bars.begin(), bars.end(),
                  [](const output::StackedBar& bar) { return bar.row_bytes == 0; }))
    return NothingToDraw(arguments);
  if (query.by[0] == query::Dimension::kModule)
    output::FoldLayers(&bars);
  output::NameNumbers(arguments.by, &bars);
  output::FigureLook look = arguments.look;
  if (look.title.empty())
    look.title = arguments.at_given ? "Bytes at " + arguments.at : "Bytes at each device's peak";
  return output::CompareFigure(look, bars, omit_below);
}

bool HasBytes(const output::TimelinePanel& panel) {
  const query::Timeline& timeline = panel.timeline;
  const bool sampled = std::any_of(timeline.nvml.begin(), timeline.nvml.end(),
                                   [](const auto& sample) { return sample.second > 0; });
  return sampled || std::any_of(timeline.peak.begin(), timeline.peak.end(), [](const auto& band) {
           return std::any_of(band.begin(), band.end(), [](uint64_t bytes) { return bytes > 0; });
         });
}

output::Figure MakeOverlay(const PlotArguments& arguments,
                           const std::vector<output::TimelinePanel>& panels) {
  output::FigureLook look = arguments.look;
  if (look.title.empty())
    look.title = arguments.less_baseline ? "Device totals over time, less what was in use before"
                                         : "Device totals over time";
  return output::OverlayFigure(look, panels, arguments.less_baseline);
}

util::Result<output::Figure> MakeLines(const PlotArguments& arguments, double omit_below) {
  std::vector<query::Dimension> by;
  if (!arguments.by.empty())
    VRAMSCOPE_RETURN_IF_ERROR(query::AddDimension(arguments.by, &by));
  std::vector<output::TimelinePanel> panels;
  for (const std::string& file : arguments.files) {
    VRAMSCOPE_ASSIGN_OR_RETURN(const std::unique_ptr<tables::Recording> recording,
                               OpenRecording(file));
    VRAMSCOPE_ASSIGN_OR_RETURN(
        std::vector<query::Timeline> timelines,
        by.empty() ? query::MakeTimelines(*recording, output::kTimelinePoints)
                   : query::MakeTimelinesBy(*recording, output::kTimelinePoints, by[0]));
    const auto of = [&](const query::Timeline& timeline) {
      const tables::DeviceRow& device = recording->tables().devices[timeline.device.value];
      return std::pair(device.kind, device.index);
    };
    VRAMSCOPE_RETURN_IF_ERROR(KeepDevice(arguments, file, of, &timelines));
    const std::string name =
        arguments.overlay ? std::filesystem::path(file).stem().string() : NameOf(arguments, file);
    for (output::TimelinePanel& panel :
         output::TimelinePanels(std::move(timelines), *recording, name))
      panels.push_back(std::move(panel));
  }
  if (std::none_of(panels.begin(), panels.end(), HasBytes))
    return NothingToDraw(arguments);
  if (arguments.overlay)
    return MakeOverlay(arguments, panels);
  if (!by.empty() && by[0] == query::Dimension::kModule)
    output::FoldLayers(&panels);
  output::NameNumbers(arguments.by, &panels);
  if (omit_below > 0)
    output::OmitBelow(omit_below, &panels);
  return output::TimelineFigure(arguments.look, panels);
}

util::Result<output::Figure> MakeFigure(const PlotArguments& arguments) {
  double omit_below = 0;
  if (!arguments.omit_below.empty()) {
    VRAMSCOPE_ASSIGN_OR_RETURN(omit_below, ParseShare(arguments.omit_below));
  }
  if (arguments.kind == "timeline")
    return MakeLines(arguments, omit_below);
  if (arguments.kind == "compare")
    return MakeComparison(arguments, omit_below);
  return MakeBars(arguments, omit_below);
}

util::Status Plot(const PlotArguments& arguments) {
  VRAMSCOPE_RETURN_IF_ERROR(CheckOptions(arguments));
  VRAMSCOPE_ASSIGN_OR_RETURN(const output::ImageFormat format,
                             output::ImageFormatOf(arguments.output));
  for (const std::string& file : arguments.files)
    VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.output, file));
  VRAMSCOPE_ASSIGN_OR_RETURN(const output::Figure figure, MakeFigure(arguments));
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::string picture, output::RenderFigure(figure, format));
  VRAMSCOPE_ASSIGN_OR_RETURN(util::AtomicFile file, util::AtomicFile::Create(arguments.output));
  VRAMSCOPE_RETURN_IF_ERROR(file.Write(std::string_view(picture)));
  return file.Commit();
}

}  // namespace

void RegisterPlot(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand("plot", "Draw recordings as SVG, PNG or PDF");
  auto arguments = std::make_shared<PlotArguments>();
  command->add_option("FILE", arguments->files, kRecordingHelp)->required();
  command
      ->add_option("--kind", arguments->kind,
                   "timeline    bytes over time\n"
                   "compare     peaks of several recordings\n"
                   "two-bar     an instant by layer and data structure\n"
                   "categories  an instant, one bar for each category")
      ->option_text("KIND (required)")
      ->required();
  command
      ->add_option("-o", arguments->output,
                   "Write the plot to this file; its ending selects the format")
      ->option_text("FILE.svg|.png|.pdf (required)")
      ->required();
  CLI::Option* const at =
      command
          ->add_option("--at", arguments->at,
                       "Draw bars at this instant: peak (default), allocated-peak, end, SECONDS, "
                       "@NS, iter:N, mark:NAME (see `vramscope report --help`)")
          ->option_text("WHEN");
  command
      ->add_option("--by", arguments->by,
                   "Stack timeline and compare by this dimension: module, line, phase, ... "
                   "(default: category)")
      ->option_text("DIM");
  command->add_flag(
      "--overlay", arguments->overlay,
      "With timeline: draw the totals of all recordings on one axis; each starts at 0 s");
  command->add_flag("--subtract-baseline", arguments->less_baseline,
                    "With --overlay: subtract the memory in use when each recording began");
  command
      ->add_option("--device", arguments->device,
                   "Draw only this device: a GPU's number, cpu or host (default: every GPU with "
                   "memory in use)")
      ->option_text("DEVICE");
  command
      ->add_option("--omit-below", arguments->omit_below,
                   "Merge everything with a smaller share, 2% or 0.02, into one")
      ->option_text("SHARE");
  command
      ->add_option("--unit", arguments->look.unit,
                   "Use this unit for the axis and all figures: MiB, GiB, GB, ...")
      ->option_text("UNIT");
  AddKeywordOptions(*command, &arguments->keywords);
  command->add_option("--title", arguments->look.title, "Print this title above the plot")
      ->option_text("TEXT");
  command->callback([arguments, at, exit_code] {
    arguments->at_given = at->count() > 0;
    *exit_code = ExitOf(Plot(*arguments));
  });
}

}  // namespace vramscope::cli
