// SPDX-License-Identifier: Apache-2.0
#include "output/text/ledger_tree.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "query/dimensions/fold_names.h"

namespace vramscope::output {
namespace {

// Children come by size, so those of a size are near each other.
constexpr size_t kMaxLooks = 8;

// "blocks.#" for "blocks.3"; "" where the name has no number, or the mark itself.
query::NumberedName ShapeOf(const std::string& name) {
  query::NumberedName split = query::SplitNumbers(name);
  if (split.numbers.empty() || name.find('#') != std::string::npos)
    return {};
  return split;
}

}  // namespace

void AppendNameLevels(const std::string& name, TreeLeaf* leaf) {
  leaf->goes_on.resize(leaf->path.size());
  if (name.empty() || name[0] == '(') {
    leaf->path.push_back(name);
    leaf->goes_on.push_back(false);
    return;
  }
  // Not find_first_of, which looks every character up in its set by a call.
  const auto next_separator = [&](size_t at) {
    while (at < name.size() && name[at] != '.' && name[at] != '/')
      ++at;
    return std::min(at, name.size());
  };
  for (size_t begin = 0; begin < name.size();) {
    // A separator needs text on both sides of it.
    size_t end = begin;
    do {
      end = next_separator(end + 1);
    } while (end + 1 == name.size() || (begin > 0 && end == begin + 1));
    leaf->path.push_back(name.substr(begin, end - begin));
    leaf->goes_on.push_back(begin > 0);
    begin = end;
  }
}

LedgerTree::LedgerTree(const std::vector<TreeLeaf>& leaves) : nodes_(1) {
  // A trie by (parent, name, what is below it). Built with a map, not by scanning children: a
  // report by stack has as many leaves as the program has stacks.
  std::map<std::tuple<size_t, std::string, std::string>, size_t> index;
  for (const TreeLeaf& leaf : leaves) {
    if (leaf.bytes == 0)
      continue;
    size_t at = 0;
    nodes_[0].bytes += leaf.bytes;
    nodes_[0].count += leaf.count;
    for (size_t level = 0; level < leaf.path.size(); ++level) {
      const std::string& name = leaf.path[level];
      const std::string below = level < leaf.below.size() ? leaf.below[level] : "";
      const auto [found, added] = index.try_emplace({at, name, below}, nodes_.size());
      if (added) {
        const bool goes_on = level < leaf.goes_on.size() && leaf.goes_on[level];
        const bool repeats = level < leaf.repeats.size() && leaf.repeats[level];
        nodes_.push_back({.name = name,
                          .below = below,
                          .goes_on = goes_on,
                          .parent = at,
                          .repeats_are_one = repeats});
        nodes_[at].children.push_back(found->second);
      }
      at = found->second;
      nodes_[at].bytes += leaf.bytes;
      nodes_[at].count += leaf.count;
    }
  }
  FoldRepeats();
  NameLeftovers();
  JoinChains();
  Sort();
}

// Layers that become one node. The first node stays, so that children come after their parents.
struct LedgerTree::Fold {
  std::string shape;
  uint64_t bytes;               // of the largest
  std::set<std::string> below;  // names of levels below each
  std::vector<std::set<uint32_t>> numbers{};
  std::vector<size_t> members{};

  bool IsAlike(const Node& node, const std::set<std::string>& its_below) const {
    return bytes - node.bytes <= bytes / 100 && below == its_below;
  }
};

void LedgerTree::FoldRepeats() {
  // From the top, so that children of merged nodes are merged later.
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].joined)
      continue;
    MergeNamesakes(i);
    FoldChildren(i);
  }
}

void LedgerTree::Absorb(size_t into, size_t from) {
  Node& node = nodes_[into];
  node.bytes += nodes_[from].bytes;
  node.count += nodes_[from].count;
  const std::vector<size_t> children = std::exchange(nodes_[from].children, {});
  node.children.insert(node.children.end(), children.begin(), children.end());
  nodes_[from].joined = true;
}

void LedgerTree::MergeNamesakes(size_t node) {
  std::vector<size_t> children = std::exchange(nodes_[node].children, {});
  std::sort(children.begin(), children.end());
  std::map<std::pair<std::string_view, std::string_view>, size_t> known;
  for (const size_t child : children) {
    const auto [found, added] = known.try_emplace({nodes_[child].name, nodes_[child].below}, child);
    if (added)
      nodes_[node].children.push_back(child);
    else
      Absorb(found->second, child);
  }
}

std::set<std::string> LedgerTree::NamesBelow(size_t node) const {
  std::set<std::string> names;
  for (const size_t child : nodes_[node].children) {
    const query::NumberedName shape = ShapeOf(nodes_[child].name);
    names.insert(nodes_[child].repeats_are_one && !shape.numbers.empty() ? shape.shape
                                                                         : nodes_[child].name);
  }
  return names;
}

void LedgerTree::FoldChildren(size_t node) {
  std::vector<size_t> by_size = nodes_[node].children;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return nodes_[a].bytes > nodes_[b].bytes; });
  std::vector<Fold> folds;
  std::map<std::string, std::vector<size_t>> of_shape;
  for (const size_t child : by_size) {
    query::NumberedName name;
    if (nodes_[child].repeats_are_one)
      name = ShapeOf(nodes_[child].name);
    if (name.numbers.empty())
      continue;
    std::vector<size_t>& looks = of_shape[name.shape];
    std::set<std::string> below = NamesBelow(child);
    const auto until = looks.rbegin() + static_cast<ptrdiff_t>(std::min(looks.size(), kMaxLooks));
    const auto alike = std::find_if(
        looks.rbegin(), until, [&](size_t at) { return folds[at].IsAlike(nodes_[child], below); });
    if (alike == until) {
      looks.push_back(folds.size());
      folds.push_back({name.shape, nodes_[child].bytes, std::move(below)});
      folds.back().numbers.resize(name.numbers.size());
    }
    Fold& fold = alike == until ? folds.back() : folds[*alike];
    fold.members.push_back(child);
    for (size_t i = 0; i < name.numbers.size(); ++i)
      fold.numbers[i].insert(name.numbers[i]);
  }
  for (const Fold& fold : folds) {
    if (fold.members.size() == 1)
      continue;
    const size_t first = *std::min_element(fold.members.begin(), fold.members.end());
    for (const size_t member : fold.members) {
      if (member != first)
        Absorb(first, member);
    }
    nodes_[first].name.clear();
    size_t number = 0;
    for (const char c : fold.shape)
      nodes_[first].name += c == '#' ? query::RangeText(fold.numbers[number++]) : std::string(1, c);
    nodes_[first].repeats = fold.members.size();
  }
  std::erase_if(nodes_[node].children, [&](size_t child) { return nodes_[child].joined; });
}

// A leaf may end at a node that has children (["a"] and ["a", "b"]). Its bytes become a child of
// that node, so that the children of a line add up to the line.
void LedgerTree::NameLeftovers() {
  const size_t count = nodes_.size();
  for (size_t i = 0; i < count; ++i) {
    if (nodes_[i].children.empty())
      continue;
    uint64_t bytes = nodes_[i].bytes;
    uint64_t allocations = nodes_[i].count;
    for (const size_t child : nodes_[i].children) {
      bytes -= nodes_[child].bytes;
      allocations -= nodes_[child].count;
    }
    if (bytes == 0)
      continue;
    nodes_[i].children.push_back(nodes_.size());
    nodes_.push_back({.name = "(itself)", .parent = i, .bytes = bytes, .count = allocations});
  }
}

void LedgerTree::JoinChains() {
  // From the top, so that a long chain's name is written once. Children come after their parents.
  for (size_t i = 1; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (node.joined)
      continue;
    while (node.children.size() == 1) {
      Node& child = nodes_[node.children[0]];
      node.name += child.goes_on ? child.name : " / " + child.name;
      node.repeats *= child.repeats;
      child.name = {};
      if (!child.below.empty())
        node.below = std::exchange(child.below, {});
      node.children = std::exchange(child.children, {});
      child.joined = true;
    }
    for (const size_t child : node.children)
      nodes_[child].parent = i;
  }
}

void LedgerTree::Sort() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (node.joined)
      continue;
    if (i > 0) {
      node.depth = node.parent == 0 ? 0 : nodes_[node.parent].depth + 1;
      order_.push_back(i);
    }
    std::stable_sort(node.children.begin(), node.children.end(),
                     [&](size_t a, size_t b) { return nodes_[a].bytes > nodes_[b].bytes; });
  }
  // A parent has at least the bytes of each child and a smaller index: it comes first.
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return nodes_[a].bytes > nodes_[b].bytes; });
}

std::vector<TreeLine> LedgerTree::Lines(const TreeLimits& limits) const {
  std::vector<bool> picked(nodes_.size(), false);
  std::vector<size_t> picked_children(nodes_.size(), 0);
  size_t lines = 0;
  size_t nodes = 0;
  for (const size_t i : order_) {
    if (nodes == limits.most_nodes)
      break;
    const size_t parent = nodes_[i].parent;
    if (parent != 0 && !picked[parent])
      continue;
    const size_t siblings = nodes_[parent].children.size();
    const size_t already = picked_children[parent];
    // The first of several opens a "(n more)" line below it; the last takes that line's place.
    const bool opens = already == 0 && siblings > 1;
    const bool closes = already > 0 && already + 1 == siblings;
    const size_t after = lines + 1 + (opens ? 1 : 0) - (closes ? 1 : 0);
    if (!closes && nodes_[i].bytes < limits.smallest_bytes)
      continue;
    if (after > std::max<size_t>(limits.max_lines, 1))
      continue;
    picked[i] = true;
    ++nodes;
    ++picked_children[parent];
    lines = after;
  }
  std::vector<TreeLine> out;
  AppendChildren(0, picked, &out);
  return out;
}

// Depth is bounded by the longest path, which a trace decides: no recursion.
void LedgerTree::AppendChildren(size_t root,
                                const std::vector<bool>& picked,
                                std::vector<TreeLine>* out) const {
  struct Visit {
    size_t node;
    size_t next = 0;  // child to look at
    TreeLine rest{};  // what had no line
    size_t left_out = 0;
    bool any = false;
  };
  std::vector<Visit> open{{.node = root}};
  while (!open.empty()) {
    Visit& visit = open.back();
    const Node& node = nodes_[visit.node];
    if (visit.next == node.children.size()) {
      const bool show = visit.left_out > 0 && (visit.any || visit.node == root);
      if (show) {
        visit.rest.name = "(" + std::to_string(visit.left_out) + " more)";
        visit.rest.rest = true;
        out->push_back(std::move(visit.rest));
      }
      open.pop_back();
      continue;
    }
    const size_t child = node.children[visit.next++];
    if (picked[child]) {
      visit.any = true;
      const Node& shown = nodes_[child];
      out->push_back({shown.depth, shown.goes_on ? shown.name.substr(1) : shown.name, shown.bytes,
                      shown.count, false, shown.below, shown.repeats_are_one, shown.repeats});
      open.push_back({.node = child});
    } else {
      ++visit.left_out;
      visit.rest.bytes += nodes_[child].bytes;
      visit.rest.count += nodes_[child].count;
      visit.rest.depth = nodes_[child].depth;
    }
  }
}

}  // namespace vramscope::output
