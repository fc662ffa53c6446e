// SPDX-License-Identifier: Apache-2.0
#include "query/core/aggregator.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "query/dimensions/dimensions.h"

namespace vramscope::query {
namespace {

constexpr char kBudgetWord[] = "bytes of names and stacks";

}  // namespace

size_t Aggregator::KeyHash::operator()(const std::vector<uint64_t>& key) const noexcept {
  uint64_t hash = 0;
  for (const uint64_t value : key)
    hash = (std::rotl(hash, 23) ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

RowKey Aggregator::KeyOfRows(const tables::Recording& recording,
                             const DimensionValues& values,
                             const ReportQuery& query) {
  std::vector<Dimension> dimensions = query.by;
  for (const ReportQuery::Where& where : query.where)
    dimensions.push_back(where.dimension);
  std::erase_if(dimensions, [](Dimension d) { return !DimensionValues::IsOfRows(d); });
  std::sort(dimensions.begin(), dimensions.end());
  dimensions.erase(std::unique(dimensions.begin(), dimensions.end()), dimensions.end());
  if (dimensions.empty())
    return {};
  return [&recording, &values, dimensions](const tables::AllocationRow& row) {
    const tables::SiteRow& site = recording.tables().sites[row.site.value];
    // Size classes and lifetimes are fewer than 16.
    uint64_t key = 0;
    for (const Dimension dimension : dimensions)
      key = key << 4 ^ values.Id(dimension, site, &row);
    return key;
  };
}

const std::string& Aggregator::TextOf(Dimension dimension, uint64_t id) {
  const auto [found, added] = text_of_[static_cast<size_t>(dimension)].try_emplace(id);
  if (added && !budget_.IsOver())
    found->second = values_.Text(dimension, id);
  return found->second;
}

bool Aggregator::Selects(const Leaf& leaf) {
  verdicts_.resize(query_.where.size());
  for (size_t i = 0; i < query_.where.size(); ++i) {
    const ReportQuery::Where& where = query_.where[i];
    const uint64_t id = values_.Id(where.dimension, leaf.site, leaf.row);
    const auto [verdict, added] = verdicts_[i].try_emplace(id);
    if (added) {
      const std::string& text = TextOf(where.dimension, id);
      (void)budget_.Charge(kBudgetWord, text.size());
      verdict->second = values_.Matches(where.dimension, id, text, where.value);
    }
    if (!verdict->second)
      return false;
  }
  return true;
}

bool Aggregator::Add(const Leaf& leaf) {
  if (!Selects(leaf))
    return false;
  std::vector<uint64_t> key{leaf.device.value, leaf.process.value};
  if (query_.by.empty()) {
    key.push_back(uint64_t{leaf.site.owner.value} << 32 | leaf.site.trigger.value);
    key.push_back(tables::ToWord(leaf.site.part) << 8 | tables::ToWord(leaf.site.category));
  }
  for (const Dimension dimension : query_.by)
    key.push_back(values_.Id(dimension, leaf.site, leaf.row));
  const auto [found, added] = rows_.try_emplace(std::move(key));
  Row& row = found->second;
  if (added && !budget_.IsOver()) {
    if (query_.by.empty())
      row.path = values_.TreePath(leaf.site);
    for (size_t i = 0; i < query_.by.size(); ++i) {
      const Dimension by = query_.by[i];
      const uint64_t id = found->first[2 + i];
      row.path.push_back(TextOf(by, id));
      row.nameless |= DimensionValues::IsName(by, id) ? 0 : 1u << i;
      row.of_segment |= DimensionValues::IsOfSegment(by, id) ? 1u << i : 0;
    }
    for (const std::string& text : row.path)
      (void)budget_.Charge(kBudgetWord, text.size());
  }
  row.sum.bytes += leaf.bytes;
  row.sum.count += leaf.count;
  return true;
}

std::vector<ReportRow> Aggregator::Take() {
  // Different numbers may have one text: two code objects of one line, two categories of one part.
  std::map<std::tuple<uint64_t, uint64_t, std::vector<std::string>, uint32_t, uint32_t>, Sum>
      merged;
  for (auto& [key, row] : rows_) {
    Sum& sum = merged[{key[0], key[1], std::move(row.path), row.nameless, row.of_segment}];
    sum.bytes += row.sum.bytes;
    sum.count += row.sum.count;
  }
  rows_.clear();
  for (auto& texts : text_of_)
    texts.clear();
  std::vector<ReportRow> rows;
  rows.reserve(merged.size());
  while (!merged.empty()) {
    auto node = merged.extract(merged.begin());
    auto& key = node.key();
    const Sum& sum = node.mapped();
    ReportRow row;
    row.device = tables::DeviceId{static_cast<uint32_t>(std::get<0>(key))};
    if (const uint64_t process = std::get<1>(key); process != 0)
      row.pid = recording_.tables().processes[process].pid;
    row.path = std::move(std::get<2>(key));
    row.nameless = std::get<3>(key);
    row.of_segment = std::get<4>(key);
    row.bytes = sum.bytes;
    row.count = sum.count;
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ReportRow& a, const ReportRow& b) {
    return a.device != b.device ? a.device < b.device : a.bytes > b.bytes;
  });
  return rows;
}

void CutRows(uint64_t top, std::vector<ReportRow>* rows) {
  if (top == 0)
    return;
  // A path is whole: what several processes have of it is one entry, a row for each of them.
  using Path = std::pair<tables::DeviceId, std::vector<std::string>>;
  std::map<Path, uint64_t> bytes_of;
  for (const ReportRow& row : *rows)
    bytes_of[{row.device, row.path}] += row.bytes;
  std::map<tables::DeviceId, std::vector<std::pair<uint64_t, const Path*>>> devices;
  for (const auto& [path, bytes] : bytes_of)
    devices[path.first].emplace_back(bytes, &path);
  std::set<const Path*> kept;
  for (auto& [device, paths] : devices) {
    std::stable_sort(paths.begin(), paths.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (size_t i = 0; i < std::min<size_t>(top, paths.size()); ++i)
      kept.insert(paths[i].second);
  }
  std::vector<ReportRow> cut;
  std::optional<ReportRow> rest;
  const auto end_device = [&] {
    if (rest)
      cut.push_back(std::move(*rest));
    rest.reset();
  };
  for (size_t i = 0; i < rows->size(); ++i) {
    ReportRow& row = (*rows)[i];
    if (i > 0 && (*rows)[i - 1].device != row.device)
      end_device();
    const auto found = bytes_of.find({row.device, row.path});
    if (kept.contains(&found->first)) {
      // A copy: the next row's device is compared with this one's.
      cut.push_back(row);
      continue;
    }
    if (!rest) {
      rest.emplace();
      rest->device = row.device;
      rest->path = {kRestRow};
    }
    rest->bytes += row.bytes;
    rest->count += row.count;
  }
  end_device();
  *rows = std::move(cut);
}

}  // namespace vramscope::query
