// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "output/names.h"
#include "output/text/text.h"
#include "output/text/text_parts.h"
#include "query/dimensions/fold_names.h"
#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

constexpr size_t kListColumns = 23;  // of a list's figures, with the blanks after them
constexpr size_t kCallers = 6;
constexpr size_t kCachedWords = 40;  // columns of the words beside a place

// Counts that are too long are given in millions.
std::string CountText(uint64_t count) {
  return count < 1'000'000 ? util::FormatCount(count)
                           : fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
}

// A stack's callers below its name, cut where frames begin.
void AddCallers(const std::string& text,
                size_t indent,
                bool whole,
                TextLines* out,
                TextTable* table) {
  const size_t room = out->RoomBeside(indent);
  const auto add = [&](std::string_view line) {
    table->AddLine(std::string(indent, ' ') + Paint(line, Ink::kDim, out->style()));
  };
  if (!whole)
    return add(CutEnd(text, room, out->style()));
  std::string line;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(" < ", begin + 1), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (!line.empty() && util::DisplayWidth(line) + util::DisplayWidth(part) > room) {
      add(line);
      line.clear();
    }
    line += line.empty() && part.starts_with(' ') ? part.substr(1) : part;
    begin = end;
  }
  add(line);
}

// "Linear: 88 % activation, 12 % parameter".
std::string WhatItHolds(const query::ModuleEntry& entry, bool with_type, bool utf8) {
  std::string text = with_type ? Printable(entry.type, utf8) : "";
  const char* separator = text.empty() ? "" : ": ";
  for (const auto& [category, bytes] : entry.categories) {
    if (bytes == 0 || bytes < entry.bytes / 1000)
      break;
    const double share =
        static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(entry.bytes, 1));
    text += separator;
    if (bytes != entry.bytes)
      text += share < 0.01 ? "<1 % " : fmt::format("{:.0f} % ", 100 * share);
    text += Printable(category, utf8);
    separator = ", ";
  }
  return text;
}

// What a reader sees of a stack: the place, and the user frames that called it.
std::string ShownStack(const tables::Recording& recording, const query::TopStack& entry) {
  std::string text = entry.place;
  for (const std::string& caller : Callers(recording, entry.stack, kCallers))
    text += " < " + caller;
  return text;
}

// The innermost frame, which distinguishes stacks that differ in library code only. "" if it is the
// place itself.
std::string Innermost(const tables::Recording& recording, const query::TopStack& entry) {
  const std::vector<tables::FrameId> frames = query::StackFrames(recording, entry.stack, 1);
  if (frames.empty() || query::IsUserFrame(recording, frames[0]))
    return "";
  return ", through " + ShortFrame(recording, frames[0]);
}

// The number of entries by the shown part of their stacks, without the innermost frame.
std::map<std::string, size_t> CountAlike(const tables::Recording& recording,
                                         const std::vector<query::TopStack>& entries) {
  std::map<std::string, size_t> alike;
  for (const query::TopStack& entry : entries)
    ++alike[ShownStack(recording, entry)];
  return alike;
}

}  // namespace

std::string LayerName(const query::ModuleEntry& entry, bool utf8) {
  std::string name = query::LayerWords(Printable(entry.module, utf8));
  if (entry.modules > 1)
    name += fmt::format(" x{}", entry.modules);
  return name;
}

std::vector<query::TopStack> MergeAlikeStacks(const tables::Recording& recording,
                                              const std::vector<query::TopStack>& entries) {
  std::vector<query::TopStack> merged;
  std::map<std::tuple<tables::DeviceId, std::string, std::string>, size_t> known;
  for (const query::TopStack& entry : entries) {
    const auto [found, added] = known.try_emplace(
        {entry.device, ShownStack(recording, entry), Innermost(recording, entry)}, merged.size());
    if (added) {
      merged.push_back(entry);
      continue;
    }
    query::TopStack& all = merged[found->second];
    all.bytes += entry.bytes;
    all.count += entry.count;
    all.alike += entry.alike;
  }
  std::stable_sort(merged.begin(), merged.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return merged;
}

std::vector<TextColumn> ListColumns(const char* unit, std::string title, size_t mark_columns) {
  return {{.title = unit, .width = 12},
          {.title = "count", .width = 9},
          {.title = std::move(title),
           .width = mark_columns,
           .fit = Fit::kLeft,
           .gap = 2,
           .title_ink = Ink::kBold}};
}

void AddFigureTable(const std::string& head,
                    const LedgerTree& tree,
                    const TreeLimits& limits,
                    bool bold_roots,
                    bool whole,
                    TextLines* out) {
  const Unit unit = TableUnit(tree.total_bytes());
  constexpr size_t kFigures = 12 + 8 + 2 + kBarColumns + 9;
  const size_t most = out->RoomBeside(2 + kFigures);
  TextTable table(out, {{.title = head,
                         .width = std::min(kPlainColumns - 2 - kFigures, most),
                         .most = most,
                         .fit = Fit::kCutEnd,
                         .gap = 2},
                        {.title = unit.name, .width = 12},
                        {.title = "share", .width = 8},
                        {.width = kBarColumns, .fit = Fit::kLeft, .gap = 2, .ink = Ink::kBar},
                        {.title = "count", .width = 9}});
  table.AddTitles();
  for (const TreeLine& line : tree.Lines(limits)) {
    const double share = static_cast<double>(line.bytes) /
                         static_cast<double>(std::max<uint64_t>(tree.total_bytes(), 1));
    const std::string indent(2 * std::min<size_t>(line.depth, 8), ' ');
    const std::string times = line.repeats > 1 ? fmt::format(" x{}", line.repeats) : "";
    const size_t room = most - std::min(most, indent.size() + times.size());
    const auto cut = line.layer ? CutMiddle : CutEnd;
    const std::optional<Ink> ink = line.rest                       ? std::optional(Ink::kDim)
                                   : line.depth == 0 && bold_roots ? std::optional(Ink::kBold)
                                                                   : std::nullopt;
    table.AddRow({{indent + cut(line.name, room, out->style()) + times, ink},
                  {InUnit(line.bytes, unit.bytes)},
                  {Percent(share)},
                  {Bar(share, kBarColumns, out->style())},
                  // Slack has no count.
                  {line.count == 0 ? "" : CountText(line.count)}});
    if (!line.below.empty())
      AddCallers(line.below, indent.size() + 4, whole, out, &table);
  }
}

void ReportTables::AddDevices(const std::vector<const query::DeviceReport*>& gpus,
                              const query::DeviceReport* fullest,
                              bool with_times) {
  constexpr size_t kFigures = 11 + 11 + 12 + 8 + 15;
  uint64_t largest = 0;
  for (const query::DeviceReport* gpu : gpus)
    largest = std::max({largest, gpu->ledger_bytes, gpu->nvml_bytes.value_or(0)});
  const Unit unit = TableUnit(largest);
  TextTable table(&out_, {{.title = fmt::format("{} GPUs, {}", gpus.size(), unit.name),
                           .width = 0,
                           .most = out_.RoomBeside(2 + kFigures),
                           .fit = Fit::kCutEnd,
                           .gap = 2},
                          {.title = "ledger", .width = 11},
                          {.title = "NVML", .width = 11},
                          {.title = "residual", .width = 12},
                          {.title = "full", .width = 8},
                          {.title = "at, seconds", .width = 15}});
  table.AddTitles();
  for (const query::DeviceReport* gpu : gpus) {
    const uint64_t nvml = gpu->nvml_bytes.value_or(0);
    const auto used = static_cast<double>(gpu->nvml_bytes.value_or(gpu->ledger_bytes));
    const bool explained = !gpu->residual_bytes || IsWithinTarget(*gpu->residual_bytes, nvml);
    const uint64_t total = gpu->total_bytes.value_or(0);
    table.AddRow(
        {{fmt::format("GPU {}{}  {}", gpu->index, gpu == fullest ? '*' : ' ',
                      out_.Clean(gpu->name)),
          gpu == fullest ? std::optional(Ink::kBold) : std::nullopt},
         {InUnit(gpu->ledger_bytes, unit.bytes)},
         {gpu->nvml_bytes ? InUnit(nvml, unit.bytes) : "-"},
         {gpu->residual_bytes ? util::FormatSignedBytes(*gpu->residual_bytes) : "-",
          explained ? std::nullopt : std::optional(Ink::kWarning)},
         {total == 0 ? "-" : Percent(used / static_cast<double>(total))},
         {with_times ? ExactSeconds(gpu->at_ns - recording_.tables().session.begin_ns) : "-"}});
  }
}

template <class Entry, class AddRow>
void ReportTables::AddList(const std::string& title,
                           const ReportList<Entry>& list,
                           size_t count,
                           std::vector<TextColumn> texts,
                           const AddRow& add_row) {
  if (count == 0)
    return;
  uint64_t largest = 0;
  std::set<tables::DeviceId> devices;
  for (size_t i = 0; i < count; ++i)
    largest = std::max(largest, (*list)[i].bytes);
  // Those of a few bytes are not listed, and mark nothing.
  for (const Entry& entry : *list) {
    if (entry.bytes >= largest / 1000)
      devices.insert(entry.device);
  }
  const bool is_marked = devices.size() > 1;
  const Unit unit = TableUnit(largest);
  std::vector<TextColumn> columns = ListColumns(unit.name, title, is_marked ? kMarkColumns : 0);
  // A place and what it says share the room.
  if (texts.size() > 1)
    texts[0].most = texts[0].most * out_.RoomBeside(kListColumns + columns[2].width) / 100;
  std::move(texts.begin(), texts.end(), std::back_inserter(columns));
  {
    TextTable table(&out_, std::move(columns));
    table.AddTitles();
    const auto figures = [&](const auto& of) {
      return TextCells{{InUnit(of.bytes, unit.bytes)}, {CountText(of.count)}, {}};
    };
    for (size_t i = 0; i < count; ++i) {
      TextCells cells = figures((*list)[i]);
      if (is_marked)
        cells[2].text = DeviceMark(report_, (*list)[i].device);
      add_row((*list)[i], std::move(cells), &table);
    }
    if (const query::LeftOut rest = list.Beyond(count); rest.bytes != 0) {
      TextCells cells = figures(rest);
      cells.push_back({fmt::format("({} more)", util::FormatCount(rest.entries))});
      table.AddRest(std::move(cells));
    }
  }
  out_.Add("");
}

void ReportTables::AddLayers(const std::string& title,
                             const ReportList<query::ModuleEntry>& list,
                             size_t count) {
  const bool utf8 = out_.style().utf8;
  // The end of a path says which layer it is. Of what it holds, the class is the first to go.
  AddList(title, list, count,
          {{.width = 0, .most = 50, .fit = Fit::kCutStart},
           {.fit = Fit::kCutEnd, .gap = 2, .ink = Ink::kDim}},
          [&](const query::ModuleEntry& entry, TextCells cells, TextTable* table) {
            cells.push_back({LayerName(entry, utf8)});
            cells.push_back({WhatItHolds(entry, true, utf8), {}, WhatItHolds(entry, false, utf8)});
            table->AddRow(std::move(cells));
          });
}

void ReportTables::AddLines(const std::string& title,
                            const ReportList<query::TopLine>& list,
                            size_t count) {
  // The place matters more than the text of the line; the text gets what is left.
  AddList(title, list, count,
          {{.width = 0, .most = 60, .fit = Fit::kCutEnd},
           {.fit = Fit::kCutEnd, .gap = 2, .ink = Ink::kDim}},
          [&](const query::TopLine& entry, TextCells cells, TextTable* table) {
            std::string source = out_.Clean(entry.source);
            source.erase(0, source.find_first_not_of(' '));
            cells.push_back({PlaceText(entry.place)});
            cells.push_back({std::move(source)});
            table->AddRow(std::move(cells));
          });
}

void ReportTables::AddStacks(const std::string& title,
                             const ReportList<query::TopStack>& list,
                             size_t count) {
  const std::map<std::string, size_t> alike = CountAlike(recording_, *list);
  AddList(title, list, count, {{.fit = Fit::kCutEnd}},
          [&](const query::TopStack& entry, TextCells cells, TextTable* table) {
            std::string place = PlaceText(entry.place);
            if (alike.at(ShownStack(recording_, entry)) > 1)
              place += out_.Clean(Innermost(recording_, entry));
            if (entry.alike > 1)
              place += fmt::format(" x{}", entry.alike);
            cells.push_back({std::move(place)});
            table->AddRow(std::move(cells));
            std::string callers;
            for (const std::string& caller : Callers(recording_, entry.stack, kCallers))
              callers += (callers.empty() ? "< " : " < ") + out_.Clean(caller);
            if (!callers.empty())
              table->AddBelow(std::move(callers));
          });
}

std::string ReportTables::PlaceText(const std::string& place) const {
  return place.empty() ? "(no stack)" : out_.Clean(place);
}

void ReportTables::AddCachedReason(const query::CachedMemory& cached) {
  const auto add = [&](const std::string& line) { out_.AddCut("  " + line); };
  const std::string place = out_.Clean(cached.place);
  add(fmt::format("The newest segment, {} at {}, was made for a request of {}",
                  util::FormatBytes(cached.segment_bytes),
                  util::FormatDuration(cached.segment_ns - recording_.tables().session.begin_ns),
                  util::FormatBytes(cached.request_bytes)));
  add(fmt::format("{}of the {} that are free now:",
                  place.empty()
                      ? ""
                      : "at " + CutEnd(place, out_.RoomBeside(kCachedWords), out_.style()) + "; ",
                  util::FormatBytes(cached.free_bytes)));
  const auto add_part = [&](uint64_t bytes, const std::string& what) {
    if (bytes != 0)
      add(PadLeft(util::FormatBytes(bytes), 11) + " " + what);
  };
  add_part(cached.freed_since_bytes, "were in use then, or are in that segment");
  add_part(cached.too_small_bytes, fmt::format("were free in smaller pieces, of {} at most",
                                               util::FormatBytes(cached.largest_piece_bytes)));
  add_part(cached.elsewhere_bytes, "were free for another stream or pool");
  add_part(cached.graph_bytes, "are of CUDA graphs");
  out_.Add("");
}

}  // namespace vramscope::output
