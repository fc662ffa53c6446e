// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "query/dimensions/report.h"
#include "util/status.h"

// What other tools read. Everything is streamed: an export can be larger than memory.
namespace vramscope::output {

// Takes a piece of the export; an error ends it.
using ExportSink = std::function<util::Status(std::string_view)>;

struct ExportOptions {
  query::Instant at;  // of the formats that are of an instant
};

// Every row of `allocations`: one line of CSV (RFC 4180, with a header line), or one JSON object a
// line (JSON Lines). docs/REPORT_SCHEMA.md has the columns.
util::Status ExportAllocationsCsv(const tables::Recording& recording,
                                  const ExportOptions& options,
                                  const ExportSink& sink);
util::Status ExportAllocationsJson(const tables::Recording& recording,
                                   const ExportOptions& options,
                                   const ExportSink& sink);

// Folded stacks for flame graphs: "frame;frame;frame bytes", outermost first, of what was live at
// the instant. Names of the device and the process come before the frames where there are
// several. Every byte of the ledger is in one line; bytes without a stack have the names of
// their ledger row in brackets.
util::Status ExportCollapsed(const tables::Recording& recording,
                             const ExportOptions& options,
                             const ExportSink& sink);

// The same stacks for https://speedscope.app, and for `go tool pprof`; docs/EXPORT.md.
util::Status ExportSpeedscope(const tables::Recording& recording,
                              const ExportOptions& options,
                              const ExportSink& sink);
util::Status ExportPprof(const tables::Recording& recording,
                         const ExportOptions& options,
                         const ExportSink& sink);

// All of a recording for https://ui.perfetto.dev.
util::Status ExportPerfetto(const tables::Recording& recording,
                            const ExportOptions& options,
                            const ExportSink& sink);

// What PyTorch's own _dump_snapshot() writes, at the instant and with all that led to it.
util::Status ExportTorchSnapshot(const tables::Recording& recording,
                                 const ExportOptions& options,
                                 const ExportSink& sink);

// The rows that `fleet` compares over many ranks: docs/DATASET.md.
util::Status ExportSummary(const tables::Recording& recording,
                           const ExportOptions& options,
                           const ExportSink& sink);

// The formats of `export --to`, by name.
struct ExportFormat {
  const char* name;
  const char* help;
  const char* default_at;  // nullptr: it has no instant, and takes no --at
  util::Status (*write)(const tables::Recording&, const ExportOptions&, const ExportSink&);
  bool of_allocations = false;  // and of nothing else: a sampled recording has none
};
const std::vector<ExportFormat>& ExportFormats();

// Writes one of them. What is written is bounded by the recording's real size: an export that would
// be larger ends with an error.
util::Status WriteExport(const ExportFormat& format,
                         const tables::Recording& recording,
                         const ExportOptions& options,
                         const ExportSink& sink);

// Bytes of an export. An allocation takes 3.8 bytes of a finished recording at least (a made-up
// training of 10 million events, as regular as can be; 12 and more in real programs), and its line
// of CSV or JSON is 9 KiB with a stack of 200 frames of 45 bytes. That is 2,500 times as much where
// recordings are smallest, and 800 times in real ones; the recording of a GPT-2 in examples/traces
// comes to 136 times. One of 8 KiB that says the same name a million times ends at 48 MiB.
inline constexpr uint64_t kExportBaseBytes = uint64_t{16} << 20;
inline constexpr uint64_t kExportBytesPerFileByte = 4096;

// Collects lines into pieces worth a write. After an error nothing more is written; the first error
// is what Finish() returns.
class ExportPieces {
 public:
  explicit ExportPieces(const ExportSink& sink) : sink_(sink) {}
  ExportPieces(const ExportPieces&) = delete;
  ExportPieces& operator=(const ExportPieces&) = delete;

  // Where the next line goes; LineDone() after each.
  std::string& text() { return text_; }
  void LineDone() {
    if (text_.size() >= kPieceBytes)
      Flush();
  }
  const util::Status& status() const { return status_; }
  util::Status Finish() {
    Flush();
    return status_;
  }

 private:
  static constexpr size_t kPieceBytes = 64 * 1024;

  void Flush() {
    if (status_.ok() && !text_.empty())
      status_ = sink_(text_);
    text_.clear();
  }

  const ExportSink& sink_;
  std::string text_;
  util::Status status_;
};

}  // namespace vramscope::output
