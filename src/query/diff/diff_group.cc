// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "query/diff/diff_parts.h"
#include "query/dimensions/fold_names.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using format::Category;
using util::FormatBytes;

// Whether most of what one side has and the other has not was allocated there, too.
bool Existed(const DiffGroup& group, const DiffSide& other) {
  size_t existed = 0;
  for (const DiffKey& key : group.keys)
    existed += other.Allocates(key) ? size_t{1} : 0;
  return existed * 2 > group.keys.size();
}

}  // namespace

uint64_t Magnitude(int64_t bytes) {
  return static_cast<uint64_t>(std::abs(bytes));
}

std::string Times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", ratio);
  return text;
}

bool IsPlural(Category category) {
  return std::string_view(CategoryWords(category)).ends_with('s');
}

void DiffGroup::Add(const Comparison& comparison, const ComparedRow& row) {
  const uint64_t bytes = Magnitude(row.delta());
  for (Bytes* const sum : {&all, &categories[row.key.category]}) {
    sum->a += row.a.bytes;
    sum->b += row.b.bytes;
    sum->moved += bytes;
  }
  keys.push_back(row.key);
  modules[comparison.words[row.key.module]] += bytes;
  places[row.key.place] += bytes;
  details[comparison.words[row.key.detail]] += bytes;
  if (row.key.parameter != 0)
    parameters.insert(row.key.parameter);
  if (row.key.tag != 0)
    tags.insert(comparison.words[row.key.tag]);
}

Category DiffGroup::MainCategory() const {
  return std::max_element(
             categories.begin(), categories.end(),
             [](const auto& x, const auto& y) { return x.second.moved < y.second.moved; })
      ->first;
}

std::string DiffGroup::Line(const Comparison& comparison) const {
  const uint32_t place = MainPlace();
  if (place == 0 || places.at(place) * 5 < all.moved * 4)
    return {};
  std::vector<DiffKey> of_line;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(of_line),
               [&](const DiffKey& key) { return key.place == place; });
  return comparison.Line(place) + CallerText(CallersOf(comparison, of_line));
}

std::string DiffGroup::OfModules() const {
  const std::string text = FoldNames(modules);
  return text.empty() ? "" : " of " + LayerWords(text);
}

std::string DiffGroup::Change(const Comparison& comparison) const {
  const Category main = MainCategory();
  const Bytes& bytes = categories.at(main);
  std::string text = CategoryWords(main) + OfModules();
  if (bytes.a != 0 && bytes.b != 0)
    return text + (bytes.delta() > 0 ? " grew by " : " shrank by ") +
           FormatBytes(Magnitude(bytes.delta()));
  const bool only_b = bytes.a == 0;
  const std::string size = FormatBytes(std::max(bytes.a, bytes.b));
  if (Existed(*this, only_b ? comparison.a : comparison.b))
    return text + ": " + size + " at the peak of " + (only_b ? "B, none at A's" : "A, none at B's");
  if (only_b)
    return text + " appeared: " + size;
  return text + (IsPlural(main) ? " are gone: " : " is gone: ") + size;
}

std::string DiffGroup::OtherCategories() const {
  const Category main = MainCategory();
  std::string text;
  for (const auto& [category, bytes] : categories) {
    if (category == main || bytes.delta() == 0)
      continue;
    text += (text.empty() ? " (" : ", ") + std::string(CategoryWords(category)) + " " +
            util::FormatSignedBytes(bytes.delta());
  }
  return text.empty() ? text : text + ")";
}

const char* CategoryWords(Category category) {
  switch (category) {
    case Category::kParameter:
      return "parameters";
    case Category::kGradient:
      return "gradients";
    case Category::kBuffer:
      return "buffers";
    case Category::kActivation:
      return "activations";
    case Category::kKvCache:
      return "the KV cache";
    case Category::kRetained:
      return "retained tensors";
    case Category::kTemporary:
      return "temporaries";
    case Category::kInput:
      return "inputs";
    case Category::kWorkspace:
      return "workspaces";
    case Category::kCached:
      return "cached memory";
    case Category::kDriver:
      return "driver memory";
    case Category::kUnknown:
      return "memory of unknown use";
    default:
      return format::CategoryName(category);
  }
}

namespace {

uint64_t ChangeOf(const DiffCaller& caller) {
  return static_cast<uint64_t>(std::abs(caller.delta_bytes()));
}

}  // namespace

std::vector<DiffCaller> CallersOf(const Comparison& comparison, const std::vector<DiffKey>& keys) {
  std::map<DiffChain, DiffCaller> chains;
  for (const DiffKey& key : keys) {
    for (const bool of_b : {false, true}) {
      const auto& callers = (of_b ? comparison.b : comparison.a).callers;
      const auto found = callers.find(key);
      if (found == callers.end())
        continue;
      for (const auto& [chain, bytes] : found->second)
        (of_b ? chains[chain].b_bytes : chains[chain].a_bytes) += bytes;
    }
  }
  for (size_t level = 0; chains.size() > 1; ++level) {
    std::map<uint32_t, DiffCaller> at;
    for (const auto& [chain, bytes] : chains) {
      DiffCaller& caller = at[level < chain.size() ? chain[level] : 0];
      caller.a_bytes += bytes.a_bytes;
      caller.b_bytes += bytes.b_bytes;
    }
    if (at.size() == 1 && at.begin()->first != 0)
      continue;
    std::vector<DiffCaller> callers;
    for (auto& [place, caller] : at) {
      caller.line = place == 0 ? "(no caller)" : comparison.Line(place);
      callers.push_back(std::move(caller));
    }
    std::stable_sort(callers.begin(), callers.end(), [](const DiffCaller& x, const DiffCaller& y) {
      return ChangeOf(x) > ChangeOf(y);
    });
    return callers;
  }
  return {};
}

std::string CallerText(const std::vector<DiffCaller>& callers) {
  uint64_t changed = 0;
  for (const DiffCaller& caller : callers)
    changed += ChangeOf(caller);
  if (callers.size() < 2 || changed == 0 || ChangeOf(callers[0]) * 5 < changed * 4)
    return {};
  return ", called from " + callers[0].line;
}

}  // namespace vramscope::query
