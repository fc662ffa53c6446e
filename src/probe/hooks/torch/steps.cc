// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "probe/hooks/torch/agent.h"
#include "probe/hooks/torch/names.h"
#include "probe/hooks/torch/torch.h"
#include "probe/stack/python/api.h"

// An optimizer's step: every parameter then has its gradient and its state. It runs once an
// iteration, over all parameters, so it walks the optimizer's lists through the C API and reads the
// tensors from memory.
namespace vramscope::probe {
namespace {

constexpr uint32_t kMaxOptimizers = 256;
constexpr uint64_t kFullWalks = 3;  // state is made in the first steps, lazily
constexpr int kSampledEntries = 8;  // later: looked at in each step, in turn

struct Optimizer {
  uintptr_t object;  // 0: the slot is free
  Object weakref;    // frees the slot when the optimizer goes
  Object gone;       // which that calls
  uint64_t birth;
  uint64_t steps;
  ptrdiff_t state_entries;
  ptrdiff_t sample;  // PyDict_Next's position
};

constinit Optimizer g_optimizers[kMaxOptimizers]{};
constinit uint64_t g_births = 0;
constinit bool g_search_again = false;  // the agent could not be asked for all unknown parameters
constinit Object g_param_groups = nullptr, g_params = nullptr, g_state = nullptr;

Object OptimizerGone(Object address, Object) {
  const auto object = reinterpret_cast<uintptr_t>(g_api.PyLong_AsVoidPtr(address));
  for (Optimizer& optimizer : g_optimizers) {
    if (optimizer.object != object)
      continue;
    ReleaseLater(optimizer.weakref);
    ReleaseLater(optimizer.gone);
    optimizer = {};
    break;
  }
  return g_api.None();
}

constinit PyMethodDef g_optimizer_gone = {"optimizer_gone", OptimizerGone, kMethO, nullptr};

// Null if there are too many.
Optimizer* FindOptimizer(Object object) {
  const auto address = reinterpret_cast<uintptr_t>(object);
  Optimizer* free = nullptr;
  for (Optimizer& optimizer : g_optimizers) {
    if (optimizer.object == address)
      return &optimizer;
    if (optimizer.object == 0 && free == nullptr)
      free = &optimizer;
  }
  if (free == nullptr)
    return nullptr;
  const Owned number(g_api.PyLong_FromVoidPtr(object));
  const Owned gone(g_api.PyCFunction_NewEx(&g_optimizer_gone, number.get(), nullptr));
  Object const weakref = gone ? g_api.PyWeakref_NewRef(object, gone.get()) : nullptr;
  if (weakref == nullptr) {
    g_api.PyErr_Clear();
    return nullptr;
  }
  g_api.Py_IncRef(gone.get());
  *free = {.object = address, .weakref = weakref, .gone = gone.get(), .birth = ++g_births};
  return free;
}

void WriteStep(Stream& stream, format::StepKind kind, Object optimizer) {
  const uint32_t name = InternTypeName(stream, optimizer);
  stream.Append(format::Step{.time = Now(),
                             .kind = static_cast<uint64_t>(kind),
                             .optimizer = reinterpret_cast<uintptr_t>(optimizer),
                             .name = name});
}

// Calls visit(parameter, group number, number in the group) until it returns false.
template <class Visit>
void ForEachParameter(Object groups, Visit visit) {
  const ptrdiff_t group_count = g_api.Is(groups, g_api.list_type) ? g_api.PyList_Size(groups) : 0;
  for (ptrdiff_t i = 0; i < group_count; ++i) {
    Object const group = g_api.PyList_GetItem(groups, i);
    if (!g_api.Is(group, g_api.dict_type))
      continue;
    Object const params = g_api.PyDict_GetItemWithError(group, g_params);
    if (params == nullptr || !g_api.Is(params, g_api.list_type))
      continue;
    const ptrdiff_t count = g_api.PyList_Size(params);
    for (ptrdiff_t j = 0; j < count; ++j) {
      if (!visit(g_api.PyList_GetItem(params, j), i, j))
        return;
    }
  }
}

bool IsUnknown(Object tensor) {
  const uintptr_t impl = TensorImplOf(tensor);
  Storage storage;
  if (impl == 0 || !StorageOf(impl, &storage))
    return false;
  const Parameter* const parameter = FindParameter(tensor, impl);
  // A parameter that moved did so with its model: buffers and aliases moved too.
  return parameter == nullptr || (g_search_again && parameter->owner == 0) ||
         (parameter->owner != 0 && parameter->address != storage.address);
}

// The parameters without a name where they are now, null if all have one.
Object Unknown(Object groups) {
  Object list = nullptr;
  ForEachParameter(groups, [&](Object tensor, ptrdiff_t, ptrdiff_t) {
    if (!IsUnknown(tensor))
      return true;
    if (list == nullptr)
      list = g_api.PyList_New(0);
    return list != nullptr && g_api.PyList_Append(list, tensor) == 0;
  });
  return list;
}

Parameter* NameByPosition(Object tensor,
                          uintptr_t impl,
                          ptrdiff_t group,
                          ptrdiff_t index,
                          const Storage& storage) {
  char text[64];
  const int size = std::snprintf(text, sizeof text, "param_groups.%td.%td", group, index);
  const Owned name(g_api.PyUnicode_FromStringAndSize(text, size));
  return name ? AddParameter(tensor, impl, 0, name.get(), storage, false) : nullptr;
}

// The gradient belongs to the distributed parameter, the name to its local part.
void NameShardsGradient(Stream& stream, uint64_t now, Object tensor, uintptr_t impl) {
  const Owned local(LocalTensorOf(tensor));
  const uintptr_t part = local ? TensorImplOf(local.get()) : 0;
  if (Parameter* const parameter = part != 0 ? FindParameter(local.get(), part) : nullptr)
    WriteGradient(stream, now, impl, parameter);
}

void NameParameters(Stream& stream, Object groups) {
  const uint64_t now = Now();
  ForEachParameter(groups, [&](Object tensor, ptrdiff_t group, ptrdiff_t index) {
    const uintptr_t impl = TensorImplOf(tensor);
    Storage storage;
    if (impl == 0)
      return true;
    if (!StorageOf(impl, &storage)) {
      NameShardsGradient(stream, now, tensor, impl);
      return true;
    }
    Parameter* parameter = FindParameter(tensor, impl);
    const bool is_new = parameter == nullptr;
    if (is_new)
      parameter = NameByPosition(tensor, impl, group, index, storage);
    if (parameter == nullptr)
      return true;
    if (is_new || parameter->address != storage.address ||
        parameter->size_bytes != storage.size_bytes) {
      parameter->address = storage.address;
      parameter->size_bytes = storage.size_bytes;
      parameter->whole_bytes = WholeBytesOf(storage);
      WriteName(stream, now, format::NameKind::kParameter, storage, parameter);
    }
    WriteGradient(stream, now, impl, parameter);
    return true;
  });
}

// Names what one entry of an optimizer's state holds; whether anything of it was new.
class StateNamer {
 public:
  StateNamer(Stream& stream, const Optimizer& optimizer) : stream_(stream), optimizer_(optimizer) {}

  bool Name(Object key, Object value) {
    const Owned local(LocalTensorOf(key));
    Object const tensor = local ? local.get() : key;
    const uintptr_t impl = TensorImplOf(tensor);
    const Parameter* const parameter = impl != 0 ? FindParameter(tensor, impl) : nullptr;
    name_ = parameter != nullptr ? parameter->name : nullptr;
    owner_ = parameter != nullptr ? parameter->owner : 0;
    return Walk(value, nullptr, 0, 0);
  }

 private:
  bool Walk(Object value, Object detail, uint64_t index, int depth) {
    if (TensorImplOf(value) != 0) {
      const Owned local(LocalTensorOf(value));
      const uintptr_t impl = TensorImplOf(local ? local.get() : value);
      Storage storage;
      return impl != 0 && StorageOf(impl, &storage) &&
             WriteNameIfNew(stream_, format::NameKind::kOptimizerState, owner_,
                            HashMix(HashMix(0, optimizer_.birth), index), name_, detail, storage);
    }
    if (depth == 3)
      return false;
    bool is_new = false;
    if (g_api.Is(value, g_api.dict_type)) {
      ptrdiff_t position = 0;
      Object key = nullptr, item = nullptr;
      while (g_api.PyDict_Next(value, &position, &key, &item) != 0)
        is_new |= Walk(item, detail != nullptr ? detail : key, index * 64 + 1, depth + 1);
    } else if (g_api.Is(value, g_api.list_type)) {
      for (ptrdiff_t i = 0; i < g_api.PyList_Size(value); ++i)
        is_new |= Walk(g_api.PyList_GetItem(value, i), detail, index * 64 + Next(i), depth + 1);
    } else if (g_api.Is(value, g_api.tuple_type)) {
      for (ptrdiff_t i = 0; i < g_api.PyTuple_Size(value); ++i)
        is_new |= Walk(g_api.PyTuple_GetItem(value, i), detail, index * 64 + Next(i), depth + 1);
    }
    return is_new;
  }
  static uint64_t Next(ptrdiff_t i) { return static_cast<uint64_t>(i) + 2; }

  Stream& stream_;
  const Optimizer& optimizer_;
  Object name_ = nullptr;
  uintptr_t owner_ = 0;
};

void NameState(Stream& stream, Optimizer* optimizer, Object state) {
  StateNamer namer(stream, *optimizer);
  Object key = nullptr, value = nullptr;
  const ptrdiff_t entries = g_api.PyDict_Size(state);
  bool changed = optimizer->steps < kFullWalks || entries != optimizer->state_entries;
  for (int i = 0; i < kSampledEntries && !changed; ++i) {
    if (g_api.PyDict_Next(state, &optimizer->sample, &key, &value) == 0) {
      optimizer->sample = 0;
      break;
    }
    changed = namer.Name(key, value);
  }
  optimizer->state_entries = entries;
  if (!changed)
    return;
  ptrdiff_t position = 0;
  while (g_api.PyDict_Next(state, &position, &key, &value) != 0)
    namer.Name(key, value);
}

Object Attribute(Object object, Object name) {
  Object const value = g_api.PyObject_GetAttr(object, name);
  if (value == nullptr)
    g_api.PyErr_Clear();
  return value;
}

}  // namespace

bool StepsPrepare() {
  g_param_groups = g_api.PyUnicode_InternFromString("param_groups");
  g_params = g_api.PyUnicode_InternFromString("params");
  g_state = g_api.PyUnicode_InternFromString("state");
  return g_param_groups != nullptr && g_params != nullptr && g_state != nullptr;
}

void StepsForget() {
  for (Optimizer& optimizer : g_optimizers) {
    optimizer.steps = 0;
    optimizer.state_entries = 0;
  }
}

Object StepBegin(Object, Object optimizer) {
  g_torch.steps_seen.store(true, std::memory_order_relaxed);
  g_torch.backwards_since_step.store(0, std::memory_order_relaxed);
  // A backward before it is over, whether an event has shown that or not.
  g_torch.in_backward.store(false, std::memory_order_relaxed);
  if (!AgentMayRecord())
    return g_api.None();
  const CollectorPause collector;
  if (!TorchEndGraphTensors())
    return nullptr;
  const Owned groups(Attribute(optimizer, g_param_groups));
  if (groups && TensorsKnown()) {
    const Owned unknown(Unknown(groups.get()));
    if (unknown) {
      bool interrupted = false;
      g_search_again = !AgentSearch(unknown.get(), &interrupted);
      if (interrupted)
        return nullptr;
    }
    bool interrupted = false;
    AgentBeforeStep(&interrupted);
    if (interrupted)
      return nullptr;
  }
  if (RecordScope scope(Want::kTensor); scope) {
    WriteStep(*scope, format::StepKind::kBegin, optimizer);
    if (groups && TensorsKnown())
      NameParameters(*scope, groups.get());
  }
  return g_api.None();
}

Object NameOptimizer(Object, Object optimizer) {
  const Owned groups(Attribute(optimizer, g_param_groups));
  const Owned state(Attribute(optimizer, g_state));
  Optimizer* const known = FindOptimizer(optimizer);
  if (!groups || !state || known == nullptr || !TensorsKnown())
    return g_api.None();
  if (RecordScope scope(Want::kAlways); scope) {
    NameParameters(*scope, groups.get());
    if (g_api.Is(state.get(), g_api.dict_type))
      NameState(*scope, known, state.get());
  }
  return g_api.None();
}

Object StepEnd(Object, Object optimizer) {
  if (!AgentMayRecord())
    return g_api.None();
  const CollectorPause collector;
  const Owned state(Attribute(optimizer, g_state));
  Optimizer* const known = FindOptimizer(optimizer);
  // A closure ran forward and backward within the step, as under Lightning: its gradients came
  // after the step's begin.
  const bool has_new_gradients =
      g_torch.in_backward.load(std::memory_order_relaxed) ||
      g_torch.backwards_since_step.exchange(0, std::memory_order_relaxed) != 0;
  const Owned groups(has_new_gradients ? Attribute(optimizer, g_param_groups) : nullptr);
  if (RecordScope scope(Want::kTensor); scope) {
    if (groups && TensorsKnown())
      NameParameters(*scope, groups.get());
    if (state && known != nullptr && TensorsKnown() && g_api.Is(state.get(), g_api.dict_type))
      NameState(*scope, known, state.get());
    WriteStep(*scope, format::StepKind::kEnd, optimizer);
    if (known != nullptr)
      ++known->steps;
  }
  return g_api.None();
}

}  // namespace vramscope::probe
