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
#include "cli/open_recording.h"
#include "output/plot/figure.h"
#include "util/owned_file.h"

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

util::Result<output::Figure> MakeBars(const PlotArguments& arguments) {
  const util::Result<query::Instant> at = query::ParseInstant(arguments.at);
  if (!at.ok())
    return at.status();
  KeywordOptions options = arguments.keywords;
  const bool two_bar = arguments.kind == "two-bar";
  if (options.dictionaries.empty()) {
    if (two_bar)
      options.dictionaries.emplace_back("layers");
    options.dictionaries.emplace_back("data-structures");
  }
  util::Result<query::KeywordQuery> query = ParseKeywordOptions(options);
  if (!query.ok())
    return query.status();
  query->at = *at;
  query->top = 1;  // entries are not drawn
  std::vector<output::BarPanel> panels;
  for (const std::string& file : arguments.files) {
    const util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(file);
    if (!recording.ok())
      return recording.status();
    const util::Result<query::KeywordReport> keywords =
        query::MakeKeywordReport(**recording, *query);
    if (!keywords.ok())
      return keywords.status();
    for (output::BarPanel& panel :
         output::BarPanels(*keywords, **recording, NameOf(arguments, file)))
      panels.push_back(std::move(panel));
  }
  return two_bar ? output::TwoBarFigure(arguments.title, panels)
                 : output::CategoryFigure(arguments.title, panels);
}

util::Result<output::Figure> MakeLines(const PlotArguments& arguments) {
  if (!arguments.keywords.dictionaries.empty() || !arguments.keywords.expected.empty() ||
      arguments.at_given) {
    return util::Status::Error(
        fmt::format("--at, --keywords and --expected-sum are for bars; --kind {} shows all of the "
                    "time",
                    arguments.kind));
  }
  std::vector<output::TimelinePanel> panels;
  for (const std::string& file : arguments.files) {
    const util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(file);
    if (!recording.ok())
      return recording.status();
    util::Result<std::vector<query::Timeline>> timelines =
        query::MakeTimelines(**recording, kBuckets);
    if (!timelines.ok())
      return timelines.status();
    const std::string name = arguments.kind == "compare"
                                 ? std::filesystem::path(file).stem().string()
                                 : NameOf(arguments, file);
    for (output::TimelinePanel& panel :
         output::TimelinePanels(std::move(*timelines), **recording, name))
      panels.push_back(std::move(panel));
  }
  return arguments.kind == "compare" ? output::CompareFigure(arguments.title, panels)
                                     : output::TimelineFigure(arguments.title, panels);
}

util::Status Plot(const PlotArguments& arguments) {
  const bool lines = arguments.kind == "timeline" || arguments.kind == "compare";
  if (!lines && !HasBars(arguments.kind)) {
    return util::Status::Error(
        fmt::format("unknown --kind '{}': it is one of timeline, two-bar, compare, categories",
                    arguments.kind));
  }
  const util::Result<output::ImageFormat> format = output::ImageFormatOf(arguments.output);
  if (!format.ok())
    return format.status();
  for (const std::string& file : arguments.files)
    VRAMSCOPE_RETURN_IF_ERROR(CheckNotInput(arguments.output, file));
  const util::Result<output::Figure> figure = lines ? MakeLines(arguments) : MakeBars(arguments);
  if (!figure.ok())
    return figure.status();
  const util::Result<std::string> picture = output::RenderFigure(*figure, *format);
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
