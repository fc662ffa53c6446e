// SPDX-License-Identifier: Apache-2.0
#include "output/text/text_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "output/devices.h"
#include "output/frames.h"
#include "output/text/trust_lines.h"
#include "util/size_text.h"
#include "util/utf8.h"

namespace vramscope::output {
namespace {

constexpr size_t kBytesColumns = 11;
constexpr size_t kShareColumns = 8;
constexpr size_t kBarColumns = 10;
constexpr size_t kCountColumns = 9;
constexpr size_t kMarkColumns = 6;
constexpr size_t kCallers = 6;
constexpr size_t kCachedWords = 40;  // columns of the words beside a place

// What has no room by the digit is told in millions.
std::string CountText(uint64_t count) {
  return count < 1'000'000 ? util::FormatCount(count)
                           : fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
}

size_t Columns(const Style& style) {
  return static_cast<size_t>(style.columns);
}

// A stack's callers below its name, cut where frames begin.
void AddBelow(const std::string& text,
              const std::string& indent,
              bool whole,
              const Style& style,
              std::vector<std::string>* out) {
  const size_t room = Columns(style) - std::min(Columns(style), indent.size());
  if (!whole) {
    out->push_back(indent + Paint(CutEnd(text, room, style), Ink::kDim, style));
    return;
  }
  std::string line;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(" < ", begin + 1), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (!line.empty() && util::DisplayWidth(line) + util::DisplayWidth(part) > room) {
      out->push_back(indent + Paint(line, Ink::kDim, style));
      line.clear();
    }
    line += line.empty() && part.starts_with(' ') ? part.substr(1) : part;
    begin = end;
  }
  out->push_back(indent + Paint(line, Ink::kDim, style));
}

// Bytes, count and, where there are several devices, the device: the left side of a list.
struct ListLayout {
  Unit unit;
  size_t mark_columns = 0;
  size_t left = 0;   // columns of all that
  size_t right = 0;  // and what remains
};

template <class Entry>
ListLayout LayOut(const std::vector<Entry>& entries, size_t count, const Style& style) {
  uint64_t largest = 0;
  std::set<tables::DeviceId> devices;
  for (size_t i = 0; i < count; ++i)
    largest = std::max(largest, entries[i].bytes);
  // Those of a few bytes are not listed, and mark nothing.
  for (const Entry& entry : entries) {
    if (entry.bytes >= largest / 1000)
      devices.insert(entry.device);
  }
  ListLayout layout{.unit = TableUnit(largest)};
  layout.mark_columns = devices.size() > 1 ? kMarkColumns : 0;
  layout.left = kBytesColumns + 1 + kCountColumns + 2 + layout.mark_columns;
  layout.right = Columns(style) - std::min(Columns(style), layout.left);
  return layout;
}

std::string ListHead(const ListLayout& layout, const std::string& title, const Style& style) {
  const std::string head = fmt::format("{}{}", PadLeft(layout.unit.name, kBytesColumns + 1),
                                       PadLeft("count", kCountColumns));
  return Paint(head, Ink::kDim, style) + "  " + Paint(title, Ink::kBold, style);
}

template <class Entry>
std::string ListStart(const Entry& entry, const ListLayout& layout, const query::Report& report) {
  std::string text = PadLeft(InUnit(entry.bytes, layout.unit.bytes), kBytesColumns + 1) +
                     PadLeft(CountText(entry.count), kCountColumns) + "  ";
  if (layout.mark_columns > 0)
    text += PadRight(DeviceMark(report, entry.device), layout.mark_columns);
  return text;
}

// What the first `count` entries and the list itself leave out.
template <class Entry>
void AddRest(const std::vector<Entry>& entries,
             size_t count,
             query::LeftOut left_out,
             const ListLayout& layout,
             const Style& style,
             std::vector<std::string>* out) {
  for (size_t i = count; i < entries.size(); ++i)
    AddTo(entries[i], &left_out);
  if (left_out.bytes != 0) {
    const std::string line = fmt::format(
        "{}{}  {}({} more)", PadLeft(InUnit(left_out.bytes, layout.unit.bytes), kBytesColumns + 1),
        PadLeft(CountText(left_out.count), kCountColumns), std::string(layout.mark_columns, ' '),
        util::FormatCount(left_out.entries));
    out->push_back(Paint(line, Ink::kDim, style));
  }
  out->emplace_back();
}

// "blocks.[0-11].attn x12".
std::string LayerName(const query::ModuleEntry& entry, const Style& style) {
  std::string name = Printable(entry.module, style.utf8);
  if (entry.modules > 1)
    name += fmt::format(" x{}", entry.modules);
  return name;
}

// "Linear: 88 % activation, 12 % parameter".
std::string WhatItHolds(const query::ModuleEntry& entry, bool with_type, const Style& style) {
  std::string text = with_type ? Printable(entry.type, style.utf8) : "";
  const char* separator = text.empty() ? "" : ": ";
  for (const auto& [category, bytes] : entry.categories) {
    if (bytes == 0 || bytes < entry.bytes / 1000)
      break;
    const double share =
        static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(entry.bytes, 1));
    text += separator;
    if (bytes != entry.bytes)
      text += share < 0.01 ? "<1 % " : fmt::format("{:.0f} % ", 100 * share);
    text += Printable(category, style.utf8);
    separator = ", ";
  }
  return text;
}

std::string PlaceText(const std::string& place, const Style& style) {
  return place.empty() ? "(no stack)" : Printable(place, style.utf8);
}

// What a reader sees of a stack: the place, and the user frames that called it.
std::string ShownStack(const tables::Recording& recording, const query::TopStack& entry) {
  std::string text = entry.place;
  for (const std::string& caller : Callers(recording, entry.stack, kCallers))
    text += " < " + caller;
  return text;
}

// Stacks that differ in library code alone look alike: what each of them came to. "" where it is
// the place itself.
std::string Innermost(const tables::Recording& recording, const query::TopStack& entry) {
  const std::vector<tables::FrameId> frames = query::StackFrames(recording, entry.stack, 1);
  if (frames.empty() || query::IsUserFrame(recording, frames[0]))
    return "";
  return ", through " + ShortFrame(recording, frames[0]);
}

// How many entries have what is shown of a stack but for its innermost frame.
std::map<std::string, size_t> CountAlike(const tables::Recording& recording,
                                         const std::vector<query::TopStack>& entries) {
  std::map<std::string, size_t> alike;
  for (const query::TopStack& entry : entries)
    ++alike[ShownStack(recording, entry)];
  return alike;
}

}  // namespace

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

void AddFigureTable(const std::string& head,
                    const LedgerTree& tree,
                    const TreeLimits& limits,
                    bool bold_roots,
                    bool whole,
                    const Style& style,
                    std::vector<std::string>* out) {
  const Unit unit = TableUnit(tree.total_bytes());
  const size_t figures = kBytesColumns + kShareColumns + 2 + kBarColumns + kCountColumns;
  const std::vector<TreeLine> lines = tree.Lines(limits);
  const auto indent_of = [](const TreeLine& line) { return 2 * std::min<size_t>(line.depth, 8); };
  size_t widest = kPlainColumns - figures - 2;
  const auto times = [](const TreeLine& line) {
    return line.repeats > 1 ? fmt::format(" x{}", line.repeats) : std::string();
  };
  for (const TreeLine& line : lines)
    widest =
        std::max(widest, indent_of(line) + util::DisplayWidth(line.name) + times(line).size() + 1);
  const size_t names = std::min(Columns(style) - std::min(Columns(style), figures + 2), widest);
  out->push_back(
      Paint(fmt::format("  {}{}{}  {}{}", PadRight(CutEnd(head, names, style), names),
                        PadLeft(unit.name, kBytesColumns), PadLeft("share", kShareColumns),
                        std::string(kBarColumns, ' '), PadLeft("count", kCountColumns)),
            Ink::kDim, style));
  for (const TreeLine& line : lines) {
    const double share = static_cast<double>(line.bytes) /
                         static_cast<double>(std::max<uint64_t>(tree.total_bytes(), 1));
    const std::string indent(indent_of(line), ' ');
    const size_t room = names - std::min(names, indent.size());
    const std::string suffix = times(line);
    const size_t for_name = room - std::min(room, suffix.size() + 1);
    const std::string name =
        indent +
        (line.layer ? CutMiddle(line.name, for_name, style) : CutEnd(line.name, for_name, style)) +
        suffix;
    std::string text = "  ";
    const std::string padded = PadRight(name, names);
    if (line.rest) {
      text += Paint(padded, Ink::kDim, style);
    } else {
      text += line.depth == 0 && bold_roots ? Paint(padded, Ink::kBold, style) : padded;
    }
    text += PadLeft(InUnit(line.bytes, unit.bytes), kBytesColumns);
    text += PadLeft(Percent(share), kShareColumns);
    text += "  " + Paint(Bar(share, kBarColumns, style), Ink::kBar, style);
    // Slack has no count.
    text += PadLeft(line.count == 0 ? "" : CountText(line.count), kCountColumns);
    out->push_back(text);
    if (!line.below.empty())
      AddBelow(line.below, indent + "    ", whole, style, out);
  }
}

void AddDeviceTable(const std::vector<const query::DeviceReport*>& gpus,
                    const query::DeviceReport* fullest,
                    std::optional<int64_t> start_ns,
                    const Style& style,
                    std::vector<std::string>* out) {
  constexpr size_t kFullColumns = 8;
  constexpr size_t kResidualColumns = 12;
  constexpr size_t kAtColumns = 15;
  uint64_t largest = 0;
  size_t names = 0;
  std::vector<std::string> labels;
  for (const query::DeviceReport* gpu : gpus) {
    largest = std::max({largest, gpu->ledger_bytes, gpu->nvml_bytes.value_or(0)});
    labels.push_back(fmt::format("GPU {}{}  {}", gpu->index, gpu == fullest ? '*' : ' ',
                                 Printable(gpu->name, style.utf8)));
    names = std::max(names, util::DisplayWidth(labels.back()));
  }
  const size_t figures = 2 * kBytesColumns + kFullColumns + kResidualColumns + kAtColumns;
  names = std::min(names, Columns(style) - std::min(Columns(style), figures + 2));
  const Unit unit = TableUnit(largest);
  const std::string head = "  " +
                           PadRight(fmt::format("{} GPUs, {}", gpus.size(), unit.name), names) +
                           PadLeft("ledger", kBytesColumns) + PadLeft("NVML", kBytesColumns) +
                           PadLeft("residual", kResidualColumns) + PadLeft("full", kFullColumns) +
                           PadLeft("at, seconds", kAtColumns);
  out->push_back(Paint(head, Ink::kDim, style));
  for (size_t i = 0; i < gpus.size(); ++i) {
    const query::DeviceReport& gpu = *gpus[i];
    const uint64_t used = gpu.nvml_bytes.value_or(gpu.ledger_bytes);
    const std::string full =
        gpu.total_bytes.value_or(0) == 0
            ? "-"
            : Percent(static_cast<double>(used) / static_cast<double>(*gpu.total_bytes));
    const std::string residual = PadLeft(
        gpu.residual_bytes ? util::FormatSignedBytes(*gpu.residual_bytes) : "-", kResidualColumns);
    const bool explained =
        !gpu.residual_bytes || IsWithinTarget(*gpu.residual_bytes, gpu.nvml_bytes.value_or(0));
    const std::string label = PadRight(CutEnd(labels[i], names, style), names);
    out->push_back(
        "  " + (&gpu == fullest ? Paint(label, Ink::kBold, style) : label) +
        PadLeft(InUnit(gpu.ledger_bytes, unit.bytes), kBytesColumns) +
        PadLeft(gpu.nvml_bytes ? InUnit(*gpu.nvml_bytes, unit.bytes) : "-", kBytesColumns) +
        (explained ? residual : Paint(residual, Ink::kWarning, style)) +
        PadLeft(full, kFullColumns) +
        PadLeft(start_ns ? ExactSeconds(gpu.at_ns - *start_ns) : "-", kAtColumns));
  }
  out->emplace_back();
}

void AddLayerTable(const std::string& title,
                   const std::vector<query::ModuleEntry>& entries,
                   const query::LeftOut& left_out,
                   const query::Report& report,
                   size_t count,
                   const Style& style,
                   std::vector<std::string>* out) {
  if (count == 0)
    return;
  const ListLayout layout = LayOut(entries, count, style);
  size_t name_columns = 0;
  for (size_t i = 0; i < count; ++i) {
    name_columns = std::max(name_columns, util::DisplayWidth(LayerName(entries[i], style)));
  }
  name_columns = std::min(name_columns, layout.right / 2);
  out->push_back(ListHead(layout, title, style));
  for (size_t i = 0; i < count; ++i) {
    std::string text = ListStart(entries[i], layout, report);
    // The end of a path says which layer it is.
    const std::string name = CutStart(LayerName(entries[i], style), name_columns, style);
    text += name;
    const size_t room = layout.right - std::min(layout.right, name_columns + 2);
    std::string holds = WhatItHolds(entries[i], true, style);
    // The class is the first to go.
    if (util::DisplayWidth(holds) > room)
      holds = WhatItHolds(entries[i], false, style);
    if (!holds.empty() && room > 4) {
      text += std::string(name_columns - util::DisplayWidth(name) + 2, ' ');
      text += Paint(CutEnd(holds, room, style), Ink::kDim, style);
    }
    out->push_back(text);
  }
  AddRest(entries, count, left_out, layout, style, out);
}

void AddLineTable(const std::string& title,
                  const std::vector<query::TopLine>& entries,
                  const query::LeftOut& left_out,
                  const query::Report& report,
                  size_t count,
                  const Style& style,
                  std::vector<std::string>* out) {
  if (count == 0)
    return;
  const ListLayout layout = LayOut(entries, count, style);
  size_t place_columns = 0;
  for (size_t i = 0; i < count; ++i) {
    place_columns =
        std::max(place_columns, util::DisplayWidth(Printable(entries[i].place, style.utf8)));
  }
  // The place matters more than the text of the line; the text gets what is left.
  place_columns = std::min(place_columns, layout.right * 3 / 5);
  out->push_back(ListHead(layout, title, style));
  for (size_t i = 0; i < count; ++i) {
    const query::TopLine& entry = entries[i];
    const std::string place = CutEnd(PlaceText(entry.place, style), place_columns, style);
    std::string text = ListStart(entry, layout, report) + place;
    const size_t room = layout.right - std::min(layout.right, place_columns + 2);
    std::string source = Printable(entry.source, style.utf8);
    source.erase(0, source.find_first_not_of(' '));
    if (!source.empty() && room > 4) {
      text +=
          std::string(place_columns - std::min(place_columns, util::DisplayWidth(place)) + 2, ' ');
      text += Paint(CutEnd(source, room, style), Ink::kDim, style);
    }
    out->push_back(text);
  }
  AddRest(entries, count, left_out, layout, style, out);
}

void AddStackTable(const std::string& title,
                   const std::vector<query::TopStack>& entries,
                   const query::LeftOut& left_out,
                   const query::Report& report,
                   const tables::Recording& recording,
                   size_t count,
                   const Style& style,
                   std::vector<std::string>* out) {
  if (count == 0)
    return;
  const ListLayout layout = LayOut(entries, count, style);
  const std::map<std::string, size_t> alike = CountAlike(recording, entries);
  out->push_back(ListHead(layout, title, style));
  for (size_t i = 0; i < count; ++i) {
    const query::TopStack& entry = entries[i];
    std::string place = PlaceText(entry.place, style);
    if (alike.at(ShownStack(recording, entry)) > 1)
      place += Printable(Innermost(recording, entry), style.utf8);
    if (entry.alike > 1)
      place += fmt::format(" x{}", entry.alike);
    out->push_back(ListStart(entry, layout, report) + CutEnd(place, layout.right, style));
    std::string callers;
    for (const std::string& caller : Callers(recording, entry.stack, kCallers)) {
      callers += (callers.empty() ? "< " : " < ") + Printable(caller, style.utf8);
    }
    if (!callers.empty()) {
      out->push_back(std::string(layout.left, ' ') +
                     Paint(CutEnd(callers, layout.right, style), Ink::kDim, style));
    }
  }
  AddRest(entries, count, left_out, layout, style, out);
}

void AddCachedReason(const query::CachedMemory& cached,
                     int64_t start_ns,
                     const Style& style,
                     std::vector<std::string>* out) {
  const auto add = [&](const std::string& line) {
    out->push_back(CutEnd("  " + line, Columns(style), style));
  };
  const std::string place = Printable(cached.place, style.utf8);
  const size_t room = Columns(style) - std::min(Columns(style), kCachedWords);
  add(fmt::format("The newest segment, {} at {}, was made for a request of {}",
                  util::FormatBytes(cached.segment_bytes),
                  util::FormatDuration(cached.segment_ns - start_ns),
                  util::FormatBytes(cached.request_bytes)));
  add(fmt::format("{}of the {} that are free now:",
                  place.empty() ? "" : "at " + CutEnd(place, room, style) + "; ",
                  util::FormatBytes(cached.free_bytes)));
  const auto add_part = [&](uint64_t bytes, const std::string& what) {
    if (bytes != 0)
      add(PadLeft(util::FormatBytes(bytes), kBytesColumns) + " " + what);
  };
  add_part(cached.freed_since_bytes, "were in use then, or are in that segment");
  add_part(cached.too_small_bytes, fmt::format("were free in smaller pieces, of {} at most",
                                               util::FormatBytes(cached.largest_piece_bytes)));
  add_part(cached.elsewhere_bytes, "were free for another stream or pool");
  add_part(cached.graph_bytes, "are of CUDA graphs");
  out->emplace_back();
}

}  // namespace vramscope::output
