// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// What refers to the program's tensors: the shortest way from a variable to each. For
// python/vramscope/_holders.py.
namespace vramscope::probe {

// A new list [groups, statistics]. None: PyTorch's tensors cannot be read, or not yet. Null: Python
// lacks something, or memory is exhausted (an exception may be set). The caller holds the GIL, and
// keeps it: no Python code runs meanwhile, so that nothing changes and nothing is freed later
// because of it. `arguments` is a list:
//
//    0 gc.get_objects
//    1 gc.get_referents
//    2 None, or what reads PyTorch's graphs: a list [the getter of Tensor.grad_fn,
//      torch._C._FunctionBase, the getters of its next_functions and its _raw_saved_tensors, dir]
//    3 None, or for programs without PyTorch: a class and a function that returns the bytes of its
//      objects
//    4 nanoseconds after which it ends
//    5 the most groups wanted
//    6 1: tensors on the CPU count, too
//    7 how the names of modules begin whose variables do not count
//
// A group is tensors whose ways differ in an index alone: [bytes, tensors, device, how it begins
// (Root), the place of its first object, steps of the largest tensor's way]. A step is [object or
// None, name, Link]; that of a frame has its code object and its line. Without steps nothing leads
// to the tensors but each other.
// The statistics: objects looked at, objects, nanoseconds, 1 if that is all, tensors not looked
// at, their bytes, tensors, their bytes.
void* FindHolders(void* arguments);

// Afterwards, without the GIL: the bytes that only a group's first object leads to, -1 if that is
// not known.
int64_t BytesOfHolder(uint32_t place);
void ForgetHolders();

}  // namespace vramscope::probe
