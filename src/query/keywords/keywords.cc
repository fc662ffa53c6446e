// SPDX-License-Identifier: Apache-2.0
#include "query/keywords/keywords.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "query/dimensions/dimensions.h"

namespace vramscope::query {
namespace {

// The report with empty names where a row has none: a keyword "none" must not collect them.
util::Result<Report> MakeNamesReport(const tables::Recording& recording, const ReportQuery& query) {
  VRAMSCOPE_ASSIGN_OR_RETURN(Report report, MakeReport(recording, query));
  for (ReportRow& row : report.rows) {
    for (size_t i = 0; i < row.path.size(); ++i) {
      if ((row.nameless >> i & 1) != 0)
        row.path[i].clear();
    }
  }
  return report;
}

// A value that tells a person something.
bool IsName(Dimension dimension, const std::string& text) {
  static const std::string kNoCategory = format::CategoryName(format::Category::kUnknown);
  return !text.empty() && (dimension != Dimension::kCategory || text != kNoCategory);
}

// A line names better than a whole stack does.
bool IsStack(Dimension dimension) {
  return dimension == Dimension::kPython || dimension == Dimension::kNative;
}

std::string Lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// `*` is any text, `?` any byte; brackets are themselves, since names have them ("blocks[3]").
// Backtracks to the last star alone, so that no pattern takes long.
bool MatchesGlob(std::string_view pattern, std::string_view text) {
  size_t at = 0;
  size_t text_at = 0;
  size_t star = std::string_view::npos;
  size_t after_star = 0;
  while (text_at < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      after_star = text_at;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == text[text_at])) {
      ++at;
      ++text_at;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      text_at = ++after_star;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*')
    ++at;
  return at == pattern.size();
}

bool Matches(KeywordMatch match, std::string_view keyword, std::string_view text) {
  switch (match) {
    case KeywordMatch::kSubstring:
      return text.find(keyword) != std::string_view::npos;
    case KeywordMatch::kExact:
      return text == keyword;
    case KeywordMatch::kPrefix:
      return text.starts_with(keyword);
    case KeywordMatch::kGlob:
      return MatchesGlob(keyword, text);
  }
  return false;
}

void AddTo(KeywordEntry& entry, const ReportRow& row) {
  entry.bytes += row.bytes;
  entry.rows += 1;
  entry.count += row.count;
}

template <class Item>
void SortBySize(std::vector<Item>& items) {
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.bytes > b.bytes; });
}

// Keeps the `top` largest; what the others have becomes one item, which `merge` adds them to.
template <class Item, class Merge>
void Cut(std::vector<Item>& items, uint64_t top, Item rest, const Merge& merge) {
  SortBySize(items);
  if (top == 0 || items.size() <= top)
    return;
  for (size_t i = top; i < items.size(); ++i)
    merge(rest, items[i]);
  items.resize(top);
  items.push_back(std::move(rest));
}

// Sorts the rows of one dictionary into its categories. Rows share their names, so that each name
// is compared with the keywords once.
class Classifier {
 public:
  explicit Classifier(const KeywordDictionary& dictionary)
      : dictionary_(dictionary), dimensions_(DimensionsOf(dictionary)) {
    own_dimensions_ = dimensions_.size();
    // What has no name of its own is called by its line.
    if (std::find(dimensions_.begin(), dimensions_.end(), Dimension::kLine) == dimensions_.end())
      dimensions_.push_back(Dimension::kLine);
    for (const KeywordRule& rule : dictionary.rules) {
      const auto found =
          std::find_if(categories_.begin(), categories_.end(),
                       [&](const KeywordCategory& c) { return c.name == rule.category; });
      category_of_.push_back(static_cast<size_t>(found - categories_.begin()));
      if (found == categories_.end()) {
        categories_.push_back({.name = rule.category, .group = rule.group, .entries = {}});
      }
      std::vector<std::string> keywords = rule.keywords;
      if (!rule.case_sensitive)
        std::transform(keywords.begin(), keywords.end(), keywords.begin(), Lower);
      keywords_.push_back(std::move(keywords));
    }
    rules_of_.resize(dimensions_.size());
  }

  const std::vector<Dimension>& dimensions() const { return dimensions_; }

  KeywordTable MakeTable(const std::vector<ReportRow>& rows, tables::DeviceId device, uint64_t top);

 private:
  // A rule, and the dimension whose name it matches.
  struct Hit {
    size_t rule = 0;
    size_t dimension = 0;
  };

  const std::vector<size_t>& RulesOf(size_t dimension, const std::string& text);
  std::vector<Hit> HitsOf(const ReportRow& row);
  size_t NameOf(const ReportRow& row) const;
  size_t NameOf(const ReportRow& row, const std::vector<Hit>& hits) const;
  std::vector<ReportRow> RowsOf(const std::vector<ReportRow>& rows, tables::DeviceId device);
  void AddOverlap(const ReportRow& row, const std::vector<Hit>& hits, KeywordTable& table) const;
  void AddGroups(KeywordTable& table) const;

  const KeywordDictionary& dictionary_;
  std::vector<Dimension> dimensions_;
  size_t own_dimensions_ = 0;                       // the first of them: the dictionary's
  std::vector<KeywordCategory> categories_;         // empty ones, in the order of the rules
  std::vector<size_t> category_of_;                 // by rule
  std::vector<std::vector<std::string>> keywords_;  // by rule; in lower case where that is ignored
  std::vector<std::unordered_map<std::string, std::vector<size_t>>> rules_of_;  // by dimension
};

const std::vector<size_t>& Classifier::RulesOf(size_t dimension, const std::string& text) {
  const auto [found, added] = rules_of_[dimension].try_emplace(text);
  if (!added || text.empty())
    return found->second;
  const std::string lower = Lower(text);
  for (size_t i = 0; i < dictionary_.rules.size(); ++i) {
    const KeywordRule& rule = dictionary_.rules[i];
    if (std::find(rule.over.begin(), rule.over.end(), dimensions_[dimension]) == rule.over.end())
      continue;
    const std::string& subject = rule.case_sensitive ? text : lower;
    const bool any = std::any_of(
        keywords_[i].begin(), keywords_[i].end(),
        [&](const std::string& keyword) { return Matches(rule.match, keyword, subject); });
    if (any)
      found->second.push_back(i);
  }
  return found->second;
}

// In the order of the rules; of one rule, the first dimension that it lists and matches.
std::vector<Classifier::Hit> Classifier::HitsOf(const ReportRow& row) {
  std::vector<Hit> hits;
  for (size_t dimension = 0; dimension < dimensions_.size(); ++dimension) {
    for (const size_t rule : RulesOf(dimension, row.path[dimension]))
      hits.push_back({rule, dimension});
  }
  const auto place = [&](const Hit& hit) {
    const std::vector<Dimension>& over = dictionary_.rules[hit.rule].over;
    return std::find(over.begin(), over.end(), dimensions_[hit.dimension]) - over.begin();
  };
  std::sort(hits.begin(), hits.end(), [&](const Hit& a, const Hit& b) {
    return a.rule != b.rule ? a.rule < b.rule : place(a) < place(b);
  });
  const auto is_fallback = [&](const Hit& hit) { return dictionary_.rules[hit.rule].fallback; };
  if (std::all_of(hits.begin(), hits.end(), is_fallback))
    hits.resize(std::min<size_t>(hits.size(), 1));
  else
    std::erase_if(hits, is_fallback);
  return hits;
}

// The dimension that a row without a category is called by; past the last where it has no name.
size_t Classifier::NameOf(const ReportRow& row) const {
  size_t stack = dimensions_.size();
  for (size_t dimension = 0; dimension < dimensions_.size(); ++dimension) {
    if (!IsName(dimensions_[dimension], row.path[dimension]))
      continue;
    if (!IsStack(dimensions_[dimension]))
      return dimension;
    stack = std::min(stack, dimension);
  }
  return stack;
}

// The same of a row with these hits: by the name that matched, or the line for a stack.
size_t Classifier::NameOf(const ReportRow& row, const std::vector<Hit>& hits) const {
  if (hits.empty())
    return NameOf(row);
  const auto line = static_cast<size_t>(
      std::find(dimensions_.begin(), dimensions_.end(), Dimension::kLine) - dimensions_.begin());
  const size_t matched = hits[0].dimension;
  return IsStack(dimensions_[matched]) && !row.path[line].empty() ? line : matched;
}

// A device's rows. Lines tell apart only those that are called by them.
std::vector<ReportRow> Classifier::RowsOf(const std::vector<ReportRow>& rows,
                                          tables::DeviceId device) {
  std::vector<ReportRow> found;
  std::map<std::pair<std::optional<uint32_t>, std::vector<std::string>>, size_t> known;
  for (const ReportRow& row : rows) {
    if (row.device != device)
      continue;
    found.push_back(row);
    if (NameOf(row, HitsOf(row)) >= own_dimensions_ || own_dimensions_ == dimensions_.size())
      continue;
    std::vector<std::string>& path = found.back().path;
    path.back().clear();
    const auto [place, added] = known.try_emplace({row.pid, path}, found.size() - 1);
    if (added)
      continue;
    found[place->second].bytes += row.bytes;
    found[place->second].count += row.count;
    found.pop_back();
  }
  return found;
}

void Classifier::AddOverlap(const ReportRow& row,
                            const std::vector<Hit>& hits,
                            KeywordTable& table) const {
  KeywordOverlap overlap;
  std::set<size_t> seen;
  for (const Hit& hit : hits) {
    const size_t category = category_of_[hit.rule];
    if (seen.insert(category).second)
      overlap.categories.push_back(categories_[category].name);
  }
  if (seen.size() < 2)
    return;
  for (size_t i = 0; i < own_dimensions_; ++i) {
    if (IsName(dimensions_[i], row.path[i]))
      overlap.names.push_back(row.path[i]);
  }
  overlap.bytes = row.bytes;
  overlap.count = row.count;
  table.overlap_rows += 1;
  table.overlap_bytes += row.bytes;
  table.overlaps.push_back(std::move(overlap));
}

void Classifier::AddGroups(KeywordTable& table) const {
  for (const KeywordCategory& ordered : categories_) {
    if (ordered.group.empty())
      continue;
    const auto known = std::find_if(table.groups.begin(), table.groups.end(),
                                    [&](const KeywordGroup& g) { return g.name == ordered.group; });
    if (known == table.groups.end())
      table.groups.push_back({.name = ordered.group});
  }
  for (KeywordGroup& group : table.groups) {
    for (const KeywordCategory& category : table.categories) {
      if (category.group != group.name)
        continue;
      group.bytes += category.bytes;
      group.rows += category.rows;
      group.count += category.count;
    }
  }
}

KeywordTable Classifier::MakeTable(const std::vector<ReportRow>& rows,
                                   tables::DeviceId device,
                                   uint64_t top) {
  KeywordTable table;
  table.device = device;
  table.categories = categories_;
  table.others.name = kOthers;
  const size_t others = categories_.size();
  // By category, dimension and name; rows without any name share one entry.
  std::map<std::tuple<size_t, size_t, std::string>, KeywordEntry> entries;
  for (const ReportRow& row : RowsOf(rows, device)) {
    table.row_bytes += row.bytes;
    const std::vector<Hit> hits = HitsOf(row);
    const size_t category = hits.empty() ? others : category_of_[hits[0].rule];
    const size_t dimension = NameOf(row, hits);
    const bool named = dimension < dimensions_.size();
    KeywordEntry& entry = entries[{category, dimension, named ? row.path[dimension] : ""}];
    if (entry.rows == 0) {
      entry.dimension = named ? DimensionName(dimensions_[dimension]) : "";
      entry.name = named ? row.path[dimension] : "(no name)";
    }
    AddTo(entry, row);
    AddOverlap(row, hits, table);
  }
  for (auto& [key, entry] : entries) {
    const size_t at = std::get<0>(key);
    KeywordCategory& category = at == others ? table.others : table.categories[at];
    category.bytes += entry.bytes;
    category.rows += entry.rows;
    category.count += entry.count;
    category.entries.push_back(std::move(entry));
  }
  AddGroups(table);
  SortBySize(table.categories);
  const auto merge_entry = [](KeywordEntry& rest, const KeywordEntry& entry) {
    rest.bytes += entry.bytes;
    rest.rows += entry.rows;
    rest.count += entry.count;
  };
  for (KeywordCategory& category : table.categories)
    Cut(category.entries, top, KeywordEntry{.dimension = "", .name = kRest}, merge_entry);
  Cut(table.others.entries, top, KeywordEntry{.dimension = "", .name = kRest}, merge_entry);
  Cut(table.overlaps, top, KeywordOverlap{.names = {kRest}, .categories = {}},
      [](KeywordOverlap& rest, const KeywordOverlap& overlap) {
        rest.bytes += overlap.bytes;
        rest.count += overlap.count;
      });
  return table;
}

util::Result<std::map<tables::DeviceId, uint64_t>> ResolveExpected(
    const std::vector<ExpectedSum>& sums,
    const std::vector<DeviceReport>& devices) {
  std::map<tables::DeviceId, uint64_t> expected;
  std::string marks;
  std::vector<const DeviceReport*> gpus;
  for (const DeviceReport& device : devices) {
    marks += (marks.empty() ? "" : ", ") + DeviceMark(device.kind, device.index);
    if (device.kind == tables::DeviceKind::kGpu)
      gpus.push_back(&device);
  }
  for (const ExpectedSum& sum : sums) {
    const DeviceReport* device = nullptr;
    if (sum.device.empty()) {
      if (gpus.size() == 1)
        device = gpus[0];
      else if (devices.size() == 1)
        device = devices.data();
      if (device == nullptr) {
        return util::Status::Error("--expected-sum: this recording has several devices (" + marks +
                                   "): select one, as in " +
                                   DeviceMark(devices[0].kind, devices[0].index) + "=SIZE");
      }
    } else {
      const auto found = std::find_if(devices.begin(), devices.end(), [&](const DeviceReport& d) {
        return DeviceMark(d.kind, d.index) == sum.device;
      });
      if (found == devices.end()) {
        return util::Status::Error("--expected-sum: this recording has no device '" + sum.device +
                                   "'; it has: " + marks);
      }
      device = &*found;
    }
    expected[device->device] = sum.bytes;
  }
  return expected;
}

std::vector<std::string> FramesOf(const std::string& collapsed) {
  std::vector<std::string> frames;
  if (collapsed.empty())
    return frames;
  for (size_t begin = 0; begin <= collapsed.size();) {
    const size_t end = std::min(collapsed.find(';', begin), collapsed.size());
    frames.push_back(collapsed.substr(begin, end - begin));
    begin = end + 1;
  }
  std::reverse(frames.begin(), frames.end());
  return frames;
}

// The frames to show for a row: the Python stack, or without one the native stack from the line
// outwards. Frames further in are allocators.
std::vector<std::string> CallersOf(const std::string& line,
                                   const std::string& python,
                                   const std::string& native) {
  if (!python.empty() || line.empty())
    return FramesOf(python.empty() ? native : python);
  std::vector<std::string> frames = FramesOf(native);
  const auto at = std::find(frames.begin(), frames.end(), line);
  if (at == frames.end())
    return {line};
  frames.erase(frames.begin(), at);
  return frames;
}

util::Status AddUnnamed(const tables::Recording& recording,
                        const KeywordQuery& query,
                        KeywordReport& out) {
  const std::vector<Dimension> names = {Dimension::kModule, Dimension::kParameter, Dimension::kTag,
                                        Dimension::kCategory};
  ReportQuery ask;
  ask.at = query.at;
  ask.where = query.where;
  ask.own = query.own;
  ask.by = names;
  for (const Dimension dimension : {Dimension::kPython, Dimension::kNative, Dimension::kLine})
    ask.by.push_back(dimension);
  VRAMSCOPE_ASSIGN_OR_RETURN(Report report, MakeNamesReport(recording, ask));
  std::map<std::pair<tables::DeviceId, std::pair<std::string, std::vector<std::string>>>,
           UnnamedStack>
      stacks;
  for (const ReportRow& row : report.rows) {
    bool named = false;
    for (size_t i = 0; i < names.size(); ++i)
      named = named || IsName(names[i], row.path[i]);
    if (named)
      continue;
    const std::string& line = row.path[names.size() + 2];
    std::vector<std::string> frames =
        CallersOf(line, row.path[names.size()], row.path[names.size() + 1]);
    UnnamedStack& stack = stacks[{row.device, {line, frames}}];
    if (stack.count == 0 && stack.bytes == 0) {
      stack.device = row.device;
      stack.line = line;
      stack.frames = std::move(frames);
    }
    stack.bytes += row.bytes;
    stack.count += row.count;
  }
  for (const DeviceReport& device : report.devices) {
    std::vector<UnnamedStack> of_device;
    for (auto& [key, stack] : stacks) {
      if (key.first == device.device && stack.bytes > 0)
        of_device.push_back(std::move(stack));
    }
    UnnamedStack rest;
    rest.device = device.device;
    rest.frames = {kRest};
    Cut(of_device, query.top, std::move(rest), [](UnnamedStack& sum, const UnnamedStack& stack) {
      sum.bytes += stack.bytes;
      sum.count += stack.count;
    });
    std::move(of_device.begin(), of_device.end(), std::back_inserter(out.unnamed));
  }
  return {};
}

}  // namespace

util::Result<KeywordMatch> ParseKeywordMatch(const std::string& name) {
  if (name == "substring")
    return KeywordMatch::kSubstring;
  if (name == "exact")
    return KeywordMatch::kExact;
  if (name == "prefix")
    return KeywordMatch::kPrefix;
  if (name == "glob")
    return KeywordMatch::kGlob;
  return util::Status::Error("unknown match '" + name +
                             "'; use one of: substring, exact, prefix, glob");
}

std::vector<Dimension> DimensionsOf(const KeywordDictionary& dictionary) {
  std::vector<Dimension> dimensions;
  for (const KeywordRule& rule : dictionary.rules) {
    for (const Dimension dimension : rule.over) {
      if (std::find(dimensions.begin(), dimensions.end(), dimension) == dimensions.end())
        dimensions.push_back(dimension);
    }
  }
  return dimensions;
}

util::Result<KeywordReport> MakeKeywordReport(const tables::Recording& recording,
                                              const KeywordQuery& query) {
  KeywordReport out;
  out.dictionaries = query.dictionaries;
  for (size_t i = 0; i < query.dictionaries.size(); ++i) {
    Classifier classifier(query.dictionaries[i]);
    ReportQuery ask;
    ask.at = query.at;
    ask.where = query.where;
    ask.own = query.own;
    ask.by = classifier.dimensions();
    VRAMSCOPE_ASSIGN_OR_RETURN(Report report, MakeNamesReport(recording, ask));
    VRAMSCOPE_ASSIGN_OR_RETURN(auto expected, ResolveExpected(query.expected, report.devices));
    for (const DeviceReport& device : report.devices) {
      KeywordTable table = classifier.MakeTable(report.rows, device.device, query.top);
      table.dictionary = i;
      const auto given = expected.find(device.device);
      table.expected_is_given = given != expected.end();
      table.expected_bytes = table.expected_is_given ? given->second : device.nvml_bytes;
      if (table.expected_bytes) {
        table.untrackable_bytes =
            static_cast<int64_t>(*table.expected_bytes) - static_cast<int64_t>(table.row_bytes);
      }
      out.tables.push_back(std::move(table));
    }
    if (i == 0) {
      out.report = std::move(report);
      out.report.rows.clear();
    }
  }
  // Every dictionary reports the same devices in the same order.
  std::stable_sort(
      out.tables.begin(), out.tables.end(),
      [](const KeywordTable& a, const KeywordTable& b) { return a.device < b.device; });
  VRAMSCOPE_RETURN_IF_ERROR(AddUnnamed(recording, query, out));
  return out;
}

}  // namespace vramscope::query
