// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/holders.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/memory_groups.h"
#include "probe/hooks/torch/names.h"
#include "probe/hooks/torch/object_graph.h"
#include "probe/stack/python/api.h"
#include "probe/stack/python/walk.h"

namespace vramscope::probe {
namespace {

// Of the graph: at most so much, and this share of what the process may still take.
constexpr uint64_t kMostBytes = uint64_t{256} << 20;
constexpr uint64_t kShare = 8;
constexpr uint32_t kLookAtClock = 64;  // objects
// An object with more references than that is a container without names.
constexpr uint32_t kMostNamed = 32;
constexpr uint32_t kMostFrames = 4096;
constexpr uint64_t kLinkBits = 3;

// PyTypeObject.tp_flags (Include/object.h).
constexpr unsigned long kHasCollector = 1UL << 14;
constexpr unsigned long kIsList = 1UL << 25;
constexpr unsigned long kIsTuple = 1UL << 26;
constexpr unsigned long kIsDict = 1UL << 29;

struct TypeTraits {
  Object type = nullptr;
  bool is_container = false;  // may refer to other objects
  bool is_dict = false, is_exact_dict = false, is_exact_list = false, is_exact_tuple = false;
  bool is_indexed = false;  // its references have no names
  bool is_sized = false;    // of the class whose objects have bytes, without PyTorch
  bool is_node = false;     // of autograd, in C++
  bool is_python_node = false;
};

struct PlainReader {
  template <class T>
  bool Get(const char* address, T* value) const {
    std::memcpy(value, address, sizeof *value);
    return true;
  }
};

// One reference for as long as it lives. No collector sees it.
Object HiddenList() {
  Object const list = g_api.PyList_New(0);
  if (list != nullptr)
    g_api.PyObject_GC_UnTrack(list);
  return list;
}

bool Append(Object list, Object item) {
  return item != nullptr && g_api.PyList_Append(list, item) == 0;
}

bool AppendNew(Object list, Object item) {
  const Owned owned(item);
  return Append(list, item);
}

bool AppendNumber(Object list, int64_t number) {
  return AppendNew(list, g_api.PyLong_FromLong(number));
}

// Borrowed; null if there are fewer.
Object Item(Object list, ptrdiff_t n) {
  return n < g_api.PyList_Size(list) ? g_api.PyList_GetItem(list, n) : nullptr;
}

class Walk {
 public:
  Walk(ObjectGraph* graph, Object arguments)
      : graph_(*graph),
        get_objects_(Item(arguments, 0)),
        get_referents_(Item(arguments, 1)),
        autograd_(Item(arguments, 2)),
        sized_(Item(arguments, 3)),
        began_ns_(base::MonotonicNs()),
        limit_ns_(g_api.PyLong_AsLong(Item(arguments, 4))),
        most_groups_(g_api.PyLong_AsLong(Item(arguments, 5))),
        with_cpu_(g_api.PyLong_AsLong(Item(arguments, 6)) != 0),
        kept_(HiddenList()),
        names_of_type_(g_api.PyDict_New()) {
    base::MemoryGroups groups;
    groups.Find();
    most_bytes_ = std::min(kMostBytes, base::HostMemoryHeadroomBytes(groups) / kShare);
    own_modules_ = g_api.Text(Item(arguments, 7), &own_modules_size_);
    if (autograd_ == g_api.none)
      autograd_ = nullptr;
    if (sized_ == g_api.none)
      sized_ = nullptr;
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
  static bool IsKey(const GraphEdge& edge) {
    return edge.name == reinterpret_cast<uintptr_t>(g_api.none);
  }
  bool SearchRest();
  bool AddHeads(bool with_attributes);
  bool MayBeAttributes(const GraphNode& node) const;
  bool LeadsToNew(const GraphNode& node) const;

  const TypeTraits& TraitsOf(Object object);
  // kNoIndex when memory is exhausted.
  uint32_t NodeOf(Object object);
  uint32_t AddNode(uintptr_t object, uint32_t storage);
  uint32_t StorageIndex(const Storage& storage);
  uint32_t StorageOfObject(Object object, const TypeTraits& traits);
  bool AddEdge(Object to, Object name, Link link);
  bool Expand(uint32_t node);
  bool ExpandReferences(Object object, const TypeTraits& traits);
  bool ExpandDict(Object dict);
  bool ExpandTensor(Object tensor);
  bool AddGradient(const Storage& storage);
  bool ExpandAutograd(Object object, bool is_python);
  bool AddSaved(Object saved, Object name);
  Object SavedNamesOf(Object type);
  bool Keep(Object object) { return g_api.PyList_Append(kept_.get(), object) == 0; }
  bool IsLate();

  uint64_t SignatureOf(uint32_t node);
  uint64_t StepOf(uint64_t before, const GraphNode& node);
  Object Groups();
  bool AppendGroup(Object groups, uint32_t group);
  bool AppendSteps(Object steps, uint32_t node);
  Object Statistics();

  struct Key {
    uint32_t node, edge;
  };
  struct Group {
    uint64_t bytes, largest;
    uint32_t count, storage;
    int32_t device;
    bool is_told;
  };

  ObjectGraph& graph_;
  Object get_objects_, get_referents_, autograd_, sized_;
  int64_t began_ns_, limit_ns_, most_groups_;
  uint64_t most_bytes_ = kMostBytes;
  bool with_cpu_;
  const char* own_modules_ = "";
  size_t own_modules_size_ = 0;
  Owned kept_;           // objects that PyTorch makes when asked: their addresses stay theirs
  Owned names_of_type_;  // a node's class: the names of what it saves
  PageArray<uintptr_t> objects_;
  PageArray<Group> groups_;
  PageArray<Key> keys_;
  static constexpr size_t kTraits = 1024;
  TypeTraits traits_[kTraits];
  uint32_t expanded_ = 0;
  uint32_t next_ = 0;  // in the queue
  bool is_late_ = false;
};

bool Walk::IsLate() {
  if (!is_late_ && expanded_ % kLookAtClock == 0)
    is_late_ = base::MonotonicNs() - began_ns_ > limit_ns_ || graph_.Bytes() > most_bytes_;
  return is_late_;
}

const TypeTraits& Walk::TraitsOf(Object object) {
  Object const type = PythonApi::TypeOf(object);
  const auto address = reinterpret_cast<uintptr_t>(type);
  TypeTraits& traits = traits_[(address >> 4 ^ address >> 14) % kTraits];
  if (traits.type == type)
    return traits;
  const unsigned long flags = g_api.PyType_GetFlags(type);
  traits = {};
  traits.type = type;
  traits.is_container = (flags & kHasCollector) != 0;
  traits.is_dict = (flags & kIsDict) != 0;
  traits.is_exact_dict = type == g_api.dict_type;
  traits.is_exact_list = type == g_api.list_type;
  traits.is_exact_tuple = type == g_api.tuple_type;
  const char* const name = TypeNameOf(object);
  const auto is_named = [name](const char* wanted) { return std::strcmp(name, wanted) == 0; };
  traits.is_indexed = (flags & (kIsList | kIsTuple)) != 0 || is_named("deque") || is_named("set") ||
                      is_named("frozenset") || is_named("_lru_cache_wrapper");
  if (sized_ != nullptr)
    traits.is_sized = g_api.PyType_IsSubtype(type, Item(sized_, 0)) != 0;
  if (autograd_ == nullptr)
    return traits;
  traits.is_python_node = g_api.PyType_IsSubtype(type, Item(autograd_, 1)) != 0;
  // Classes that PyTorch made: those of others could run code here.
  const bool may_be_node = std::strstr(name, "Backward") != nullptr || is_named("AccumulateGrad") ||
                           is_named("CppFunction");
  if (may_be_node && !traits.is_python_node &&
      PythonApi::TypeOf(type) == PythonApi::TypeOf(g_api.dict_type)) {
    const Owned found(g_api.PyObject_GetAttrString(type, "next_functions"));
    traits.is_node = static_cast<bool>(found);
    g_api.PyErr_Clear();
  }
  return traits;
}

uint32_t Walk::StorageIndex(const Storage& storage) {
  if (storage.device == format::kNoDevice || (storage.device == format::kCpuDevice && !with_cpu_))
    return kNoIndex;
  uint32_t index = graph_.storage_of.Find(storage.impl);
  if (index != kNoIndex)
    return index;
  index = static_cast<uint32_t>(graph_.storages.size());
  return graph_.storages.Push({storage.impl, storage.size_bytes, storage.device, kNoIndex}) &&
                 graph_.storage_of.Add(storage.impl, index)
             ? index
             : kNoIndex;
}

uint32_t Walk::StorageOfObject(Object object, const TypeTraits& traits) {
  if (traits.is_sized) {
    const Owned bytes(g_api.PyObject_CallFunctionObjArgs(Item(sized_, 1), object, nullptr));
    const auto address = reinterpret_cast<uintptr_t>(object);
    if (bytes) {
      return StorageIndex({.address = address,
                           .size_bytes = static_cast<uint64_t>(g_api.PyLong_AsLong(bytes.get())),
                           .device = 0,
                           .impl = address,
                           .tensor = 0});
    }
    g_api.PyErr_Clear();
  }
  const uintptr_t impl = TensorsKnown() ? TensorImplOf(object) : 0;
  Storage storage;
  return impl != 0 && StorageOf(impl, &storage) ? StorageIndex(storage) : kNoIndex;
}

uint32_t Walk::AddNode(uintptr_t object, uint32_t storage) {
  const auto index = static_cast<uint32_t>(graph_.nodes.size());
  GraphNode node{};
  node.object = object;
  node.parent = node.edge = kNoIndex;
  node.storage = storage;
  return graph_.nodes.Push(node) && graph_.node_of.Add(object, index) ? index : kNoIndex;
}

uint32_t Walk::NodeOf(Object object) {
  const auto address = reinterpret_cast<uintptr_t>(object);
  const uint32_t found = graph_.node_of.Find(address);
  return found != kNoIndex ? found : AddNode(address, StorageOfObject(object, TraitsOf(object)));
}

bool Walk::AddEdge(Object to, Object name, Link link) {
  if (to == nullptr || !TraitsOf(to).is_container)
    return true;
  const uint32_t node = NodeOf(to);
  return node != kNoIndex &&
         graph_.edges.Push(
             {reinterpret_cast<uintptr_t>(name) | static_cast<uintptr_t>(link), node});
}

bool Walk::ExpandDict(Object dict) {
  ptrdiff_t position = 0;
  Object key = nullptr, value = nullptr;
  while (g_api.PyDict_Next(dict, &position, &key, &value) != 0) {
    if (!AddEdge(value, key, Link::kReference) || !AddEdge(key, g_api.none, Link::kReference))
      return false;
  }
  return true;
}

// The keys and values of an object of a class derived from dict, which has other references
// besides: each counts once.
class ItemsOfDict {
 public:
  ItemsOfDict(const ObjectGraph& graph, uint32_t first_edge)
      : graph_(graph), first_(first_edge), end_(static_cast<uint32_t>(graph.edges.size())) {}
  // False when memory is exhausted.
  bool Prepare() {
    for (uint32_t i = first_; i < end_ && end_ - first_ > kFew; ++i) {
      const uint64_t key = uint64_t{graph_.edges[i].to} + 1;
      if (map_.Find(key) == kNoIndex && !map_.Add(key, 0))
        return false;
    }
    return true;
  }
  bool Has(Object object) const {
    const uint32_t node = graph_.node_of.Find(reinterpret_cast<uintptr_t>(object));
    if (node == kNoIndex)
      return false;
    if (end_ - first_ > kFew)
      return map_.Find(uint64_t{node} + 1) != kNoIndex;
    bool has = false;
    for (uint32_t i = first_; i < end_; ++i)
      has = has || graph_.edges[i].to == node;
    return has;
  }

 private:
  static constexpr uint32_t kFew = 16;
  const ObjectGraph& graph_;
  uint32_t first_, end_;
  IndexMap map_;
};

bool Walk::ExpandReferences(Object object, const TypeTraits& traits) {
  const auto first = static_cast<uint32_t>(graph_.edges.size());
  if (traits.is_dict && !ExpandDict(object))
    return false;
  if (traits.is_exact_dict)
    return true;
  if (traits.is_exact_tuple) {
    const ptrdiff_t size = g_api.PyTuple_Size(object);
    bool ok = true;
    for (ptrdiff_t i = 0; i < size && ok; ++i)
      ok = AddEdge(g_api.PyTuple_GetItem(object, i), nullptr, Link::kReference);
    return ok;
  }
  const Owned made(traits.is_exact_list
                       ? nullptr
                       : g_api.PyObject_CallFunctionObjArgs(get_referents_, object, nullptr));
  Object const list = traits.is_exact_list ? object : made.get();
  if (list == nullptr) {
    g_api.PyErr_Clear();
    return true;
  }
  const ptrdiff_t size = g_api.PyList_Size(list);
  ItemsOfDict items(graph_, first);
  bool ok = !traits.is_dict || items.Prepare();
  for (ptrdiff_t i = 0; i < size && ok; ++i) {
    Object const item = g_api.PyList_GetItem(list, i);
    ok = (traits.is_dict && items.Has(item)) || AddEdge(item, nullptr, Link::kReference);
  }
  return ok;
}

bool Walk::AddGradient(const Storage& storage) {
  const uint32_t index = StorageIndex(storage);
  if (index == kNoIndex)
    return true;
  const uintptr_t object = storage.tensor | 1;
  uint32_t node = graph_.node_of.Find(object);
  if (node == kNoIndex)
    node = AddNode(object, index);
  return node != kNoIndex && graph_.edges.Push({static_cast<uintptr_t>(Link::kGradient), node});
}

bool Walk::ExpandTensor(Object tensor) {
  const uintptr_t impl = TensorsKnown() ? TensorImplOf(tensor) : 0;
  if (impl == 0)
    return true;
  const Gradient gradient = GradientOf(impl);
  if ((gradient.has_values && !AddGradient(gradient.values)) ||
      (gradient.has_indices && !AddGradient(gradient.indices))) {
    return false;
  }
  if (autograd_ == nullptr)
    return true;
  const Owned graph(g_api.PyObject_CallFunctionObjArgs(Item(autograd_, 0), tensor, nullptr));
  if (!graph)
    g_api.PyErr_Clear();
  if (!graph || graph.get() == g_api.none)
    return true;
  return Keep(graph.get()) && AddEdge(graph.get(), nullptr, Link::kGraph);
}

// The names of the tensors that a node saves, for a class: borrowed, null if it cannot be made.
Object Walk::SavedNamesOf(Object type) {
  const Owned address(g_api.PyLong_FromVoidPtr(type));
  Object const known = g_api.PyDict_GetItemWithError(names_of_type_.get(), address.get());
  if (known != nullptr)
    return known;
  const Owned all(g_api.PyObject_CallFunctionObjArgs(Item(autograd_, 4), type, nullptr));
  const Owned names(g_api.PyList_New(0));
  if (!all || !names)
    return nullptr;
  for (ptrdiff_t i = 0; i < g_api.PyList_Size(all.get()); ++i) {
    size_t size = 0;
    Object const name = g_api.PyList_GetItem(all.get(), i);
    const char* const text = g_api.Text(name, &size);
    const bool is_one =
        std::strncmp(text, "_raw_saved_", 11) == 0 || std::strcmp(text, "variable") == 0;
    if (is_one && !Append(names.get(), name))
      return nullptr;
  }
  return g_api.PyDict_SetItem(names_of_type_.get(), address.get(), names.get()) == 0 ? names.get()
                                                                                     : nullptr;
}

// What a node saves: a tensor, PyTorch's box for one, or several of them.
bool Walk::AddSaved(Object saved, Object name) {
  if (saved == nullptr || saved == g_api.none)
    return true;
  const bool is_tuple = g_api.Is(saved, g_api.tuple_type);
  if (is_tuple || g_api.Is(saved, g_api.list_type)) {
    const ptrdiff_t size = is_tuple ? g_api.PyTuple_Size(saved) : g_api.PyList_Size(saved);
    bool ok = true;
    for (ptrdiff_t i = 0; i < size && ok; ++i) {
      ok = AddSaved(is_tuple ? g_api.PyTuple_GetItem(saved, i) : g_api.PyList_GetItem(saved, i),
                    name);
    }
    return ok;
  }
  if (TensorsKnown() && TensorImplOf(saved) != 0)
    return Keep(saved) && AddEdge(saved, name, Link::kSaved);
  if (std::strcmp(TypeNameOf(saved), "SavedTensor") != 0)
    return true;  // packed by a hook
  const Owned tensor(g_api.PyObject_GetAttrString(saved, "data"));
  if (!tensor) {
    g_api.PyErr_Clear();  // freed by a backward, or a PyTorch before 2.7
    return true;
  }
  const bool is_tensor = TensorsKnown() && TensorImplOf(tensor.get()) != 0;
  return !is_tensor || AddSaved(tensor.get(), name);
}

bool Walk::ExpandAutograd(Object object, bool is_python) {
  const Owned next(is_python
                       ? g_api.PyObject_CallFunctionObjArgs(Item(autograd_, 2), object, nullptr)
                       : g_api.PyObject_GetAttrString(object, "next_functions"));
  const ptrdiff_t size = next ? g_api.PyTuple_Size(next.get()) : -1;
  g_api.PyErr_Clear();
  for (ptrdiff_t i = 0; i < size; ++i) {
    Object const function = Argument(g_api.PyTuple_GetItem(next.get(), i), 0);
    if (function == nullptr || function == g_api.none)
      continue;
    if (!Keep(function) || !AddEdge(function, nullptr, Link::kGraph))
      return false;
  }
  if (is_python) {
    const Owned saved(g_api.PyObject_CallFunctionObjArgs(Item(autograd_, 3), object, nullptr));
    if (!saved)
      g_api.PyErr_Clear();
    return AddSaved(saved.get(), nullptr);
  }
  Object const names = SavedNamesOf(PythonApi::TypeOf(object));
  if (names == nullptr)
    return false;
  bool ok = true;
  for (ptrdiff_t i = 0; i < g_api.PyList_Size(names) && ok; ++i) {
    Object const name = g_api.PyList_GetItem(names, i);
    const Owned saved(g_api.PyObject_GetAttr(object, name));
    if (!saved)
      g_api.PyErr_Clear();
    ok = AddSaved(saved.get(), name);
  }
  return ok;
}

bool Walk::Expand(uint32_t node) {
  const uintptr_t address = graph_.nodes[node].object;
  ++expanded_;
  graph_.nodes[node].is_expanded = true;
  if ((address & 1) != 0)
    return true;  // a frame's are there already
  auto* const object = reinterpret_cast<Object>(address);
  const auto first = static_cast<uint32_t>(graph_.edges.size());
  const TypeTraits traits = TraitsOf(object);
  // PyTorch's links first, so that a way has them by their names.
  const bool ok =
      ExpandTensor(object) && ExpandReferences(object, traits) &&
      (!(traits.is_node || traits.is_python_node) || ExpandAutograd(object, traits.is_python_node));
  GraphNode& expanded = graph_.nodes[node];
  expanded.first_edge = first;
  expanded.edge_count = static_cast<uint32_t>(graph_.edges.size()) - first;
  return ok;
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
    const TypeTraits& traits = TraitsOf(object);
    if (ok && traits.is_container &&
        (traits.is_sized || (TensorsKnown() && TensorImplOf(object) != 0))) {
      ok = NodeOf(object) != kNoIndex;
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
      const uint32_t node = NodeOf(variables.get());
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
      if (!is_number &&
          !AddEdge(reinterpret_cast<Object>(Untagged(layout, value)), name, Link::kReference)) {
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
    const uint32_t node = AddNode(reinterpret_cast<uintptr_t>(frame) | 1, kNoIndex);
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
    if (NodeOf(reinterpret_cast<Object>(objects_[i])) == kNoIndex)
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
  for (ptrdiff_t i = 0; i < g_api.PyList_Size(kept_.get()); ++i) {
    const uint32_t node =
        graph_.node_of.Find(reinterpret_cast<uintptr_t>(g_api.PyList_GetItem(kept_.get(), i)));
    if (node != kNoIndex)
      ++graph_.nodes[node].references;
  }
  return is_late_ || (AddHeads(false) && AddHeads(true));
}

// ---- ways and groups

uint64_t Walk::StepOf(uint64_t before, const GraphNode& node) {
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
  const bool is_indexed =
      parent.edge_count > kMostNamed ||
      ((parent.object & 1) == 0 && TraitsOf(reinterpret_cast<Object>(parent.object)).is_indexed);
  return HashMix(before, is_indexed ? kIndex : kPlace + node.edge - parent.first_edge);
}

uint64_t Walk::SignatureOf(uint32_t node) {
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

Object Walk::Groups() {
  IndexMap group_of;
  constexpr uint64_t kNowhere = 3;
  for (uint32_t i = 0; i < graph_.storages.size(); ++i) {
    const GraphStorage& storage = graph_.storages[i];
    if (storage.node == kNoIndex && is_late_)
      continue;
    const uint64_t signature = storage.node == kNoIndex ? kNowhere : SignatureOf(storage.node);
    const uint64_t key = HashMix(signature, static_cast<uint64_t>(storage.device)) | 1;
    uint32_t group = group_of.Find(key);
    if (group == kNoIndex) {
      group = static_cast<uint32_t>(groups_.size());
      if (!groups_.Push({0, 0, 0, i, storage.device, false}) || !group_of.Add(key, group))
        return nullptr;
    }
    Group& found = groups_[group];
    found.bytes += storage.bytes;
    ++found.count;
    if (storage.bytes > found.largest) {
      found.largest = storage.bytes;
      found.storage = i;
    }
  }
  Object const groups = g_api.PyList_New(0);
  bool ok = groups != nullptr;
  for (int64_t n = 0; n < most_groups_ && ok; ++n) {
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

bool Walk::AppendSteps(Object steps, uint32_t node) {
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

bool Walk::AppendGroup(Object groups, uint32_t index) {
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
  const bool ok = kept_ && names_of_type_ && ListObjects() && AddRoots() && Search() &&
                  (is_late_ || SearchRest());
  if (!ok)
    return nullptr;
  const Owned groups(Groups());
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
