// SPDX-License-Identifier: Apache-2.0
#include "engine/analysis/leaks.h"

#include <algorithm>
#include <optional>

namespace vramscope::engine {
namespace {

// Fewer points than this are no line.
constexpr int64_t kFewestPoints = 4;

// Bytes at the ends of the iterations looked at, and what a leak's look like: they end higher than
// they began, they grow in the last quarter as well (a cache that is full does not), and they
// hardly ever sink (what comes and goes with the batch does).
struct Line {
  std::vector<int64_t> bytes;

  bool Grows() const {
    const size_t count = bytes.size();
    if (count < static_cast<size_t>(kFewestPoints) || bytes.back() <= bytes.front())
      return false;
    const size_t tail = std::max<size_t>(count / 4, 2);
    if (bytes.back() <= bytes[count - 1 - tail])
      return false;
    int64_t rises = 0;
    int64_t drops = 0;
    for (size_t i = 1; i < count; ++i) {
      const int64_t step = bytes[i] - bytes[i - 1];
      (step > 0 ? rises : drops) += step > 0 ? step : -step;
    }
    return drops * 4 <= rises;
  }

  bool Steady() const {
    size_t rises = 0;
    for (size_t i = 1; i < bytes.size(); ++i)
      rises += bytes[i] > bytes[i - 1] ? size_t{1} : 0;
    return rises * 10 >= (bytes.size() - 1) * 9;
  }

  // Of the straight line that fits best.
  double Slope() const {
    const double middle = static_cast<double>(bytes.size() - 1) / 2;
    double above = 0;
    double below = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const double x = static_cast<double>(i) - middle;
      above += x * static_cast<double>(bytes[i]);
      below += x * x;
    }
    return above / below;
  }
};

// The name that says most: the layer, else the parameter, else the tag.
uint32_t NameOf(Naming& naming, const Named& named) {
  if (const uint32_t module = naming.Module(named); module != 0)
    return module;
  if (const uint32_t parameter = naming.Parameter(named); parameter != 0)
    return parameter;
  return naming.Tag(named);
}

bool IsExpectedToStay(Category category) {
  switch (category) {
    case Category::kParameter:
    case Category::kGradient:
    case Category::kOptimizerState:
    case Category::kBuffer:
    case Category::kWorkspace:
    case Category::kCommunication:
    case Category::kRounding:
    case Category::kCached:
    case Category::kFragmentation:
    case Category::kDriver:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool Suppressions::Matches(const std::string& text) const {
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const std::string& pattern) {
    return text.find(pattern) != std::string::npos;
  });
}

bool Suppressions::Matches(trace::StackId stack) {
  if (patterns_.empty())
    return false;
  const auto [known, added] = stacks_.try_emplace(stack.value, false);
  if (!added)
    return known->second;
  bool matches = false;
  // A damaged trace may hold a cycle: no stack is deeper than the table is long.
  size_t left = trace_.stack_count();
  for (trace::StackId at = stack; at.value != 0 && left > 0 && !matches; --left) {
    const trace::Stack& entry = trace_.stack(at);
    const auto [frame, is_new] = frames_.try_emplace(entry.frame.value, false);
    if (is_new)
      frame->second = Matches(DescribeFrame(trace_, entry.frame));
    matches = frame->second;
    at = entry.parent;
  }
  stacks_[stack.value] = matches;
  return matches;
}

int64_t WarmUpOf(int64_t count) {
  return std::min<int64_t>(std::clamp<int64_t>(count / 10, 2, 20), count);
}

void GrowthFinder::OnBlock(const Block& block, uint32_t space, int64_t free_ns) {
  See(RecordOf(block, space, free_ns));
}

void GrowthFinder::OnHolding(const Holding& holding, int64_t free_ns) {
  if (holding.carved_life == kNoLife)
    See(RecordOf(holding, free_ns));
}

void GrowthFinder::See(const LifeRecord& record) {
  const trace::ProcessId process = first_.spaces()[record.space].process;
  const ProcessIterations& iterations = first_.iterations().of(process);
  if (iterations.empty() || record.bytes == 0)
    return;
  // The first end at which it is alive, and the first at which it no longer is.
  const int64_t from = std::max<int64_t>(iterations.NumberAt(record.alloc_ns), 0);
  const int64_t until = record.free_ns == kNever
                            ? iterations.count()
                            : std::max<int64_t>(iterations.NumberAt(record.free_ns), 0);
  if (from >= until)
    return;
  const trace::StackId stack = naming_.PlaceOf(record);
  const uint32_t name = NameOf(naming_, naming_.Of(record));
  if (suppressions_.Matches(stack) || suppressions_.Matches(record.stack) ||
      suppressions_.Matches(naming_.text(name)))
    return;
  const trace::FrameId frame = frames_.Innermost(stack);
  Series& series = series_[{record.space, frame.value, name}];
  const auto bytes = static_cast<int64_t>(record.bytes);
  Change& begin = series.changes[from];
  begin.bytes += bytes;
  ++begin.count;
  Change& end = series.changes[until];
  end.bytes -= bytes;
  --end.count;
  if (until == iterations.count()) {
    Part& part = series.parts[stack.value];
    part.stack = stack;
    part.category = first_.CategoryOf(process, record.origin);
    part.bytes += record.bytes;
  }
}

std::vector<LeakGroup> GrowthFinder::Finish() const {
  std::vector<LeakGroup> groups;
  for (const auto& [key, series] : series_) {
    LeakGroup group;
    group.space = std::get<0>(key);
    group.frame = trace::FrameId{std::get<1>(key)};
    group.name = std::get<2>(key);
    const int64_t count = first_.iterations().of(first_.spaces()[group.space].process).count();
    // What is not alive at the end does not grow; most series are of that kind.
    if (series.parts.empty() || count < kFewestPoints)
      continue;
    Line line;
    Change now;
    auto change = series.changes.begin();
    for (int64_t number = 0; number < count; ++number) {
      for (; change != series.changes.end() && change->first <= number; ++change) {
        now.bytes += change->second.bytes;
        now.count += change->second.count;
      }
      if (number >= WarmUpOf(count))
        line.bytes.push_back(now.bytes);
    }
    if (!line.Grows())
      continue;
    group.bytes_per_iteration = line.Slope();
    group.first_bytes = static_cast<uint64_t>(std::max<int64_t>(line.bytes.front(), 0));
    group.last_bytes = static_cast<uint64_t>(line.bytes.back());
    group.count = static_cast<uint64_t>(std::max<int64_t>(now.count, 0));
    group.steady = line.Steady();
    const auto largest = std::max_element(
        series.parts.begin(), series.parts.end(),
        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    group.stack = largest->second.stack;
    group.category = largest->second.category;
    groups.push_back(group);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const LeakGroup& a, const LeakGroup& b) {
    return a.bytes_per_iteration > b.bytes_per_iteration;
  });
  return groups;
}

LeakGroups FindNeverFreed(const Ledger& ledger,
                          Naming& naming,
                          UserFrames& frames,
                          Suppressions& suppressions) {
  struct Sum {
    LeakGroup group;
    std::map<std::pair<uint32_t, Category>, uint64_t> parts;  // by stack and category
  };
  LeakGroups found;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Sum> sums;
  for (const DeviceState& device : ledger.devices()) {
    ForEachLeaf(ledger, device.id, Moment::kEnd, [&](const Leaf& leaf) {
      if (!leaf.has_origin || leaf.count == 0 || IsSlack(leaf.part) ||
          IsExpectedToStay(leaf.category))
        return;
      const auto space =
          std::find_if(ledger.spaces().begin(), ledger.spaces().end(), [&](const Space& entry) {
            return entry.process == leaf.process && entry.device == leaf.device;
          });
      if (space == ledger.spaces().end())
        return;
      const trace::StackId stack = PlaceOf(leaf, naming.facts());
      const uint32_t name = NameOf(naming, naming.Of(leaf));
      if (suppressions.Matches(stack) || suppressions.Matches(leaf.stack) ||
          suppressions.Matches(naming.text(name))) {
        found.suppressed_bytes += leaf.bytes;
        found.suppressed_count += leaf.count;
        return;
      }
      const auto space_index = static_cast<uint32_t>(space - ledger.spaces().begin());
      const trace::FrameId frame = frames.Innermost(stack);
      Sum& sum = sums[{space_index, frame.value, name}];
      sum.group.space = space_index;
      sum.group.frame = frame;
      sum.group.name = name;
      sum.group.last_bytes += leaf.bytes;
      sum.group.count += leaf.count;
      sum.parts[{stack.value, leaf.category}] += leaf.bytes;
    });
  }
  for (auto& [key, sum] : sums) {
    const auto largest =
        std::max_element(sum.parts.begin(), sum.parts.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    sum.group.stack = trace::StackId{largest->first.first};
    sum.group.category = largest->first.second;
    found.groups.push_back(sum.group);
  }
  std::stable_sort(
      found.groups.begin(), found.groups.end(),
      [](const LeakGroup& a, const LeakGroup& b) { return a.last_bytes > b.last_bytes; });
  return found;
}

}  // namespace vramscope::engine
