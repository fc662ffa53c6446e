// SPDX-License-Identifier: Apache-2.0
#include "ask_everything.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "finished.h"
#include "output/answers.h"
#include "output/export/export.h"
#include "output/keywords.h"
#include "output/page/page_data.h"
#include "output/text/text.h"
#include "query/advice/advice.h"
#include "query/allocator/whatif.h"
#include "query/core/peaks.h"
#include "query/diff/diff.h"
#include "query/dimensions/report.h"
#include "query/keywords/keywords.h"
#include "query/oom/out_of_memory.h"
#include "scratch.h"
#include "tables/reader.h"
#include "tables/testing/random_tables.h"
#include "trace/trace.h"
#include "util/json.h"

namespace vramscope::fuzz {
namespace {

using query::ReportQuery;

constexpr output::Style kStyle{.columns = 80, .colour = true, .utf8 = true};
constexpr size_t kBuckets = 64;
constexpr size_t kEnoughBytes = size_t{1} << 20;

using tables::Recording;

size_t AskReport(const Recording& recording, const ReportQuery& query, Extent extent) {
  auto made = query::MakeReport(recording, query);
  if (!made)
    return 0;
  std::vector<output::NamedReport> named;
  named.push_back({"x.vram", std::move(*made)});
  const query::Report& report = named[0].report;
  return output::FormatText(report, recording, query, {.style = kStyle, .closing = {}}).size() +
         output::ReportCsv(named, query.by).size() +
         (extent == Extent::kWhole ? output::ReportJson(report, recording).size() : 0);
}

size_t AskTimeline(const Recording& recording, Extent) {
  auto report = query::MakeReport(recording, {});
  const auto timelines = query::MakeTimelines(recording, kBuckets);
  if (!report || !timelines)
    return 0;
  report->timelines = *timelines;
  return output::ReportJson(*report, recording).size() +
         output::FormatInfo(*report, recording, kStyle).size();
}

size_t AskIterations(const Recording& recording, Extent) {
  const auto iterations = query::MakeIterations(recording);
  if (!iterations)
    return 0;
  return output::IterationsJson(*iterations, recording).size() +
         output::IterationsCsv(*iterations, recording).size() +
         output::FormatIterations(*iterations, recording, {.style = kStyle}).size();
}

size_t AskPhases(const Recording& recording, Extent) {
  const auto phases = query::MakePhases(recording);
  if (!phases)
    return 0;
  return output::PhasesJson(*phases, recording).size() +
         output::FormatPhases(*phases, recording, kStyle).size();
}

size_t AskXlaPrograms(const Recording& recording, Extent) {
  const auto programs = query::MakeXlaPrograms(recording);
  if (!programs)
    return 0;
  return output::XlaProgramsJson(*programs, recording).size() +
         output::FormatXlaPrograms(*programs, kStyle).size();
}

size_t AskSavings(const Recording& recording, Extent) {
  const auto savings = query::FindSavings(recording, uint64_t{1} << 34);
  if (!savings)
    return 0;
  return output::SavingsJson(*savings, recording).size() +
         output::FormatSavings(*savings, recording, kStyle).size();
}

size_t AskLeaks(const Recording& recording, Extent) {
  const auto leaks = query::MakeLeaks(recording, {});
  if (!leaks)
    return 0;
  return output::LeaksJson(*leaks, recording).size() + output::LeaksCsv(*leaks, recording).size() +
         output::FormatLeaks(*leaks, recording, {.style = kStyle}).size();
}

size_t AskWhatIf(const Recording& recording, Extent) {
  const auto what = query::MakeWhatIf(recording, {.settings = {}, .card_bytes = uint64_t{8} << 30});
  if (!what)
    return 0;
  return output::WhatIfJson(*what, recording).size() +
         output::FormatWhatIf(*what, recording, kStyle).size();
}

size_t AskPage(const Recording& recording, Extent) {
  size_t bytes = 0;
  {
    util::JsonWriter json([&](std::string_view piece) { bytes += piece.size(); });
    (void)output::WritePageData(recording, {.buckets = kBuckets, .allocations = 10}, json);
  }
  return bytes;
}

size_t AskPeaks(const Recording& recording, Extent) {
  (void)query::FindPeaks(recording);
  return 0;
}

size_t AskKeywords(const Recording& recording, Extent) {
  query::KeywordRule rule;
  rule.category = "weights";
  rule.keywords = {"e", "cu*"};
  rule.match = query::KeywordMatch::kGlob;
  rule.over = {query::Dimension::kModule, query::Dimension::kLine, query::Dimension::kApi};
  query::KeywordQuery query;
  query.dictionaries = {{"layers", "Layer", {rule}}};
  query.top = 3;
  auto report = query::MakeKeywordReport(recording, query);
  if (!report)
    return 0;
  size_t bytes = output::KeywordsText(*report, recording, {.style = kStyle, .closing = {}}).size();
  bytes += output::KeywordsJson(*report).size() + output::KeywordsCsv(*report).size();
  const std::vector<output::NamedKeywords> named = {{"x.vram", *report}, {"y.vram", *report}};
  return bytes + output::KeywordSheetText(named, 3, kStyle).size() +
         output::KeywordSheetJson(named).size() + output::KeywordSheetCsv(named).size();
}

size_t AskRefusals(const Recording& recording, Extent) {
  const auto refusals = query::FindRefusals(recording);
  if (!refusals.ok())
    return 0;
  size_t bytes = 0;
  constexpr size_t kMostExplained = 2;
  for (size_t i = 0; i < std::min(refusals->size(), kMostExplained); ++i) {
    if (const auto what = query::ExplainRefusal(recording, (*refusals)[i]); what.ok())
      bytes += output::FormatOutOfMemory(*what, recording, kStyle).size();
  }
  return bytes;
}

size_t AskRanks(const Recording& recording, Extent) {
  query::RankFold ranks;
  for (const char* const file : {"a.vram", "b.vram"}) {
    if (!ranks.Add(file, recording).ok())
      return 0;
  }
  return output::FormatRanks(std::move(ranks).Finish(), kStyle).size();
}

std::vector<Question> MakeQuestions() {
  std::vector<Question> questions;
  for (const char* const when : {"peak", "end", "0", "1e9", "@1", "iter:0", "mark:here"}) {
    questions.push_back(
        {std::string("report --at ") + when, [when](const Recording& recording, Extent extent) {
           ReportQuery query;
           const auto instant = query::ParseInstant(when);
           if (!instant)
             return size_t{0};
           query.at = *instant;
           return AskReport(recording, query, extent);
         }});
  }
  for (size_t i = 0; i < query::kDimensionCount; ++i) {
    const auto dimension = static_cast<query::Dimension>(i);
    questions.push_back({std::string("report --by ") + query::DimensionName(dimension),
                         [dimension](const Recording& recording, Extent extent) {
                           ReportQuery query;
                           query.by = {dimension};
                           query.top = extent == Extent::kBegin ? 5 : 0;
                           return AskReport(recording, query, extent);
                         }});
  }
  questions.push_back({"report --where", [](const Recording& recording, Extent extent) {
                         ReportQuery query;
                         query.by = {query::Dimension::kModule};
                         query.where = {{query::Dimension::kCategory, "unknown"}};
                         query.own = {"package"};
                         query.top = 5;
                         return AskReport(recording, query, extent);
                       }});
  questions.push_back({"report --timeline", AskTimeline});
  questions.push_back({"report --keywords", AskKeywords});
  questions.push_back({"report --oom", AskRefusals});
  questions.push_back({"report --ranks", AskRanks});
  questions.push_back({"iterations", AskIterations});
  questions.push_back({"leaks", AskLeaks});
  questions.push_back({"whatif", AskWhatIf});
  questions.push_back({"phases", AskPhases});
  questions.push_back({"xla programs", AskXlaPrograms});
  questions.push_back({"savings", AskSavings});
  questions.push_back({"page", AskPage});
  questions.push_back({"peaks", AskPeaks});
  for (const output::ExportFormat& format : output::ExportFormats()) {
    questions.push_back(
        {std::string("export --to ") + format.name,
         [&format](const Recording& recording, Extent extent) {
           size_t bytes = 0;
           (void)output::WriteExport(format, recording, {}, [&](std::string_view piece) {
             bytes += piece.size();
             const bool is_enough = extent == Extent::kBegin && bytes > kEnoughBytes;
             return is_enough ? util::Status::Error("enough") : util::Status();
           });
           return bytes;
         }});
  }
  return questions;
}

}  // namespace

const std::vector<Question>& Questions() {
  static const std::vector<Question> kQuestions = MakeQuestions();
  return kQuestions;
}

void AskEverything(const Recording& recording) {
  for (const Question& question : Questions()) {
    const TimeLimit limit(question.name);
    (void)question.ask(recording, Extent::kBegin);
  }
}

void AskLive(const std::string& directory) {
  const tables::testing::MemoryFile file;
  {
    const TimeLimit limit("finish");
    const auto trace = trace::OpenTrace(directory);
    if (!trace || !Finish(**trace, file))
      return;
  }
  const auto recording = tables::OpenDescriptor(file.fd(), directory);
  if (!recording)
    std::abort();  // what is written can be read
  AskEverything(**recording);
}

}  // namespace vramscope::fuzz
