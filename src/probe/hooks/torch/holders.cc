// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/holders.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/memory_groups.h"
#include "probe/hooks/torch/holder_ways.h"
#include "probe/hooks/torch/names.h"
#include "probe/hooks/torch/object_graph.h"
#include "probe/hooks/torch/object_links.h"
#include "probe/stack/python/api.h"
#include "probe/stack/python/walk.h"

namespace vramscope::probe {
namespace {

// Of the graph: at most so much, and this share of what the process may still take.
constexpr uint64_t kMostBytes = uint64_t{256} << 20;
constexpr uint64_t kShare = 8;
constexpr uint32_t kLookAtClock = 64;  // objects
constexpr uint32_t kMostFrames = 4096;

struct PlainReader {
  template <class T>
  bool Get(const char* address, T* value) const {
    std::memcpy(value, address, sizeof *value);
    return true;
  }
};

class Walk {
 public:
  Walk(ObjectGraph* graph, Object arguments)
      : graph_(*graph),
        get_objects_(Item(arguments, 0)),
        links_(graph,
               Item(arguments, 1),
               Item(arguments, 2),
               Item(arguments, 3),
               g_api.PyLong_AsLong(Item(arguments, 6)) != 0),
        began_ns_(base::MonotonicNs()),
        limit_ns_(g_api.PyLong_AsLong(Item(arguments, 4))),
        most_groups_(g_api.PyLong_AsLong(Item(arguments, 5))) {
    base::MemoryGroups groups;
    groups.Find();
    most_bytes_ = std::min(kMostBytes, base::HostMemoryHeadroomBytes(groups) / kShare);
    own_modules_ = g_api.Text(Item(arguments, 7), &own_modules_size_);
  }
  Object Run();

 private:
  bool ListObjects();
  bool AddRoots();
  bool AddModules();
  bool AddFrames(const void* thread_state);
  bool AddLocals(uint32_t node, const char* frame, Object code);
  bool Search();
  bool SearchValues();
  bool Expand(uint32_t node) {
    ++expanded_;
    return links_.Expand(node);
  }
  static bool IsKey(const GraphEdge& edge) {
    return edge.name == reinterpret_cast<uintptr_t>(g_api.none);
  }
  bool SearchRest();
  bool AddHeads(bool with_attributes);
  bool MayBeAttributes(const GraphNode& node) const;
  bool LeadsToNew(const GraphNode& node) const;
  bool IsLate();
  Object Statistics();

  struct Key {
    uint32_t node, edge;
  };

  ObjectGraph& graph_;
  Object get_objects_;
  ObjectLinks links_;
  int64_t began_ns_, limit_ns_, most_groups_;
  uint64_t most_bytes_ = kMostBytes;
  const char* own_modules_ = "";
  size_t own_modules_size_ = 0;
  PageArray<uintptr_t> objects_;
  PageArray<Key> keys_;
  uint32_t expanded_ = 0;
  uint32_t next_ = 0;  // in the queue
  bool is_late_ = false;
};

bool Walk::IsLate() {
  if (!is_late_ && expanded_ % kLookAtClock == 0)
    is_late_ = base::MonotonicNs() - began_ns_ > limit_ns_ || graph_.Bytes() > most_bytes_;
  return is_late_;
}

// The list exists only here: while it does, each object has one more reference, and a tuple that a
// thread is making must have only one when it gets its size.
bool Walk::ListObjects() {
  const Owned objects(g_api.PyObject_CallFunctionObjArgs(get_objects_, nullptr));
  const ptrdiff_t size = objects ? g_api.PyList_Size(objects.get()) : -1;
  bool ok = size >= 0 && graph_.Reserve(static_cast<size_t>(size), most_bytes_);
  for (ptrdiff_t i = 0; i < size && ok; ++i) {
    Object const object = g_api.PyList_GetItem(objects.get(), i);
    // The list itself may be among them.
    ok = object == objects.get() || objects_.Push(reinterpret_cast<uintptr_t>(object));
    // All tensors are known, also where the time is too short for the rest.
    const TypeTraits& traits = links_.TraitsOf(object);
    if (ok && traits.is_container &&
        (traits.is_sized || (TensorsKnown() && TensorImplOf(object) != 0))) {
      ok = links_.NodeOf(object) != kNoIndex;
    }
  }
  return ok;
}

bool Walk::AddModules() {
  Object const modules = g_api.PyImport_GetModuleDict();
  const Owned dictionary(g_api.PyUnicode_InternFromString("__dict__"));
  Object module_type = nullptr;
  for (const bool is_main : {true, false}) {
    ptrdiff_t position = 0;
    Object name = nullptr, module = nullptr;
    while (g_api.PyDict_Next(modules, &position, &name, &module) != 0) {
      size_t size = 0;
      const char* const text = g_api.Text(name, &size);
      if ((std::strcmp(text, "__main__") == 0) != is_main)
        continue;
      if (is_main)
        module_type = PythonApi::TypeOf(module);
      const bool is_own = own_modules_size_ != 0 && size >= own_modules_size_ &&
                          std::memcmp(text, own_modules_, own_modules_size_) == 0;
      if (is_own || module_type == nullptr || !g_api.Is(module, module_type))
        continue;
      const Owned variables(g_api.PyObject_GenericGetAttr(module, dictionary.get()));
      if (!variables || !g_api.Is(variables.get(), g_api.dict_type)) {
        g_api.PyErr_Clear();
        continue;
      }
      const uint32_t node = links_.NodeOf(variables.get());
      if (node == kNoIndex)
        return false;
      if (graph_.nodes[node].is_reached)
        continue;
      graph_.nodes[node].root = Root::kModule;
      if (!graph_.Reach(node, kNoIndex, kNoIndex))
        return false;
    }
  }
  return true;
}

// The variables of a running function, read from its frame: no frame object and no dictionary are
// made.
bool Walk::AddLocals(uint32_t node, const char* frame, Object code) {
  const PythonLayout& layout = g_python.layout;
  constexpr uint32_t kCellsInPlace = 0x030b0000;  // an argument that is a cell has one place
  const auto first = static_cast<uint32_t>(graph_.edges.size());
  const Owned variables(g_api.PyObject_GetAttrString(code, "co_varnames"));
  const Owned cells(g_api.PyObject_GetAttrString(code, "co_cellvars"));
  const Owned free(g_api.PyObject_GetAttrString(code, "co_freevars"));
  if (!variables || !cells || !free)
    return false;
  const auto has = [&](Object name) {
    bool found = false;
    for (ptrdiff_t i = 0; i < g_api.PyTuple_Size(variables.get()); ++i)
      found = found || g_api.PyTuple_GetItem(variables.get(), i) == name;
    return found;
  };
  const char* at = frame + layout.frame_locals;
  for (Object const names : {variables.get(), cells.get(), free.get()}) {
    for (ptrdiff_t i = 0; i < g_api.PyTuple_Size(names); ++i) {
      Object const name = g_api.PyTuple_GetItem(names, i);
      if (names == cells.get() && g_python.version_hex >= kCellsInPlace && has(name))
        continue;
      const auto value = ReadAt<uint64_t>(at, 0);
      at += sizeof value;
      const bool is_number =
          layout.reference_tags != 0 && (value & layout.reference_tags) == layout.reference_tags;
      if (!is_number && !links_.AddEdge(reinterpret_cast<Object>(Untagged(layout, value)), name,
                                        Link::kReference)) {
        return false;
      }
    }
  }
  GraphNode& added = graph_.nodes[node];
  added.first_edge = first;
  added.edge_count = static_cast<uint32_t>(graph_.edges.size()) - first;
  return true;
}

bool Walk::AddFrames(const void* thread_state) {
  const PlainReader reader;
  const char* cursor = InnermostPythonFrame(g_python.layout, reader, thread_state);
  for (uint32_t depth = 0; cursor != nullptr && depth < kMostFrames; ++depth) {
    const char* const frame = cursor;
    RawPythonFrame raw{};
    if (!StepPythonFrame(g_python.layout, reader, &cursor, &raw))
      continue;
    auto* const code = reinterpret_cast<Object>(const_cast<char*>(raw.code));
    const int line =
        g_api.PyCode_Addr2Line(code, static_cast<int>(InstructionOffset(g_python.layout, raw)));
    const uint32_t node = links_.AddNode(reinterpret_cast<uintptr_t>(frame) | 1, kNoIndex);
    if (node == kNoIndex || !AddLocals(node, frame, code))
      return false;
    graph_.nodes[node].root = Root::kFrame;
    graph_.nodes[node].signature = reinterpret_cast<uintptr_t>(code);
    graph_.nodes[node].references = static_cast<uint32_t>(line < 0 ? 0 : line);
    if (!graph_.Reach(node, kNoIndex, kNoIndex))
      return false;
  }
  return true;
}

bool Walk::AddRoots() {
  if (!AddModules())
    return false;
  if (!g_python.ready.load(std::memory_order_acquire))
    return true;
  const void* const own = g_api.PyThreadState_Get();
  Object state = g_api.PyInterpreterState_ThreadHead(g_api.PyInterpreterState_Get());
  for (; state != nullptr; state = g_api.PyThreadState_Next(state)) {
    if (state != own && !AddFrames(state))
      return false;
  }
  return true;
}

// Breadth first, so that the first way to an object is the shortest.
bool Walk::SearchValues() {
  for (; next_ < graph_.queue.size() && !IsLate(); ++next_) {
    const uint32_t node = graph_.queue[next_];
    if (!graph_.nodes[node].is_expanded && !Expand(node))
      return false;
    const GraphNode from = graph_.nodes[node];
    for (uint32_t i = 0; i < from.edge_count; ++i) {
      const uint32_t edge = from.first_edge + i;
      const uint32_t to = graph_.edges[edge].to;
      if (graph_.nodes[to].is_reached)
        continue;
      if (IsKey(graph_.edges[edge]) ? !keys_.Push({node, edge}) : !graph_.Reach(to, node, edge))
        return false;
    }
  }
  return true;
}

// What nothing else leads to is reached as a key, last: an optimizer has parameters as keys.
bool Walk::Search() {
  if (!SearchValues())
    return false;
  for (size_t i = 0; i < keys_.size() && !is_late_; ++i) {
    const Key key = keys_[i];
    const uint32_t to = graph_.edges[key.edge].to;
    if (!graph_.nodes[to].is_reached && (!graph_.Reach(to, key.node, key.edge) || !SearchValues()))
      return false;
  }
  keys_.Clear();
  return true;
}

// From 3.13 on an object leads to its attributes, but not to the dictionary of them that was asked
// for: nothing seems to refer to it. It begins a way to what nothing else leads to.
bool Walk::MayBeAttributes(const GraphNode& node) const {
  constexpr uint32_t kHidesDictionary = 0x030d0000;
  return g_python.version_hex >= kHidesDictionary &&
         PythonApi::TypeOf(reinterpret_cast<Object>(node.object)) == g_api.dict_type;
}

bool Walk::LeadsToNew(const GraphNode& node) const {
  bool leads = false;
  for (uint32_t i = 0; i < node.edge_count; ++i)
    leads = leads || !graph_.nodes[graph_.edges[node.first_edge + i].to].is_reached;
  return leads;
}

// Those of the others begin a way that have more references than the others explain: C++ code, a
// call under way or the interpreter has them.
bool Walk::AddHeads(bool with_attributes) {
  for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
    GraphNode& node = graph_.nodes[i];
    if (node.is_reached || (node.object & 1) != 0)
      continue;
    if (ReadAt<uint32_t>(reinterpret_cast<const void*>(node.object), 0) <= node.references)
      continue;
    if (MayBeAttributes(node) && !(with_attributes && LeadsToNew(node)))
      continue;
    node.root = Root::kHeld;
    if (!graph_.Reach(i, kNoIndex, kNoIndex))
      return false;
  }
  return Search();
}

bool Walk::SearchRest() {
  for (size_t i = 0; i < objects_.size(); ++i) {
    if (links_.NodeOf(reinterpret_cast<Object>(objects_[i])) == kNoIndex)
      return false;
  }
  for (uint32_t i = 0; i < graph_.nodes.size() && !IsLate(); ++i) {
    if (graph_.nodes[i].is_reached || graph_.nodes[i].is_expanded)
      continue;
    if (!Expand(i))
      return false;
    const GraphNode from = graph_.nodes[i];
    for (uint32_t edge = 0; edge < from.edge_count; ++edge) {
      const GraphEdge& to = graph_.edges[from.first_edge + edge];
      // C++ holds what a graph saves, and counts as any other from outside.
      if ((to.name & kLinkBits) == static_cast<uintptr_t>(Link::kReference))
        ++graph_.nodes[to.to].references;
    }
  }
  for (ptrdiff_t i = 0; i < g_api.PyList_Size(links_.kept()); ++i) {
    const uint32_t node =
        graph_.node_of.Find(reinterpret_cast<uintptr_t>(g_api.PyList_GetItem(links_.kept(), i)));
    if (node != kNoIndex)
      ++graph_.nodes[node].references;
  }
  return is_late_ || (AddHeads(false) && AddHeads(true));
}

Object Walk::Statistics() {
  int64_t bytes = 0, left = 0, left_bytes = 0;
  for (uint32_t i = 0; i < graph_.storages.size(); ++i) {
    const GraphStorage& storage = graph_.storages[i];
    bytes += static_cast<int64_t>(storage.bytes);
    if (storage.node != kNoIndex || !is_late_)
      continue;
    ++left;
    left_bytes += static_cast<int64_t>(storage.bytes);
  }
  Object const list = g_api.PyList_New(0);
  const int64_t numbers[] = {expanded_,
                             static_cast<int64_t>(objects_.size()),
                             base::MonotonicNs() - began_ns_,
                             is_late_ ? 0 : 1,
                             left,
                             left_bytes,
                             static_cast<int64_t>(graph_.storages.size()),
                             bytes};
  bool ok = list != nullptr;
  for (const int64_t number : numbers)
    ok = ok && AppendNumber(list, number);
  return list;
}

Object Walk::Run() {
  const bool ok =
      links_.ok() && ListObjects() && AddRoots() && Search() && (is_late_ || SearchRest());
  if (!ok)
    return nullptr;
  const Owned groups(HolderWays(&graph_, &links_, !is_late_).Groups(most_groups_));
  const Owned statistics(Statistics());
  Object const answer = g_api.PyList_New(0);
  if (answer != nullptr && Append(answer, groups.get()) && Append(answer, statistics.get()))
    return answer;
  if (answer != nullptr)
    g_api.Py_DecRef(answer);
  return nullptr;
}

// The graph that FindHolders() leaves for BytesOfHolder(). Never destroyed: the program may end
// while it is in use.
alignas(ObjectGraph) constinit unsigned char g_storage[sizeof(ObjectGraph)]{};
constinit ObjectGraph* g_graph = nullptr;

}  // namespace

void* FindHolders(void* arguments) {
  constexpr ptrdiff_t kArguments = 8;
  if (g_graph == nullptr)
    g_graph = new (g_storage) ObjectGraph();
  ForgetHolders();
  if (!g_api.Load() || g_api.PyList_Size(arguments) != kArguments)
    return nullptr;
  if (Item(arguments, 2) != g_api.none && !TensorsKnown())
    return g_api.None();
  const CollectorPause pause;
  Walk walk(g_graph, arguments);
  return walk.Run();
}

int64_t BytesOfHolder(uint32_t place) {
  uint64_t bytes = 0;
  return g_graph != nullptr && place < g_graph->nodes.size() && g_graph->BytesThrough(place, &bytes)
             ? static_cast<int64_t>(bytes)
             : -1;
}

void ForgetHolders() {
  if (g_graph != nullptr)
    g_graph->Clear();
}

}  // namespace vramscope::probe
