// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "format/enums.h"
#include "probe/hooks/torch/names.h"
#include "probe/stack/python/api.h"

namespace vramscope::probe {
namespace {

constexpr uint32_t kStorageWords = 12;

struct TensorLayout {
  uint32_t python_impl;      // THPVariable: its TensorImpl
  uint32_t impl_storage;     // TensorImpl: its StorageImpl
  uint32_t impl_autograd;    // TensorImpl: its AutogradMeta, null if it needs none
  uint32_t impl_python;      // TensorImpl: its Python object, bit 0 a flag; 0: not known
  uint32_t meta_gradient;    // AutogradMeta: the gradient's TensorImpl
  uint64_t sparse_class;     // the first word of every SparseTensorImpl; 0: not known
  uint32_t sparse_parts[2];  // SparseTensorImpl: the TensorImpls of its indices, of its values
  uint32_t impl_offset;      // TensorImpl: the number of its first element in the storage
  uint32_t impl_elements;    // TensorImpl: 0: these three are not known
  uint32_t impl_type;        // TensorImpl: the number of its elements' type
  uint32_t storage_data;
  uint32_t storage_size;
  uint32_t storage_device;  // type and index, a byte each
  // Words of a StorageImpl that its allocator decides, such as the function that frees it: a bit
  // each, and what they are for PyTorch's own CPU allocator.
  uint32_t allocator_words;
  uint64_t of_allocator[kStorageWords];
};

constinit TensorLayout g_layout{};
constinit Object g_base = nullptr;  // torch._C.TensorBase
constinit Object g_usual[2] = {};   // torch.Tensor, torch.nn.Parameter
constinit Object g_local_tensor = nullptr;
constinit std::atomic<bool> g_known{false};

// struct Device { int8_t type; int8_t index; }: the types of c10/core/DeviceType.h.
constexpr int8_t kTypeCpu = 0;
constexpr int8_t kTypeCuda = 1;

// sizeof(c10::ScalarType), by its number; 0 if an element is not a whole number of bytes.
constexpr uint8_t kElementBytes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4,
                                     2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,  1, 2, 4, 8};

struct Sample {
  uint64_t object, impl, storage, data, size, gradient, device_type;
};
constexpr int kMaxSamples = 8;

struct Samples {
  Sample at[kMaxSamples];
  int count = 0;

  bool Read(Object list) {
    const ptrdiff_t size = g_api.PyList_Size(list);
    if (size < 2 || size > kMaxSamples)
      return false;
    for (ptrdiff_t i = 0; i < size; ++i) {
      Object const tuple = g_api.PyList_GetItem(list, i);
      Sample& sample = at[count++];
      uint64_t* const fields[] = {&sample.impl, &sample.storage,  &sample.data,
                                  &sample.size, &sample.gradient, &sample.device_type};
      sample.object = reinterpret_cast<uint64_t>(Argument(tuple, 0));
      for (int field = 0; field < 6; ++field) {
        Object const number = Argument(tuple, field + 1);
        if (number == nullptr)
          return false;
        *fields[field] = reinterpret_cast<uint64_t>(g_api.PyLong_AsVoidPtr(number));
      }
    }
    return g_api.PyErr_Occurred() == nullptr;
  }

  // The one offset at which every sample's structure `from` holds the value `want`.
  template <class T, class From, class Want>
  bool Find(uint32_t limit, From from, Want want, uint32_t* offset) const {
    const SafeReader reader;
    int found = 0;
    for (uint32_t i = sizeof(T); i < limit; i += sizeof(T)) {
      bool all = true;
      for (int n = 0; n < count && all; ++n) {
        T value{};
        const uint64_t base = from(at[n]);
        all = base != 0 && reader.Get(reinterpret_cast<const char*>(base + i), &value) &&
              value == static_cast<T>(want(at[n]));
      }
      if (!all)
        continue;
      *offset = i;
      ++found;
    }
    return found == 1;
  }
};

// Words of a StorageImpl that name its allocator. The first two samples and their gradients are the
// CPU allocator's, the third is foreign memory.
void FindAllocator(const Samples& samples, TensorLayout* layout) {
  constexpr int kForeign = 2;
  const SafeReader reader;
  const auto word_of = [&](uint64_t storage, uint32_t i) {
    uint64_t word = 0;
    return storage != 0 && reader.Get(reinterpret_cast<const char*>(storage + i * 8), &word) ? word
                                                                                             : 0;
  };
  for (uint32_t i = 1; i < kStorageWords && samples.count > kForeign; ++i) {
    // Beside smaller fields, memory keeps what it had before.
    if (i == layout->storage_data / 8 || i == layout->storage_size / 8 ||
        i == layout->storage_device / 8)
      continue;
    const uint64_t word = word_of(samples.at[0].storage, i);
    bool is_same = word != word_of(samples.at[kForeign].storage, i);
    for (int n = 0; n < kForeign; ++n) {
      const Sample& sample = samples.at[n];
      is_same = is_same && word_of(sample.storage, i) == word &&
                word_of(word_of(sample.gradient, layout->impl_storage / 8), i) == word;
    }
    // A function or an object of a library, and no count of references.
    Dl_info info;
    if (!is_same || dladdr(reinterpret_cast<void*>(word), &info) == 0)
      continue;
    layout->allocator_words |= 1u << i;
    layout->of_allocator[i] = word;
  }
}

bool FindLayout(const Samples& samples, TensorLayout* layout) {
  const auto object = [](const Sample& sample) { return sample.object; };
  const auto impl = [](const Sample& sample) { return sample.impl; };
  const auto storage = [](const Sample& sample) { return sample.storage; };
  const auto device = [](const Sample& sample) { return sample.device_type | 0xff00; };
  bool ok =
      samples.Find<uint64_t>(64, object, impl, &layout->python_impl) &&
      samples.Find<uint64_t>(96, impl, storage, &layout->impl_storage) &&
      samples.Find<uint64_t>(
          96, storage, [](const Sample& sample) { return sample.data; }, &layout->storage_data) &&
      samples.Find<uint64_t>(
          96, storage, [](const Sample& sample) { return sample.size; }, &layout->storage_size) &&
      samples.Find<uint16_t>(96, storage, device, &layout->storage_device);
  if (!ok)
    return false;
  // Without it gradients of distributed tensors have no names.
  if (!samples.Find<uint64_t>(128, impl, object, &layout->impl_python))
    layout->impl_python = 0;
  // The gradient lies behind a pointer that only tensors with one have: both steps are looked for.
  Samples with_gradient;
  for (int i = 0; i < samples.count; ++i) {
    if (samples.at[i].gradient != 0)
      with_gradient.at[with_gradient.count++] = samples.at[i];
  }
  if (with_gradient.count < 2)
    return false;
  int found = 0;
  for (uint32_t offset = 16; offset < 96; offset += 8) {
    const auto meta = [offset](const Sample& sample) {
      uint64_t pointer = 0;
      SafeReader().Get(reinterpret_cast<const char*>(sample.impl + offset), &pointer);
      return pointer;
    };
    uint32_t gradient = 0;
    if (!with_gradient.Find<uint64_t>(
            64, meta, [](const Sample& sample) { return sample.gradient; }, &gradient)) {
      continue;
    }
    layout->impl_autograd = offset;
    layout->meta_gradient = gradient;
    ++found;
  }
  return found == 1;
}

template <class T>
T At(uintptr_t address, uint32_t offset) {
  return ReadAt<T>(reinterpret_cast<const void*>(address), offset);
}

// The storage of the tensor that a distributed tensor's TensorImpl wraps; the latter has no memory.
bool StorageOfPart(uintptr_t impl, Storage* storage) {
  constexpr uintptr_t kFlags = 1;
  if (g_layout.impl_python == 0)
    return false;
  auto* const object =
      reinterpret_cast<Object>(At<uintptr_t>(impl, g_layout.impl_python) & ~kFlags);
  // A tensor that only C++ has touched has no Python object.
  if (object == nullptr || TensorImplOf(object) != impl)
    return false;
  const Owned local(LocalTensorOf(object));
  const uintptr_t part = local ? TensorImplOf(local.get()) : 0;
  return part != 0 && StorageOf(part, storage);
}

struct SparseSample {
  uint64_t impl, storages[2];
};

// The one offset at which every sample has a pointer to a TensorImpl with that storage of it.
bool FindSparsePart(const SparseSample (&samples)[2], int part, uint32_t* offset) {
  constexpr uint32_t kLimit = 320;
  const SafeReader reader;
  int found = 0;
  for (uint32_t i = sizeof(uint64_t); i < kLimit; i += sizeof(uint64_t)) {
    bool all = true;
    for (const SparseSample& sample : samples) {
      uint64_t impl = 0, storage = 0;
      all = all && reader.Get(reinterpret_cast<const char*>(sample.impl + i), &impl) && impl != 0 &&
            reader.Get(reinterpret_cast<const char*>(impl + g_layout.impl_storage), &storage) &&
            storage == sample.storages[part];
    }
    if (!all)
      continue;
    *offset = i;
    ++found;
  }
  return found == 1;
}

}  // namespace

bool CalibrateTensors(Object list, Object classes) {
  Samples samples;
  TensorLayout layout{};
  Object const base = Argument(classes, 0);
  Object const usual[2] = {Argument(classes, 1), Argument(classes, 2)};
  if (usual[1] == nullptr || !samples.Read(list) || !FindLayout(samples, &layout)) {
    g_api.PyErr_Clear();
    return false;
  }
  g_local_tensor = g_api.PyUnicode_InternFromString("_local_tensor");
  if (g_local_tensor == nullptr) {
    g_api.PyErr_Clear();
    return false;
  }
  FindAllocator(samples, &layout);
  g_layout = layout;
  g_api.Py_IncRef(classes);  // and so the three of them
  g_base = base;
  g_usual[0] = usual[0];
  g_usual[1] = usual[1];
  g_known.store(true, std::memory_order_release);
  return true;
}

bool CalibrateSparse(Object list) {
  SparseSample samples[2] = {};
  if (!TensorsKnown() || g_api.PyList_Size(list) != 2)
    return false;
  for (int i = 0; i < 2; ++i) {
    Object const tuple = g_api.PyList_GetItem(list, i);
    uint64_t* const fields[] = {&samples[i].impl, &samples[i].storages[0], &samples[i].storages[1]};
    for (int field = 0; field < 3; ++field) {
      Object const number = Argument(tuple, field);
      if (number == nullptr)
        return false;
      *fields[field] = reinterpret_cast<uint64_t>(g_api.PyLong_AsVoidPtr(number));
    }
  }
  const SafeReader reader;
  uint64_t first = 0, second = 0;
  if (g_api.PyErr_Occurred() != nullptr ||
      !reader.Get(reinterpret_cast<const char*>(samples[0].impl), &first) ||
      !reader.Get(reinterpret_cast<const char*>(samples[1].impl), &second) || first != second ||
      !FindSparsePart(samples, 0, &g_layout.sparse_parts[0]) ||
      !FindSparsePart(samples, 1, &g_layout.sparse_parts[1])) {
    g_api.PyErr_Clear();
    return false;
  }
  g_layout.sparse_class = first;
  return true;
}

bool CalibrateParts(Object list) {
  constexpr int kSamples = 3;
  constexpr uint32_t kLimit = 256;
  uint64_t samples[kSamples][4] = {};
  if (!TensorsKnown() || g_api.PyList_Size(list) != kSamples)
    return false;
  for (int i = 0; i < kSamples; ++i) {
    for (int field = 0; field < 4; ++field) {
      Object const number = Argument(g_api.PyList_GetItem(list, i), field);
      if (number == nullptr)
        return false;
      samples[i][field] = reinterpret_cast<uint64_t>(g_api.PyLong_AsVoidPtr(number));
    }
  }
  if (g_api.PyErr_Occurred() != nullptr) {
    g_api.PyErr_Clear();
    return false;
  }
  const SafeReader reader;
  const auto find = [&]<class T>(T, int field, uint32_t* offset) {
    int found = 0;
    for (uint32_t i = sizeof(uint64_t); i < kLimit; i += sizeof(T)) {
      bool all = true;
      for (const auto& sample : samples) {
        T value{};
        all = all && reader.Get(reinterpret_cast<const char*>(sample[0] + i), &value) &&
              value == static_cast<T>(sample[field]);
      }
      if (!all)
        continue;
      *offset = i;
      ++found;
    }
    return found == 1;
  };
  TensorLayout layout = g_layout;
  if (!find(uint64_t{}, 1, &layout.impl_offset) || !find(uint64_t{}, 2, &layout.impl_elements) ||
      !find(uint16_t{}, 3, &layout.impl_type)) {
    return false;
  }
  g_layout = layout;
  return true;
}

bool TensorsKnown() {
  return g_known.load(std::memory_order_acquire);
}

uintptr_t TensorImplOf(Object tensor) {
  Object const type = PythonApi::TypeOf(tensor);
  if (type != g_usual[0] && type != g_usual[1] &&
      (!TensorsKnown() || g_api.PyType_IsSubtype(type, g_base) == 0)) {
    return 0;
  }
  return ReadAt<uintptr_t>(tensor, g_layout.python_impl);
}

bool IsOfAllocator(const Storage& storage) {
  bool is_same = g_layout.allocator_words != 0;
  for (uint32_t i = 1; i < kStorageWords && is_same; ++i) {
    if ((g_layout.allocator_words & (1u << i)) != 0)
      is_same = At<uint64_t>(storage.impl, i * 8) == g_layout.of_allocator[i];
  }
  return is_same;
}

bool StorageOf(uintptr_t impl, Storage* storage) {
  const auto found = At<uintptr_t>(impl, g_layout.impl_storage);
  if (found == 0)
    return false;
  storage->address = At<uintptr_t>(found, g_layout.storage_data);
  storage->size_bytes = At<uint64_t>(found, g_layout.storage_size);
  const auto type = At<int8_t>(found, g_layout.storage_device);
  storage->device = type == kTypeCpu    ? format::kCpuDevice
                    : type == kTypeCuda ? At<int8_t>(found, g_layout.storage_device + 1)
                                        : format::kNoDevice;
  storage->impl = found;
  storage->tensor = impl;
  return storage->address != 0 && storage->size_bytes != 0;
}

uint64_t ElementsOf(uintptr_t impl) {
  return g_layout.impl_elements == 0 ? 0 : At<uint64_t>(impl, g_layout.impl_elements);
}

uint32_t UseCountOf(uintptr_t impl) {
  constexpr uint32_t kUseCount = 8;  // behind the pointer to the virtual functions
  return At<uint32_t>(impl, kUseCount);
}

uint64_t ElementBytesOf(uintptr_t impl) {
  if (g_layout.impl_elements == 0)
    return 0;
  const auto type = At<uint16_t>(impl, g_layout.impl_type);
  return type < sizeof kElementBytes ? kElementBytes[type] : 0;
}

Part PartOf(const Storage& storage) {
  const uint64_t bytes = ElementsOf(storage.tensor) * ElementBytesOf(storage.tensor);
  if (bytes >= storage.size_bytes || bytes == 0)
    return {};
  const uint64_t offset =
      At<uint64_t>(storage.tensor, g_layout.impl_offset) * ElementBytesOf(storage.tensor);
  return offset <= storage.size_bytes - bytes ? Part{offset, bytes} : Part{};
}

Object LocalTensorOf(Object tensor) {
  if (std::strcmp(TypeNameOf(tensor), "DTensor") != 0)
    return nullptr;
  Object const local = g_api.PyObject_GenericGetAttr(tensor, g_local_tensor);
  if (local == nullptr)
    g_api.PyErr_Clear();
  return local;
}

Gradient GradientOf(uintptr_t impl) {
  Gradient found;
  const auto meta = At<uintptr_t>(impl, g_layout.impl_autograd);
  const uintptr_t gradient = meta != 0 ? At<uintptr_t>(meta, g_layout.meta_gradient) : 0;
  if (gradient == 0)
    return found;
  found.has_values = StorageOf(gradient, &found.values);
  if (found.has_values)
    return found;
  if (g_layout.sparse_class == 0 || At<uint64_t>(gradient, 0) != g_layout.sparse_class) {
    found.has_values = StorageOfPart(gradient, &found.values);
    return found;
  }
  const auto indices = At<uintptr_t>(gradient, g_layout.sparse_parts[0]);
  const auto values = At<uintptr_t>(gradient, g_layout.sparse_parts[1]);
  found.has_indices = indices != 0 && StorageOf(indices, &found.indices);
  found.has_values = values != 0 && StorageOf(values, &found.values);
  return found;
}

}  // namespace vramscope::probe
