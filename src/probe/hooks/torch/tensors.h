// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "probe/stack/python/api.h"

// What a tensor is made of, read from memory: no method of a tensor is called, because modes,
// subclasses and tracers would see the call. Where the fields lie is found out once, by looking for
// known values in tensors of our own.
namespace vramscope::probe {

struct Storage {
  uintptr_t address;    // of its first byte
  uint64_t size_bytes;  // as asked for
  int32_t device;       // CUDA ordinal, kCpuDevice, or kNoDevice
  uintptr_t impl;       // its StorageImpl
  uintptr_t tensor;     // the TensorImpl that it was found by
};

// The part of its storage that a tensor has, in bytes. All 0 where it has all of it, or where that
// is not known.
struct Part {
  uint64_t offset;
  uint64_t bytes;
};

// `samples`: a list of tuples (tensor, TensorImpl, StorageImpl, data, bytes, TensorImpl of its
// gradient or 0, device type), the numbers as PyTorch itself says them. `classes`: the class that
// all tensors have, then the two that nearly all have. False where the fields are not found; then
// nothing below does anything.
bool CalibrateTensors(Object samples, Object classes);
// The same for sparse tensors, after it: a list of two tuples (TensorImpl, StorageImpl of its
// indices, of its values). Where that fails, sparse gradients have no names.
bool CalibrateSparse(Object samples);
// After it: where a tensor's part of its storage lies. A list of tuples (TensorImpl, number of the
// first element, elements, number of their type). Where that fails, names are of whole storages.
bool CalibrateParts(Object samples);
bool TensorsKnown();

// The TensorImpl of a Python tensor, 0 where the object is none.
uintptr_t TensorImplOf(Object tensor);
// On the CPU: whether PyTorch's allocator gave it; else it is a mapped file or somebody else's.
bool IsOfAllocator(const Storage& storage);
// Of a TensorImpl. False where it has no storage, or the storage no memory.
bool StorageOf(uintptr_t impl, Storage* storage);
Part PartOf(const Storage& storage);
// Of a TensorImpl; 0 where that is not known.
uint64_t ElementsOf(uintptr_t impl);
// Bytes of one element; 0 where that is not known.
uint64_t ElementBytesOf(uintptr_t impl);

// The tensor that has a distributed one's part of the memory (local() of agent.py), as a reference
// of the caller's; null of others.
Object LocalTensorOf(Object tensor);

// The memory of a tensor's gradient; a sparse one has its indices beside its values, a distributed
// one's values are those of its part.
struct Gradient {
  bool has_values = false, has_indices = false;
  Storage values, indices;
};
Gradient GradientOf(uintptr_t impl);

}  // namespace vramscope::probe
