// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstring>

#include "base/compiler.h"
#include "probe/hooks/c10/watch.h"
#include "probe/hooks/lines/lines.h"
#include "probe/platform/dynamic.h"
#include "probe/stack/python/api.h"

namespace vramscope::probe {
namespace {

// Functions beyond PythonApi. From 3.12 on events come from sys.monitoring, and the trace functions
// are not used; before, those are the only way.
using TraceFn = int (*)(Object self, Object frame, int what, Object argument);
struct TraceApi {
  int (*PyCode_Addr2Line)(Object, int);
  Object (*PyBytes_FromStringAndSize)(const char*, ptrdiff_t);
  int (*PyFrame_GetLineNumber)(Object);
  Object (*PyFrame_GetCode)(Object);
  void (*PyEval_SetTrace)(TraceFn, Object);
  // Sets it for another thread. Not in the public API; what has no such function traces its own
  // thread only.
  int (*_PyEval_SetTrace)(Object thread, TraceFn, Object);
  int (*PyObject_SetAttr)(Object, Object, Object);

  bool Load() {
    const auto get = [](auto& slot, const char* name) {
      slot =
          reinterpret_cast<std::remove_reference_t<decltype(slot)>>(RealDlsym(RTLD_DEFAULT, name));
      return slot != nullptr;
    };
    get(_PyEval_SetTrace, "_PyEval_SetTrace");
    return get(PyCode_Addr2Line, "PyCode_Addr2Line") &&
           get(PyBytes_FromStringAndSize, "PyBytes_FromStringAndSize") &&
           get(PyFrame_GetLineNumber, "PyFrame_GetLineNumber") &&
           get(PyFrame_GetCode, "PyFrame_GetCode") && get(PyEval_SetTrace, "PyEval_SetTrace") &&
           get(PyObject_SetAttr, "PyObject_SetAttr");
  }
};
constinit TraceApi g_trace_api{};

Object Answer(bool ok) {
  return ok ? g_api.None() : nullptr;
}

// ---- events of sys.monitoring: (code, line or offset, ...) --------------------------------------

Object OnLine(Object, Object const* arguments, ptrdiff_t count) {
  return Answer(count < 2 ||
                EnterLine(arguments[0], static_cast<int32_t>(g_api.PyLong_AsLong(arguments[1]))));
}

int32_t LineAt(Object code, Object offset) {
  return g_trace_api.PyCode_Addr2Line(code, static_cast<int>(g_api.PyLong_AsLong(offset)));
}

Object OnStart(Object, Object const* arguments, ptrdiff_t count) {
  if (count >= 2 && FirstFunction(arguments[0]) != -1)
    EnterFunction(arguments[0], nullptr, LineAt(arguments[0], arguments[1]), false);
  return g_api.None();
}

Object OnResume(Object, Object const* arguments, ptrdiff_t count) {
  if (count >= 2 && FirstFunction(arguments[0]) != -1)
    EnterFunction(arguments[0], nullptr, LineAt(arguments[0], arguments[1]), true);
  return g_api.None();
}

// A return, a yield, or an exception that leaves: those of all code are shown.
Object OnLeave(Object, Object const* arguments, ptrdiff_t count) {
  return Answer(count < 1 || FirstFunction(arguments[0]) == -1 || LeaveFunction(arguments[0]));
}

// ---- events of a trace function, before 3.12 ----------------------------------------------------

enum Event : int { kCall = 0, kException = 1, kLine = 2, kReturn = 3, kOpcode = 7 };

struct Names {
  Object events[8];
  Object f_trace;
};
constinit Names g_names{};

bool LoadNames() {
  static constexpr const char* kNames[8] = {"call",   "exception",   "line",     "return",
                                            "c_call", "c_exception", "c_return", "opcode"};
  for (int i = 0; i < 8; ++i)
    g_names.events[i] = g_api.PyUnicode_InternFromString(kNames[i]);
  g_names.f_trace = g_api.PyUnicode_InternFromString("f_trace");
  return g_names.f_trace != nullptr;
}

int Trace(Object before, Object frame, int what, Object argument);

// The trace function that this thread had before, called as the interpreter would: a call event
// goes to it, all others to what it returned for the frame.
bool TraceBefore(Object before, Object frame, int what, Object argument) {
  Object local = before;
  if (what == kCall) {
    g_api.Py_IncRef(local);
  } else {
    local = g_api.PyObject_GetAttr(frame, g_names.f_trace);
    if (local == nullptr)
      return false;
  }
  const Owned function(local);
  if (local == g_api.none)
    return true;
  const Owned result(g_api.PyObject_CallFunctionObjArgs(
      local, frame, g_names.events[what], argument != nullptr ? argument : g_api.none, nullptr));
  // Tracers in C, as coverage has one, put themselves in place at their first call.
  g_trace_api.PyEval_SetTrace(Trace, before);
  if (!result)
    return false;
  return result.get() == g_api.none ||
         g_trace_api.PyObject_SetAttr(frame, g_names.f_trace, result.get()) == 0;
}

int Trace(Object before, Object frame, int what, Object argument) {
  bool ok = true;
  if (VRAMSCOPE_UNLIKELY(before != nullptr) && what <= kOpcode)
    ok = TraceBefore(before, frame, what, argument);
  if (what == kCall) {
    Object const code = g_trace_api.PyFrame_GetCode(frame);
    if (const int32_t id = FirstFunction(code); id != -1) {
      const int32_t line = g_trace_api.PyFrame_GetLineNumber(frame);
      EnterFunction(code, frame, line, line != g_functions[id].first_line);
    }
    g_api.Py_DecRef(code);  // the frame holds a reference
  } else if (what == kLine) {
    if (Object const code = InnermostCode(frame))
      ok = EnterLine(code, g_trace_api.PyFrame_GetLineNumber(frame)) && ok;
  } else if (what == kReturn) {
    if (VRAMSCOPE_UNLIKELY(IsTooDeep())) {
      const Owned code(g_trace_api.PyFrame_GetCode(frame));
      LeaveFunction(code.get());
    } else if (Object const code = InnermostCode(frame)) {
      ok = LeaveFunction(code) && ok;
    }
  }
  return ok ? 0 : -1;
}

// trace(this thread's current trace function, or None; whether other threads have none)
Object StartTrace(Object, Object arguments) {
  Object const before = Argument(arguments, 0);
  if (g_api.PyLong_AsLong(Argument(arguments, 1)) != 0 && g_trace_api._PyEval_SetTrace != nullptr) {
    Object thread = g_api.PyInterpreterState_ThreadHead(g_api.PyInterpreterState_Get());
    for (; thread != nullptr; thread = g_api.PyThreadState_Next(thread))
      g_trace_api._PyEval_SetTrace(thread, Trace, nullptr);
  }
  g_trace_api.PyEval_SetTrace(Trace, before == g_api.none ? nullptr : before);
  return g_api.None();
}

// stop_trace(whether in other threads too)
Object StopTrace(Object, Object everywhere) {
  if (g_api.PyLong_AsLong(everywhere) != 0 && g_trace_api._PyEval_SetTrace != nullptr) {
    Object thread = g_api.PyInterpreterState_ThreadHead(g_api.PyInterpreterState_Get());
    for (; thread != nullptr; thread = g_api.PyThreadState_Next(thread))
      g_trace_api._PyEval_SetTrace(thread, nullptr, nullptr);
  }
  g_trace_api.PyEval_SetTrace(nullptr, nullptr);
  return g_api.None();
}

// ---- what Python asks for -----------------------------------------------------------------------

int32_t Id(Object number) {
  const long id = number != nullptr ? g_api.PyLong_AsLong(number) : -1;
  const bool exists =
      g_functions != nullptr && id >= 0 && id < kMostFunctions && g_functions[id].code != nullptr;
  return exists ? static_cast<int32_t>(id) : -1;
}

// add(code, first line, lines, devices) -> id or -1
Object Add(Object, Object arguments) {
  const auto number = [&](ptrdiff_t n) {
    return static_cast<int32_t>(g_api.PyLong_AsLong(Argument(arguments, n)));
  };
  return g_api.PyLong_FromLong(
      AddFunction(Argument(arguments, 0), number(1), number(2), number(3)));
}

Object Remove(Object, Object number) {
  if (const int32_t id = Id(number); id != -1)
    RemoveFunction(id);
  return g_api.None();
}

Object Clear(Object, Object number) {
  if (const int32_t id = Id(number); id != -1)
    ClearFunction(id);
  return g_api.None();
}

// enable(id, flag)
Object Enable(Object, Object arguments) {
  if (const int32_t id = Id(Argument(arguments, 0)); id != -1)
    g_functions[id].is_enabled = g_api.PyLong_AsLong(Argument(arguments, 1)) != 0;
  return g_api.None();
}

// target(id, n, device): the n-th device is that one from now on.
Object Target(Object, Object arguments) {
  const int32_t id = Id(Argument(arguments, 0));
  const long n = g_api.PyLong_AsLong(Argument(arguments, 1));
  const long device = g_api.PyLong_AsLong(Argument(arguments, 2));
  if (id != -1 && n >= 0 && n < g_functions[id].target_count && device >= 0 &&
      device < kWatchedDevices)
    g_functions[id].targets[n] = static_cast<int8_t>(device);
  return g_api.None();
}

// sample(id, function or None)
Object SetSampler(Object, Object arguments) {
  const int32_t id = Id(Argument(arguments, 0));
  Object const sampler = Argument(arguments, 1);
  if (id == -1)
    return g_api.None();
  Object const before = g_functions[id].sampler;
  g_functions[id].sampler = sampler == g_api.none ? nullptr : sampler;
  g_api.Py_IncRef(g_functions[id].sampler);
  g_api.Py_DecRef(before);
  return g_api.None();
}

// read(id) -> bytes: FunctionFigures and LineFigures of each device
Object Read(Object, Object number) {
  const int32_t id = Id(number);
  if (id == -1)
    return g_api.None();
  return g_trace_api.PyBytes_FromStringAndSize(
      reinterpret_cast<const char*>(g_functions[id].figures),
      static_cast<ptrdiff_t>(g_functions[id].figures_bytes));
}

// watch(device, allocated, reserved)
Object Watch(Object, Object arguments) {
  const long device = g_api.PyLong_AsLong(Argument(arguments, 0));
  if (device < 0 || device >= kWatchedDevices)
    return g_api.None();
  const bool is_new = !IsWatched(static_cast<int>(device));
  if (is_new) {
    WatchDevice(static_cast<int>(device), g_api.PyLong_AsLong(Argument(arguments, 1)),
                g_api.PyLong_AsLong(Argument(arguments, 2)));
    BeginDevice(static_cast<int>(device));
  }
  return g_api.Truth(is_new);
}

Object Unwatch(Object, Object) {
  ForgetCalls();
  WatchNothing();
  return g_api.None();
}

// watched(device) -> (allocated now, bytes given out since the process began, blocks)
Object Watched(Object, Object number) {
  const long device = g_api.PyLong_AsLong(number);
  if (device < 0 || device >= kWatchedDevices)
    return g_api.None();
  const WatchedDevice& watched = g_watched[device];
  Object const list = g_api.PyList_New(0);
  for (const int64_t value :
       {watched.allocated.load(), watched.reserved.load(), watched.bytes_given.load(),
        watched.bytes_back.load(), watched.blocks_given.load(), watched.blocks_back.load()}) {
    const Owned item(g_api.PyLong_FromLong(value));
    if (list != nullptr && item)
      g_api.PyList_Append(list, item.get());
  }
  return list;
}

Object Lost(Object, Object) {
  return g_api.PyLong_FromLong(g_frames_lost);
}

constexpr int kMethFastCall = 0x0080;
using FastFn = Object (*)(Object, Object const*, ptrdiff_t);

PyMethodDef Fast(const char* name, FastFn function) {
  return {name, reinterpret_cast<Object (*)(Object, Object)>(reinterpret_cast<void*>(function)),
          kMethFastCall, nullptr};
}

}  // namespace

void* LineProfilerFunctions() {
  if (!g_api.Load() || !g_trace_api.Load() || !LoadNames())
    return nullptr;
  // The interpreter keeps pointers to them.
  static PyMethodDef methods[] = {
      Fast("on_line", OnLine),
      Fast("on_start", OnStart),
      Fast("on_resume", OnResume),
      Fast("on_leave", OnLeave),
      {"trace", StartTrace, kMethVarArgs, nullptr},
      {"stop_trace", StopTrace, kMethO, nullptr},
      {"add", Add, kMethVarArgs, nullptr},
      {"remove", Remove, kMethO, nullptr},
      {"clear", Clear, kMethO, nullptr},
      {"enable", Enable, kMethVarArgs, nullptr},
      {"target", Target, kMethVarArgs, nullptr},
      {"sample", SetSampler, kMethVarArgs, nullptr},
      {"read", Read, kMethO, nullptr},
      {"watch", Watch, kMethVarArgs, nullptr},
      {"unwatch", Unwatch, kMethNoArgs, nullptr},
      {"watched", Watched, kMethO, nullptr},
      {"lost", Lost, kMethNoArgs, nullptr},
  };
  Object const functions = g_api.PyDict_New();
  for (PyMethodDef& method : methods) {
    const Owned function(g_api.PyCFunction_NewEx(&method, nullptr, nullptr));
    if (functions == nullptr || !function ||
        g_api.PyDict_SetItemString(functions, method.name, function.get()) != 0)
      return nullptr;
  }
  return functions;
}

}  // namespace vramscope::probe
