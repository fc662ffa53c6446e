// SPDX-License-Identifier: Apache-2.0
#include "query/fold_modules.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "query/fold_names.h"

namespace vramscope::query {
namespace {

// Entries come by size, so those of a size are near each other.
constexpr size_t kMaxLooks = 8;

bool IsAlike(const ModuleEntry& a, const ModuleEntry& b) {
  const uint64_t difference = a.bytes > b.bytes ? a.bytes - b.bytes : b.bytes - a.bytes;
  return difference <= a.bytes / 100 &&
         std::equal(a.categories.begin(), a.categories.end(), b.categories.begin(),
                    b.categories.end(),
                    [](const auto& one, const auto& other) { return one.first == other.first; });
}

class Group {
 public:
  Group(const ModuleEntry& entry, NumberedName name) : first_(entry), sum_(entry) {
    shape_ = std::move(name.shape);
    for (const uint32_t number : name.numbers)
      numbers_.push_back({number});
  }

  const ModuleEntry& first() const { return first_; }

  void Add(const ModuleEntry& entry, const NumberedName& name) {
    sum_.bytes += entry.bytes;
    sum_.count += entry.count;
    ++sum_.modules;
    for (size_t i = 0; i < sum_.categories.size(); ++i)
      sum_.categories[i].second += entry.categories[i].second;
    for (size_t i = 0; i < numbers_.size(); ++i)
      numbers_[i].insert(name.numbers[i]);
  }

  ModuleEntry Folded() const {
    ModuleEntry folded = sum_;
    if (folded.modules == 1)
      return folded;
    folded.module.clear();
    size_t number = 0;
    for (const char c : shape_)
      folded.module += c == '#' ? RangeText(numbers_[number++]) : std::string(1, c);
    return folded;
  }

 private:
  ModuleEntry first_;
  ModuleEntry sum_;
  std::string shape_;
  std::vector<std::set<uint32_t>> numbers_;
};

}  // namespace

std::vector<ModuleEntry> FoldModules(const std::vector<ModuleEntry>& entries) {
  std::vector<Group> groups;
  std::map<std::tuple<uint32_t, std::string, std::string>, std::vector<size_t>> alike;
  for (const ModuleEntry& entry : entries) {
    NumberedName name = SplitNumbers(entry.module);
    // A name that has the mark itself stays as it is.
    if (name.numbers.empty() || entry.module.find('#') != std::string::npos) {
      groups.emplace_back(entry, NumberedName{});
      continue;
    }
    std::vector<size_t>& of_shape = alike[{entry.device.value, name.shape, entry.type}];
    const auto until =
        of_shape.rbegin() + static_cast<ptrdiff_t>(std::min(of_shape.size(), kMaxLooks));
    const auto group = std::find_if(of_shape.rbegin(), until,
                                    [&](size_t i) { return IsAlike(groups[i].first(), entry); });
    if (group != until) {
      groups[*group].Add(entry, name);
      continue;
    }
    of_shape.push_back(groups.size());
    groups.emplace_back(entry, std::move(name));
  }
  std::vector<ModuleEntry> folded;
  for (const Group& group : groups)
    folded.push_back(group.Folded());
  std::stable_sort(folded.begin(), folded.end(), [](const ModuleEntry& a, const ModuleEntry& b) {
    return a.device != b.device ? a.device < b.device : a.bytes > b.bytes;
  });
  return folded;
}

}  // namespace vramscope::query
