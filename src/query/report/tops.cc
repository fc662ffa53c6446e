// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "query/report/report_parts.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;

constexpr size_t kTopLimit = 100;
// Of each device: more than any model's layers that a person looks at.
constexpr size_t kModuleLimit = 1000;

template <class Entry>
void SortBySize(std::vector<Entry>* entries, size_t from = 0) {
  std::stable_sort(entries->begin() + static_cast<ptrdiff_t>(from), entries->end(),
                   [](const Entry& a, const Entry& b) { return a.bytes > b.bytes; });
}

template <class Entry>
const auto& SumOf(const Entry& entry) {
  if constexpr (requires { entry.sum; })
    return entry.sum;
  else if constexpr (requires { entry.second.bytes; })
    return entry.second;
  else
    return entry;
}

// Notes what of the entries, largest first, is beyond the limit.
template <class Entry>
void LeaveOut(const std::vector<Entry>& entries, size_t limit, LeftOut left_out, Report* report) {
  for (size_t i = limit; i < entries.size(); ++i) {
    const auto& sum = SumOf(entries[i]);
    ++left_out.entries;
    left_out.bytes += sum.bytes;
    left_out.count += sum.count;
  }
  if (left_out.entries != 0)
    report->left_out.push_back(left_out);
}

}  // namespace

void Tops::Add(const Leaf& leaf) {
  DeviceSums& device = devices_[leaf.device];
  const tables::SiteRow& site = leaf.site;
  const auto add = [&](Sum* sum) {
    sum->bytes += leaf.bytes;
    sum->count += leaf.count;
  };
  const size_t category = tables::ToWord(site.category);
  add(&device.categories[category]);
  if (site.module.value != 0) {
    ModuleSum& module = device.modules[site.module.value];
    add(&module.all);
    module.categories[category] += leaf.bytes;
    module.type = std::max(module.type, site.module_class);
  }
  const bool is_block = IsBlock(site);
  if (site.place.value != 0 && leaf.bytes != 0 && !IsFree(site.part))
    add(&device.stacks[site.place.value]);
  if (site.place.value != 0 && leaf.bytes != 0 && IsFree(site.part)) {
    Sum& free = device.free[site.place.value];
    free.bytes += leaf.bytes;
    ++free.count;  // a leaf a segment
  }
  if (!is_block)
    return;
  block_bytes_ += leaf.bytes;
  if (site.category != Category::kUnknown)
    with_category_ += leaf.bytes;
  const auto has_line = [&] {
    return recording_.tables().frames[texts_.LineOf(site).value].line != 0;
  };
  if (site.module.value != 0 || site.parameter.value != 0 || has_line())
    with_place_ += leaf.bytes;
}

void Tops::Charge(std::string_view text) const {
  (void)budget_.Charge("bytes of names and stacks", text.size());
}

tables::FrameId Tops::LineOf(tables::StackId stack) const {
  tables::SiteRow site;
  site.place = stack;
  return texts_.LineOf(site);
}

void Tops::AppendStacks(tables::DeviceId device, const DeviceSums& sums, Report* report) const {
  std::vector<std::pair<uint32_t, Sum>> stacks(sums.stacks.begin(), sums.stacks.end());
  std::sort(stacks.begin(), stacks.end(), [](const auto& a, const auto& b) {
    return a.second.bytes != b.second.bytes ? a.second.bytes > b.second.bytes : a.first < b.first;
  });
  // Lines from stacks, not from leaves: there are far fewer.
  Lines lines;
  for (const auto& [stack, sum] : stacks)
    AddTo(&lines, tables::StackId{stack}, sum);
  AppendLines(device, lines, LeftOut::List::kLines, report);
  Lines free;
  for (const auto& [stack, sum] : sums.free)
    AddTo(&free, tables::StackId{stack}, sum);
  AppendLines(device, free, LeftOut::List::kFree, report);
  LeaveOut(stacks, kTopLimit, {LeftOut::List::kStacks, device}, report);
  stacks.resize(std::min(stacks.size(), kTopLimit));
  for (const auto& [stack, sum] : stacks) {
    TopStack& entry = report->top_stacks.emplace_back();
    entry = {device, "", tables::StackId{stack}, sum.bytes, sum.count};
    if (budget_.IsOver())
      continue;
    entry.place = FormatFrame(recording_, LineOf(entry.stack));
    Charge(entry.place);
    for (const std::string& frame : stacks_.Texts(tables::StackId{stack}))
      Charge(frame);
  }
}

void Tops::AddTo(Lines* lines, tables::StackId stack, Sum sum) const {
  LineSum& line = (*lines)[LineOf(stack).value];
  line.sum.bytes += sum.bytes;
  line.sum.count += sum.count;
  if (line.stack.value == 0 || sum.bytes > line.largest) {
    line.largest = sum.bytes;
    line.stack = stack;
  }
}

void Tops::AppendLines(tables::DeviceId device,
                       const Lines& lines,
                       LeftOut::List list,
                       Report* report) const {
  // Different frames may have one text: two code objects of one line.
  std::map<std::string, LineSum> by_text;
  for (const auto& [frame, line] : lines) {
    if (budget_.IsOver())
      return;
    const auto [found, added] =
        by_text.try_emplace(FormatFrame(recording_, tables::FrameId{frame}), line);
    if (added) {
      Charge(found->first);
      continue;
    }
    LineSum& all = found->second;
    all.sum.bytes += line.sum.bytes;
    all.sum.count += line.sum.count;
    if (line.largest > all.largest) {
      all.largest = line.largest;
      all.stack = line.stack;
    }
  }
  std::vector<LineSum> sorted;
  sorted.reserve(by_text.size());
  for (const auto& [text, line] : by_text)
    sorted.push_back(line);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const LineSum& a, const LineSum& b) { return a.sum.bytes > b.sum.bytes; });
  LeaveOut(sorted, kTopLimit, {list, device}, report);
  sorted.resize(std::min(sorted.size(), kTopLimit));
  std::vector<TopLine>& out = list == LeftOut::List::kChurn  ? report->top_churn
                              : list == LeftOut::List::kFree ? report->free_lines
                                                             : report->top_lines;
  for (const LineSum& line : sorted) {
    TopLine& entry = out.emplace_back();
    entry = {device, "", "", line.sum.bytes, line.sum.count};
    if (budget_.IsOver())
      continue;
    const tables::FrameId frame = LineOf(line.stack);
    entry.place = FormatFrame(recording_, frame);
    entry.source = SourceOf(recording_, frame);
    Charge(entry.place);
    Charge(entry.source);
  }
}

void Tops::AppendModules(tables::DeviceId device, const DeviceSums& sums, Report* report) const {
  std::vector<ModuleEntry> entries;
  for (const auto& [name, sum] : sums.modules) {
    if (budget_.IsOver())
      return;
    ModuleEntry entry;
    entry.device = device;
    entry.module = recording_.string(tables::StringId{name});
    entry.type = recording_.string(sum.type);
    Charge(entry.module);
    Charge(entry.type);
    entry.bytes = sum.all.bytes;
    entry.count = sum.all.count;
    for (const Category category : format::kAllCategories) {
      if (const uint64_t bytes = sum.categories[static_cast<size_t>(category)]; bytes != 0)
        entry.categories.emplace_back(format::CategoryName(category), bytes);
    }
    std::stable_sort(entry.categories.begin(), entry.categories.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const ModuleEntry& a, const ModuleEntry& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.module < b.module;
  });
  std::vector<ModuleEntry> folded = FoldModules(entries);
  LeaveOut(folded, kModuleLimit, {LeftOut::List::kLayers, device}, report);
  folded.resize(std::min(folded.size(), kModuleLimit));
  std::move(folded.begin(), folded.end(), std::back_inserter(report->layers));
  entries.resize(std::min(entries.size(), kModuleLimit));
  std::move(entries.begin(), entries.end(), std::back_inserter(report->top_modules));
}

// The lines that allocated most over the whole recording, whether it was freed or not.
void Tops::AppendChurn(Report* report) const {
  const tables::Tables& tables = recording_.tables();
  std::map<tables::DeviceId, Lines> devices;
  for (const tables::SiteRow& site : tables.sites) {
    // What segments are made of is allocated once more, block by block.
    const bool segment = site.backing != 0 || site.part == Part::kUncut;
    if (site.allocated_count == 0 || site.place.value == 0 || segment)
      continue;
    const tables::DeviceId device = RowOf(tables.accounts, site.account).device;
    AddTo(&devices[device], site.place, {site.allocated_bytes, site.allocated_count});
  }
  for (const auto& [device, lines] : devices)
    AppendLines(device, lines, LeftOut::List::kChurn, report);
}

void Tops::MoveTo(Report* report) {
  for (const auto& [device, sums] : devices_) {
    const size_t first = report->categories.size();
    for (const Category category : format::kAllCategories) {
      const Sum& sum = sums.categories[static_cast<size_t>(category)];
      if (sum.bytes != 0 || sum.count != 0)
        report->categories.push_back(
            {device, format::CategoryName(category), sum.bytes, sum.count});
    }
    SortBySize(&report->categories, first);
    AppendStacks(device, sums, report);
    AppendModules(device, sums, report);
  }
  AppendChurn(report);
  // Each device's come in order; a list of all is cut at its end, wherever that is.
  SortBySize(&report->top_stacks);
  SortBySize(&report->top_lines);
  SortBySize(&report->top_churn);
  SortBySize(&report->free_lines);
  report->block_bytes = block_bytes_;
  report->block_bytes_with_category = with_category_;
  report->block_bytes_with_place = with_place_;
}

}  // namespace vramscope::query
