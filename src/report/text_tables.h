// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/query/report.h"
#include "report/ledger_tree.h"
#include "report/terminal.h"
#include "trace/trace.h"

// The tables of the report for people, each as lines that are no wider than the style says.
namespace vramscope::report {

// Entries that are at least a thousandth of the first: the others say nothing beside it.
template <class Entry>
size_t WorthALine(const std::vector<Entry>& entries) {
  size_t count = 0;
  while (count < entries.size() && entries[count].bytes > 0 &&
         entries[count].bytes >= entries[0].bytes / 1000) {
    ++count;
  }
  return count;
}

// Names with their bytes, shares, bars and counts. What is smaller than `smallest_bytes` shares a
// line; with `bold_roots` the outermost names stand out.
void AddFigureTable(const std::string& head,
                    const LedgerTree& tree,
                    size_t max_lines,
                    uint64_t smallest_bytes,
                    bool bold_roots,
                    const Style& style,
                    std::vector<std::string>* out);

// The first `count` layers: own bytes, name, and what they are.
void AddModuleTable(const engine::Report& report,
                    size_t count,
                    const Style& style,
                    std::vector<std::string>* out);

// The first `count` places with their source lines, or, `with_callers`, with who called them.
void AddPlaceTable(const char* title,
                   const std::vector<engine::TopEntry>& entries,
                   size_t count,
                   bool with_callers,
                   const engine::Report& report,
                   const trace::Trace& trace,
                   const Style& style,
                   std::vector<std::string>* out);

// "gpu0", "cpu": how lines of several devices are told apart.
std::string MarkOfDevice(const engine::Report& report, trace::DeviceId id);

}  // namespace vramscope::report
