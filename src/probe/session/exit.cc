// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <atomic>

#include "probe/platform/dynamic.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"

namespace vramscope::probe {

constinit std::atomic<bool (*)()> g_before_python_exit{nullptr};

namespace {

constinit std::atomic<bool> g_noted{false};

// Layout of PyMethodDef, part of CPython's stable ABI.
struct PyMethodDef {
  const char* name;
  void* (*function)(void*, void*);
  int flags;
  const char* doc;
};
constexpr int kMethNoArgs = 0x0004;

void* AtPythonExit(void*, void*) {
  auto* const before = g_before_python_exit.load(std::memory_order_acquire);
  const bool ok = before == nullptr || TeardownBegan() || !SessionIsOurs() || before();
  NoteTeardown(format::TeardownKind::kPythonFinalisation);
  auto* none =
      reinterpret_cast<void* (*)(const char*, ...)>(RealDlsym(RTLD_DEFAULT, "Py_BuildValue"));
  return ok && none != nullptr ? none("") : nullptr;
}

constinit PyMethodDef g_method = {"_vramscope_at_exit", AtPythonExit, kMethNoArgs, nullptr};

}  // namespace

void NoteTeardown(format::TeardownKind kind) {
  if (!SessionIsOurs())
    return;
  if (g_noted.exchange(true, std::memory_order_relaxed))
    return;
  {
    RecordScope scope(Want::kAlways);
    if (scope) {
      scope->Append(format::Teardown{.time = Now(), .kind = static_cast<uint64_t>(kind)});
      scope->Seal();
    }
  }
  SessionMarkClosed();
}

bool TeardownBegan() {
  return g_noted.load(std::memory_order_relaxed);
}

void WatchPythonFinalisation() {
  const auto get = [](const char* name) { return RealDlsym(RTLD_DEFAULT, name); };
  auto* import = reinterpret_cast<void* (*)(const char*)>(get("PyImport_ImportModule"));
  auto* new_function = reinterpret_cast<void* (*)(PyMethodDef*, void*)>(get("PyCFunction_New"));
  auto* new_ex = reinterpret_cast<void* (*)(PyMethodDef*, void*, void*)>(get("PyCFunction_NewEx"));
  auto* call =
      reinterpret_cast<void* (*)(void*, const char*, const char*, ...)>(get("PyObject_CallMethod"));
  auto* decref = reinterpret_cast<void (*)(void*)>(get("Py_DecRef"));
  auto* clear = reinterpret_cast<void (*)()>(get("PyErr_Clear"));
  if (import == nullptr || call == nullptr || decref == nullptr || clear == nullptr)
    return;
  void* function = new_function != nullptr ? new_function(&g_method, nullptr)
                   : new_ex != nullptr     ? new_ex(&g_method, nullptr, nullptr)
                                           : nullptr;
  void* module = import("atexit");
  void* result = nullptr;
  if (function != nullptr && module != nullptr)
    result = call(module, "register", "O", function);
  for (void* object : {result, module, function}) {
    if (object != nullptr)
      decref(object);
  }
  if (result == nullptr)
    clear();
}

}  // namespace vramscope::probe
