// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "output/keywords.h"
#include "output/names.h"
#include "output/text/text.h"
#include "output/text/text_parts.h"
#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

using query::KeywordCategory;
using query::KeywordTable;

constexpr size_t kFigureColumns = 23;  // of what a list says before its names

std::string SignedInUnit(int64_t bytes, const Unit& unit) {
  const std::string size = InUnit(static_cast<uint64_t>(std::abs(bytes)), unit.bytes);
  return bytes < 0 ? "-" + size : size;
}

class KeywordText : public TextLines {
 public:
  KeywordText(const query::KeywordReport& report,
              const tables::Recording& recording,
              const KeywordsTextOptions& options)
      : TextLines(options.style), report_(report), recording_(recording), options_(options) {}

  std::string Format();

 private:
  void AddHeadline(const query::DeviceReport& device);
  void AddTable(const KeywordTable& table);
  void AddOverlaps(const KeywordTable& table);
  void AddEntries(const KeywordCategory& category, const std::string& of);
  void AddUnnamed(const query::DeviceReport& device);
  // A list of names. Names are never cut, so that they can be searched for.
  // `describe` gets an entry, a function that adds it by its name, and the table.
  template <class Entries, class Describe>
  void AddList(const std::string& title, const Entries& entries, const Describe& describe);
  bool IsShown(const query::DeviceReport& device) const {
    return device.ledger_bytes > 0 || device.nvml_bytes.value_or(0) > 0 ||
           report_.report.devices.size() == 1;
  }

  const query::KeywordReport& report_;
  const tables::Recording& recording_;
  const KeywordsTextOptions& options_;
};

void KeywordText::AddHeadline(const query::DeviceReport& device) {
  std::string name = "CPU tensors";
  if (device.kind == tables::DeviceKind::kHost)
    name = "Host memory, pinned and registered";
  if (device.kind == tables::DeviceKind::kGpu) {
    name = fmt::format("GPU {}", device.index);
    if (!device.name.empty())
      name += "  " + Clean(device.name);
  }
  std::string when =
      fmt::format("{} {}", Clean(device.at_kind), util::FormatBytes(device.ledger_bytes));
  if (device.at_ns >= recording_.tables().session.begin_ns)
    when += " at " + ExactSeconds(device.at_ns - recording_.tables().session.begin_ns) + " s";
  name = CutEnd(name, RoomBeside(util::DisplayWidth(when) + 2), style());
  const size_t gap =
      columns() - std::min(columns(), util::DisplayWidth(name) + util::DisplayWidth(when));
  Add(Paint(name, Ink::kBold, style()) + std::string(gap, ' ') + when);
}

void KeywordText::AddTable(const KeywordTable& table) {
  const query::KeywordDictionary& dictionary = report_.dictionaries[table.dictionary];
  const auto whole =
      static_cast<double>(table.expected_bytes ? *table.expected_bytes : table.row_bytes);
  const Unit unit = TableUnit(std::max(table.row_bytes, table.expected_bytes.value_or(0)));
  const size_t names = RoomBeside(2 + 12 + 9 + 2 + kBarColumns + 9);
  std::optional<TextTable> lines;
  lines.emplace(this, std::vector<TextColumn>{
                          {.title = Clean(dictionary.title),
                           .width = names,
                           .fit = Fit::kCutEnd,
                           .gap = 2,
                           .title_ink = Ink::kBold},
                          {.title = unit.name, .width = 12},
                          {.title = "share", .width = 9},
                          {.width = kBarColumns, .fit = Fit::kLeft, .gap = 2, .ink = Ink::kBar},
                          {.title = "count", .width = 9}});
  lines->AddTitles();
  const auto add = [&](const std::string& name, int64_t bytes, uint64_t count,
                       std::optional<Ink> ink = {}) {
    const double share = whole > 0 ? static_cast<double>(bytes) / whole : 0;
    const std::string percent = Percent(std::abs(share));
    lines->AddRow({{Clean(name), ink},
                   {SignedInUnit(bytes, unit)},
                   {bytes < 0 ? "-" + percent : percent},
                   {Bar(std::clamp(share, 0.0, 1.0), kBarColumns, style())},
                   {count == 0 ? "" : util::FormatCount(count)}});
  };
  std::string without;
  for (const KeywordCategory& category : table.categories) {
    if (category.rows == 0) {
      without += (without.empty() ? "" : ", ") + Clean(category.name);
      continue;
    }
    add(category.name, static_cast<int64_t>(category.bytes), category.count);
  }
  add(query::kOthers, static_cast<int64_t>(table.others.bytes), table.others.count, Ink::kDim);
  if (table.untrackable_bytes)
    add(query::kUntrackable, *table.untrackable_bytes, 0, Ink::kDim);
  const char* const total = !table.expected_bytes     ? "All rows"
                            : table.expected_is_given ? "Expected sum, as given"
                                                      : "NVML's figure";
  add(total, static_cast<int64_t>(table.expected_bytes.value_or(table.row_bytes)), 0, Ink::kBold);
  for (const query::KeywordGroup& group : table.groups)
    add(group.name, static_cast<int64_t>(group.bytes), group.count);
  lines.reset();
  if (!without.empty())
    AddCut("  Empty: " + without, Ink::kDim);
  Add("");
  AddOverlaps(table);
  for (const KeywordCategory& category : table.categories)
    AddEntries(category, dictionary.name);
  AddEntries(table.others, dictionary.name);
}

template <class Entries, class Describe>
void KeywordText::AddList(const std::string& title,
                          const Entries& entries,
                          const Describe& describe) {
  const Unit unit = TableUnit(entries.front().bytes);
  std::vector<TextColumn> all = ListColumns(unit.name, title);
  all.push_back({.fit = Fit::kWrap});
  {
    TextTable table(this, std::move(all));
    table.AddTitles();
    for (const auto& entry : entries) {
      const auto add = [&](std::string name) {
        table.AddRow({{InUnit(entry.bytes, unit.bytes)},
                      {util::FormatCount(entry.count)},
                      {},
                      {std::move(name)}});
      };
      describe(entry, add, &table);
    }
  }
  Add("");
}

void KeywordText::AddOverlaps(const KeywordTable& table) {
  if (table.overlaps.empty())
    return;
  const std::string title = fmt::format(
      "Matched by several categories: {} row{}, {}", util::FormatCount(table.overlap_rows),
      table.overlap_rows == 1 ? "" : "s", util::FormatBytes(table.overlap_bytes));
  AddList(title, table.overlaps, [&](const auto& overlap, const auto& add, TextTable* lines) {
    std::string names;
    for (const std::string& name : overlap.names) {
      // Only the innermost frame of a stack: the rest does not identify the row.
      const size_t innermost = name.rfind(';') + 1;  // 0 where there is none
      names += (names.empty() ? "" : " / ") + Clean(std::string_view(name).substr(innermost));
    }
    add(names);
    if (overlap.categories.empty())
      return;
    std::string also;
    for (size_t i = 1; i < overlap.categories.size(); ++i)
      also += (also.empty() ? "" : ", ") + Clean(overlap.categories[i]);
    lines->AddBelow(fmt::format("{}, not {}", Clean(overlap.categories[0]), also));
  });
}

void KeywordText::AddEntries(const KeywordCategory& category, const std::string& of) {
  if (category.entries.empty())
    return;
  std::string title = Clean(category.name);
  if (category.name == query::kOthers)
    title = fmt::format("{}: matched by no keyword of {}", query::kOthers, Clean(of));
  AddList(title, category.entries,
          [&](const auto& entry, const auto& add, TextTable*) { add(Clean(entry.name)); });
}

void KeywordText::AddUnnamed(const query::DeviceReport& device) {
  std::vector<query::UnnamedStack> stacks;
  std::copy_if(report_.unnamed.begin(), report_.unnamed.end(), std::back_inserter(stacks),
               [&](const auto& stack) { return stack.device == device.device; });
  if (stacks.empty())
    return;
  AddList("Without module, parameter, tag or category", stacks,
          [&](const auto& stack, const auto& add, TextTable* table) {
            // As in the report's stacks: the line, what it called, and its callers.
            const std::vector<std::string>& frames = stack.frames;
            const auto line = std::find(frames.begin(), frames.end(), stack.line);
            std::string head = frames.empty() ? "(no stack)" : frames[0];
            if (line != frames.end() && line != frames.begin())
              head = stack.line + ", through " + head;
            add(Clean(head));
            std::string callers;
            for (auto caller = line == frames.end() ? frames.begin() : line; caller != frames.end();
                 ++caller) {
              if (caller != frames.begin() && caller != line)
                callers += (callers.empty() ? "< " : " < ") + Clean(*caller);
            }
            if (!callers.empty()) {
              table->AddLine(
                  std::string(kFigureColumns, ' ') +
                  Paint(CutEnd(callers, RoomBeside(kFigureColumns), style()), Ink::kDim, style()));
            }
          });
}

std::string KeywordText::Format() {
  AddCut(Clean(RecordedCommand(recording_)), Ink::kBold);
  Add("");
  for (const query::DeviceReport& device : report_.report.devices) {
    if (!IsShown(device))
      continue;
    AddHeadline(device);
    Add("");
    for (const KeywordTable& table : report_.tables) {
      if (table.device == device.device)
        AddTable(table);
    }
    AddUnnamed(device);
  }
  for (const std::string& line : TrustLines(report_.report, recording_, style()))
    Add(line);
  for (const std::string& line : options_.closing)
    Add(line);
  return Take();
}

}  // namespace

std::string KeywordsText(const query::KeywordReport& report,
                         const tables::Recording& recording,
                         const KeywordsTextOptions& options) {
  return KeywordText(report, recording, options).Format();
}

}  // namespace vramscope::output
