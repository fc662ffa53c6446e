// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "output/devices.h"
#include "output/keywords.h"
#include "output/text/trust_lines.h"
#include "util/size_text.h"
#include "util/utf8.h"

namespace vramscope::output {
namespace {

using query::KeywordCategory;
using query::KeywordTable;

constexpr size_t kBytesColumns = 11;
constexpr size_t kShareColumns = 9;  // "-100.0 %" and a space before it
constexpr size_t kBarColumns = 10;
constexpr size_t kCountColumns = 9;
constexpr size_t kFigureColumns = kBytesColumns + 1 + kCountColumns + 2;

std::string SignedInUnit(int64_t bytes, const Unit& unit) {
  const std::string size = InUnit(static_cast<uint64_t>(std::abs(bytes)), unit.bytes);
  return bytes < 0 ? "-" + size : size;
}

class KeywordText {
 public:
  KeywordText(const query::KeywordReport& report,
              const tables::Recording& recording,
              const KeywordsTextOptions& options)
      : report_(report), recording_(recording), options_(options), style_(options.style) {}

  std::string Format();

 private:
  void AddHeadline(const query::DeviceReport& device);
  void AddTable(const KeywordTable& table);
  void AddLine(const std::string& name,
               int64_t bytes,
               uint64_t count,
               double whole,
               std::optional<Ink> ink = {});
  void AddOverlaps(const KeywordTable& table);
  void AddEntries(const KeywordCategory& category, const std::string& of);
  void AddUnnamed(const query::DeviceReport& device);
  void AddFigureHead(const std::string& title, const Unit& unit);
  std::string Figures(uint64_t bytes, uint64_t count, const Unit& unit) const {
    return PadLeft(InUnit(bytes, unit.bytes), kBytesColumns + 1) +
           PadLeft(util::FormatCount(count), kCountColumns) + "  ";
  }
  bool IsShown(const query::DeviceReport& device) const {
    return device.ledger_bytes > 0 || device.nvml_bytes.value_or(0) > 0 ||
           report_.report.devices.size() == 1;
  }
  std::string Clean(std::string_view text) const { return Printable(text, style_.utf8); }
  // What stands behind Figures(): names, which are never cut, as what is cut off cannot be looked
  // for.
  std::string Beside(const std::string& names) const {
    return Wrapped(names, kFigureColumns, kFigureColumns, style_);
  }
  size_t columns() const { return static_cast<size_t>(style_.columns); }
  void Add(std::string_view line) { AppendLine(line, &out_); }

  const query::KeywordReport& report_;
  const tables::Recording& recording_;
  const KeywordsTextOptions& options_;
  const Style& style_;
  Unit unit_{1, "B"};
  std::string out_;
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
  name = CutEnd(name, columns() - std::min(columns(), util::DisplayWidth(when) + 2), style_);
  const size_t gap =
      columns() - std::min(columns(), util::DisplayWidth(name) + util::DisplayWidth(when));
  Add(Paint(name, Ink::kBold, style_) + std::string(gap, ' ') + when);
}

void KeywordText::AddLine(const std::string& name,
                          int64_t bytes,
                          uint64_t count,
                          double whole,
                          std::optional<Ink> ink) {
  const double share = whole > 0 ? static_cast<double>(bytes) / whole : 0;
  const size_t figures = 2 + kBytesColumns + kShareColumns + 2 + kBarColumns + kCountColumns;
  const size_t room = columns() - std::min(columns(), figures);
  std::string text = "  ";
  const std::string padded = PadRight(CutEnd(Clean(name), room - 1, style_), room);
  text += ink ? Paint(padded, *ink, style_) : padded;
  text += PadLeft(SignedInUnit(bytes, unit_), kBytesColumns);
  const std::string percent = Percent(std::abs(share));
  text += PadLeft(bytes < 0 ? "-" + percent : percent, kShareColumns);
  text += "  " + Paint(Bar(std::clamp(share, 0.0, 1.0), kBarColumns, style_), Ink::kBar, style_);
  text += PadLeft(count == 0 ? "" : util::FormatCount(count), kCountColumns);
  Add(text);
}

void KeywordText::AddTable(const KeywordTable& table) {
  const query::KeywordDictionary& dictionary = report_.dictionaries[table.dictionary];
  const auto whole =
      static_cast<double>(table.expected_bytes ? *table.expected_bytes : table.row_bytes);
  unit_ = TableUnit(std::max(table.row_bytes, table.expected_bytes.value_or(0)));
  const size_t figures = 2 + kBytesColumns + kShareColumns + 2 + kBarColumns + kCountColumns;
  const size_t room = columns() - std::min(columns(), figures);
  Add("  " +
      Paint(PadRight(CutEnd(Clean(dictionary.title), room - 1, style_), room), Ink::kBold, style_) +
      Paint(fmt::format("{}{}  {}{}", PadLeft(unit_.name, kBytesColumns),
                        PadLeft("share", kShareColumns), std::string(kBarColumns, ' '),
                        PadLeft("count", kCountColumns)),
            Ink::kDim, style_));
  std::string without;
  for (const KeywordCategory& category : table.categories) {
    if (category.rows == 0) {
      without += (without.empty() ? "" : ", ") + Clean(category.name);
      continue;
    }
    AddLine(category.name, static_cast<int64_t>(category.bytes), category.count, whole);
  }
  AddLine(query::kOthers, static_cast<int64_t>(table.others.bytes), table.others.count, whole,
          Ink::kDim);
  if (table.untrackable_bytes)
    AddLine(query::kUntrackable, *table.untrackable_bytes, 0, whole, Ink::kDim);
  const char* const total = !table.expected_bytes     ? "All rows"
                            : table.expected_is_given ? "Expected sum, as given"
                                                      : "Expected sum, NVML's";
  AddLine(total, static_cast<int64_t>(table.expected_bytes.value_or(table.row_bytes)), 0, whole,
          Ink::kBold);
  for (const query::KeywordGroup& group : table.groups)
    AddLine(group.name, static_cast<int64_t>(group.bytes), group.count, whole);
  if (!without.empty())
    Add(Paint(CutEnd("  Nothing in: " + without, columns(), style_), Ink::kDim, style_));
  Add("");
  AddOverlaps(table);
  for (const KeywordCategory& category : table.categories)
    AddEntries(category, dictionary.name);
  AddEntries(table.others, dictionary.name);
}

void KeywordText::AddFigureHead(const std::string& title, const Unit& unit) {
  Add(Paint(PadLeft(unit.name, kBytesColumns + 1) + PadLeft("count", kCountColumns), Ink::kDim,
            style_) +
      "  " + Paint(title, Ink::kBold, style_));
}

void KeywordText::AddOverlaps(const KeywordTable& table) {
  if (table.overlaps.empty())
    return;
  const Unit unit = TableUnit(table.overlaps[0].bytes);
  AddFigureHead(
      fmt::format("Matched by several categories: {} row{}, {}",
                  util::FormatCount(table.overlap_rows), table.overlap_rows == 1 ? "" : "s",
                  util::FormatBytes(table.overlap_bytes)),
      unit);
  for (const query::KeywordOverlap& overlap : table.overlaps) {
    std::string names;
    for (const std::string& name : overlap.names) {
      // Of a stack where it ends: the rest tells nobody which row this is.
      const size_t innermost = name.rfind(';') + 1;  // 0 where there is none
      names += (names.empty() ? "" : " / ") + Clean(std::string_view(name).substr(innermost));
    }
    Add(Figures(overlap.bytes, overlap.count, unit) + Beside(names));
    if (overlap.categories.empty())
      continue;
    std::string also;
    for (size_t i = 1; i < overlap.categories.size(); ++i)
      also += (also.empty() ? "" : ", ") + Clean(overlap.categories[i]);
    Add(std::string(kFigureColumns, ' ') +
        Paint(Beside(fmt::format("{}, not {}", Clean(overlap.categories[0]), also)), Ink::kDim,
              style_));
  }
  Add("");
}

void KeywordText::AddEntries(const KeywordCategory& category, const std::string& of) {
  if (category.entries.empty())
    return;
  const Unit unit = TableUnit(category.entries[0].bytes);
  std::string title = Clean(category.name);
  if (category.name == query::kOthers)
    title = fmt::format("{}: matched by no keyword of {}", query::kOthers, Clean(of));
  AddFigureHead(title, unit);
  for (const query::KeywordEntry& entry : category.entries)
    Add(Figures(entry.bytes, entry.count, unit) + Beside(Clean(entry.name)));
  Add("");
}

void KeywordText::AddUnnamed(const query::DeviceReport& device) {
  const auto first = std::find_if(report_.unnamed.begin(), report_.unnamed.end(),
                                  [&](const auto& stack) { return stack.device == device.device; });
  if (first == report_.unnamed.end())
    return;
  const Unit unit = TableUnit(first->bytes);
  AddFigureHead("Without module, parameter, tag or category", unit);
  for (auto stack = first; stack != report_.unnamed.end() && stack->device == device.device;
       ++stack) {
    // As in the report's stacks: the line, what it called, and its callers.
    const std::vector<std::string>& frames = stack->frames;
    const auto line = std::find(frames.begin(), frames.end(), stack->line);
    std::string head = frames.empty() ? "(no stack)" : frames[0];
    if (line != frames.end() && line != frames.begin())
      head = stack->line + ", through " + head;
    Add(Figures(stack->bytes, stack->count, unit) + Beside(Clean(head)));
    std::string callers;
    for (auto caller = line == frames.end() ? frames.begin() : line; caller != frames.end();
         ++caller) {
      if (caller != frames.begin() && caller != line)
        callers += (callers.empty() ? "< " : " < ") + Clean(*caller);
    }
    if (!callers.empty()) {
      Add(std::string(kFigureColumns, ' ') +
          Paint(CutEnd(callers, columns() - std::min(columns(), kFigureColumns), style_), Ink::kDim,
                style_));
    }
  }
  Add("");
}

std::string KeywordText::Format() {
  Add(Paint(CutEnd(Clean(RecordedCommand(recording_)), columns(), style_), Ink::kBold, style_));
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
  for (const std::string& line : TrustLines(report_.report, recording_, style_))
    Add(line);
  for (const std::string& line : options_.closing)
    Add(line);
  return out_;
}

}  // namespace

std::string KeywordsText(const query::KeywordReport& report,
                         const tables::Recording& recording,
                         const KeywordsTextOptions& options) {
  return KeywordText(report, recording, options).Format();
}

}  // namespace vramscope::output
