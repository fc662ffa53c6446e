// SPDX-License-Identifier: Apache-2.0
#include "query/diff_causes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "query/diff_callers.h"
#include "query/diff_growth.h"
#include "query/diff_scale.h"
#include "query/fold_names.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using format::Category;
using util::FormatBytes;

uint64_t Magnitude(int64_t bytes) {
  return static_cast<uint64_t>(std::abs(bytes));
}

std::string Times(double ratio) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2fx", ratio);
  return text;
}

// "grew by 1.20 GiB", "appeared: 12.0 MiB", "is gone: 12.0 MiB".
std::string Change(uint64_t a, uint64_t b, bool plural) {
  if (a == 0)
    return "appeared: " + FormatBytes(b);
  if (b == 0)
    return std::string(plural ? "are" : "is") + " gone: " + FormatBytes(a);
  return (b > a ? "grew by " : "shrank by ") + FormatBytes(b > a ? b - a : a - b);
}

bool IsPlural(Category category) {
  const std::string_view words = CategoryWords(category);
  return words.ends_with('s');
}

// Some rows of one cause, and what they have in common.
struct Group {
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t moved = 0;  // sum of what changed, whichever way
  std::map<std::string, uint64_t> modules;
  std::map<uint32_t, uint64_t> places;
  std::map<std::string, uint64_t> details;
  std::map<Category, uint64_t> categories;
  std::set<uint32_t> parameters;
  std::set<std::string> tags;
  std::vector<DiffKey> keys;

  void Add(const Comparison& comparison, const ComparedRow& row) {
    const uint64_t bytes = Magnitude(row.delta());
    a += row.a.bytes;
    b += row.b.bytes;
    moved += bytes;
    keys.push_back(row.key);
    modules[comparison.words[row.key.module]] += bytes;
    places[row.key.place] += bytes;
    details[comparison.words[row.key.detail]] += bytes;
    categories[row.key.category] += bytes;
    if (row.key.parameter != 0)
      parameters.insert(row.key.parameter);
    if (row.key.tag != 0)
      tags.insert(comparison.words[row.key.tag]);
  }
  int64_t delta() const { return static_cast<int64_t>(b) - static_cast<int64_t>(a); }
  Category MainCategory() const { return Largest(categories); }
  uint32_t MainPlace() const { return Largest(places); }
  // Nothing where no line has most of it; who calls it, where that is what changed.
  std::string Line(const Comparison& comparison) const {
    const uint32_t place = MainPlace();
    if (place == 0 || places.at(place) * 5 < moved * 4)
      return {};
    std::vector<DiffKey> of_line;
    std::copy_if(keys.begin(), keys.end(), std::back_inserter(of_line),
                 [&](const DiffKey& key) { return key.place == place; });
    return comparison.Line(place) + CallerText(CallersOf(comparison, of_line));
  }
  std::string OfModules() const {
    const std::string text = FoldNames(modules);
    return text.empty() ? "" : " of " + text;
  }

  template <class Key>
  static Key Largest(const std::map<Key, uint64_t>& weights) {
    return std::max_element(weights.begin(), weights.end(),
                            [](const auto& x, const auto& y) { return x.second < y.second; })
        ->first;
  }
};

class CauseFinder {
 public:
  explicit CauseFinder(Comparison* comparison) : all_(*comparison) {}

  std::vector<std::string> Find() {
    AddAsleep();
    AddMoves(true);
    AddLeaks();
    AddKept();
    AddScale();
    AddLayers();
    AddOptimizer();
    AddMoves(false);
    AddCategories();
    std::stable_sort(causes_.begin(), causes_.end(),
                     [](const Cause& x, const Cause& y) { return x.bytes > y.bytes; });
    std::vector<std::string> texts;
    for (Cause& cause : causes_)
      texts.push_back(std::move(cause.text));
    return texts;
  }

 private:
  struct Cause {
    uint64_t bytes = 0;
    std::string text;
  };

  void Tell(uint64_t bytes, std::string text) { causes_.push_back({bytes, std::move(text)}); }

  // Takes the rows that `wanted` holds for, where they are worth a cause.
  std::optional<Group> Take(const std::function<bool(const ComparedRow&)>& wanted) {
    Group group;
    std::vector<ComparedRow*> taken;
    for (ComparedRow& row : all_.rows) {
      if (row.told || row.delta() == 0 || !wanted(row))
        continue;
      group.Add(all_, row);
      taken.push_back(&row);
    }
    if (Magnitude(group.delta()) <= all_.threshold_bytes)
      return std::nullopt;
    for (ComparedRow* row : taken)
      row->told = true;
    return group;
  }

  // The same for rows that something else than the peak tells of; what they changed at the peak.
  uint64_t TakeKeys(const std::set<DiffKey>& keys) {
    uint64_t bytes = 0;
    for (ComparedRow& row : all_.rows) {
      if (!keys.contains(row.key))
        continue;
      row.told = true;
      bytes += Magnitude(row.delta());
    }
    return bytes;
  }

  // What sleeps in one is not gone from it.
  void AddAsleep();
  void AddLeaks();
  void AddKept();
  void AddScale();
  void AddLayers();
  void AddOptimizer();
  // Those of what has a parameter's name in one of the two, or the others.
  void AddMoves(bool named);
  void AddCategories();
  // Layers that are new in one, and parameters of another size.
  void AddLayersOnlyIn(const DiffSide& side, const DiffSide& other, const char* what);
  std::string CheckpointText(int64_t delta) const;

  Comparison& all_;
  std::vector<Cause> causes_;
  std::set<DiffKey> leaking_;
  std::set<DiffKey> moved_;  // to another category, or from one
};

void CauseFinder::AddAsleep() {
  for (const bool in_b : {false, true}) {
    const DiffSums& asleep = (in_b ? all_.b : all_.a).unbacked;
    const auto group = Take([&](const ComparedRow& row) {
      return (row.delta() < 0) == in_b && asleep.contains(row.key);
    });
    if (!group)
      continue;
    const Category category = group->MainCategory();
    Tell(Magnitude(group->delta()), FormatBytes(Magnitude(group->delta())) + " of " +
                                        CategoryWords(category) + group->OfModules() +
                                        (IsPlural(category) ? " are" : " is") + " asleep in " +
                                        (in_b ? "B" : "A") + ": live, without device memory");
  }
}

// Bytes that the ends of iterations show, said of the rows of the same keys, whose changes at the
// peak are thereby told, too.
void CauseFinder::AddLeaks() {
  const auto tell = [&](const DiffSide& side, const DiffSide& other, bool in_b) {
    const std::vector<KeyGrowth> growths = GrowingMore(side, other);
    if (growths.empty())
      return;
    double rate = 0;
    uint64_t last_bytes = 0;
    std::map<std::string, uint64_t> modules;
    std::map<uint32_t, uint64_t> places;
    std::map<Category, uint64_t> categories;
    std::set<DiffKey> keys;
    for (const KeyGrowth& growth : growths) {
      rate += growth.bytes_per_iteration;
      last_bytes += growth.last_bytes;
      const auto weight = static_cast<uint64_t>(growth.bytes_per_iteration);
      modules[all_.words[growth.key.module]] += weight;
      places[growth.key.place] += weight;
      categories[growth.key.category] += weight;
      keys.insert(growth.key);
    }
    leaking_.insert(keys.begin(), keys.end());
    const uint64_t at_peak = TakeKeys(keys);
    std::string text = FormatBytes(static_cast<uint64_t>(std::llround(rate)));
    text += in_b ? " more per iteration are never freed: "
                 : " per iteration are freed now, which A never freed: ";
    text += all_.Line(Group::Largest(places));
    const std::string fold = FoldNames(modules);
    text += std::string(" (") + CategoryWords(Group::Largest(categories)) +
            (fold.empty() ? "" : " of " + fold) + ")";
    if (places.size() > 1)
      text += " and " + std::to_string(places.size() - 1) + " more lines";
    text += ", " + FormatBytes(last_bytes) + " after iteration " +
            std::to_string(side.iterations.back().number);
    Tell(std::max(at_peak, last_bytes), text);
  };
  tell(all_.b, all_.a, true);
  tell(all_.a, all_.b, false);
}

void CauseFinder::AddKept() {
  const auto tell = [&](const DiffSide& side, const DiffSide& other, bool in_b) {
    Group group;
    std::set<DiffKey> keys;
    for (const KeptMore& kept : KeptBeyondIteration(side, other)) {
      if (leaking_.contains(kept.key) || moved_.contains(kept.key))
        continue;
      ComparedRow row;
      row.key = kept.key;
      row.a = kept.other;
      row.b = kept.here;
      group.Add(all_, row);
      keys.insert(kept.key);
    }
    if (Magnitude(group.delta()) <= all_.threshold_bytes)
      return;
    const uint64_t at_peak = TakeKeys(keys);
    std::string text = FormatBytes(Magnitude(group.delta()));
    text += std::string(" of ") + CategoryWords(group.MainCategory()) + group.OfModules();
    text += in_b ? " are kept beyond their iteration (A frees them within it)"
                 : " are freed within their iteration (A keeps them beyond it)";
    text += ": allocated at " + all_.Line(group.MainPlace());
    if (group.places.size() > 1)
      text += " and " + std::to_string(group.places.size() - 1) + " more lines";
    Tell(std::max(at_peak, Magnitude(group.delta())), text);
  };
  tell(all_.b, all_.a, true);
  tell(all_.a, all_.b, false);
}

void CauseFinder::AddScale() {
  const std::optional<Scale> scale = FindScale(all_);
  if (!scale)
    return;
  const auto group = Take([&](const ComparedRow& row) { return scale->keys.contains(row.key); });
  if (!group)
    return;
  std::string text = CategoryWords(group->MainCategory()) + group->OfModules();
  text += " " + Change(group->a, group->b, true) + " (" + Times(scale->ratio) + "): ";
  const bool more = scale->ratio > 1;
  const char* const batch = more ? "a larger batch" : "a smaller batch";
  const char* const sequence = more ? "a longer sequence" : "a shorter sequence";
  switch (scale->kind) {
    case Scale::Kind::kWithParameters:
      text += "parameters changed their sizes, too";
      break;
    case Scale::Kind::kSequence:
      text += std::string("as ") + sequence + " makes them, with " + scale->evidence;
      break;
    case Scale::Kind::kBatch:
      text += std::string("as ") + batch + " makes them; parameters and " + scale->evidence +
              " are as they were";
      break;
    case Scale::Kind::kEither:
      text += std::string("as ") + batch + " or " + sequence +
              " makes them; parameters are as they were";
      break;
  }
  Tell(Magnitude(group->delta()), text);
}

void CauseFinder::AddLayersOnlyIn(const DiffSide& side, const DiffSide& other, const char* what) {
  const auto only_here = [&](const ComparedRow& row) {
    const std::string& module = all_.words[row.key.module];
    return row.key.module != 0 && side.modules.contains(module) && !other.modules.contains(module);
  };
  const bool layers = std::any_of(all_.rows.begin(), all_.rows.end(), [&](const auto& row) {
    return only_here(row) && row.key.category == Category::kParameter;
  });
  if (!layers)
    return;
  const auto group = Take(only_here);
  if (!group)
    return;
  std::string text = "layers " + FoldNames(group->modules) + " are " + what + ": ";
  std::string parts;
  for (const auto& [category, bytes] : group->categories) {
    parts += parts.empty() ? "" : ", ";
    parts += FormatBytes(bytes) + " of " + CategoryWords(category);
  }
  Tell(Magnitude(group->delta()), text + parts);
}

void CauseFinder::AddLayers() {
  AddLayersOnlyIn(all_.b, all_.a, "new");
  AddLayersOnlyIn(all_.a, all_.b, "gone");
  // Parameters of another size, with all that goes with them.
  std::set<uint32_t> changed;
  std::set<std::string> modules;
  uint64_t a = 0;
  uint64_t b = 0;
  for (const ComparedRow& row : all_.rows) {
    const bool named = row.key.category == Category::kParameter && row.key.parameter != 0;
    if (row.told || !named || row.delta() == 0 || row.a.bytes == 0 || row.b.bytes == 0)
      continue;
    changed.insert(row.key.parameter);
    modules.insert(all_.words[row.key.module]);
    a += row.a.bytes;
    b += row.b.bytes;
  }
  if (changed.empty())
    return;
  const auto of_these = [&](const ComparedRow& row) {
    if (row.key.parameter != 0)
      return changed.contains(row.key.parameter);
    const bool passes = IsPassing(row.key.category);
    const std::string& module = all_.words[row.key.module];
    return passes && !module.empty() &&
           std::any_of(modules.begin(), modules.end(), [&](const std::string& name) {
             return name == module || (name.size() > module.size() && name.starts_with(module) &&
                                       name[module.size()] == '.');
           });
  };
  const auto group = Take(of_these);
  if (!group)
    return;
  std::map<std::string, uint64_t> names;
  for (const std::string& module : modules)
    names[module] = group->modules.contains(module) ? group->modules.at(module) : 1;
  const bool larger = b > a;
  std::string text = std::string(modules.size() == 1 ? "layer " : "layers ") + FoldNames(names);
  text += std::string(modules.size() == 1 ? " is " : " are ") + (larger ? "wider" : "narrower") +
          ": parameters " + (larger ? "grew" : "shrank") + " from " + FormatBytes(a) + " to " +
          FormatBytes(b);
  std::string rest;
  for (const auto& [category, bytes] : group->categories) {
    if (category == Category::kParameter)
      continue;
    rest += (rest.empty() ? ", and with them " : ", ") + std::string(CategoryWords(category)) +
            " by " + FormatBytes(bytes);
  }
  Tell(Magnitude(group->delta()), text + rest);
}

void CauseFinder::AddOptimizer() {
  const auto group =
      Take([](const ComparedRow& row) { return row.key.category == Category::kOptimizerState; });
  if (!group)
    return;
  const auto joined = [](const std::set<std::string>& names) {
    std::string text;
    for (const std::string& name : names)
      text += (text.empty() ? "" : ", ") + name;
    return text;
  };
  std::string text = "optimizer state " + Change(group->a, group->b, false);
  if (!group->tags.empty() && group->tags.size() <= 6)
    text += ", " + joined(group->tags);
  if (!group->parameters.empty())
    text += " of " + std::to_string(group->parameters.size()) +
            (group->parameters.size() == 1 ? " parameter" : " parameters");
  const std::string before = joined(all_.a.optimizers);
  const std::string now = joined(all_.b.optimizers);
  if (before != now)
    text += " (" + (before.empty() ? "" : before + " in A") +
            (before.empty() || now.empty() ? "" : ", ") + (now.empty() ? "" : now + " in B") + ")";
  else if (!now.empty())
    text += " (" + now + ")";
  Tell(Magnitude(group->delta()), text);
}

void CauseFinder::AddMoves(bool named) {
  std::map<std::pair<Category, Category>, Group> groups;
  for (const auto& [gone, arrived] : FindMoves(all_)) {
    ComparedRow& from = all_.rows[gone];
    ComparedRow& to = all_.rows[arrived];
    if (from.told || to.told || (from.key.parameter != to.key.parameter) != named)
      continue;
    from.told = to.told = true;
    moved_.insert({from.key, to.key});
    Group& group = groups[{from.key.category, to.key.category}];
    group.Add(all_, to);
    // The line is that of the one that is not known by a name.
    if (const uint32_t line = from.key.place != 0 ? from.key.place : to.key.place;
        to.key.place != line) {
      group.places[line] += to.b.bytes;
      group.places.erase(0);
    }
  }
  for (const auto& [categories, group] : groups) {
    if (group.b <= all_.threshold_bytes)
      continue;
    std::string text = FormatBytes(group.b) + group.OfModules() + " moved from " +
                       format::CategoryName(categories.first) + " to " +
                       format::CategoryName(categories.second);
    if (const std::string line = group.Line(all_); !line.empty())
      text += ": " + line;
    Tell(group.b, text);
  }
}

// Whether one of the two recomputes activations in backward instead of holding them.
std::string CauseFinder::CheckpointText(int64_t delta) const {
  const auto goes_through = [](const DiffSide& side) {
    return std::any_of(side.functions.begin(), side.functions.end(), [](const std::string& name) {
      return name.find("/torch/utils/checkpoint.py ") != std::string::npos;
    });
  };
  const bool a = goes_through(all_.a);
  const bool b = goes_through(all_.b);
  if (delta < 0 && b && !a)
    return ": B recomputes them in backward: its stacks go through torch.utils.checkpoint, A's do "
           "not";
  if (delta > 0 && a && !b)
    return ": A recomputes them in backward by torch.utils.checkpoint (checkpointing), B does not";
  return {};
}

// The rest, by category.
void CauseFinder::AddCategories() {
  std::map<Category, Group> groups;
  for (ComparedRow& row : all_.rows) {
    if (row.told || row.delta() == 0)
      continue;
    groups[row.key.category].Add(all_, row);
  }
  for (const auto& [category, group] : groups) {
    const bool of_driver = category == Category::kDriver || category == Category::kCached ||
                           category == Category::kFragmentation ||
                           category == Category::kGraphPool || category == Category::kWorkspace;
    const uint64_t threshold = of_driver ? all_.driver_threshold_bytes : all_.threshold_bytes;
    if (Magnitude(group.delta()) <= threshold)
      continue;
    std::string text = CategoryWords(category) + group.OfModules() + " " +
                       Change(group.a, group.b, IsPlural(category));
    const std::string checkpoint =
        category == Category::kActivation ? CheckpointText(group.delta()) : "";
    const std::string line = group.Line(all_);
    const std::string detail = group.details.empty() ? "" : Group::Largest(group.details);
    if (!checkpoint.empty())
      text += checkpoint;
    else if (!line.empty())
      text += ": " + line;
    else if (!detail.empty())
      text += ": " + detail;
    Tell(Magnitude(group.delta()), text);
  }
}

}  // namespace

const std::string& Comparison::Line(uint32_t place) const {
  static const std::string kNone = "(no stack)";
  for (const DiffSide* side : {&b, &a}) {
    if (const auto found = side->lines.find(place); found != side->lines.end())
      return found->second;
  }
  return kNone;
}

namespace {

// What two rows of one move have in common. What became a parameter or a buffer, or is none any
// more, has changed its layer and its phase with that: its line and its bytes tell.
using MovePlace = std::tuple<uint32_t, format::Phase, uint32_t, uint32_t, uint64_t>;

MovePlace PlaceOf(const DiffKey& key, const DiffSum& sum, bool named) {
  const uint32_t line = key.place != 0 ? key.place : sum.origin;
  return named ? MovePlace{key.device, format::Phase::kNone, 0, line, sum.bytes}
               : MovePlace{key.device, key.phase, key.module, key.place, sum.bytes};
}

void AddMoves(const Comparison& all, bool named, std::vector<std::pair<size_t, size_t>>* moves) {
  std::set<size_t> taken;
  for (const auto& [gone, arrived] : *moves)
    taken.insert({gone, arrived});
  const auto is_free = [&](size_t row) {
    const DiffKey& key = all.rows[row].key;
    return !key.slack && !taken.contains(row);
  };
  std::map<MovePlace, std::vector<size_t>> arrived;
  for (size_t i = 0; i < all.rows.size(); ++i) {
    const ComparedRow& row = all.rows[i];
    if (row.a.bytes == 0 && is_free(i))
      arrived[PlaceOf(row.key, row.b, named)].push_back(i);
  }
  for (size_t i = 0; i < all.rows.size(); ++i) {
    const ComparedRow& gone = all.rows[i];
    if (gone.b.bytes != 0 || !is_free(i))
      continue;
    const auto found = arrived.find(PlaceOf(gone.key, gone.a, named));
    if (found == arrived.end() || found->second.empty())
      continue;
    const size_t to = found->second.back();
    const DiffKey& key = all.rows[to].key;
    if (key.category == gone.key.category ||
        (named && (gone.key.parameter != 0) == (key.parameter != 0)))
      continue;
    found->second.pop_back();
    moves->emplace_back(i, to);
  }
}

}  // namespace

std::vector<std::pair<size_t, size_t>> FindMoves(const Comparison& all) {
  std::vector<std::pair<size_t, size_t>> moves;
  AddMoves(all, false, &moves);
  AddMoves(all, true, &moves);
  return moves;
}

std::vector<std::string> FindCauses(Comparison* comparison) {
  return CauseFinder(comparison).Find();
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

}  // namespace vramscope::query
