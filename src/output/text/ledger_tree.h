// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

// Leaf rows as the tree that people read: inner sums, and as many lines as there is room for.
namespace vramscope::output {

struct TreeLeaf {
  std::vector<std::string> path;
  uint64_t bytes = 0;
  uint64_t count = 0;
  // By level, empty for none: the level continues the name of the level above, and starts with the
  // separator (".mlp" below "h.3").
  std::vector<bool> goes_on{};
  // By level, empty for none: what is said below the name, part of no name.
  std::vector<std::string> below{};
  // By level, empty for none: siblings there whose names differ in numbers alone are repeated
  // layers.
  std::vector<bool> repeats{};
};

// Levels of a dotted or slashed name: "h.3/mlp" is "h", ".3" and "/mlp", the latter two going on.
// Names in parentheses stay whole.
void AppendNameLevels(const std::string& name, TreeLeaf* leaf);

// One line to print. Its share is bytes over the tree's total.
struct TreeLine {
  size_t depth = 0;
  std::string name;  // "(3 more)" for what had no room
  uint64_t bytes = 0;
  uint64_t count = 0;
  bool rest = false;  // a "(n more)" line
  std::string below{};
  bool layer = false;  // both ends of its name tell it apart
  size_t repeats = 1;  // the number of repeated layers in it
};

struct TreeLimits {
  size_t max_lines = SIZE_MAX;
  uint64_t smallest_bytes = 0;
  size_t most_nodes = SIZE_MAX;  // lines but those of what had no room
};

class LedgerTree {
 public:
  // Leaves of the same path are added up; leaves of no bytes are left out. Repeated layers are one
  // node, "blocks.[1-11]", that has the sum of each level below them: siblings that have as many
  // bytes within one percent of the largest, and levels of the same names below them.
  explicit LedgerTree(const std::vector<TreeLeaf>& leaves);

  uint64_t total_bytes() const { return nodes_[0].bytes; }
  // Lines when nothing is left out.
  size_t full_lines() const { return order_.size(); }

  // The largest nodes, in at most `max_lines` lines, but at least one if the tree has any. Parents
  // come before children, larger siblings first. Siblings without a line share one, "(n more)", so
  // the shown children of a parent always add up to it. A chain of only children is one line, its
  // names joined by " / " or by their own separators. Nodes below `smallest_bytes` get a line only
  // in place of a "(1 more)".
  std::vector<TreeLine> Lines(const TreeLimits& limits) const;

 private:
  struct Node {
    std::string name;
    std::string below{};
    bool goes_on = false;
    size_t depth = 0;
    size_t parent = 0;
    uint64_t bytes = 0;
    uint64_t count = 0;
    bool repeats_are_one = false;
    size_t repeats = 1;            // the number of repeated layers in it
    bool joined = false;           // its name and children went to another node
    std::vector<size_t> children;  // largest first
  };
  struct Fold;

  void FoldRepeats();
  void Absorb(size_t into, size_t from);
  void MergeNamesakes(size_t node);
  void FoldChildren(size_t node);
  std::set<std::string> NamesBelow(size_t node) const;
  void NameLeftovers();
  void JoinChains();
  void Sort();
  void AppendChildren(size_t root,
                      const std::vector<bool>& picked,
                      std::vector<TreeLine>* out) const;

  std::vector<Node> nodes_;    // 0 is the root, which has no line
  std::vector<size_t> order_;  // the nodes that can have a line, in the order in which they get one
};

}  // namespace vramscope::output
