// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "probe/session/source.h"

namespace vramscope::probe {

class Stream;
struct KnownStack;

struct PythonStack {
  uint32_t id;        // in the stream, 0 if the thread runs no Python
  KnownStack* known;  // the stream's entry; null if it has none
};

// The calling thread's Python stack. Takes no GIL and no lock, allocates nothing; about 15 ns and
// two a frame when the stack is known already. If the program has used the nearest cache for other
// things since, each frame costs up to 5 ns: two lines of it and two of its code object.
PythonStack CapturePython(Stream& stream);

inline uint32_t CapturePythonStack(Stream& stream) {
  return CapturePython(stream).id;
}

// Id of the calling thread's native stack, this library's own frames left out, from the caller
// outwards. About 10 ns a frame when the stack is known already. A stack that leads through a
// binary for the first time takes the loader's lock for a moment.
uint32_t CaptureNativeStack(Stream& stream);

// Writes "batch_size=8 in Runner.capture" to `out`: the innermost local variable of the thread's
// Python functions that by its name is the size of a batch. Returns the length, cut at `capacity`;
// 0 if there is none. Only memory is read, as for a stack.
size_t DescribeBatch(char* out, size_t capacity);

// Looks for a Python interpreter and checks that its frames can be walked, when a library of that
// name is about to be opened: the one moment at which the thread may hold the GIL and certainly
// holds no lock of ours or of an allocator.
void PythonObserveOpening(const char* file);

extern const Source kPythonSource;

}  // namespace vramscope::probe
