// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/object_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace vramscope::probe {
namespace {

TEST(IndexMap, RandomKeys_FindTheirIndexAndOthersNone) {
  std::mt19937_64 random(1);
  IndexMap map;
  std::map<uint64_t, uint32_t> expected;
  for (uint32_t i = 0; i < 20000; ++i) {
    const uint64_t key = 16 * (1 + random() % (1 << 20));  // as addresses are
    if (expected.try_emplace(key, i).second) {
      ASSERT_TRUE(map.Add(key, i));
    }
    if (i == 10000) {
      ASSERT_TRUE(map.Reserve(40000));
    }
  }
  for (const auto& [key, index] : expected)
    EXPECT_EQ(map.Find(key), index);
  EXPECT_EQ(map.Find(8), kNoIndex);
  map.Clear();
  EXPECT_EQ(map.Find(expected.begin()->first), kNoIndex);
}

// A graph at random: few edges, so that much hangs on single nodes.
struct RandomGraph {
  std::vector<std::vector<uint32_t>> to;
  std::vector<bool> is_root;
  std::vector<uint32_t> storage_of;
  std::vector<uint64_t> bytes;

  explicit RandomGraph(std::mt19937_64& random) {
    const size_t nodes = 2 + random() % 40;
    to.resize(nodes);
    is_root.resize(nodes);
    for (size_t i = 0; i < nodes * 5 / 4; ++i)
      to[random() % nodes].push_back(static_cast<uint32_t>(random() % nodes));
    is_root[random() % nodes] = is_root[random() % nodes] = true;
    bytes.resize(1 + random() % 8);
    for (uint64_t& each : bytes)
      each = 1 + random() % 1000;
    // Some are no tensors, some share a storage.
    for (size_t i = 0; i < nodes; ++i) {
      const uint64_t number = random() % (2 * bytes.size());
      storage_of.push_back(number < bytes.size() ? static_cast<uint32_t>(number) : kNoIndex);
    }
  }

  std::set<uint32_t> StoragesReached(std::optional<uint32_t> without) const {
    std::vector<uint32_t> waiting;
    std::set<uint32_t> seen, storages;
    for (uint32_t i = 0; i < to.size(); ++i) {
      if (is_root[i])
        waiting.push_back(i);
    }
    while (!waiting.empty()) {
      const uint32_t node = waiting.back();
      waiting.pop_back();
      if (node == without || !seen.insert(node).second)
        continue;
      if (storage_of[node] != kNoIndex)
        storages.insert(storage_of[node]);
      waiting.insert(waiting.end(), to[node].begin(), to[node].end());
    }
    return storages;
  }

  uint64_t BytesOf(const std::set<uint32_t>& storages) const {
    uint64_t sum = 0;
    for (const uint32_t storage : storages)
      sum += bytes[storage];
    return sum;
  }

  void Build(ObjectGraph* graph) const {
    for (const uint64_t each : bytes)
      ASSERT_TRUE(graph->storages.Push({.impl = 1, .bytes = each, .device = 0, .node = kNoIndex}));
    for (uint32_t i = 0; i < to.size(); ++i) {
      const auto first = static_cast<uint32_t>(graph->edges.size());
      for (const uint32_t next : to[i])
        ASSERT_TRUE(graph->edges.Push({.name = 0, .to = next}));
      GraphNode node{};
      node.first_edge = first;
      node.edge_count = static_cast<uint32_t>(to[i].size());
      node.storage = storage_of[i];
      node.root = is_root[i] ? Root::kModule : Root::kNone;
      ASSERT_TRUE(graph->nodes.Push(node));
    }
    for (uint32_t i = 0; i < to.size(); ++i) {
      if (is_root[i]) {
        ASSERT_TRUE(graph->Reach(i, kNoIndex, kNoIndex));
      }
    }
    for (size_t next = 0; next < graph->queue.size(); ++next) {
      const uint32_t from = graph->queue[next];
      for (const uint32_t node : to[from]) {
        if (!graph->nodes[node].is_reached) {
          ASSERT_TRUE(graph->Reach(node, from, 0));
        }
      }
    }
  }
};

TEST(ObjectGraph, BytesThrough_AreWhatIsNotReachedWithoutTheNode) {
  std::mt19937_64 random(2);
  uint64_t most = 0;
  for (int round = 0; round < 500; ++round) {
    const RandomGraph expected(random);
    ObjectGraph graph;
    expected.Build(&graph);
    const uint64_t all = expected.BytesOf(expected.StoragesReached({}));
    for (uint32_t node = 0; node < expected.to.size(); ++node) {
      uint64_t bytes = 0;
      ASSERT_TRUE(graph.BytesThrough(node, &bytes));
      EXPECT_EQ(bytes, all - expected.BytesOf(expected.StoragesReached(node)));
      most = std::max(most, bytes);
    }
  }
  EXPECT_GT(most, 1000u);
}

}  // namespace
}  // namespace vramscope::probe
