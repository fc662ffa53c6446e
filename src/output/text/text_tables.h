// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "output/text/ledger_tree.h"
#include "output/text/text_table.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"

// The tables of the report for people.
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

// What a report lists, or a copy of some of it: the names of all may be tens of MiB.
template <class Entry>
struct ReportList {
  const std::vector<Entry>* all = nullptr;  // else it is `some`
  std::vector<Entry> some{};
  query::LeftOut left_out{};  // what there is beyond the entries

  const std::vector<Entry>& operator*() const { return all != nullptr ? *all : some; }
  size_t size() const { return (**this).size() + left_out.entries; }
  // What the first `count` entries leave out.
  query::LeftOut Beyond(size_t count) const {
    query::LeftOut rest = left_out;
    for (size_t i = count; i < (**this).size(); ++i)
      AddTo((**this)[i], &rest);
    return rest;
  }
};

// "blocks.[0-11].attn x12".
std::string LayerName(const query::ModuleEntry& entry, bool utf8);

// Stacks that print alike (they differ in what is not printed, as the layer) become one entry.
std::vector<query::TopStack> MergeAlikeStacks(const tables::Recording& recording,
                                              const std::vector<query::TopStack>& entries);

// The first columns of a list: bytes, how many, and `mark_columns` for the device. Its title stands
// above what follows.
std::vector<TextColumn> ListColumns(const char* unit, std::string title, size_t mark_columns = 0);

// Names with their bytes, shares, bars and counts; with `bold_roots` the outermost names stand out.
// Names take what width they need, no less than a screen of 80 columns leaves them. What stands
// below a name is cut to a line, or, with `whole`, goes on over as many as it needs.
void AddFigureTable(const std::string& head,
                    const LedgerTree& tree,
                    const TreeLimits& limits,
                    bool bold_roots,
                    bool whole,
                    TextLines* out);

class ReportTables {
 public:
  ReportTables(const query::Report& report, const tables::Recording& recording, TextLines* out)
      : report_(report), recording_(recording), out_(*out) {}

  // A row a GPU: what it has, what NVML says, how full it is and when. The one of `fullest` is
  // marked.
  void AddDevices(const std::vector<const query::DeviceReport*>& gpus,
                  const query::DeviceReport* fullest,
                  bool with_times);
  // The first `count` layers, repeated ones on one line: own bytes, name, and what they are. What
  // a list leaves out shares a line "(n more)".
  void AddLayers(const std::string& title,
                 const ReportList<query::ModuleEntry>& list,
                 size_t count);
  // Lines with their source text.
  void AddLines(const std::string& title, const ReportList<query::TopLine>& list, size_t count);
  // Stacks with the callers of their lines.
  void AddStacks(const std::string& title, const ReportList<query::TopStack>& list, size_t count);
  // Why PyTorch's allocator made its newest segment while so much was free.
  void AddCachedReason(const query::CachedMemory& cached);

 private:
  // `texts`: the columns behind the device's mark; of several the first takes `most` percent of the
  // room at most. `add_row` adds an entry, whose first cells are given.
  template <class Entry, class AddRow>
  void AddList(const std::string& title,
               const ReportList<Entry>& list,
               size_t count,
               std::vector<TextColumn> texts,
               const AddRow& add_row);
  std::string PlaceText(const std::string& place) const;

  const query::Report& report_;
  const tables::Recording& recording_;
  TextLines& out_;
};

}  // namespace vramscope::output
