// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "output/terminal.h"
#include "output/text/ledger_tree.h"
#include "output/text/text_table.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"

// The parts of the report for people, which text.cc puts together: the headline of a device, the
// trees of its rows, the tables of what holds most.
namespace vramscope::output {

// The lines of a device before its tables: its name, how much it had and when, and the figures of
// NVML and the allocators.
class DeviceHeadline {
 public:
  DeviceHeadline(const query::Report& report,
                 const tables::Recording& recording,
                 const query::ReportQuery& query,
                 TextLines* out)
      : report_(report), recording_(recording), query_(query), out_(*out) {}

  // "Peak 12.0 GiB on GPU 0 at 15.9 s: activation 6.1 GiB (blocks.*), ...". `parts`: what the
  // device's bytes are, by category or owner; `gpus`: how many there are.
  std::string Answer(const query::DeviceReport& device, const LedgerTree& parts, size_t gpus) const;
  void Add(const query::DeviceReport& device);
  bool HasAllocated(const query::DeviceReport& device) const {
    return query_.SelectsWholeDevices() && device.reserved_bytes > 0 && device.allocated_peak;
  }
  void AddUnbacked(const query::DeviceReport& device);
  void AddRemaining(const query::DeviceReport& device);
  // Where no device has anything.
  void AddAbsence();

 private:
  void AddSelected(const query::DeviceReport& device, const Unit& unit);
  void AddAllocated(const query::DeviceReport& device, const Unit& unit);
  std::string PeakText(const query::PeakFigure& peak, const Unit& unit) const;
  std::string Asked() const;
  std::string AnswerInstant(const query::DeviceReport& device) const;
  std::string PartOfModel(const query::DeviceReport& device, const TreeLine& category) const;
  // As --at takes it: the same state again.
  std::string Seconds(int64_t time_ns) const {
    return ExactSeconds(time_ns - recording_.tables().session.begin_ns) + " s";
  }

  const query::Report& report_;
  const tables::Recording& recording_;
  const query::ReportQuery& query_;
  TextLines& out_;
};

// "at::native::(anonymous namespace)::f<int>(long) [clone .isra.0]" -> "native::f": a C++ function
// by its last two names.
std::string ShortCxxName(std::string_view name);

// Stacks as a table of them names each: by the innermost frame that no other has, and by who called
// it. All of a table's stacks come before the first question.
class StackNames {
 public:
  struct Name {
    std::string head;     // "attention.py:60 in attend, through functional.py:12 in softmax"
    std::string callers;  // "< model.py:74 in forward < train.py:150 in main"
  };

  // `dimension`: kPython or kNative; `own` as in a query.
  StackNames(const tables::Recording& recording,
             query::Dimension dimension,
             const std::vector<std::string>& own);

  // `stack` as in a row of that dimension: frames from the outermost on, separated by semicolons.
  void Add(const std::string& stack);
  Name Of(const std::string& stack) const;

 private:
  // From the innermost on. Frames without a name are left out where others have one.
  std::vector<std::string> Frames(const std::string& stack) const;

  const bool native_;
  std::map<std::string, bool, std::less<>> library_;  // Python frames by text: not the user's code
  std::map<std::string, size_t, std::less<>> stacks_of_;  // by frame: how many have it
};

// The rows of a report as trees of names, one of each kind a device.
class ReportTrees {
 public:
  ReportTrees(const query::Report& report,
              const tables::Recording& recording,
              const query::ReportQuery& query,
              bool utf8)
      : report_(report), recording_(recording), query_(query), utf8_(utf8) {}

  // Empty where the ledger tells more than categories.
  LedgerTree Categories(const query::DeviceReport& device) const;
  // `only_owners`: the categories above it say the rest, but what the driver owns is one of them.
  LedgerTree Ledger(const query::DeviceReport& device, bool only_owners) const;

 private:
  TreeLeaf LeafOf(const query::ReportRow& row,
                  bool by_process,
                  const std::map<size_t, StackNames>& stacks) const;
  std::string Clean(std::string_view text) const { return Printable(text, utf8_); }

  const query::Report& report_;
  const tables::Recording& recording_;
  const query::ReportQuery& query_;
  const bool utf8_;
};

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
  const std::vector<Entry>* all = nullptr;  // null: see `some`
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

// Merges stacks whose printed form is the same, although their layers differ.
std::vector<query::TopStack> MergeAlikeStacks(const tables::Recording& recording,
                                              const std::vector<query::TopStack>& entries);

// The first columns of a list: bytes, count, and `mark_columns` for the device. `title` is that of
// the column after them.
std::vector<TextColumn> ListColumns(const char* unit, std::string title, size_t mark_columns = 0);

// Names with their bytes, shares, bars and counts. `bold_roots` emphasizes the outermost names.
// Names are as wide as they need, and at least as wide as a screen of 80 columns allows. Text below
// a name is cut to one line, or wrapped with `whole`.
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
