// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "record/attach/remote_process.h"
#include "util/status.h"

// The code that another process is made to execute, and the functions that this code calls.
namespace vramscope::cli {

// The functions, in the order of the code's table. The C library's come first.
#define VRAMSCOPE_REMOTE_FUNCTIONS(entry)                                                          \
  entry(kThreadCreate, "pthread_create") entry(kThreadSelf, "pthread_self") entry(                 \
      kThreadDetach, "pthread_detach") entry(kOpenLibrary, "dlopen") entry(kFindSymbol, "dlsym")   \
      entry(kLoaderError, "dlerror") entry(kLink, "symlink")                                       \
          entry(kIsInitialized, "Py_IsInitialized") entry(kAddPendingCall, "Py_AddPendingCall")    \
              entry(kMakePendingCalls, "Py_MakePendingCalls") entry(kTakeGil, "PyGILState_Ensure") \
                  entry(kReleaseGil, "PyGILState_Release") entry(kNewDict, "PyDict_New")           \
                      entry(kRunString, "PyRun_StringFlags") entry(kReleaseObject, "Py_DecRef")    \
                          entry(kClearError, "PyErr_Clear")

enum class RemoteFunction : size_t {
#define VRAMSCOPE_ENTRY(name, symbol) name,
  VRAMSCOPE_REMOTE_FUNCTIONS(VRAMSCOPE_ENTRY)
#undef VRAMSCOPE_ENTRY
      kCount
};
inline constexpr auto kFirstOfPython = RemoteFunction::kIsInitialized;

// A process as the code needs to know it.
struct RemoteProgram {
  std::array<RemoteObject::Symbol, static_cast<size_t>(RemoteFunction::kCount)> functions{};
  bool has_python = false;
  bool has_old_python = false;              // older than 3.9: it would not find its builtins
  bool has_driver = false;                  // of CUDA
  std::vector<Mapping> mappings;            // of the whole process
  std::vector<RemoteObject::Range> unused;  // executable bytes that nothing uses
  // The C library, which can be several objects, and the loader.
  std::vector<RemoteObject::Range> c_library;
  std::vector<RemoteObject::Range> allocators;  // other objects with a malloc()

  const RemoteObject::Symbol& operator[](RemoteFunction function) const {
    return functions[static_cast<size_t>(function)];
  }
  bool HasAll(RemoteFunction first, RemoteFunction last) const;
  bool HasThreads() const {
    return HasAll(RemoteFunction::kThreadCreate, RemoteFunction::kThreadDetach);
  }
  bool HasLoader() const {
    return HasThreads() && HasAll(RemoteFunction::kOpenLibrary, RemoteFunction::kLink);
  }
};

// An error if the process may not be read.
util::Result<RemoteProgram> FindProgram(pid_t pid);

// What the process is to do.
struct RemoteTask {
  enum class Way {
    // The main thread executes `text` at the next safe point of the interpreter (a pending call).
    // An exception that the text lets out reaches the program, as one of a signal handler does.
    kSafePoint,
    // A new thread executes `text` when it has the interpreter's lock.
    kThread,
    // A new thread loads `library` and calls `function(arguments[0], [1], [2])`. If that cannot be
    // loaded, the symbolic link arguments[2] says why.
    kLibrary,
  };
  Way way = Way::kSafePoint;
  std::string text;
  std::string library;
  std::string function;
  std::array<std::string, 3> arguments;
};

// The size of the code for `task`, and the code for the address `place`. `sequence` tells apart
// what several calls have left in a process.
size_t CodeSize(const RemoteTask& task);
std::string CodeFor(const RemoteTask& task,
                    const RemoteProgram& program,
                    uint64_t place,
                    uint64_t sequence);

// The sequence number of the code that `bytes` begin with; 0 if these are other bytes.
uint64_t SequenceOf(const std::string& bytes);

// Whether `bytes` are zeros, or the begin of code over zeros, which was never executed: who wrote
// it was killed.
bool IsUnfinished(const std::string& bytes);

}  // namespace vramscope::cli
