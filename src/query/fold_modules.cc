// SPDX-License-Identifier: Apache-2.0
#include "query/fold_modules.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

namespace vramscope::query {
namespace {

constexpr size_t kMaxDigits = 9;
// "[0-3,5,8-11,14,...]": beyond that nobody reads on.
constexpr size_t kMaxRanges = 4;
// Entries come by size, so those of a size are near each other.
constexpr size_t kMaxLooks = 8;

// A name without its numbers, and those: "blocks.3.attn" is "blocks.#.attn" and 3.
struct NumberedName {
  std::string shape;
  std::vector<uint32_t> numbers;
};

// A number counts layers where it is a whole part of the path, or ends one behind an underline.
NumberedName SplitNumbers(std::string_view name) {
  NumberedName split;
  size_t at = 0;
  while (at < name.size()) {
    const size_t end = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    size_t digits = part.size();
    while (digits > 0 && part[digits - 1] >= '0' && part[digits - 1] <= '9')
      --digits;
    const size_t length = part.size() - digits;
    const bool counts =
        length > 0 && length <= kMaxDigits && (digits == 0 || part[digits - 1] == '_');
    split.shape += part.substr(0, counts ? digits : part.size());
    if (counts) {
      uint32_t number = 0;
      std::from_chars(part.data() + digits, part.data() + part.size(), number);
      split.numbers.push_back(number);
      split.shape += '#';
    }
    if (end < name.size())
      split.shape += '.';
    at = end + 1;
  }
  return split;
}

// "3", "[0-11]", "[0,2-5]".
std::string RangeText(const std::set<uint32_t>& numbers) {
  if (numbers.size() == 1)
    return std::to_string(*numbers.begin());
  std::string text = "[";
  size_t ranges = 0;
  for (auto number = numbers.begin(); number != numbers.end(); ++ranges) {
    text += text.size() > 1 ? "," : "";
    if (ranges == kMaxRanges) {
      text += "...";
      break;
    }
    const uint32_t first = *number;
    uint32_t last = first;
    while (++number != numbers.end() && *number == last + 1)
      ++last;
    text += std::to_string(first);
    if (last != first)
      text += (last == first + 1 ? "," : "-") + std::to_string(last);
  }
  return text + "]";
}

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
