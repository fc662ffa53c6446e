// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "probe/hooks/torch/names.h"
#include "probe/hooks/torch/object_graph.h"
#include "probe/stack/python/api.h"

// What one Python object leads to: its references, a tensor's gradient and graph, and what nodes of
// autograd save. Calls no code of the program. The caller holds the GIL.
namespace vramscope::probe {

inline constexpr uint64_t kLinkBits = 3;  // of GraphEdge::name

// Items are borrowed, unless they are new. False, null: an error, or there are fewer.
inline bool Append(Object list, Object item) {
  return item != nullptr && g_api.PyList_Append(list, item) == 0;
}
inline bool AppendNew(Object list, Object item) {
  const Owned owned(item);
  return Append(list, item);
}
inline bool AppendNumber(Object list, int64_t number) {
  return AppendNew(list, g_api.PyLong_FromLong(number));
}
inline Object Item(Object list, ptrdiff_t n) {
  return n < g_api.PyList_Size(list) ? g_api.PyList_GetItem(list, n) : nullptr;
}

struct TypeTraits {
  Object type = nullptr;
  bool is_container = false;  // may refer to other objects
  bool is_dict = false, is_exact_dict = false, is_exact_list = false, is_exact_tuple = false;
  bool is_indexed = false;  // its references have no names
  bool is_sized = false;    // of the class whose objects have bytes, without PyTorch
  bool is_node = false;     // of autograd, in C++
  bool is_python_node = false;
};

// Adds nodes and edges to a graph. Its functions return false or kNoIndex when memory is exhausted.
class ObjectLinks {
 public:
  // The first arguments of FindHolders() (holders.h); `autograd` and `sized` may be None.
  ObjectLinks(ObjectGraph* graph,
              Object get_referents,
              Object autograd,
              Object sized,
              bool with_cpu);
  // Whether Python gave it what it needs.
  bool ok() const { return kept_ && names_of_type_; }

  const TypeTraits& TraitsOf(Object object);
  uint32_t NodeOf(Object object);
  uint32_t AddNode(uintptr_t object, uint32_t storage);
  bool AddEdge(Object to, Object name, Link link);
  // Adds all that the node's object leads to.
  bool Expand(uint32_t node);
  // Objects that PyTorch made when it was asked: a list. They live until the end, so that their
  // addresses stay theirs.
  Object kept() const { return kept_.get(); }

 private:
  uint32_t StorageIndex(const Storage& storage);
  uint32_t StorageOfObject(Object object, const TypeTraits& traits);
  bool ExpandReferences(Object object, const TypeTraits& traits);
  bool ExpandDict(Object dict);
  bool ExpandTensor(Object tensor);
  bool AddGradient(const Storage& storage);
  bool ExpandAutograd(Object object, bool is_python);
  bool AddSaved(Object saved, Object name);
  Object SavedNamesOf(Object type);
  bool Keep(Object object) { return g_api.PyList_Append(kept_.get(), object) == 0; }

  ObjectGraph& graph_;
  Object get_referents_, autograd_, sized_;
  bool with_cpu_;
  Owned kept_;
  Owned names_of_type_;  // a node's class: the names of what it saves
  static constexpr size_t kTraits = 1024;
  TypeTraits traits_[kTraits];
};

}  // namespace vramscope::probe
