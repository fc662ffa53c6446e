// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/object_graph.h"

#include <algorithm>

namespace vramscope::probe {

bool IndexMap::Resize(size_t size) {
  PageArray<Slot> old;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].key != 0 && !old.Push(slots_[i]))
      return false;
  }
  slots_.Clear();
  if (!slots_.Zero(size))
    return false;
  for (size_t i = 0; i < old.size(); ++i)
    Put(old[i].key, old[i].index);
  return true;
}

bool IndexMap::Reserve(size_t count) {
  size_t size = kFirst;
  while (3 * size < 4 * count)
    size *= 2;
  return size <= slots_.size() || Resize(size);
}

bool ObjectGraph::Reserve(size_t objects, uint64_t most_bytes) {
  constexpr size_t kEdgesEach = 3, kBytesEach = 192;
  objects = std::min(objects + objects / 4, static_cast<size_t>(most_bytes / kBytesEach));
  return nodes.Reserve(objects) && edges.Reserve(kEdgesEach * objects) && queue.Reserve(objects) &&
         node_of.Reserve(objects);
}

void ObjectGraph::Clear() {
  nodes.Clear();
  edges.Clear();
  storages.Clear();
  queue.Clear();
  node_of.Clear();
  storage_of.Clear();
}

size_t ObjectGraph::Bytes() const {
  constexpr size_t kMapBytes = 32;  // an entry of node_of
  return nodes.size() * (sizeof(GraphNode) + kMapBytes) + edges.size() * sizeof(GraphEdge);
}

bool ObjectGraph::Reach(uint32_t node, uint32_t parent, uint32_t edge) {
  GraphNode& reached = nodes[node];
  reached.is_reached = true;
  reached.parent = parent;
  reached.edge = edge;
  if (reached.storage != kNoIndex && storages[reached.storage].node == kNoIndex)
    storages[reached.storage].node = node;
  return queue.Push(node);
}

bool ObjectGraph::BytesThrough(uint32_t node, uint64_t* bytes) const {
  PageArray<uint8_t> seen, has;
  PageArray<uint32_t> waiting;
  if (!seen.Zero(nodes.size()) || !has.Zero(storages.size()))
    return false;
  seen[node] = 1;  // a wall
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].root == Root::kNone || seen[i] != 0)
      continue;
    seen[i] = 1;
    if (!waiting.Push(i))
      return false;
  }
  for (size_t next = 0; next < waiting.size(); ++next) {
    const GraphNode& from = nodes[waiting[next]];
    if (from.storage != kNoIndex)
      has[from.storage] = 1;
    for (uint32_t i = 0; i < from.edge_count; ++i) {
      const uint32_t to = edges[from.first_edge + i].to;
      if (seen[to] != 0)
        continue;
      seen[to] = 1;
      if (!waiting.Push(to))
        return false;
    }
  }
  *bytes = 0;
  for (uint32_t i = 0; i < storages.size(); ++i) {
    if (storages[i].node != kNoIndex && has[i] == 0)
      *bytes += storages[i].bytes;
  }
  return true;
}

}  // namespace vramscope::probe
