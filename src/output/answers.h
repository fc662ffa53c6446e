// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "output/terminal.h"
#include "query/diff/diff.h"
#include "query/dimensions/report.h"
#include "query/oom/out_of_memory.h"
#include "tables/recording.h"
#include "util/json.h"
#include "util/status.h"

// Every answer of query/ in each of its forms: text for people, JSON, CSV, an HTML page. A JSON
// text is one object of the schema named beside it, ended by a newline. The report's text is in
// text.h, keywords are in keywords.h.
namespace vramscope::output {

// The report.

inline constexpr char kReportSchema[] = "vramscope.report/1";

// docs/REPORT_SCHEMA.md.
void WriteReportJson(const query::Report& report,
                     const tables::Recording& recording,
                     util::JsonWriter& json);
// `holders`: a JSON object that is added, of `dump --holders`.
std::string ReportJson(const query::Report& report,
                       const tables::Recording& recording,
                       std::string_view holders = {});

// Of objects as text: one as itself, several as an array in the order given.
std::string JsonOfFiles(const std::vector<std::string>& objects);

struct NamedReport {
  std::string file;
  query::Report report;
};

// What lines begin with where reports are of several files, or of several instants.
struct CsvColumns {
  bool file = false;
  bool at_ns = false;  // the instant of the row's device
};

// The rows of one or several reports as one table (RFC 4180, with a header line): those columns,
// device, index, pid, one column a level (level1, level2, ...) or a --by dimension, bytes, count.
// Levels that a row does not have, and the pid of no recorded process, are empty.
std::string ReportCsv(const std::vector<NamedReport>& reports,
                      const std::vector<query::Dimension>& by,
                      CsvColumns first = {});

// A field as in RFC 4180, quoted only if needed. Names in a recording are foreign text. A
// spreadsheet reads a cell that begins with = + - @ or a control character as a formula, so such a
// field begins with an apostrophe, which spreadsheets hide.
std::string CsvField(std::string_view text);

// Writes the report as one HTML page that needs no network to `path`.
util::Status WriteHtml(const tables::Recording& recording, const std::string& path);

// The iterations.

inline constexpr char kIterationsSchema[] = "vramscope.iterations/1";
std::string IterationsJson(const query::Iterations& iterations, const tables::Recording& recording);

// The iterations as a table, exact bytes: one column a category for its peak and one for its end.
std::string IterationsCsv(const query::Iterations& iterations, const tables::Recording& recording);

struct IterationsTextOptions {
  Style style;
  size_t rows = 10;        // of a long run, from its start and its end together; 0: all
  size_t parameters = 10;  // layers in the table of parameters; 0: all
};

// The iterations for people: one row each, by process and device, then what the parameters of the
// last whole iteration took, by layer. The iteration with the highest peak is marked by a star.
std::string FormatIterations(const query::Iterations& iterations,
                             const tables::Recording& recording,
                             const IterationsTextOptions& options);

// The phases of inference engines.

inline constexpr char kPhasesSchema[] = "vramscope.phases/1";
std::string PhasesJson(const query::EnginePhases& phases, const tables::Recording& recording);
void WritePhasesJson(const query::EnginePhases& phases,
                     const tables::Recording& recording,
                     util::JsonWriter& json);
std::string FormatPhases(const query::EnginePhases& phases,
                         const tables::Recording& recording,
                         const Style& style);

// The last lines of it: each budget beside what was used, and what came after the cache was sized.
std::vector<std::string> PhaseNotes(const query::EnginePhases& phases,
                                    const tables::Recording& recording);

// The temporary memory of XLA's programs.

inline constexpr char kXlaProgramsSchema[] = "vramscope.xla_programs/1";
std::string XlaProgramsJson(const query::XlaPrograms& programs, const tables::Recording& recording);
// Of each program the largest operations; those that read alike are one.
std::string FormatXlaPrograms(const query::XlaPrograms& programs, const Style& style);

// What would lower the peak.

inline constexpr char kSavingsSchema[] = "vramscope.savings/1";
std::string SavingsJson(const query::Savings& savings, const tables::Recording& recording);
void WriteSavingsJson(const query::Savings& savings,
                      const tables::Recording& recording,
                      util::JsonWriter& json);
std::string FormatSavings(const query::Savings& savings,
                          const tables::Recording& recording,
                          const Style& style);

// Leaks.

inline constexpr char kLeaksSchema[] = "vramscope.leaks/1";
std::string LeaksJson(const query::Leaks& leaks, const tables::Recording& recording);

// Both lists as one table, exact bytes.
std::string LeaksCsv(const query::Leaks& leaks, const tables::Recording& recording);

// One sentence for people: what the ends of the iterations say about growth.
struct LeaksVerdict {
  std::string text;  // without a full stop
  bool good = false;
};
LeaksVerdict VerdictOf(const query::Leaks& leaks);

// "Models that have not run since others took their place: 9 (Linear#[1-9] x9), ..."; empty where
// there are none.
std::string UnusedModelsText(const query::Leaks& leaks);

// "parameter 474.8 MiB, workspace 193.3 MiB": alive at the end and expected to be; empty where
// nothing is.
std::string NotListedText(const query::Leaks& leaks);

struct LeaksTextOptions {
  Style style;
  size_t top = 10;  // entries of each list; 0: all
};

// What grows from iteration to iteration, and what was never freed, for people.
std::string FormatLeaks(const query::Leaks& leaks,
                        const tables::Recording& recording,
                        const LeaksTextOptions& options);

// Other settings of PyTorch's allocator.

inline constexpr char kWhatIfSchema[] = "vramscope.whatif/1";
std::string WhatIfJson(const query::WhatIf& what, const tables::Recording& recording);
std::string FormatWhatIf(const query::WhatIf& what,
                         const tables::Recording& recording,
                         const Style& style);

// Two recordings compared.

inline constexpr char kDiffSchema[] = "vramscope.diff/1";
// docs/DIFF.md.
std::string DiffJson(const query::Diff& diff);
void WriteDiffJson(const query::Diff& diff, util::JsonWriter& json);

// One of the two with its history, for the page.
struct DiffHistory {
  const tables::Recording& recording;
  const std::vector<query::Timeline>& timelines;
};
// One page with what DiffJson() says, and both histories.
util::Status WriteDiffHtml(const query::Diff& diff,
                           const DiffHistory& a,
                           const DiffHistory& b,
                           const std::string& path);

struct DiffTextOptions {
  Style style;
  size_t top = 10;  // rows of the table of changes; 0: all
};

// For people. The first lines name the largest three causes, or say that nothing differs. Then come
// the limits of the comparison, and the figures.
std::string FormatDiff(const query::Diff& diff, const DiffTextOptions& options);

// The peak at another size.

inline constexpr char kPredictSchema[] = "vramscope.predict/1";
std::string PredictionJson(const query::Prediction& prediction);
// For people: the answer, a table of the categories, and what makes it uncertain.
std::string FormatPrediction(const query::Prediction& prediction, const Style& style);

// The ranks of a job.

inline constexpr char kSummarySchema[] = "vramscope.summary/1";
inline constexpr char kRanksSchema[] = "vramscope.ranks/1";

// All ranks together, the imbalance in words, and a row each; of many the heaviest and the
// lightest.
std::string FormatRanks(const query::RankReport& report, const Style& style);

// For the end of a recording's own report: how many ranks it has, and which of them holds more than
// the others; empty where it has fewer than two. `file`: a word of the shell.
std::string RanksLine(const query::RankReport& report, const std::string& file);

// The numbers in their order, runs together: "0-3, 7".
std::string NumberRanges(const std::vector<int32_t>& numbers);

// The imbalance in words.
std::string ImbalanceText(const query::RankReport& report);

void WriteRanksJson(const query::RankReport& report, util::JsonWriter& json);
std::string RanksJson(const query::RankReport& report);
std::string SummaryJson(const query::Summary& summary);

// One page of all ranks: their histories on one axis, the imbalance, and a row each. Its figures
// are those of the JSON.
util::Status WriteRanksHtml(const query::RankReport& report, const std::string& path);

// Failed allocations.

// How the text of each begins.
inline constexpr char kOutOfMemoryBegin[] = "Out of memory on ";
inline constexpr char kOutOfMemorySchema[] = "vramscope.oom/1";

// For people; it begins with OutOfMemoryLines().
std::string FormatOutOfMemory(const query::OutOfMemory& what,
                              const tables::Recording& recording,
                              const Style& style);

// What failed, the cause, who holds the memory, and what would save enough, if anything would.
std::vector<std::string> OutOfMemoryLines(const query::OutOfMemory& what,
                                          const tables::Recording& recording,
                                          const Style& style);

// The first of them: "Out of memory on gpu0: 4.00 GiB requested at train.py:7, at most ... free".
std::string RefusalHead(const query::OutOfMemory& what, const tables::Recording& recording);

// The last of them without its mark: "Halve ...: saves at most 1.20 GiB"; "" if nothing saves
// enough.
std::string TryText(const query::OutOfMemory& what);

// A line for each refusal, with the number that `report --oom=N` takes.
std::string FormatRefusals(const std::vector<query::Refusal>& refusals,
                           const tables::Recording& recording,
                           const Style& style);

// docs/OOM.md: all refusals, and those explained that were.
std::string OutOfMemoryJson(const query::Refusals& refusals, const tables::Recording& recording);

// "Out of memory: 2 requests failed, the last of 4.00 GiB: `vramscope report F --oom`"; "" if none
// failed.
std::string RefusalsLine(const std::vector<query::Refusal>& refusals, const std::string& file);

}  // namespace vramscope::output
