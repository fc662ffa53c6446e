// SPDX-License-Identifier: Apache-2.0
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

#include "query/diff/diff_parts.h"
#include "query/dimensions/fold_names.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using format::Category;
using util::FormatBytes;

class CauseFinder {
 public:
  explicit CauseFinder(Comparison* comparison)
      : all_(*comparison), moves_(FindMoves(*comparison)) {}

  std::vector<std::string> Find() {
    AddAsleep();
    AddMoves(true);
    AddLeaks();
    AddMoreIterations();
    AddKept();
    AddElementSize();
    AddScale();
    AddReleased();
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
  std::optional<DiffGroup> Take(const std::function<bool(const ComparedRow&)>& wanted) {
    DiffGroup group;
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

  // Takes bytes of a row that another finding than the peak explains (fewer bytes if negative), so
  // that they do not count again. Returns the part of them that the peak shows.
  uint64_t Explain(const DiffKey& key, int64_t bytes) {
    uint64_t explained = 0;
    for (ComparedRow& row : all_.rows) {
      if (!(row.key == key) || row.told || (row.delta() > 0) != (bytes > 0))
        continue;
      const uint64_t part = std::min(Magnitude(row.delta()), Magnitude(bytes));
      (bytes > 0 ? row.b : row.a).bytes -= part;
      row.told = row.delta() == 0;
      explained += part;
    }
    return explained;
  }

  // What sleeps in one is not gone from it.
  void AddAsleep();
  void AddLeaks();
  // What both keep of each iteration, where one has more iterations.
  void AddMoreIterations();
  void AddKept();
  // Parameters and all that follows them have elements of another size.
  void AddElementSize();
  void AddScale();
  // Memory that both allocate in the same way, and one holds for longer.
  void AddReleased();
  void AddLayers();
  void AddOptimizer();
  // Those of what has a parameter's name in one of the two, or the others.
  void AddMoves(bool named);
  void AddCategories();
  // Layers that are new in one, and parameters of another size.
  void AddLayersOnlyIn(const DiffSide& side, const DiffSide& other, const char* what);
  std::string CheckpointText(int64_t delta) const;

  Comparison& all_;
  const std::vector<std::pair<size_t, size_t>> moves_;  // before any sentence took its part
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

// Leaks are seen at the ends of iterations. They also explain the changes at the peak of rows with
// the same keys.
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
    uint64_t at_peak = 0;
    for (const KeyGrowth& growth : growths) {
      rate += growth.bytes_per_iteration;
      last_bytes += growth.last_bytes;
      const auto weight = static_cast<uint64_t>(growth.bytes_per_iteration);
      modules[all_.words[growth.key.module]] += weight;
      places[growth.key.place] += weight;
      categories[growth.key.category] += weight;
      leaking_.insert(growth.key);
      // Before the first iteration and after the last compared one it grew, too.
      const auto most = static_cast<int64_t>(
          std::llround(growth.bytes_per_iteration * static_cast<double>(side.iteration_count + 1)));
      at_peak += Explain(growth.key, in_b ? most : -most);
    }
    std::string text = FormatBytes(static_cast<uint64_t>(std::llround(rate)));
    text += in_b ? " more per iteration are never freed: "
                 : " per iteration are freed now, which A never freed: ";
    text += all_.Line(DiffGroup::Largest(places));
    const std::string fold = FoldNames(modules);
    text += std::string(" (") + CategoryWords(DiffGroup::Largest(categories)) +
            (fold.empty() ? "" : " of " + LayerWords(fold)) + ")";
    if (places.size() > 1)
      text += " and " + std::to_string(places.size() - 1) +
              (places.size() == 2 ? " more line" : " more lines");
    text += ", " + FormatBytes(last_bytes) + " after iteration " +
            std::to_string(side.iterations.back().number);
    Tell(std::max(at_peak, last_bytes), text);
  };
  tell(all_.b, all_.a, true);
  tell(all_.a, all_.b, false);
}

void CauseFinder::AddMoreIterations() {
  const int64_t more = all_.b.iteration_count - all_.a.iteration_count;
  if (more == 0)
    return;
  for (const KeyGrowth& growth : GrowingInBoth(all_.a, all_.b)) {
    const auto bytes =
        static_cast<int64_t>(std::llround(growth.bytes_per_iteration * static_cast<double>(more)));
    const uint64_t at_peak = Explain(growth.key, bytes);
    if (at_peak <= all_.threshold_bytes)
      continue;
    const std::string& module = all_.words[growth.key.module];
    Tell(at_peak, FormatBytes(static_cast<uint64_t>(std::llround(growth.bytes_per_iteration))) +
                      " per iteration are never freed in A and in B: " +
                      all_.Line(growth.key.place) + " (" + CategoryWords(growth.key.category) +
                      (module.empty() ? "" : " of " + LayerWords(module)) + "); B has " +
                      std::to_string(std::abs(more)) + (more > 0 ? " more" : " fewer") +
                      " iterations, " + util::FormatSignedBytes(bytes));
  }
}

void CauseFinder::AddKept() {
  const auto tell = [&](const DiffSide& side, const DiffSide& other, bool in_b) {
    DiffGroup group;
    for (const KeptMore& kept : KeptBeyondIteration(side, other)) {
      if (leaking_.contains(kept.key) || moved_.contains(kept.key))
        continue;
      ComparedRow row;
      row.key = kept.key;
      row.a = kept.other;
      row.b = kept.here;
      group.Add(all_, row);
    }
    if (Magnitude(group.delta()) <= all_.threshold_bytes)
      return;
    uint64_t at_peak = 0;
    for (const KeptMore& kept : KeptBeyondIteration(side, other)) {
      const auto more = static_cast<int64_t>(kept.here.bytes - kept.other.bytes);
      if (!leaking_.contains(kept.key) && !moved_.contains(kept.key))
        at_peak += Explain(kept.key, in_b ? more : -more);
    }
    std::string text = FormatBytes(Magnitude(group.delta()));
    text += std::string(" of ") + CategoryWords(group.MainCategory()) + group.OfModules();
    text += in_b ? " are kept beyond their iteration (A frees them within it)"
                 : " are freed within their iteration (A keeps them beyond it)";
    text += ": allocated at " + all_.Line(group.MainPlace());
    if (group.places.size() > 1)
      text += " and " + std::to_string(group.places.size() - 1) +
              (group.places.size() == 2 ? " more line" : " more lines");
    Tell(std::max(at_peak, Magnitude(group.delta())), text);
  };
  tell(all_.b, all_.a, true);
  tell(all_.a, all_.b, false);
}

void CauseFinder::AddElementSize() {
  const std::optional<ElementSize> size = FindElementSize(all_);
  if (!size)
    return;
  const auto group = Take([&](const ComparedRow& row) {
    return row.a.bytes != 0 && row.b.bytes * size->a == row.a.bytes * size->b;
  });
  if (!group)
    return;
  const std::string ratio = Times(static_cast<double>(size->b) / static_cast<double>(size->a));
  std::string text = group->Change(all_) + group->OtherCategories() + " (" + ratio +
                     "): consistent with elements of another size, ";
  if (size->b < size->a)
    text +=
        size->a == 2 * size->b ? "bf16 or fp16 instead of float32" : "a quarter of the bytes each";
  else
    text +=
        size->b == 2 * size->a ? "float32 instead of bf16 or fp16" : "four times the bytes each";
  Tell(Magnitude(group->delta()), text);
}

void CauseFinder::AddReleased() {
  // Where the peaks are at different moments, that is the reason.
  if (!all_.a.PeaksAlike(all_.b))
    return;
  // Recomputing, too, lets go of what the same calls gave, and is more to say.
  const bool less_recomputed = !CheckpointText(-1).empty();
  const bool more_recomputed = !CheckpointText(1).empty();
  DiffGroup group;
  std::vector<ComparedRow*> taken;
  for (ComparedRow& row : all_.rows) {
    if (row.told || row.delta() == 0 || !IsPassing(row.key.category) || row.key.slack)
      continue;
    if (row.key.category == Category::kActivation &&
        (row.delta() < 0 ? less_recomputed : more_recomputed))
      continue;
    const DiffKey calls = WithoutLifetime(row.key);
    const auto a = all_.a.calls.find(calls);
    const auto b = all_.b.calls.find(calls);
    if (a == all_.a.calls.end() || b == all_.b.calls.end() || a->second.bytes != b->second.bytes ||
        a->second.count != b->second.count)
      continue;
    group.Add(all_, row);
    taken.push_back(&row);
  }
  if (Magnitude(group.delta()) <= all_.threshold_bytes)
    return;
  for (ComparedRow* row : taken)
    row->told = true;
  const bool less = group.delta() < 0;
  std::string text = FormatBytes(Magnitude(group.delta())) + " of " +
                     CategoryWords(group.MainCategory()) + group.OfModules() +
                     (less ? " are released earlier in B: A holds them at its peak"
                           : " are held longer in B: A releases them before its peak") +
                     "; both allocate the same";
  if (const std::string line = group.Line(all_); !line.empty())
    text += " at " + line;
  Tell(Magnitude(group.delta()), text);
}

void CauseFinder::AddScale() {
  const std::optional<Scale> scale = FindScale(all_);
  if (!scale)
    return;
  // What is at one peak alone is there or not for another reason.
  const auto group = Take([&](const ComparedRow& row) {
    return IsPassing(row.key.category) && row.a.bytes != 0 && row.b.bytes != 0 &&
           scale->keys.contains(WithoutLifetime(row.key));
  });
  if (!group)
    return;
  std::string text =
      group->Change(all_) + group->OtherCategories() + " (" + Times(scale->ratio) + "): ";
  const bool more = scale->ratio > 1;
  const char* const batch = more ? "a larger batch" : "a smaller batch";
  const char* const sequence = more ? "a longer sequence" : "a shorter sequence";
  switch (scale->kind) {
    case Scale::Kind::kWithParameters:
      text += "parameters changed size, too";
      break;
    case Scale::Kind::kSequence:
      text += std::string("consistent with ") + sequence + ", with " + scale->evidence;
      break;
    case Scale::Kind::kBatch:
      text += std::string("consistent with ") + batch + "; parameters and " + scale->evidence +
              " are unchanged";
      break;
    case Scale::Kind::kEither:
      text += std::string("consistent with ") + batch + " or " + sequence +
              "; parameters are unchanged";
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
    parts += FormatBytes(bytes.moved) + " of " + CategoryWords(category);
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
            " by " + FormatBytes(Magnitude(bytes.delta()));
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
  const DiffGroup::Bytes& bytes = group->all;
  std::string text = "optimizer state ";
  if (bytes.a != 0 && bytes.b != 0)
    text += (bytes.delta() > 0 ? "grew by " : "shrank by ") + FormatBytes(Magnitude(bytes.delta()));
  else
    text += (bytes.a == 0 ? "appeared: " : "is gone: ") + FormatBytes(bytes.moved);
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
  std::map<std::pair<Category, Category>, DiffGroup> groups;
  for (const auto& [gone, arrived] : moves_) {
    ComparedRow& from = all_.rows[gone];
    ComparedRow& to = all_.rows[arrived];
    if (from.told || to.told || (from.key.parameter != to.key.parameter) != named)
      continue;
    from.told = to.told = true;
    moved_.insert({from.key, to.key});
    DiffGroup& group = groups[{from.key.category, to.key.category}];
    group.Add(all_, to);
    // The line is that of the one that is not known by a name.
    if (const uint32_t line = from.key.place != 0 ? from.key.place : to.key.place;
        to.key.place != line) {
      group.places[line] += to.b.bytes;
      group.places.erase(0);
    }
  }
  for (const auto& [categories, group] : groups) {
    if (group.all.b <= all_.threshold_bytes)
      continue;
    std::string text = FormatBytes(group.all.b) + group.OfModules() + " moved from " +
                       format::CategoryName(categories.first) + " to " +
                       format::CategoryName(categories.second);
    if (const std::string line = group.Line(all_); !line.empty())
      text += ": " + line;
    Tell(group.all.b, text);
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
  std::map<Category, DiffGroup> groups;
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
    std::string text = group.Change(all_);
    const bool fixed = category == Category::kParameter || category == Category::kBuffer;
    const DiffSide& fewer = group.delta() < 0 ? all_.b : all_.a;
    const DiffSide& other = group.delta() < 0 ? all_.a : all_.b;
    if (fixed && fewer.outside_bytes > other.outside_bytes) {
      Tell(Magnitude(group.delta()),
           FormatBytes(Magnitude(group.delta())) + " of " + CategoryWords(category) +
               group.OfModules() + " are in no allocation of " + (group.delta() < 0 ? "B" : "A") +
               ", which maps or shares them (" + FormatBytes(fewer.outside_bytes) +
               " of named memory)");
      continue;
    }
    const std::string checkpoint =
        category == Category::kActivation ? CheckpointText(group.delta()) : "";
    const std::string line = group.Line(all_);
    const std::string detail = group.details.empty() ? "" : DiffGroup::Largest(group.details);
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

}  // namespace vramscope::query
