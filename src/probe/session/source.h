// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vramscope::probe {

class ImportPlan;

// A library is about to be opened. Its constructors and its users run later.
struct Opening {
  const char* file;
  int mode;
  const void* caller;  // an address in the code that opens it
  bool
      in_namespace;  // dlmopen: in a link namespace of its own, where nothing of the probe's can be
};

// Something that events come from, or that is asked at events: PyTorch, the driver, Python. Its
// tasks at the few moments of a recording that concern all sources; null: none. inject/sources.cc
// has the list, and calls each step of all of them in its order.
struct Source {
  // The probe was loaded with the program, and recording is on: handles the libraries that are
  // loaded.
  void (*begin)() = nullptr;
  // By the thread that opens it, which holds no lock of ours or of an allocator, and may hold the
  // GIL.
  void (*opening)(const Opening& opening) = nullptr;
  // A recording began in a running process: handles the libraries that are loaded, and writes again
  // what the new file needs.
  void (*begin_late)() = nullptr;
  // Before that, and where the driver itself opened the probe: what loaded objects shall call
  // instead.
  void (*plan_imports)(ImportPlan* plan) = nullptr;
  // That recording was ended: the next one's file has no definitions yet. Other threads keep
  // running; if Python runs, the caller has the GIL.
  void (*forget)() = nullptr;
  // In a child after fork: so does its file, and the other threads are gone.
  void (*forked)() = nullptr;
  // The program ends.
  void (*end)() = nullptr;
};

// The functions of libc10 that the probe interposes, hooks/c10. A preloaded probe is found by name;
// the slots of objects that were loaded before it are pointed to it.
extern const Source kC10Source;
// Arrays in CuPy's pools, hooks/cupy.
extern const Source kCupySource;
// Failed allocations of XLA's own pool, which the driver does not see, hooks/jax.
extern const Source kJaxSource;
// Counters of NVTX, hooks/nvtx.
extern const Source kNvtxSource;

}  // namespace vramscope::probe
