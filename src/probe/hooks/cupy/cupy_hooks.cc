// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstring>

#include "base/compiler.h"
#include "format/records.h"
#include "probe/platform/dynamic.h"
#include "probe/session/session.h"
#include "probe/session/source.h"
#include "probe/session/stream.h"
#include "probe/stack/python/api.h"
#include "probe/stack/python/walk.h"
#include "probe/stack/stacks.h"

// pool_hook.py, ending with a 0.
extern "C" const char vramscope_cupy_hook_source[] __attribute__((visibility("hidden")));

// CuPy's pool takes chunks of 512 bytes and more from the driver and cuts them up. It calls memory
// hooks, which are Python objects of a thread. Ours are functions of this file, so that no frame of
// the probe's is in a stack.
namespace vramscope::probe {
namespace {

constexpr int kPyFileInput = 257;  // Py_file_input

struct Cupy {
  std::atomic<bool> ready{false}, asked{false}, ended{false};
  Object install = nullptr;
  Object register_thread = nullptr;
};
constinit Cupy g_cupy;
constinit VRAMSCOPE_TLS bool t_is_registered;

bool PoolMayRecord() {
  return !TeardownBegan() && !SessionIsOff();
}

uint64_t NumberOf(Object keywords, const char* name) {
  Object const value = g_api.PyDict_GetItemString(keywords, name);
  return value != nullptr ? reinterpret_cast<uint64_t>(g_api.PyLong_AsVoidPtr(value)) : 0;
}

// MemoryHook.malloc_postprocess(device_id, size, mem_size, mem_ptr, pmem_id)
Object NoteAlloc(Object, Object, Object keywords) {
  const uint64_t address = keywords != nullptr ? NumberOf(keywords, "mem_ptr") : 0;
  if (address == 0 || !PoolMayRecord())
    return g_api.None();
  if (RecordScope scope(Want::kTensor); scope) {
    scope->Append(format::PoolBlock{.time = Now(),
                                    .address = address,
                                    .size = NumberOf(keywords, "mem_size"),
                                    .requested = NumberOf(keywords, "size"),
                                    .device = static_cast<int32_t>(NumberOf(keywords, "device_id")),
                                    .stack = CapturePythonStack(*scope)});
  }
  return g_api.None();
}

// MemoryHook.free_preprocess(device_id, mem_size, mem_ptr, pmem_id)
Object NoteFree(Object, Object, Object keywords) {
  const uint64_t address = keywords != nullptr ? NumberOf(keywords, "mem_ptr") : 0;
  if (address == 0 || !PoolMayRecord())
    return g_api.None();
  if (RecordScope scope(Want::kTensor); scope) {
    scope->Append(
        format::BlockFree{.time = Now(),
                          .address = address,
                          .size = NumberOf(keywords, "mem_size"),
                          .device = static_cast<int32_t>(NumberOf(keywords, "device_id"))});
  }
  return g_api.None();
}

// Takes the place of the default pool's malloc, which is `plain`.
Object Allocate(Object plain, Object arguments, Object keywords) {
  if (!t_is_registered && g_cupy.register_thread != nullptr) {
    t_is_registered = true;
    const CollectorPause collector;
    const TracingPause tracing;
    const Owned done(g_api.PyObject_CallFunctionObjArgs(g_cupy.register_thread, nullptr));
    if (!done)
      return nullptr;  // of a signal handler of the program's
  }
  return g_api.PyObject_Call(plain, arguments, keywords);
}

Object Ask(Object, Object);

// A PyCFunctionWithKeywords, as the flags say.
PyMethodDef WithKeywords(const char* name, Object (*function)(Object, Object, Object)) {
  return {
      name,
      {.function = reinterpret_cast<Object (*)(Object, Object)>(reinterpret_cast<void*>(function))},
      kMethVarArgs | kMethKeywords,
      nullptr};
}

// watch_allocator(the default pool's malloc): what takes its place.
Object WatchAllocator(Object, Object plain) {
  static PyMethodDef allocate = WithKeywords("malloc", Allocate);
  return g_api.PyCFunction_NewEx(&allocate, plain, nullptr);
}

constinit PyMethodDef g_cupy_builtins[] = {
    {"watch_allocator", WatchAllocator, kMethO, nullptr},
    {"ask", Ask, kMethNoArgs, nullptr},
    {"import_notice", {.fast = ImportNotice}, kMethFastCall, nullptr},
};

bool PutFunctions(Object globals) {
  static PyMethodDef methods[] = {WithKeywords("note_alloc", NoteAlloc),
                                  WithKeywords("note_free", NoteFree)};
  const auto put = [&](const char* name, Object value) {
    return value != nullptr && g_api.PyDict_SetItemString(globals, name, value) == 0;
  };
  for (PyMethodDef& method : methods) {
    const Owned function(g_api.PyCFunction_NewEx(&method, nullptr, nullptr));
    const Owned bound(function ? g_api.PyInstanceMethod_New(function.get()) : nullptr);
    if (!put(method.name, bound.get()))
      return false;
  }
  for (PyMethodDef& method : g_cupy_builtins) {
    const Owned function(g_api.PyCFunction_NewEx(&method, nullptr, nullptr));
    if (!put(method.name, function.get()))
      return false;
  }
  const Owned own_name(g_api.PyUnicode_InternFromString("_vramscope_cupy"));
  return put("__builtins__", g_api.PyEval_GetBuiltins()) && put("__name__", own_name.get()) &&
         put("modules", g_api.PyImport_GetModuleDict());
}

bool BuildHook() {
  const Owned globals(g_api.PyDict_New());
  if (!globals || !PutFunctions(globals.get()))
    return false;
  const Owned code(
      g_api.Py_CompileString(vramscope_cupy_hook_source, "<vramscope agent>", kPyFileInput));
  if (!code)
    return false;
  const Owned done(g_api.PyEval_EvalCode(code.get(), globals.get(), globals.get()));
  if (!done)
    return false;
  g_cupy.install = g_api.PyDict_GetItemString(globals.get(), "install");
  g_cupy.register_thread = g_api.PyDict_GetItemString(globals.get(), "register_thread");
  if (g_cupy.install == nullptr || g_cupy.register_thread == nullptr)
    return false;
  g_api.Py_IncRef(g_cupy.install);
  g_api.Py_IncRef(g_cupy.register_thread);
  return true;
}

void NoteFailure() {
  constexpr char kText[] = "off: CuPy's pools are not as expected";
  if (RecordScope scope(Want::kAlways); scope) {
    scope->Append(
        format::Runtime{.key = {"arrays of CuPy", 14}, .value = {kText, sizeof kText - 1}});
  }
}

void AskForInstall();

// False if an exception of the program's is set; it is tried again then.
bool InstallHook() {
  const CollectorPause collector;
  const TracingPause tracing;
  constexpr long kLater = 0, kFailed = -1;
  long outcome = kFailed;
  if (g_cupy.install != nullptr || BuildHook()) {
    const Owned result(g_api.PyObject_CallFunctionObjArgs(g_cupy.install, nullptr));
    outcome = result ? g_api.PyLong_AsLong(result.get()) : kFailed;
  }
  if (g_api.PyErr_Occurred() != nullptr) {
    if (ExceptionIsOfProgram()) {
      AskForInstall();
      return false;
    }
    g_api.PyErr_Clear();
  }
  if (outcome != kLater)
    g_cupy.ended.store(true, std::memory_order_relaxed);
  if (outcome == kFailed)
    NoteFailure();
  return true;
}

int RunPendingInstall(void*) {
  g_cupy.asked.store(false, std::memory_order_release);
  if (g_cupy.ended.load(std::memory_order_relaxed) || !PoolMayRecord())
    return 0;
  Object error[3];
  g_api.PyErr_Fetch(&error[0], &error[1], &error[2]);
  if (!InstallHook()) {
    for (Object const before : error) {
      if (before != nullptr)
        g_api.Py_DecRef(before);
    }
    return -1;
  }
  g_api.PyErr_Restore(error[0], error[1], error[2]);
  return 0;
}

void AskForInstall() {
  if (g_cupy.ended.load(std::memory_order_relaxed) || !PoolMayRecord() ||
      g_cupy.asked.exchange(true, std::memory_order_acq_rel))
    return;
  if (g_api.Py_AddPendingCall(RunPendingInstall, nullptr) != 0)
    g_cupy.asked.store(false, std::memory_order_release);
}

Object Ask(Object, Object) {
  AskForInstall();
  return g_api.None();
}

void ObserveOpeningOfCupy(const Opening& opening) {
  static constinit std::atomic<bool> prepared{false};
  if (opening.in_namespace || std::strstr(opening.file, "cupy") == nullptr ||
      !g_python.ready.load(std::memory_order_acquire))
    return;
  if (!prepared.exchange(true) && g_api.Load())
    g_cupy.ready.store(true, std::memory_order_release);
  if (g_cupy.ready.load(std::memory_order_acquire))
    AskForInstall();
}

void CupyForked() {
  g_cupy.asked.store(false, std::memory_order_relaxed);
}

}  // namespace

const Source kCupySource = {.opening = ObserveOpeningOfCupy, .forked = CupyForked};

}  // namespace vramscope::probe
