// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "output/terminal.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"

// Texts of a report for people: the report, the end of a run, facts about the recording; and the
// lines on how far a report can be trusted, which they share.
namespace vramscope::output {

inline constexpr size_t kScreenRows = 50;

struct TextOptions {
  Style style;
  size_t rows = kScreenRows;         // that the report fits on; 0: no limit, as in a pipe
  std::vector<std::string> closing;  // after the tables: where the file is, what failed
  std::vector<std::string> next;     // the last lines: what to type next
};

// The report for people: the answer in a sentence, how the program ended, the categories and the
// ledger of each device, the layers, lines and stacks that hold most, the largest sums of
// allocations, how far the report can be trusted, and the answer again. Without known categories it
// has the ledger only, with `query.by` the groups only. Rows of --top are all shown. Each line ends
// with a newline.
std::string FormatText(const query::Report& report,
                       const tables::Recording& recording,
                       const query::ReportQuery& query,
                       const TextOptions& options);

struct SummaryOptions {
  int columns = 80;
  bool colour = false;
  bool utf8 = LocaleIsUtf8();
  std::string trace_path;                  // shown as the way to more: "vramscope report PATH"
  std::vector<std::string> out_of_memory;  // lines on refused requests
  std::string ranks;                       // RanksLine(); empty: none
  std::string html_path;                   // where the page was written; empty: nowhere
};

struct NextOptions {
  std::string path;       // of the recording
  bool has_page = false;  // it was written
  bool utf8 = LocaleIsUtf8();
};

// What to type next, from the report: a line a command, none if nothing was allocated.
std::vector<std::string> NextLines(const query::Report& report,
                                   const tables::Recording& recording,
                                   const query::ReportQuery& query,
                                   const NextOptions& options);

// The block that `vramscope run` prints after the program: the peak and its owners, top stacks and
// lines, residual, losses. It fits on one screen. `report` is of the peak.
std::string FormatRunSummary(const query::Report& report,
                             const tables::Recording& recording,
                             const SummaryOptions& options);

// Facts about the recording, and how far it can be trusted: one fact a line, wrapped on a terminal.
// `report` has the losses, invariants and residuals of the whole run.
std::string FormatInfo(const query::Report& report,
                       const tables::Recording& recording,
                       const Style& style);

// "94.94 % from call sizes, 5.06 % from changes of free memory": the sources of the bytes at a
// device's peak. NVML's figure proves little about the second.
std::string KnownBy(const query::ResidualSummary& summary);
// "at most 0 B (0.00 %) in 598 readings, 16 during calls". Words that do not fit after
// `columns_before` columns go into `*more`.
std::string Unexplained(const query::ResidualSummary& summary,
                        const tables::Recording& recording,
                        size_t columns_before,
                        const Style& style,
                        std::string* more);

// Whether a residual is as promised: at most 0.1 % of NVML's figure or 4 MiB, whichever is larger.
bool IsWithinTarget(int64_t residual_bytes, uint64_t nvml_bytes);

// How far a report can be trusted: the residual over the whole run, losses, broken invariants.
// Broken invariants and losses are loud. Without them it is one line.
std::vector<std::string> TrustLines(const query::Report& report,
                                    const tables::Recording& recording,
                                    const Style& style);

// Why a recording has no devices, and what it has instead.
std::vector<std::string> AbsenceLines(const tables::Recording& recording);

// "pid 4711 was checkpointed from 2.1 s to 3.4 s": it had no memory on the device.
std::vector<std::string> CheckpointLines(const tables::Recording& recording);

// "Asleep: at most 316 MiB of gpu0 without device memory, at 2.1 s (`--at @4200508018261`)".
std::vector<std::string> AsleepLines(const query::Report& report,
                                     const tables::Recording& recording);

// Memory that processes keep open after its maker freed it or ended, and what they have open of
// others at the instant.
std::vector<std::string> OpenMemoryLines(const query::Report& report,
                                         const tables::Recording& recording,
                                         const Style& style);

// Says that the kernel's out-of-memory killer ended the program or another process of its control
// group, with the last figures of host memory; "" if it did not.
std::string HostKillLine(const query::Report& report, const tables::Recording& recording);

// Host memory at its fullest if a control group was nearly full; with `always`, at its peak.
std::vector<std::string> HostMemoryLines(const query::Report& report,
                                         const tables::Recording& recording,
                                         bool always);

// "Trace: train.vram (5.90 MiB, 4.8 bytes an event)".
std::string TraceLine(const tables::Recording& recording,
                      const std::string& path,
                      const Style& style);

// Of a run with --overflow: the peak in use, its part in host memory, and a card that would hold
// it; or why nothing was served from host memory.
std::vector<std::string> OverflowLines(const query::Report& report,
                                       const tables::Recording& recording,
                                       const Style& style);

// Why overflow served less than requested; "" if it did not.
std::string OverflowTrouble(const tables::Recording& recording);

}  // namespace vramscope::output
