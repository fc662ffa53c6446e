// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "output/terminal.h"
#include "output/text/ledger_tree.h"
#include "query/dimensions/report.h"
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

// Adds an entry that the list does not show.
template <class Entry>
void AddTo(const Entry& entry, query::LeftOut* left_out) {
  if constexpr (requires { entry.entries; })
    left_out->entries += entry.entries;
  else
    ++left_out->entries;
  left_out->bytes += entry.bytes;
  left_out->count += entry.count;
}

// Stacks that print alike (they differ in what is not printed, as the layer) become one entry.
std::vector<query::TopStack> MergeAlikeStacks(const tables::Recording& recording,
                                              const std::vector<query::TopStack>& entries);

// Names with their bytes, shares, bars and counts; with `bold_roots` the outermost names stand out.
// Names take what width they need, no less than a screen of 80 columns leaves them. What stands
// below a name is cut to a line, or, with `whole`, goes on over as many as it needs.
void AddFigureTable(const std::string& head,
                    const LedgerTree& tree,
                    const TreeLimits& limits,
                    bool bold_roots,
                    bool whole,
                    const Style& style,
                    std::vector<std::string>* out);

// A row a GPU: what it has, what NVML says, how full it is and when. The one of `fullest` is
// marked.
void AddDeviceTable(const std::vector<const query::DeviceReport*>& gpus,
                    const query::DeviceReport* fullest,
                    std::optional<int64_t> start_ns,  // none: there are no times
                    const Style& style,
                    std::vector<std::string>* out);

// The first `count` layers, repeated ones on one line: own bytes, name, and what they are. The
// others, and what was left out before, share a line "(n more)".
void AddLayerTable(const std::string& title,
                   const std::vector<query::ModuleEntry>& entries,
                   const query::LeftOut& left_out,
                   const query::Report& report,
                   size_t count,
                   const Style& style,
                   std::vector<std::string>* out);

// The first `count` lines with their source text; then the same line.
void AddLineTable(const std::string& title,
                  const std::vector<query::TopLine>& entries,
                  const query::LeftOut& left_out,
                  const query::Report& report,
                  size_t count,
                  const Style& style,
                  std::vector<std::string>* out);

// The first `count` stacks with the callers of their lines; then the same line.
void AddStackTable(const std::string& title,
                   const std::vector<query::TopStack>& entries,
                   const query::LeftOut& left_out,
                   const query::Report& report,
                   const tables::Recording& recording,
                   size_t count,
                   const Style& style,
                   std::vector<std::string>* out);

// Why PyTorch's allocator made its newest segment while so much was free.
void AddCachedReason(const query::CachedMemory& cached,
                     int64_t start_ns,
                     const Style& style,
                     std::vector<std::string>* out);

}  // namespace vramscope::output
