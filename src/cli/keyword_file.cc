// SPDX-License-Identifier: Apache-2.0
#include "cli/keyword_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "util/file.h"
#include "util/spelling.h"

// Only read, never written back.
#define TOML_ENABLE_FORMATTERS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

// Defined in keyword_assets.S.
extern "C" {
extern const char vramscope_keywords_layers[];
extern const char vramscope_keywords_layers_end[];
extern const char vramscope_keywords_data_structures[];
extern const char vramscope_keywords_data_structures_end[];
extern const char vramscope_keywords_tbd[];
extern const char vramscope_keywords_tbd_end[];
}

namespace vramscope::cli {
namespace {

using query::Dimension;
using query::KeywordDictionary;
using query::KeywordMatch;
using query::KeywordRule;

constexpr size_t kFileLimitBytes = 4u << 20;

struct BuiltIn {
  const char* name;
  const char* begin;
  const char* end;
};
const BuiltIn kBuiltIn[] = {
    {"layers", vramscope_keywords_layers, vramscope_keywords_layers_end},
    {"data-structures", vramscope_keywords_data_structures, vramscope_keywords_data_structures_end},
    {"tbd", vramscope_keywords_tbd, vramscope_keywords_tbd_end},
};

std::string ListOf(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// What a table or one of its categories sets, and a category takes over from its table.
struct Settings {
  std::vector<Dimension> over = {Dimension::kModule, Dimension::kParameter, Dimension::kTag,
                                 Dimension::kCategory};
  KeywordMatch match = KeywordMatch::kSubstring;
  bool case_sensitive = false;
};

// The line of the first character beyond ASCII that stands in neither a string nor a comment: TOML
// allows none, and toml++ 3.3 has undefined behaviour for some of them. 0: there is none.
size_t LineOfStrayCharacter(std::string_view text) {
  const std::string_view kQuotes[] = {"\"\"\"", "'''", "\"", "'"};
  size_t line = 1;
  std::string_view end;  // of the string or comment that we are in
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    line += text[i] == '\n' ? 1 : 0;
    if (!end.empty()) {
      if (end[0] == '"' && text[i] == '\\') {
        ++i;
        line += i < text.size() && text[i] == '\n' ? 1 : 0;
      } else if (rest.starts_with(end) || (end.size() == 1 && text[i] == '\n')) {
        i += end.size() - 1;
        end = {};
      }
      continue;
    }
    if (static_cast<unsigned char>(text[i]) > 0x7f)
      return line;
    for (const std::string_view quote : kQuotes) {
      if (rest.starts_with(quote)) {
        end = quote;
        i += quote.size() - 1;
        break;
      }
    }
    if (text[i] == '#')
      end = "\n";
  }
  return 0;
}

// Turns what toml++ has parsed into dictionaries; all its errors say where.
class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  util::Result<std::vector<KeywordDictionary>> Read(const toml::table& root) const;

 private:
  util::Status ErrorAt(const toml::source_region& where, const std::string& what) const {
    return util::Status::Error(
        fmt::format("{}:{}:{}: {}", name_, where.begin.line, where.begin.column, what));
  }
  util::Status CheckKeys(const toml::table& table, const std::vector<std::string>& known) const;
  util::Result<std::string> Text(const toml::table& table, const char* key) const;
  util::Result<std::vector<std::string>> Texts(const toml::node& list, const char* key) const;
  util::Status ReadSettings(const toml::table& table, Settings* settings) const;
  util::Result<KeywordRule> ReadRule(const toml::node& node, const Settings& of_dictionary) const;
  util::Result<KeywordDictionary> ReadDictionary(std::string_view name,
                                                 const toml::node& node) const;

  const std::string& name_;
};

util::Status Reader::CheckKeys(const toml::table& table,
                               const std::vector<std::string>& known) const {
  for (const auto& [key, value] : table) {
    const std::string text(key.str());
    if (std::find(known.begin(), known.end(), text) != known.end())
      continue;
    const std::string close = util::ClosestName(text, known);
    return ErrorAt(key.source(),
                   close.empty()
                       ? fmt::format("unknown key '{}'; the keys here are {}", text, ListOf(known))
                       : fmt::format("unknown key '{}': did you mean {}?", text, close));
  }
  return {};
}

// "" where the key is not there.
util::Result<std::string> Reader::Text(const toml::table& table, const char* key) const {
  const toml::node* const node = table.get(key);
  if (node == nullptr)
    return std::string();
  if (!node->is_string())
    return ErrorAt(node->source(), fmt::format("{} must be a text in quotes", key));
  std::string text = **node->as_string();
  if (text.empty())
    return ErrorAt(node->source(), fmt::format("{} is empty", key));
  return text;
}

util::Result<std::vector<std::string>> Reader::Texts(const toml::node& list,
                                                     const char* key) const {
  const std::string shape = fmt::format("{} must be a list of texts, as in [\"a\", \"b\"]", key);
  const toml::array* const array = list.as_array();
  if (array == nullptr)
    return ErrorAt(list.source(), shape);
  if (array->empty())
    return ErrorAt(list.source(), fmt::format("{} is empty", key));
  std::vector<std::string> texts;
  for (const toml::node& node : *array) {
    if (!node.is_string())
      return ErrorAt(node.source(), shape);
    texts.push_back(**node.as_string());
    // An empty keyword would be found in every name.
    if (texts.back().empty())
      return ErrorAt(node.source(), fmt::format("{} has an empty text", key));
  }
  return texts;
}

util::Status Reader::ReadSettings(const toml::table& table, Settings* settings) const {
  if (const toml::node* const over = table.get("over")) {
    const util::Result<std::vector<std::string>> names = Texts(*over, "over");
    if (!names.ok())
      return names.status();
    settings->over.clear();
    for (size_t i = 0; i < names->size(); ++i) {
      const util::Result<Dimension> dimension = query::ParseDimension((*names)[i]);
      const toml::source_region& where = over->as_array()->get(i)->source();
      if (!dimension.ok())
        return ErrorAt(where, dimension.status().message());
      if (std::find(settings->over.begin(), settings->over.end(), *dimension) !=
          settings->over.end()) {
        return ErrorAt(where, fmt::format("over names the dimension '{}' twice", (*names)[i]));
      }
      settings->over.push_back(*dimension);
    }
  }
  if (const toml::node* const node = table.get("case")) {
    if (!node->is_boolean())
      return ErrorAt(node->source(), "case must be true or false");
    settings->case_sensitive = **node->as_boolean();
  }
  const util::Result<std::string> match = Text(table, "match");
  if (!match.ok())
    return match.status();
  if (!match->empty()) {
    const util::Result<KeywordMatch> parsed = query::ParseKeywordMatch(*match);
    if (!parsed.ok())
      return ErrorAt(table.get("match")->source(), parsed.status().message());
    settings->match = *parsed;
  }
  return {};
}

util::Result<KeywordRule> Reader::ReadRule(const toml::node& node,
                                           const Settings& of_dictionary) const {
  const toml::table& table = *node.as_table();
  VRAMSCOPE_RETURN_IF_ERROR(
      CheckKeys(table, {"name", "keywords", "group", "over", "match", "case"}));
  KeywordRule rule;
  const util::Result<std::string> category = Text(table, "name");
  if (!category.ok())
    return category.status();
  if (category->empty())
    return ErrorAt(node.source(), "this category has no name: write name = \"...\"");
  rule.category = *category;
  if (rule.category == query::kOthers || rule.category == query::kUntrackable) {
    return ErrorAt(table.get("name")->source(),
                   fmt::format("'{}' is what no keyword matches: choose another name", *category));
  }
  const util::Result<std::string> group = Text(table, "group");
  if (!group.ok())
    return group.status();
  rule.group = *group;
  const toml::node* const keywords = table.get("keywords");
  if (keywords == nullptr) {
    return ErrorAt(node.source(), fmt::format("the category '{}' has no keywords: write keywords = "
                                              "[\"...\"]",
                                              *category));
  }
  util::Result<std::vector<std::string>> texts = Texts(*keywords, "keywords");
  if (!texts.ok())
    return texts.status();
  rule.keywords = std::move(*texts);
  Settings settings = of_dictionary;
  VRAMSCOPE_RETURN_IF_ERROR(ReadSettings(table, &settings));
  rule.over = settings.over;
  rule.match = settings.match;
  rule.case_sensitive = settings.case_sensitive;
  return rule;
}

util::Result<KeywordDictionary> Reader::ReadDictionary(std::string_view name,
                                                       const toml::node& node) const {
  const toml::table* const table = node.as_table();
  if (table == nullptr) {
    return ErrorAt(node.source(), fmt::format("'{}' stands outside a dictionary: begin one with "
                                              "[NAME]",
                                              name));
  }
  VRAMSCOPE_RETURN_IF_ERROR(CheckKeys(*table, {"title", "over", "match", "case", "category"}));
  KeywordDictionary dictionary;
  dictionary.name = name;
  const util::Result<std::string> title = Text(*table, "title");
  if (!title.ok())
    return title.status();
  dictionary.title = title->empty() ? dictionary.name : *title;
  Settings settings;
  VRAMSCOPE_RETURN_IF_ERROR(ReadSettings(*table, &settings));
  const toml::node* const categories = table->get("category");
  const toml::array* const list = categories == nullptr ? nullptr : categories->as_array();
  if (list == nullptr || !list->is_homogeneous(toml::node_type::table)) {
    return ErrorAt(
        categories == nullptr ? node.source() : categories->source(),
        fmt::format("the dictionary '{}' has no categories: write each below [[{}.category]]", name,
                    name));
  }
  for (const toml::node& category : *list) {
    util::Result<KeywordRule> rule = ReadRule(category, settings);
    if (!rule.ok())
      return rule.status();
    dictionary.rules.push_back(std::move(*rule));
  }
  return dictionary;
}

util::Result<std::vector<KeywordDictionary>> Reader::Read(const toml::table& root) const {
  // toml++ sorts keys; people expect their own order.
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (const auto& [key, value] : root)
    entries.emplace_back(&key, &value);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return a.first->source().begin < b.first->source().begin;
  });
  std::vector<KeywordDictionary> dictionaries;
  for (const auto& [key, value] : entries) {
    util::Result<KeywordDictionary> dictionary = ReadDictionary(key->str(), *value);
    if (!dictionary.ok())
      return dictionary.status();
    dictionaries.push_back(std::move(*dictionary));
  }
  if (dictionaries.empty()) {
    return util::Status::Error(
        fmt::format("{}: no dictionary in it: begin one with [NAME] and [[NAME.category]]", name_));
  }
  return dictionaries;
}

}  // namespace

std::string_view BuiltInKeywords(std::string_view name) {
  for (const BuiltIn& built_in : kBuiltIn) {
    if (name == built_in.name)
      return {built_in.begin, static_cast<size_t>(built_in.end - built_in.begin)};
  }
  return {};
}

std::string BuiltInKeywordNames() {
  std::vector<std::string> names;
  for (const BuiltIn& built_in : kBuiltIn)
    names.emplace_back(built_in.name);
  return ListOf(names);
}

util::Result<std::vector<KeywordDictionary>> ParseKeywords(std::string_view text,
                                                           const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark))
    text.remove_prefix(kByteOrderMark.size());
  if (const size_t line = LineOfStrayCharacter(text); line != 0) {
    return util::Status::Error(
        fmt::format("{}:{}: put names with characters beyond ASCII in quotes", name, line));
  }
  try {
    const toml::table root = toml::parse(text, name);
    return Reader(name).Read(root);
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    return util::Status::Error(
        fmt::format("{}:{}:{}: {}", name, at.line, at.column, error.description()));
  }
}

util::Result<std::vector<KeywordDictionary>> LoadKeywords(const std::vector<std::string>& names) {
  std::vector<KeywordDictionary> dictionaries;
  for (const std::string& name : names) {
    const std::string_view built_in = BuiltInKeywords(name);
    util::Result<std::string> text = std::string(built_in);
    if (built_in.empty()) {
      text = util::ReadFile(name, kFileLimitBytes);
      const bool is_path = name.find('/') != std::string::npos || name.ends_with(".toml");
      if (!text.ok() && !is_path) {
        return util::Status::Error(fmt::format(
            "--keywords: no file and no dictionary is called '{}'; those that come with "
            "vramscope are {}",
            name, BuiltInKeywordNames()));
      }
      if (!text.ok())
        return text.status();
    }
    util::Result<std::vector<KeywordDictionary>> parsed = ParseKeywords(*text, name);
    if (!parsed.ok())
      return parsed.status();
    for (KeywordDictionary& dictionary : *parsed) {
      const bool taken =
          std::any_of(dictionaries.begin(), dictionaries.end(),
                      [&](const KeywordDictionary& d) { return d.name == dictionary.name; });
      if (taken) {
        return util::Status::Error(
            fmt::format("--keywords {}: a dictionary '{}' is there already: rename one", name,
                        dictionary.name));
      }
      dictionaries.push_back(std::move(dictionary));
    }
  }
  return dictionaries;
}

}  // namespace vramscope::cli
