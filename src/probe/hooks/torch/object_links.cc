// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/object_links.h"

#include <cstring>

namespace vramscope::probe {
namespace {

// PyTypeObject.tp_flags (Include/object.h).
constexpr unsigned long kHasCollector = 1UL << 14;
constexpr unsigned long kIsList = 1UL << 25;
constexpr unsigned long kIsTuple = 1UL << 26;
constexpr unsigned long kIsDict = 1UL << 29;

// One reference for as long as it lives. No collector sees it.
Object HiddenList() {
  Object const list = g_api.PyList_New(0);
  if (list != nullptr)
    g_api.PyObject_GC_UnTrack(list);
  return list;
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

}  // namespace

ObjectLinks::ObjectLinks(ObjectGraph* graph,
                         Object get_referents,
                         Object autograd,
                         Object sized,
                         bool with_cpu)
    : graph_(*graph),
      get_referents_(get_referents),
      autograd_(autograd == g_api.none ? nullptr : autograd),
      sized_(sized == g_api.none ? nullptr : sized),
      with_cpu_(with_cpu),
      kept_(HiddenList()),
      names_of_type_(g_api.PyDict_New()) {}

const TypeTraits& ObjectLinks::TraitsOf(Object object) {
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

uint32_t ObjectLinks::StorageIndex(const Storage& storage) {
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

uint32_t ObjectLinks::StorageOfObject(Object object, const TypeTraits& traits) {
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

uint32_t ObjectLinks::AddNode(uintptr_t object, uint32_t storage) {
  const auto index = static_cast<uint32_t>(graph_.nodes.size());
  GraphNode node{};
  node.object = object;
  node.parent = node.edge = kNoIndex;
  node.storage = storage;
  return graph_.nodes.Push(node) && graph_.node_of.Add(object, index) ? index : kNoIndex;
}

uint32_t ObjectLinks::NodeOf(Object object) {
  const auto address = reinterpret_cast<uintptr_t>(object);
  const uint32_t found = graph_.node_of.Find(address);
  return found != kNoIndex ? found : AddNode(address, StorageOfObject(object, TraitsOf(object)));
}

bool ObjectLinks::AddEdge(Object to, Object name, Link link) {
  if (to == nullptr || !TraitsOf(to).is_container)
    return true;
  const uint32_t node = NodeOf(to);
  return node != kNoIndex &&
         graph_.edges.Push(
             {reinterpret_cast<uintptr_t>(name) | static_cast<uintptr_t>(link), node});
}

bool ObjectLinks::ExpandDict(Object dict) {
  ptrdiff_t position = 0;
  Object key = nullptr, value = nullptr;
  while (g_api.PyDict_Next(dict, &position, &key, &value) != 0) {
    if (!AddEdge(value, key, Link::kReference) || !AddEdge(key, g_api.none, Link::kReference))
      return false;
  }
  return true;
}

bool ObjectLinks::ExpandReferences(Object object, const TypeTraits& traits) {
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

bool ObjectLinks::AddGradient(const Storage& storage) {
  const uint32_t index = StorageIndex(storage);
  if (index == kNoIndex)
    return true;
  const uintptr_t object = storage.tensor | 1;
  uint32_t node = graph_.node_of.Find(object);
  if (node == kNoIndex)
    node = AddNode(object, index);
  return node != kNoIndex && graph_.edges.Push({static_cast<uintptr_t>(Link::kGradient), node});
}

bool ObjectLinks::ExpandTensor(Object tensor) {
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
Object ObjectLinks::SavedNamesOf(Object type) {
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
bool ObjectLinks::AddSaved(Object saved, Object name) {
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

bool ObjectLinks::ExpandAutograd(Object object, bool is_python) {
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

bool ObjectLinks::Expand(uint32_t node) {
  const uintptr_t address = graph_.nodes[node].object;
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

}  // namespace vramscope::probe
