// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "format/records.h"
#include "probe/hooks/jax/refusal_text.h"
#include "probe/platform/dynamic.h"
#include "probe/session/session.h"
#include "probe/session/source.h"
#include "probe/session/stream.h"
#include "probe/stack/python/api.h"
#include "probe/stack/python/walk.h"
#include "probe/stack/stacks.h"

// pool.py, ending with a 0.
extern "C" const char vramscope_jax_pool_source[] __attribute__((visibility("hidden")));

// XLA takes most of the device at its start and cuts it up itself: what it has no room for, it says
// to Python alone, by an error of one class. The constructor of that class becomes ours, which
// calls its own and then writes down what was refused. Other calls of the program cost nothing.
namespace vramscope::probe {
namespace {

constexpr int kPyFileInput = 257;  // Py_file_input
constexpr size_t kMaxTextBytes = 4096;
// An error can be made again and again by a program that tries: what its pool holds is asked for so
// often at most.
constexpr uint32_t kMostDescriptions = 64;

struct Jax {
  std::atomic<bool> ready{false}, asked{false}, installed{false};
  Object describe = nullptr;
  bool describing = false;
  uint32_t descriptions = 0;
};
constinit Jax g_jax;

bool MayRecord() {
  return !TeardownBegan() && !SessionIsOff();
}

Object MakeDescribe() {
  const Owned globals(g_api.PyDict_New());
  if (!globals)
    return nullptr;
  const auto put = [&](const char* name, Object value) {
    return value != nullptr && g_api.PyDict_SetItemString(globals.get(), name, value) == 0;
  };
  const Owned own_name(g_api.PyUnicode_InternFromString("_vramscope_jax"));
  if (!put("__builtins__", g_api.PyEval_GetBuiltins()) || !put("__name__", own_name.get()) ||
      !put("modules", g_api.PyImport_GetModuleDict()))
    return nullptr;
  const Owned code(
      g_api.Py_CompileString(vramscope_jax_pool_source, "<vramscope agent>", kPyFileInput));
  if (!code)
    return nullptr;
  const Owned done(g_api.PyEval_EvalCode(code.get(), globals.get(), globals.get()));
  Object const function = done ? g_api.PyDict_GetItemString(globals.get(), "describe") : nullptr;
  if (function != nullptr)
    g_api.Py_IncRef(function);
  return function;
}

// (device, text), or null. If a signal handler of the program raised an exception meanwhile, the
// exception is left for the program.
Object Describe() {
  if (g_jax.describing || g_jax.descriptions >= kMostDescriptions)
    return nullptr;
  g_jax.describing = true;
  ++g_jax.descriptions;
  if (g_jax.describe == nullptr && (g_jax.describe = MakeDescribe()) == nullptr)
    g_api.PyErr_Clear();
  Object const thread = g_api.PyThreadState_Get();
  const bool can_hide =
      g_api.PyThreadState_EnterTracing != nullptr && g_api.PyThreadState_LeaveTracing != nullptr;
  if (can_hide)
    g_api.PyThreadState_EnterTracing(thread);
  Object const told = g_jax.describe != nullptr
                          ? g_api.PyObject_CallFunctionObjArgs(g_jax.describe, nullptr)
                          : nullptr;
  if (can_hide)
    g_api.PyThreadState_LeaveTracing(thread);
  g_jax.describing = false;
  return told;
}

void NotePool(Stream& stream, const char* pool, size_t size_bytes) {
  char text[kMaxTextBytes];
  const int head = std::snprintf(text, sizeof text, "%d %lld ", getpid(),
                                 static_cast<long long>(base::MonotonicNs()));
  const size_t room = sizeof text - static_cast<size_t>(head);
  const size_t cut = size_bytes < room ? size_bytes : room;
  std::memcpy(text + head, pool, cut);
  stream.Append(
      format::Runtime{.key = {"xla pool", 8}, .value = {text, static_cast<size_t>(head) + cut}});
}

void AwaitReportWithoutGil() {
  Object const thread = g_api.PyEval_SaveThread();
  AwaitReport();
  g_api.PyEval_RestoreThread(thread);
}

// False if an error is set.
bool Observe(Object message) {
  size_t size = 0;
  const char* const text = g_api.Text(message, &size);
  uint64_t requested = 0;
  if (!MayRecord() || !IsXlaRefusal(text, size, &requested))
    return true;
  const Owned told(Describe());
  if (!told && g_api.PyErr_Occurred() != nullptr)
    return false;
  long device = 0;
  size_t pool_size = 0;
  const char* pool = "";
  if (told) {
    device = g_api.PyLong_AsLong(Argument(told.get(), 0));
    pool = g_api.Text(Argument(told.get(), 1), &pool_size);
  }
  if (device < 0)
    return true;  // of the host's memory
  if (RecordScope scope(Want::kAlways); scope) {
    if (pool_size != 0)
      NotePool(*scope, pool, pool_size);
    scope->Append(format::OutOfMemory{.time = Now(),
                                      .device = static_cast<int8_t>(device),
                                      .requested = requested,
                                      .stack = CapturePythonStack(*scope)});
    CountRefusal(Refusal::kGivenUp);
  }
  AwaitReportWithoutGil();
  return true;
}

// Replaces the class's __init__, which is `plain`.
Object Init(Object plain, Object arguments, Object keywords) {
  Object const result = g_api.PyObject_Call(plain, arguments, keywords);
  if (result == nullptr || Observe(Argument(arguments, 1)))
    return result;
  g_api.Py_DecRef(result);
  return nullptr;
}

constinit PyMethodDef g_init = {
    "__init__",
    // PyCFunctionWithKeywords, as the flags say.
    reinterpret_cast<Object (*)(Object, Object)>(reinterpret_cast<void*>(Init)),
    kMethVarArgs | kMethKeywords, nullptr};

Object FindErrorType() {
  for (const auto& [module, name] :
       {std::pair{"jaxlib._jax", "JaxRuntimeError"}, std::pair{"jaxlib._jax", "XlaRuntimeError"},
        std::pair{"jaxlib.xla_extension", "XlaRuntimeError"}}) {
    Object const found = g_api.PyDict_GetItemString(g_api.PyImport_GetModuleDict(), module);
    Object const type = found != nullptr ? g_api.PyObject_GetAttrString(found, name) : nullptr;
    if (type != nullptr)
      return type;
    g_api.PyErr_Clear();
  }
  return nullptr;
}

void Install() {
  const Owned type(FindErrorType());
  if (!type)
    return;  // `import jaxlib` is under way: its next library asks again
  const Owned plain(g_api.PyObject_GetAttrString(type.get(), "__init__"));
  const Owned function(plain ? g_api.PyCFunction_NewEx(&g_init, plain.get(), nullptr) : nullptr);
  const Owned method(function ? g_api.PyInstanceMethod_New(function.get()) : nullptr);
  if (method && g_api.PyObject_SetAttrString(type.get(), "__init__", method.get()) == 0)
    g_jax.installed.store(true, std::memory_order_relaxed);
  else
    g_api.PyErr_Clear();
}

int RunPending(void*) {
  g_jax.asked.store(false, std::memory_order_release);
  if (g_jax.installed.load(std::memory_order_relaxed) || !MayRecord())
    return 0;
  Object error[3];
  g_api.PyErr_Fetch(&error[0], &error[1], &error[2]);
  Install();
  g_api.PyErr_Restore(error[0], error[1], error[2]);
  return 0;
}

void Ask() {
  if (g_jax.installed.load(std::memory_order_relaxed) || !MayRecord() ||
      g_jax.asked.exchange(true, std::memory_order_acq_rel))
    return;
  if (g_api.Py_AddPendingCall(RunPending, nullptr) != 0)
    g_jax.asked.store(false, std::memory_order_release);
}

void Look() {
  static constinit std::atomic<bool> prepared{false};
  if (!g_python.ready.load(std::memory_order_acquire))
    return;
  if (!prepared.exchange(true) && g_api.Load())
    g_jax.ready.store(true, std::memory_order_release);
  if (g_jax.ready.load(std::memory_order_acquire))
    Ask();
}

void ObserveOpening(const Opening& opening) {
  if (!opening.in_namespace && std::strstr(opening.file, "jax") != nullptr)
    Look();
}

void BeginLate() {
  if (FindLoadedLibrary("libjax_common.so") != nullptr ||
      FindLoadedLibrary("xla_extension.so") != nullptr)
    Look();
}

void ForkedChild() {
  g_jax.asked.store(false, std::memory_order_relaxed);
  g_jax.describing = false;
}

}  // namespace

const Source kJaxSource = {.opening = ObserveOpening,
                           .begin_late = BeginLate,
                           .forked = ForkedChild};

}  // namespace vramscope::probe
