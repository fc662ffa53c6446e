// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/query/report.h"
#include "util/status.h"

// What other tools read. Everything is streamed: an export can be larger than memory.
namespace vramscope::report {

// Takes a piece of the export; an error ends it.
using ExportSink = std::function<util::Status(std::string_view)>;

// Every allocation and block of the recording in the order of allocation: one line of CSV (RFC
// 4180, with a header line), or one JSON object a line (JSON Lines).
//
//   device   "gpu0", "host", "cpu"
//   pid
//   address  "0x7f0012340000"
//   bytes
//   alloc_ns, free_ns   CLOCK_MONOTONIC; free_ns is empty or null for what was never freed
//   api      driver entry point; empty for tensors
//   path     the ledger's levels below process: an array in JSON, joined by " / " in CSV
//   stack    frames, outermost first: an array in JSON, joined by ";" in CSV
util::Status ExportLivesCsv(engine::Analysis& analysis, const ExportSink& sink);
util::Status ExportLivesJson(engine::Analysis& analysis, const ExportSink& sink);

// Folded stacks for flame graphs: "frame;frame;frame bytes", outermost first, of what was live at
// each device's peak. Names of the device and the process come before the frames where there are
// several. Every byte of the ledger is in one line; what has no stack stands under the names of
// its ledger row in brackets.
util::Status ExportCollapsed(engine::Analysis& analysis, const ExportSink& sink);

// The formats of `export --to`, by name.
struct ExportFormat {
  const char* name;
  const char* help;
  util::Status (*write)(engine::Analysis&, const ExportSink&);
};
const std::vector<ExportFormat>& ExportFormats();

}  // namespace vramscope::report
