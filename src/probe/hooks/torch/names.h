// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "format/enums.h"
#include "probe/session/stream.h"
#include "probe/stack/python/api.h"

// The parts of a tensor, read from memory: no method of a tensor is called, because modes,
// subclasses and tracers would see the call. The positions of the fields are found once, by looking
// for known values in tensors of our own.
namespace vramscope::probe {

struct Storage {
  uintptr_t address;    // of its first byte
  uint64_t size_bytes;  // as asked for
  int32_t device;       // CUDA ordinal, kCpuDevice, or kNoDevice
  uintptr_t impl;       // its StorageImpl
  uintptr_t tensor;     // the TensorImpl that it was found by
};

// The part of its storage that a tensor has, in bytes. All 0 if it has all of it, or where that
// is not known.
struct Part {
  uint64_t offset;
  uint64_t bytes;
};

// `samples`: a list of tuples (tensor, TensorImpl, StorageImpl, data, bytes, TensorImpl of its
// gradient or 0, device type), the numbers as PyTorch itself says them. `classes`: the class that
// all tensors have, then the two that nearly all have. False if the fields are not found; then
// nothing below does anything.
bool CalibrateTensors(Object samples, Object classes);
// The same for sparse tensors, after it: a list of two tuples (TensorImpl, StorageImpl of its
// indices, of its values). If that fails, sparse gradients have no names.
bool CalibrateSparse(Object samples);
// After it: where a tensor's part of its storage lies. A list of tuples (TensorImpl, number of the
// first element, elements, number of their type). If that fails, names are of whole storages.
bool CalibrateParts(Object samples);
bool TensorsKnown();

// The TensorImpl of a Python tensor, 0 if the object is none.
uintptr_t TensorImplOf(Object tensor);
// On the CPU: whether PyTorch's allocator gave it; otherwise it is a mapped file or foreign memory.
bool IsOfAllocator(const Storage& storage);
// The storage of a TensorImpl. False if it has no storage, or the storage no memory.
bool StorageOf(uintptr_t impl, Storage* storage);
Part PartOf(const Storage& storage);
// The elements of a TensorImpl; 0 if unknown.
uint64_t ElementsOf(uintptr_t impl);
// References to a TensorImpl or a StorageImpl in C++.
uint32_t UseCountOf(uintptr_t impl);
// Bytes of one element; 0 if that is not known.
uint64_t ElementBytesOf(uintptr_t impl);

// The tensor that has a distributed one's part of the memory (local() of agent.py), as a reference
// of the caller's; null of others.
Object LocalTensorOf(Object tensor);

// The memory of a tensor's gradient. A sparse one has its indices beside its values; the values of
// a distributed one are those of its part.
struct Gradient {
  bool has_values = false, has_indices = false;
  Storage values, indices;
};
Gradient GradientOf(uintptr_t impl);

// Names of memory, as records. The caller of everything here holds the GIL, which is what keeps the
// tables whole; they are bounded, and begin anew when they are full or the process has forked.

// A parameter of a known model, or one that an optimizer brought. Found by its TensorImpl; the
// Python object and its storage tell whether it is still the same one.
struct Parameter {
  uintptr_t impl;
  uintptr_t object;
  uintptr_t owner;  // the root module that `name` is a path in, 0 if there is none
  Object name;      // a str, one reference of it
  uintptr_t address;
  uint64_t size_bytes;
  uint64_t whole_bytes;  // the same where it has all of its storage, else 0
  uint32_t walk;         // the walk that named it: the first name of a walk is kept
  // The name's id in the stream that it was last written to.
  const Stream* stream;
  uint32_t name_id;
};

// Makes the tables. False when memory is exhausted.
bool NamesPrepare();
// Releases the texts of all names. The calling thread holds the GIL.
void NamesRelease();
// In a forked child, which has a file of its own: the texts' references are lost, because this may
// not be a moment to touch Python.
void NamesForget();
// In a survey each name is of memory that may be older than the recording: a Prior comes first.
void NamesSurvey(bool is_survey);
bool NamesInSurvey();
// Memory may have been given out again at an address that had the same name: it has that anew.
void NamesSayAgain(bool again);
// A walk over a model begins.
void NamesBeginWalk();

// `size_bytes` where a tensor has all of its storage, else 0.
uint64_t WholeBytesOf(const Storage& storage);
// Null if it is not known.
Parameter* FindParameter(Object tensor, uintptr_t impl);
// Names a parameter; `walk` false: the name is only valid until a walk finds a better one.
Parameter* AddParameter(Object tensor,
                        uintptr_t impl,
                        uintptr_t owner,
                        Object name,
                        const Storage& storage,
                        bool walk);

// Writes a Name, unless the last one with the same kind, owner, scope, name and detail said the
// same; whether it did. `scope` tells apart what is not in the record, such as two optimizers of
// one model.
bool WriteNameIfNew(Stream& stream,
                    format::NameKind kind,
                    uintptr_t owner,
                    uint64_t scope,
                    Object name,
                    Object detail,
                    const Storage& storage,
                    const Part* part = nullptr);

void WriteName(Stream& stream,
               uint64_t now,
               format::NameKind kind,
               const Storage& storage,
               Parameter* parameter,
               uint32_t detail = 0);

// Names the gradient that the parameter with this TensorImpl has, if it has one.
void WriteGradient(Stream& stream, uint64_t now, uintptr_t impl, Parameter* parameter);

// The name's id in `stream`.
uint32_t ParameterNameId(Stream& stream, Parameter* parameter);
// Id in `stream` of a Python text, 0 if it is none.
uint32_t InternText(Stream& stream, Object text);
// A class's name without its module, and its id in `stream`.
const char* TypeNameOf(Object object);
uint32_t InternTypeName(Stream& stream, Object object);

}  // namespace vramscope::probe
