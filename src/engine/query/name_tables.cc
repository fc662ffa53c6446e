// SPDX-License-Identifier: Apache-2.0
#include "engine/query/name_tables.h"

#include <algorithm>
#include <vector>

namespace vramscope::engine {
namespace {

// Of each device: more than any model's layers that a person looks at.
constexpr size_t kModuleLimit = 1000;

}  // namespace

bool NameTables::HasPlace(const Leaf& leaf) {
  if (naming_.Parameter(naming_.Of(leaf)) != 0)
    return true;
  return trace_.frame(frames_.Innermost(PlaceOf(leaf, naming_.facts()))).line != 0;
}

void NameTables::Add(const Leaf& leaf) {
  Sum& category = categories_[leaf.device][static_cast<size_t>(leaf.category)];
  category.bytes += leaf.bytes;
  category.count += leaf.count;
  const Named named = naming_.Of(leaf);
  const uint32_t module = naming_.Module(named);
  if (module != 0) {
    ModuleSum& sum = modules_[leaf.device][module];
    sum.all.bytes += leaf.bytes;
    sum.all.count += leaf.count;
    sum.categories[static_cast<size_t>(leaf.category)] += leaf.bytes;
    sum.type = std::max(sum.type, naming_.ModuleType(named));
  }
  if (!leaf.is_block)
    return;
  block_bytes_ += leaf.bytes;
  if (leaf.category != Category::kUnknown)
    with_category_ += leaf.bytes;
  if (module != 0 || HasPlace(leaf))
    with_place_ += leaf.bytes;
}

void NameTables::MoveTo(Report& report) {
  for (const auto& [device, sums] : categories_) {
    const size_t first = report.categories.size();
    for (size_t i = 0; i < kCategories; ++i) {
      if (sums[i].bytes == 0 && sums[i].count == 0)
        continue;
      report.categories.push_back(
          {device, CategoryName(static_cast<Category>(i)), sums[i].bytes, sums[i].count});
    }
    std::stable_sort(report.categories.begin() + static_cast<ptrdiff_t>(first),
                     report.categories.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  }
  for (const auto& [device, sums] : modules_) {
    std::vector<ModuleEntry> entries;
    for (const auto& [module, sum] : sums) {
      ModuleEntry entry;
      entry.device = device;
      entry.module = naming_.text(module);
      entry.type = naming_.text(sum.type);
      entry.bytes = sum.all.bytes;
      entry.count = sum.all.count;
      for (size_t i = 0; i < kCategories; ++i) {
        if (sum.categories[i] != 0)
          entry.categories.emplace_back(CategoryName(static_cast<Category>(i)), sum.categories[i]);
      }
      std::stable_sort(entry.categories.begin(), entry.categories.end(),
                       [](const auto& a, const auto& b) { return a.second > b.second; });
      entries.push_back(std::move(entry));
    }
    std::sort(entries.begin(), entries.end(), [](const ModuleEntry& a, const ModuleEntry& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.module < b.module;
    });
    entries.resize(std::min(entries.size(), kModuleLimit));
    std::move(entries.begin(), entries.end(), std::back_inserter(report.top_modules));
  }
  report.block_bytes = block_bytes_;
  report.block_bytes_with_category = with_category_;
  report.block_bytes_with_place = with_place_;
}

}  // namespace vramscope::engine
