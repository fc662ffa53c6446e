// SPDX-License-Identifier: Apache-2.0
#include "query/dimensions/fold_names.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace vramscope::query {
namespace {

// What is named by fewer than this is shown by name.
constexpr size_t kMostTails = 3;

constexpr size_t kMaxDigits = 9;
// "[0-3,5,8-11,14,...]": more would not be read.
constexpr size_t kMaxRanges = 4;

// Names that differ only from their first number on.
struct Family {
  std::string before;  // with the dot
  std::set<uint32_t> numbers;
  std::set<std::string> tails;  // with their dots
  uint64_t weight = 0;

  std::string Text() const {
    if (numbers.empty())
      return before;
    std::string text = before + RangeText(numbers);
    if (tails.size() == 1) {
      text += *tails.begin();
    } else if (tails.size() <= kMostTails && !tails.contains("")) {
      text += ".{";
      for (const std::string& tail : tails)
        text += (text.ends_with('{') ? "" : ",") + tail.substr(1);
      text += "}";
    }
    if (numbers.size() > 1)
      text += " x" + std::to_string(numbers.size());
    return text;
  }
};

// "Linear#2.bias": a model's class, its number among those of its class (1: it has none), the rest
// with its dot.
struct ModelName {
  std::string_view type;
  uint32_t number = 1;
  std::string_view tail;
};

ModelName SplitModel(std::string_view name) {
  const size_t end = std::min(name.find('.'), name.size());
  const std::string_view root = name.substr(0, end);
  const size_t mark = std::min(root.find('#'), root.size());
  ModelName model{root.substr(0, mark), 1, name.substr(end)};
  if (root.size() - mark <= kMaxDigits)
    std::from_chars(root.data() + std::min(mark + 1, root.size()), root.data() + root.size(),
                    model.number);
  return model;
}

}  // namespace

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

// Attributes of a model begin with a small letter or are numbers.
std::string_view RepeatedLayerOf(std::string_view module) {
  for (size_t begin = 0; begin < module.size();) {
    const size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view part = module.substr(begin, end - begin);
    if (!part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char letter) {
          return std::isdigit(letter) != 0;
        }))
      return module.substr(0, end);
    begin = end + 1;
  }
  return {};
}

std::string_view ModelOf(std::string_view layer) {
  const std::string_view root = layer.substr(0, layer.find('.'));
  const bool is_class = !root.empty() && root[0] >= 'A' && root[0] <= 'Z';
  return is_class || root.find('#') != std::string_view::npos ? root : std::string_view{};
}

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

std::string LayerWords(const std::string& name) {
  const bool range = name.starts_with('[');
  if (!range && (name.empty() || name[0] < '0' || name[0] > '9'))
    return name;
  return (range || name.find(" and ") != std::string::npos ? "layers " : "layer ") + name;
}

std::string FoldNames(const std::map<std::string, uint64_t>& weights) {
  std::map<std::string, Family> families;
  // Classes with several models: "Linear", "Linear#2".
  std::set<std::string_view> numbered;
  for (const auto& [name, weight] : weights) {
    if (const ModelName model = SplitModel(name); model.number > 1)
      numbered.insert(model.type);
  }
  uint64_t total = 0;
  for (const auto& [name, weight] : weights) {
    if (name.empty())
      continue;
    total += weight;
    if (const ModelName model = SplitModel(name); numbered.contains(model.type)) {
      Family& family = families[std::string(model.type) + "#"];
      family.before = std::string(model.type) + "#";
      family.numbers.insert(model.number);
      family.tails.insert(std::string(model.tail));
      family.weight += weight;
      continue;
    }
    const NumberedName split = SplitNumbers(name);
    const size_t mark = split.numbers.empty() ? std::string::npos : split.shape.find('#');
    Family& family = families[split.shape.substr(0, mark)];
    family.before = split.shape.substr(0, mark);
    if (mark != std::string::npos) {
      family.numbers.insert(split.numbers[0]);
      family.tails.insert(split.shape.substr(mark + 1));
    }
    family.weight += weight;
  }
  const auto main = std::max_element(families.begin(), families.end(), [](auto& a, auto& b) {
    return a.second.weight < b.second.weight;
  });
  if (main == families.end())
    return {};
  std::string text = main->second.Text();
  // A twentieth of the bytes does not deserve a name.
  if (families.size() > 1 && main->second.weight < total - total / 20)
    text += " and " + std::to_string(families.size() - 1) + " more";
  return text;
}

}  // namespace vramscope::query
