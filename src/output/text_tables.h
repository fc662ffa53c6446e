// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "output/ledger_tree.h"
#include "output/terminal.h"
#include "query/report.h"
#include "tables/recording.h"

// The tables of the report for people, each as lines that are no wider than the style says.
namespace vramscope::output {

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

// The first `count` layers, repeated ones on one line: own bytes, name, and what they are.
void AddLayerTable(const query::Report& report,
                   size_t count,
                   const Style& style,
                   std::vector<std::string>* out);

// The first `count` places with their source lines, or, `with_callers`, with who called them.
void AddPlaceTable(const char* title,
                   const std::vector<query::TopEntry>& entries,
                   size_t count,
                   bool with_callers,
                   const query::Report& report,
                   const tables::Recording& recording,
                   const Style& style,
                   std::vector<std::string>* out);

}  // namespace vramscope::output
