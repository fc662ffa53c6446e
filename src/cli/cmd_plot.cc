// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/keyword_options.h"
#include "cli/open_trace.h"
#include "report/plot/figure.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

constexpr size_t kBuckets = 1000;  // about two a point of the picture

struct PlotArguments {
  std::vector<std::string> files;
  std::string kind;
  std::string output;
  std::string at = "peak";
  std::string title;
  KeywordOptions keywords;
  bool at_given = false;
};

bool HasBars(const std::string& kind) {
  return kind == "two-bar" || kind == "categories";
}

// What stands in titles: nothing for a single recording, which --title or the text around the
// figure names.
std::string NameOf(const PlotArguments& arguments, const std::string& file) {
  return arguments.files.size() > 1 ? std::filesystem::path(file).stem().string() : "";
}

util::Result<report::Figure> MakeBars(const PlotArguments& arguments) {
  const util::Result<engine::Instant> at = engine::ParseInstant(arguments.at);
  if (!at.ok())
    return at.status();
  KeywordOptions options = arguments.keywords;
  const bool two_bar = arguments.kind == "two-bar";
  if (options.dictionaries.empty()) {
    if (two_bar)
      options.dictionaries.emplace_back("layers");
    options.dictionaries.emplace_back("data-structures");
  }
  util::Result<engine::KeywordQuery> query = ParseKeywordOptions(options);
  if (!query.ok())
    return query.status();
  query->at = *at;
  query->top = 1;  // entries are not drawn
  std::vector<report::BarPanel> panels;
  for (const std::string& file : arguments.files) {
    const util::Result<std::unique_ptr<engine::Analysis>> analysis = OpenAnalysis(file);
    if (!analysis.ok())
      return analysis.status();
    const util::Result<engine::KeywordReport> keywords =
        engine::MakeKeywordReport(**analysis, *query);
    if (!keywords.ok())
      return keywords.status();
    for (report::BarPanel& panel :
         report::BarPanels(*keywords, (*analysis)->trace(), NameOf(arguments, file)))
      panels.push_back(std::move(panel));
  }
  return two_bar ? report::TwoBarFigure(arguments.title, panels)
                 : report::CategoryFigure(arguments.title, panels);
}

util::Result<report::Figure> MakeLines(const PlotArguments& arguments) {
  if (!arguments.keywords.dictionaries.empty() || !arguments.keywords.expected.empty() ||
      arguments.at_given) {
    return util::Status::Error(
        fmt::format("--at, --keywords and --expected-sum are for bars; --kind {} shows all of the "
                    "time",
                    arguments.kind));
  }
  std::vector<report::TimelinePanel> panels;
  for (const std::string& file : arguments.files) {
    const util::Result<std::unique_ptr<engine::Analysis>> analysis = OpenAnalysis(file);
    if (!analysis.ok())
      return analysis.status();
    util::Result<std::vector<engine::Timeline>> timelines = (*analysis)->MakeTimelines(kBuckets);
    if (!timelines.ok())
      return timelines.status();
    const std::string name = arguments.kind == "compare"
                                 ? std::filesystem::path(file).stem().string()
                                 : NameOf(arguments, file);
    for (report::TimelinePanel& panel :
         report::TimelinePanels(std::move(*timelines), (*analysis)->trace(), name))
      panels.push_back(std::move(panel));
  }
  return arguments.kind == "compare" ? report::CompareFigure(arguments.title, panels)
                                     : report::TimelineFigure(arguments.title, panels);
}

util::Status Plot(const PlotArguments& arguments) {
  const bool lines = arguments.kind == "timeline" || arguments.kind == "compare";
  if (!lines && !HasBars(arguments.kind)) {
    return util::Status::Error(
        fmt::format("unknown --kind '{}': it is one of timeline, two-bar, compare, categories",
                    arguments.kind));
  }
  const util::Result<report::ImageFormat> format = report::ImageFormatOf(arguments.output);
  if (!format.ok())
    return format.status();
  for (const std::string& file : arguments.files)
    VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.output, file));
  const util::Result<report::Figure> figure = lines ? MakeLines(arguments) : MakeBars(arguments);
  if (!figure.ok())
    return figure.status();
  const util::Result<std::string> picture = report::RenderFigure(*figure, *format);
  if (!picture.ok())
    return picture.status();
  util::Result<util::AtomicFile> file = util::AtomicFile::Create(arguments.output);
  if (!file.ok())
    return file.status();
  VRAMSCOPE_RETURN_IF_ERROR(file->Write(std::string_view(*picture)));
  return file->Commit();
}

}  // namespace

void RegisterPlot(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand("plot", "Draw recordings as SVG, PNG or PDF");
  auto arguments = std::make_shared<PlotArguments>();
  command
      ->add_option("FILE", arguments->files, "NAME.vram, or NAME.vram.d of an unfinished recording")
      ->required();
  command
      ->add_option(
          "--kind", arguments->kind,
          "timeline: bytes by category over time; two-bar: an instant by layer and by data "
          "structure; compare: several recordings' totals over time; categories: a bar a "
          "category")
      ->option_text("KIND")
      ->required();
  command->add_option("-o", arguments->output, "The picture: its ending says the format")
      ->option_text("FILE.svg|.png|.pdf")
      ->required();
  CLI::Option* const at =
      command
          ->add_option("--at", arguments->at,
                       "Of bars: peak, end, SECONDS from the start, @NS, iter:N, mark:NAME")
          ->option_text("WHEN");
  AddKeywordOptions(*command, &arguments->keywords);
  command->add_option("--title", arguments->title, "A line above the figure")->option_text("TEXT");
  command->callback([arguments, at, exit_code] {
    arguments->at_given = at->count() > 0;
    const util::Status status = Plot(*arguments);
    if (!status.ok())
      *exit_code = Fail(status.message());
  });
}

}  // namespace vramscope::cli
