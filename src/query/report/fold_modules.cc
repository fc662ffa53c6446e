// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "query/dimensions/fold_names.h"
#include "query/report/report_parts.h"

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

// A group stores only its shape and a pointer to its first entry, since names are long and many.
class Group {
 public:
  Group(const ModuleEntry& entry, NumberedName name)
      : first_(&entry),
        bytes_(entry.bytes),
        count_(entry.count),
        categories_(entry.categories),
        shape_(std::move(name.shape)) {
    for (const uint32_t number : name.numbers)
      numbers_.push_back({number});
  }

  const ModuleEntry& first() const { return *first_; }
  const std::string& shape() const { return shape_; }

  void Add(const ModuleEntry& entry, const NumberedName& name) {
    bytes_ += entry.bytes;
    count_ += entry.count;
    ++modules_;
    for (size_t i = 0; i < categories_.size(); ++i)
      categories_[i].second += entry.categories[i].second;
    for (size_t i = 0; i < numbers_.size(); ++i)
      numbers_[i].insert(name.numbers[i]);
  }

  ModuleEntry Folded() const {
    if (modules_ == 1)
      return *first_;
    ModuleEntry folded{.device = first_->device,
                       .module = {},
                       .type = first_->type,
                       .bytes = bytes_,
                       .count = count_,
                       .categories = categories_,
                       .modules = modules_};
    size_t number = 0;
    for (const char c : shape_)
      folded.module += c == '#' ? RangeText(numbers_[number++]) : std::string(1, c);
    return folded;
  }

 private:
  const ModuleEntry* first_;
  uint64_t bytes_;
  uint64_t count_;
  uint64_t modules_ = 1;
  std::vector<std::pair<std::string, uint64_t>> categories_;
  std::string shape_;
  std::vector<std::set<uint32_t>> numbers_;
};

}  // namespace

std::vector<ModuleEntry> FoldModules(const std::vector<ModuleEntry>& entries) {
  std::deque<Group> groups;  // does not move shapes, which `alike` points to, when it grows
  std::map<std::tuple<uint32_t, std::string_view, std::string_view>, std::vector<Group*>> alike;
  for (const ModuleEntry& entry : entries) {
    NumberedName name = SplitNumbers(entry.module);
    // A name that has the mark itself stays as it is.
    if (name.numbers.empty() || entry.module.find('#') != std::string::npos) {
      groups.emplace_back(entry, NumberedName{});
      continue;
    }
    const auto same_shape = alike.find({entry.device.value, name.shape, entry.type});
    if (same_shape != alike.end()) {
      const std::vector<Group*>& looks = same_shape->second;
      const auto until = looks.rbegin() + static_cast<ptrdiff_t>(std::min(looks.size(), kMaxLooks));
      const auto group = std::find_if(
          looks.rbegin(), until, [&](const Group* one) { return IsAlike(one->first(), entry); });
      if (group != until) {
        (*group)->Add(entry, name);
        continue;
      }
    }
    Group& added = groups.emplace_back(entry, std::move(name));
    alike[{entry.device.value, added.shape(), entry.type}].push_back(&added);
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
