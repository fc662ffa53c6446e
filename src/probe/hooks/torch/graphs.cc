// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "probe/hooks/torch/agent.h"
#include "probe/hooks/torch/names.h"
#include "probe/hooks/torch/torch.h"
#include "probe/session/session.h"
#include "probe/stack/python/api.h"
#include "probe/stack/stacks.h"

// Tensors of replayed CUDA graphs. torch.compile(mode="reduce-overhead") replays graphs and makes
// their outputs from addresses: the allocator counts that memory as free. The probe takes the place
// of CUDAGraphTreeManager._run, which runs one graph. After a replay agent.py lists the tensors
// that it made; before a replay, a step and a mark those that are gone.
namespace vramscope::probe {
namespace {

// Under the GIL.
struct Graphs {
  Object made = nullptr;  // agent.py: graphs_made(manager), graphs_gone()
  Object gone = nullptr;
  uint32_t own_references = 0;  // of the compiler to an output's memory; 0: unknown
  int64_t live = 0;             // tensors that are recorded and not gone
};
constinit Graphs g_graphs;

uint64_t NumberAt(Object list, ptrdiff_t index) {
  return reinterpret_cast<uint64_t>(g_api.PyLong_AsVoidPtr(g_api.PyList_GetItem(list, index)));
}

int32_t DeviceAt(Object list, ptrdiff_t index) {
  return static_cast<int32_t>(g_api.PyLong_AsLong(g_api.PyList_GetItem(list, index)));
}

// False if an exception of the program's is set.
bool WriteMade(Object manager) {
  bool interrupted = false;
  const Owned found(AgentCall(g_graphs.made, manager, &interrupted));
  if (!found || !g_api.Is(found.get(), g_api.list_type))
    return !interrupted;
  RecordScope scope(Want::kTensor);
  const ptrdiff_t size = g_api.PyList_Size(found.get());
  if (!scope || size < 3)
    return true;
  const uint64_t now = Now();
  const PythonStack stack = CapturePython(*scope);
  const AutogradNode node = CurrentAutogradNode(stack.id != 0);
  for (ptrdiff_t i = 0; i + 2 < size; i += 3) {
    const uint64_t size_bytes = NumberAt(found.get(), i + 1);
    scope->Append(format::GraphTensor{.time = now,
                                      .address = NumberAt(found.get(), i),
                                      .size = size_bytes,
                                      .device = DeviceAt(found.get(), i + 2),
                                      .stack = stack.id,
                                      .sequence = node.number});
    g_graphs.live += size_bytes != 0 ? 1 : -1;
  }
  TorchObserveStack(stack, node);
  return true;
}

uint32_t ReferencesTo(Object object) {
  return ReadAt<uint32_t>(object, 0);  // the lower half, in all versions
}

// By the compiler's own count, a method of the weak reference. -1: an error is set.
int IsExpired(Object reference) {
  const Owned method(g_api.PyObject_GetAttrString(reference, "expired"));
  const Owned result(method ? g_api.PyObject_CallFunctionObjArgs(method.get(), nullptr) : nullptr);
  return result ? g_api.PyLong_AsLong(result.get()) != 0 : -1;
}

// Whether nothing has an output besides the compiler, which keeps the tensor to return it again. It
// does not count what autograd saved. The memory's references that are its own are learned from it.
int IsGone(Object tensor, Object reference) {
  const uintptr_t impl = TensorImplOf(tensor);
  if (impl == 0)
    return IsExpired(reference);
  Storage storage;
  if (ReferencesTo(tensor) > 1 || UseCountOf(impl) > 1 || !StorageOf(impl, &storage))
    return 0;
  const uint32_t references = UseCountOf(storage.impl);
  if (g_graphs.own_references != 0)
    return references <= g_graphs.own_references ? 1 : 0;
  const int is_expired = IsExpired(reference);
  if (is_expired > 0)
    g_graphs.own_references = references;
  return is_expired;
}

// Takes the place of the manager's _run, which is `plain`.
Object RunGraph(Object plain, Object arguments, Object keywords) {
  const bool records = AgentMayRecord();
  if (records && !TorchEndGraphTensors())
    return nullptr;
  Object const result = g_api.PyObject_Call(plain, arguments, keywords);
  if (result == nullptr || !records || WriteMade(Argument(arguments, 0)))
    return result;
  g_api.Py_DecRef(result);
  return nullptr;
}

constinit PyMethodDef g_run = {
    "_run",
    // PyCFunctionWithKeywords, as the flags say.
    reinterpret_cast<Object (*)(Object, Object)>(reinterpret_cast<void*>(RunGraph)),
    kMethVarArgs | kMethKeywords, nullptr};

}  // namespace

bool TorchEndGraphTensors() {
  if (g_graphs.live == 0 || !AgentMayRecord())
    return true;
  bool interrupted = false;
  const Owned found(AgentCall(g_graphs.gone, nullptr, &interrupted));
  if (!found || !g_api.Is(found.get(), g_api.list_type))
    return !interrupted;
  const ptrdiff_t size = g_api.PyList_Size(found.get());
  RecordScope scope(Want::kTensor);
  const uint64_t now = Now();
  for (ptrdiff_t i = 0; i + 1 < size; i += 2) {
    --g_graphs.live;
    if (scope) {
      scope->Append(format::GraphTensor{.time = now,
                                        .address = NumberAt(found.get(), i),
                                        .device = DeviceAt(found.get(), i + 1)});
    }
  }
  return true;
}

Object GoneOf(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  Object const found = g_api.PyList_New(0);
  const ptrdiff_t kept = g_api.PyList_Size(arguments[1]);
  ptrdiff_t position = 0;
  Object key = nullptr, address = nullptr;
  while (found != nullptr && g_api.PyDict_Next(arguments[0], &position, &key, &address) != 0) {
    const auto index = static_cast<ptrdiff_t>(g_api.PyLong_AsLong(key));
    Object const tensor = index < kept ? g_api.PyList_GetItem(arguments[1], index) : g_api.none;
    Object const reference = g_api.PyList_GetItem(arguments[2], index);
    const int is_gone = reference != nullptr ? IsGone(tensor, reference) : -1;
    if (is_gone < 0 || (is_gone > 0 && g_api.PyList_Append(found, key) != 0)) {
      g_api.Py_DecRef(found);
      return nullptr;
    }
  }
  return found;
}

Object WatchGraphs(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  Object const manager = arguments[0];
  const Owned plain(g_api.PyObject_GetAttrString(manager, "_run"));
  const Owned function(plain ? g_api.PyCFunction_NewEx(&g_run, plain.get(), nullptr) : nullptr);
  const Owned method(function ? g_api.PyInstanceMethod_New(function.get()) : nullptr);
  for (Object const kept : {arguments[1], arguments[2]})
    g_api.Py_IncRef(kept);
  g_graphs.made = arguments[1];
  g_graphs.gone = arguments[2];
  if (method && g_api.PyObject_SetAttrString(manager, "_run", method.get()) == 0)
    return g_api.Truth(true);
  g_api.PyErr_Clear();
  return g_api.Truth(false);
}

}  // namespace vramscope::probe
