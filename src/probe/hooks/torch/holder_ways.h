// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "probe/hooks/torch/object_graph.h"
#include "probe/hooks/torch/object_links.h"
#include "probe/stack/python/api.h"

namespace vramscope::probe {

// The tensors of a graph that was searched, grouped by their ways, as Python lists (holders.h).
class HolderWays {
 public:
  // `is_all`: what was not reached has no way, and is not only late.
  HolderWays(ObjectGraph* graph, ObjectLinks* links, bool is_all)
      : graph_(*graph), links_(*links), is_all_(is_all) {}
  // A new list of the largest groups; null after an error.
  Object Groups(int64_t most);

 private:
  struct Group {
    uint64_t bytes, largest;
    uint32_t count, storage;
    int32_t device;
    bool is_told;
  };
  bool FindGroups();
  uint64_t SignatureOf(uint32_t node);
  uint64_t StepOf(uint64_t before, const GraphNode& node);
  bool AppendGroup(Object groups, uint32_t group);
  bool AppendSteps(Object steps, uint32_t node);

  ObjectGraph& graph_;
  ObjectLinks& links_;
  const bool is_all_;
  PageArray<Group> groups_;
};

}  // namespace vramscope::probe
