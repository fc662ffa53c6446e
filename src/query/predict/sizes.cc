// SPDX-License-Identifier: Apache-2.0
#include "query/predict/sizes.h"

#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "util/size_text.h"

namespace vramscope::query {
namespace {

constexpr char kSayIt[] = "say the size of each, as in `predict a.vram=4 b.vram=8`";

struct CommandWord {
  std::string name;  // of what has its value behind a `=`
  std::string value;
};

std::vector<CommandWord> WordsOf(std::string_view command) {
  std::vector<CommandWord> words;
  while (!command.empty()) {
    const size_t end = std::min(command.find(' '), command.size());
    const std::string_view word = command.substr(0, end);
    command.remove_prefix(std::min(end + 1, command.size()));
    if (word.empty())
      continue;
    const size_t equals = word.rfind('=');
    if (equals == word.npos)
      words.push_back({"", std::string(word)});
    else
      words.push_back({std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))});
  }
  return words;
}

std::string NameOf(const std::vector<CommandWord>& words, size_t at) {
  std::string name = words[at].name;
  if (name.empty() && at > 0 && words[at - 1].value.starts_with('-') && words[at - 1].name.empty())
    name = words[at - 1].value;
  name.erase(0, name.find_first_not_of('-'));
  return name.empty() ? "argument " + std::to_string(at) : name;
}

}  // namespace

std::vector<CommandNumber> DifferingNumbers(const std::vector<std::string>& commands) {
  std::vector<std::vector<CommandWord>> all;
  for (const std::string& command : commands) {
    all.push_back(WordsOf(command));
    if (all.back().size() != all.front().size())
      return {};
  }
  std::vector<CommandNumber> numbers;
  for (size_t at = 0; !all.empty() && at < all.front().size(); ++at) {
    CommandNumber number;
    std::set<uint64_t> different;
    for (const std::vector<CommandWord>& words : all) {
      const auto value = util::WholeNumber<uint64_t>(words[at].value);
      if (!value || *value == 0 || *value > kLargestSize || words[at].name != all.front()[at].name)
        break;
      number.values.push_back(*value);
      different.insert(*value);
    }
    if (number.values.size() != all.size() || different.size() < 2)
      continue;
    number.name = NameOf(all.front(), at);
    numbers.push_back(std::move(number));
  }
  return numbers;
}

util::Result<CommandNumber> FindSize(const std::vector<std::string>& commands) {
  std::vector<CommandNumber> numbers = DifferingNumbers(commands);
  if (numbers.empty()) {
    return util::Status::Error(
        std::string("no number differs between the commands of these recordings: ") + kSayIt);
  }
  if (numbers.size() > 1) {
    std::string names;
    for (const CommandNumber& number : numbers)
      names += (names.empty() ? "" : ", ") + number.name;
    return util::Status::Error("the commands of these recordings differ in several numbers (" +
                               names + "): " + kSayIt);
  }
  return std::move(numbers.front());
}

}  // namespace vramscope::query
