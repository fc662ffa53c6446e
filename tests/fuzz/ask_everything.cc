// SPDX-License-Identifier: Apache-2.0
#include "ask_everything.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "finished.h"
#include "output/csv.h"
#include "output/export/export.h"
#include "output/info.h"
#include "output/iterations.h"
#include "output/json.h"
#include "output/keywords.h"
#include "output/leaks.h"
#include "output/out_of_memory.h"
#include "output/page_data.h"
#include "output/ranks.h"
#include "output/text.h"
#include "query/keywords.h"
#include "query/out_of_memory.h"
#include "query/peaks.h"
#include "query/ranks.h"
#include "query/refusals.h"
#include "query/report.h"
#include "tables/reader.h"
#include "tables/testing/random_tables.h"
#include "trace/trace.h"
#include "util/json_writer.h"

namespace vramscope::fuzz {
namespace {

using query::ReportQuery;

constexpr output::Style kStyle{.columns = 80, .colour = true, .utf8 = true};
constexpr size_t kBuckets = 64;
// An export can be far larger than its recording: whoever reads it says when it is enough.
constexpr size_t kMaxExportBytes = size_t{1} << 20;

void AskReport(const tables::Recording& recording, const ReportQuery& query) {
  const auto report = query::MakeReport(recording, query);
  if (!report)
    return;
  (void)output::FormatText(*report, recording, query, {.style = kStyle, .closing = {}});
  (void)output::ReportCsv({{"x.vram", *report}}, query.by);
}

void AskReports(const tables::Recording& recording) {
  for (const char* when : {"peak", "end", "0", "1e9", "@1", "iter:0", "mark:here"}) {
    ReportQuery query;
    if (auto instant = query::ParseInstant(when); instant) {
      query.at = *instant;
      AskReport(recording, query);
    }
  }
  for (size_t i = 0; i < query::kDimensionCount; ++i) {
    // Whole stacks of every site are a thousand times as long as their recording, if it is made so.
    const auto dimension = static_cast<query::Dimension>(i);
    if (dimension == query::Dimension::kPython || dimension == query::Dimension::kNative)
      continue;
    ReportQuery query;
    query.by = {dimension};
    query.where = {{query::Dimension::kCategory, "unknown"}};
    query.own = {"package"};
    query.top = 5;
    AskReport(recording, query);
  }
}

void AskHistory(const tables::Recording& recording) {
  const auto report = query::MakeReport(recording, {});
  const auto timelines = query::MakeTimelines(recording, kBuckets);
  if (report && timelines) {
    (void)output::ReportJson(*report, recording, *timelines);
    (void)output::FormatInfo(*report, recording, kStyle);
  }
  if (const auto iterations = query::MakeIterations(recording); iterations) {
    (void)output::IterationsJson(*iterations, recording);
    (void)output::IterationsCsv(*iterations, recording);
    (void)output::FormatIterations(*iterations, recording, {.style = kStyle});
  }
  if (const auto leaks = query::MakeLeaks(recording, {}); leaks) {
    (void)output::LeaksJson(*leaks, recording);
    (void)output::LeaksCsv(*leaks, recording);
    (void)output::FormatLeaks(*leaks, recording, {.style = kStyle});
  }
  std::string page;
  util::JsonWriter json(&page);
  (void)output::WritePageData(recording, {.buckets = kBuckets, .allocations = 10}, json);
  (void)query::FindPeaks(recording);
}

void AskKeywords(const tables::Recording& recording) {
  query::KeywordRule rule;
  rule.category = "weights";
  rule.keywords = {"e", "cu*"};
  rule.match = query::KeywordMatch::kGlob;
  rule.over = {query::Dimension::kModule, query::Dimension::kLine, query::Dimension::kApi};
  query::KeywordQuery query;
  query.dictionaries = {{"layers", "Layer", {rule}}};
  query.top = 3;
  if (auto report = query::MakeKeywordReport(recording, query); report) {
    (void)output::KeywordsText(*report, recording, {.style = kStyle, .closing = {}});
    const std::vector<output::NamedKeywords> named = {{"x.vram", std::move(*report)}};
    (void)output::KeywordsJson(named);
    (void)output::KeywordsCsv(named);
  }
}

void AskRefusals(const tables::Recording& recording) {
  const auto refusals = query::FindRefusals(recording);
  if (!refusals.ok())
    return;
  constexpr size_t kMostExplained = 2;
  for (size_t i = 0; i < std::min(refusals->size(), kMostExplained); ++i) {
    if (const auto what = query::ExplainRefusal(recording, (*refusals)[i]); what.ok())
      (void)output::FormatOutOfMemory(*what, recording, kStyle);
  }
}

void AskRanks(const tables::Recording& recording) {
  query::RankFold ranks;
  for (const char* const file : {"a.vram", "b.vram"}) {
    if (!ranks.Add(file, recording).ok())
      return;
  }
  (void)output::FormatRanks(std::move(ranks).Finish(), {}, kStyle);
}

}  // namespace

void AskEverything(const tables::Recording& recording) {
  AskReports(recording);
  AskHistory(recording);
  AskKeywords(recording);
  AskRefusals(recording);
  AskRanks(recording);
  for (const output::ExportFormat& format : output::ExportFormats()) {
    // As a report by whole stacks, which it is made of.
    if (format.write == output::ExportCollapsed)
      continue;
    size_t bytes = 0;
    (void)format.write(recording, {}, [&](std::string_view piece) {
      bytes += piece.size();
      return bytes < kMaxExportBytes ? util::Status() : util::Status::Error("enough");
    });
  }
}

void AskLive(const std::string& directory) {
  const auto trace = trace::OpenTrace(directory);
  const tables::testing::MemoryFile file;
  if (!trace || !Finish(**trace, file))
    return;
  const auto recording = tables::OpenDescriptor(file.fd(), directory);
  if (!recording)
    std::abort();  // what is written can be read
  AskEverything(**recording);
}

void WriteInput(const std::string& path, const uint8_t* data, size_t size) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(data, 1, size, file) != size || std::fclose(file) != 0) {
    std::fprintf(stderr, "fuzz: cannot write %s\n", path.c_str());
    std::abort();
  }
}

std::string ScratchDirectory() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path root =
      fs::is_directory("/dev/shm", error) ? fs::path("/dev/shm") : fs::temp_directory_path();
  const fs::path directory = root / ("vramscope-fuzz-" + std::to_string(getpid()));
  fs::create_directories(directory, error);
  return directory;
}

}  // namespace vramscope::fuzz
