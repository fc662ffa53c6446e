// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/holder_ways.h"

namespace vramscope::probe {
namespace {

// An object with more references than that is a container without names.
constexpr uint32_t kMostNamed = 32;

}  // namespace

uint64_t HolderWays::StepOf(uint64_t before, const GraphNode& node) {
  constexpr uint64_t kIndex = 1, kGraph = 2, kSaved = 3, kGradient = 4, kPlace = 5;
  const GraphEdge& edge = graph_.edges[node.edge];
  const GraphNode& parent = graph_.nodes[node.parent];
  switch (static_cast<Link>(edge.name & kLinkBits)) {
    case Link::kGraph: {
      // A graph is one step, however deep.
      const uint64_t above =
          parent.edge == kNoIndex ? 0 : graph_.edges[parent.edge].name & kLinkBits;
      return above == static_cast<uint64_t>(Link::kGraph) ? before : HashMix(before, kGraph);
    }
    case Link::kSaved:
      return HashMix(before, kSaved);
    case Link::kGradient:
      return HashMix(before, kGradient);
    case Link::kReference:
      break;
  }
  auto* const name = reinterpret_cast<Object>(edge.name & ~kLinkBits);
  if (name != nullptr) {
    size_t size = 0;
    const char* const text = g_api.Text(name, &size);
    if (size == 0 || (*text >= '0' && *text <= '9'))
      return HashMix(before, kIndex);
    for (size_t i = 0; i < size; ++i)
      before = HashMix(before, static_cast<unsigned char>(text[i]));
    return HashMix(before, kPlace);
  }
  const bool is_indexed = parent.edge_count > kMostNamed ||
                          ((parent.object & 1) == 0 &&
                           links_.TraitsOf(reinterpret_cast<Object>(parent.object)).is_indexed);
  return HashMix(before, is_indexed ? kIndex : kPlace + node.edge - parent.first_edge);
}

uint64_t HolderWays::SignatureOf(uint32_t node) {
  constexpr uint64_t kSome = 1;  // 0 is none
  PageArray<uint32_t> path;
  uint32_t at = node;
  for (; graph_.nodes[at].signature == 0 && graph_.nodes[at].parent != kNoIndex;
       at = graph_.nodes[at].parent) {
    if (!path.Push(at))
      return kSome;
  }
  GraphNode& top = graph_.nodes[at];
  if (top.signature == 0) {
    auto* const object = reinterpret_cast<Object>(top.object);
    const bool is_held = top.root == Root::kHeld;
    top.signature =
        HashMix(is_held ? reinterpret_cast<uintptr_t>(PythonApi::TypeOf(object)) : top.object, 0) |
        kSome;
  }
  uint64_t signature = top.signature;
  for (size_t i = path.size(); i > 0; --i) {
    GraphNode& below = graph_.nodes[path[i - 1]];
    signature = below.signature = StepOf(signature, below) | kSome;
  }
  return signature;
}

bool HolderWays::FindGroups() {
  IndexMap group_of;
  constexpr uint64_t kNowhere = 3;
  for (uint32_t i = 0; i < graph_.storages.size(); ++i) {
    const GraphStorage& storage = graph_.storages[i];
    if (storage.node == kNoIndex && !is_all_)
      continue;
    const uint64_t signature = storage.node == kNoIndex ? kNowhere : SignatureOf(storage.node);
    const uint64_t key = HashMix(signature, static_cast<uint64_t>(storage.device)) | 1;
    uint32_t group = group_of.Find(key);
    if (group == kNoIndex) {
      group = static_cast<uint32_t>(groups_.size());
      if (!groups_.Push({0, 0, 0, i, storage.device, false}) || !group_of.Add(key, group))
        return false;
    }
    Group& found = groups_[group];
    found.bytes += storage.bytes;
    ++found.count;
    if (storage.bytes > found.largest) {
      found.largest = storage.bytes;
      found.storage = i;
    }
  }
  return true;
}

Object HolderWays::Groups(int64_t most) {
  if (!FindGroups())
    return nullptr;
  Object const groups = g_api.PyList_New(0);
  bool ok = groups != nullptr;
  for (int64_t n = 0; n < most && ok; ++n) {
    uint32_t best = kNoIndex;
    for (uint32_t i = 0; i < groups_.size(); ++i) {
      if (!groups_[i].is_told && (best == kNoIndex || groups_[i].bytes > groups_[best].bytes))
        best = i;
    }
    if (best == kNoIndex)
      break;
    groups_[best].is_told = true;
    ok = AppendGroup(groups, best);
  }
  if (ok || groups == nullptr)
    return groups;
  g_api.Py_DecRef(groups);
  return nullptr;
}

bool HolderWays::AppendSteps(Object steps, uint32_t node) {
  PageArray<uint32_t> path;
  for (uint32_t i = node; i != kNoIndex; i = graph_.nodes[i].parent) {
    if (!path.Push(i))
      return false;
  }
  for (size_t i = path.size(); i > 0; --i) {
    const GraphNode& at = graph_.nodes[path[i - 1]];
    const Owned step(g_api.PyList_New(0));
    if (!step || !Append(steps, step.get()))
      return false;
    if (at.root == Root::kFrame) {
      if (!Append(step.get(), reinterpret_cast<Object>(at.signature)) ||
          !AppendNumber(step.get(), at.references) || !AppendNumber(step.get(), 0)) {
        return false;
      }
      continue;
    }
    auto* const object = reinterpret_cast<Object>(at.object);
    // A tuple that a call is making may have no other reference.
    const bool is_hidden = (at.object & 1) != 0 || (at.root == Root::kHeld &&
                                                    PythonApi::TypeOf(object) == g_api.tuple_type);
    const uintptr_t edge = at.edge == kNoIndex ? 0 : graph_.edges[at.edge].name;
    auto* const name = reinterpret_cast<Object>(edge & ~kLinkBits);
    if (!Append(step.get(), is_hidden ? g_api.none : object) ||
        !Append(step.get(), name != nullptr ? name : g_api.none) ||
        !AppendNumber(step.get(), static_cast<int64_t>(edge & kLinkBits))) {
      return false;
    }
  }
  return true;
}

bool HolderWays::AppendGroup(Object groups, uint32_t index) {
  const Group& group = groups_[index];
  const uint32_t node = graph_.storages[group.storage].node;
  uint32_t top = node, first = node;
  while (top != kNoIndex && graph_.nodes[top].parent != kNoIndex) {
    first = top;
    top = graph_.nodes[top].parent;
  }
  const Root root = top == kNoIndex ? Root::kNone : graph_.nodes[top].root;
  if (root == Root::kHeld)
    first = top;
  const Owned list(g_api.PyList_New(0));
  const Owned steps(g_api.PyList_New(0));
  return list && steps && AppendNumber(list.get(), static_cast<int64_t>(group.bytes)) &&
         AppendNumber(list.get(), group.count) && AppendNumber(list.get(), group.device) &&
         AppendNumber(list.get(), static_cast<int64_t>(root)) && AppendNumber(list.get(), first) &&
         AppendSteps(steps.get(), node) && Append(list.get(), steps.get()) &&
         Append(groups, list.get());
}

}  // namespace vramscope::probe
