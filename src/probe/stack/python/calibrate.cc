// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstring>

#include "probe/platform/dynamic.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"
#include "probe/stack/python/api.h"
#include "probe/stack/python/walk.h"
#include "probe/stack/stacks.h"

// Finds the interpreter and verifies the layout before the first use: the walk by offsets must give
// the same code objects and instructions as CPython's own functions. It reads with
// process_vm_readv, so that a wrong offset is an error and not a fault.
namespace vramscope::probe {
namespace {

// Functions that are needed before this Python is known to be readable: stable since 3.9 or
// (GetLasti) absent before 3.11.
struct FirstApi {
  int (*is_initialized)();
  int (*gil_check)();
  const char* (*get_version)();
  Object (*get_globals)();  // PyEval_GetGlobals: borrowed; null where no Python runs
  Object (*get_frame)();    // PyEval_GetFrame: borrowed
  Object (*frame_code)(Object);
  Object (*frame_back)(Object);
  int (*frame_lasti)(Object);  // may be null
  Object (*get_attr)(Object, const char*);
  const char* (*as_utf8)(Object, ssize_t*);
  long (*as_long)(Object);
  int (*bytes_get)(Object, char**, ssize_t*);
  void (*decref)(Object);
  void (*error_clear)();
  Object (*error_occurred)();
  const char* code_type;  // PyCode_Type
  const void* runtime;    // _PyRuntime, may be null

  // False if something is missing.
  bool Load() {
    const auto get = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          RealDlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    get(frame_lasti, "PyFrame_GetLasti");
    get(runtime, "_PyRuntime");
    // All of them: the caller uses those that are there.
    bool has_all = true;
    has_all &= get(is_initialized, "Py_IsInitialized");
    has_all &= get(gil_check, "PyGILState_Check");
    has_all &= get(get_version, "Py_GetVersion");
    has_all &= get(get_globals, "PyEval_GetGlobals");
    has_all &= get(get_frame, "PyEval_GetFrame");
    has_all &= get(frame_code, "PyFrame_GetCode");
    has_all &= get(frame_back, "PyFrame_GetBack");
    has_all &= get(get_attr, "PyObject_GetAttrString");
    has_all &= get(as_utf8, "PyUnicode_AsUTF8AndSize");
    has_all &= get(as_long, "PyLong_AsLong");
    has_all &= get(bytes_get, "PyBytes_AsStringAndSize");
    has_all &= get(decref, "Py_DecRef");
    has_all &= get(error_clear, "PyErr_Clear");
    has_all &= get(error_occurred, "PyErr_Occurred");
    has_all &= get(code_type, "PyCode_Type");
    return has_all;
  }
};

// PY_VERSION_HEX from "3.11.2 (main, ...)"; 0 when it is not a release of plain CPython. The level
// and serial (low byte) are those of a final release.
uint32_t ParseVersion(const char* text) {
  if (std::strstr(text, "free-threading") != nullptr)
    return 0;
  uint32_t parts[3] = {};
  for (uint32_t& part : parts) {
    if (*text < '0' || *text > '9')
      return 0;
    while (*text >= '0' && *text <= '9')
      part = part * 10 + static_cast<uint32_t>(*text++ - '0');
    if (*text == '.')
      ++text;
  }
  return (parts[0] << 24) | (parts[1] << 16) | (parts[2] << 8) | 0xf0;
}

bool SameText(const FirstApi& python,
              const PythonLayout& layout,
              Object code,
              const char* attribute,
              uint32_t offset) {
  Object text = python.get_attr(code, attribute);
  if (text == nullptr)
    return false;
  bool same = ReadAt<Object>(code, offset) == text;
  ssize_t size = 0;
  const char* utf8 = python.as_utf8(text, &size);
  char copy[512];
  if (same && utf8 != nullptr && static_cast<size_t>(size) + 4 <= sizeof copy) {
    same = CopyPythonString(layout, static_cast<const char*>(text), copy, sizeof copy) ==
               static_cast<size_t>(size) &&
           std::memcmp(copy, utf8, static_cast<size_t>(size)) == 0;
  }
  python.decref(text);
  return same && utf8 != nullptr;
}

bool SameNumber(const FirstApi& python, Object code, const char* attribute, uint32_t offset) {
  Object number = python.get_attr(code, attribute);
  if (number == nullptr)
    return false;
  const bool same = python.as_long(number) == ReadAt<int32_t>(code, offset);
  python.decref(number);
  return same;
}

bool SameCode(const FirstApi& python, const PythonLayout& layout, Object code) {
  const bool old = layout.line_table == format::LineTableKind::kLnotab;
  Object table = python.get_attr(code, old ? "co_lnotab" : "co_linetable");
  if (table == nullptr)
    return false;
  const auto* raw = ReadAt<const char*>(code, layout.code_linetable);
  char* bytes = nullptr;
  ssize_t size = 0;
  bool same_table = python.bytes_get(table, &bytes, &size) == 0 && raw != nullptr &&
                    ReadAt<int64_t>(raw, kBytesSize) == size &&
                    std::memcmp(raw + kBytesData, bytes, static_cast<size_t>(size)) == 0;
  python.decref(table);
  return same_table && SameNumber(python, code, "co_firstlineno", layout.code_firstlineno) &&
         SameNumber(python, code, "co_argcount", layout.code_argcount) &&
         SameText(python, layout, code, "co_filename", layout.code_filename) &&
         SameText(python, layout, code,
                  layout.code_qualname == layout.code_name ? "co_name" : "co_qualname",
                  layout.code_qualname);
}

// Compares the walk with the interpreter's own, for the calling thread, which holds the GIL: up to
// `most` innermost frames.
bool Verify(const FirstApi& python,
            const PythonLayout& layout,
            const void* thread_state,
            int most) {
  const SafeReader reader;
  const char* cursor = InnermostPythonFrame(layout, reader, thread_state);
  Object frame = python.get_frame();
  if (frame == nullptr || cursor == nullptr)
    return false;
  bool owned = false;
  bool same = true;
  int checked = 0;
  while (frame != nullptr && same && checked < most) {
    RawPythonFrame raw{};
    bool is_python = false;
    while (cursor != nullptr && !is_python)
      is_python = StepPythonFrame(layout, reader, &cursor, &raw);
    Object code = python.frame_code(frame);
    same = is_python && raw.code == code;
    if (same && python.frame_lasti != nullptr) {
      const int lasti = python.frame_lasti(frame);
      same = lasti >= 0 && InstructionOffset(layout, raw) == static_cast<uint64_t>(lasti);
    }
    same = same && SameCode(python, layout, code);
    python.decref(code);
    // Asking makes an object of the frame, which lives as long as that.
    Object back = ++checked < most ? python.frame_back(frame) : nullptr;
    if (owned)
      python.decref(frame);
    frame = back;
    owned = true;
  }
  if (frame != nullptr && owned)
    python.decref(frame);
  if (python.error_occurred() != nullptr) {
    python.error_clear();
    same = false;
  }
  return same && checked > 0;
}

// From 3.11 on the frames that are compared are our own, in two runs of the interpreter, one within
// the other: objects of the program's frames would count for its garbage collection.
constexpr uint32_t kFramesAreNoObjects = 0x030b0000;
constexpr char kFrames[] =
    "def outer(ask):\n  return inner(ask)\ndef inner(ask):\n  return ask()\nouter(ask)\n";
constexpr int kFramesOfRun = 3;
constexpr int kMostFrames = 32;

struct Verification {
  const FirstApi* python;
  const PythonLayout* layout;
  const void* thread_state;
  Object code, globals;
  int runs = 0;
  bool same = false;
};
constinit Verification* g_verification = nullptr;

bool RunFrames() {
  const Owned done(g_api.PyEval_EvalCode(g_verification->code, g_verification->globals,
                                         g_verification->globals));
  if (!done)
    g_api.PyErr_Clear();
  return static_cast<bool>(done);
}

Object AskFrames(Object, Object) {
  Verification& asked = *g_verification;
  if (++asked.runs == 1)
    RunFrames();
  else
    asked.same = Verify(*asked.python, *asked.layout, asked.thread_state, 2 * kFramesOfRun);
  return g_api.None();
}

constinit PyMethodDef g_ask = {"ask", AskFrames, kMethNoArgs, nullptr};

bool VerifyInOwnFrames(const FirstApi& python,
                       const PythonLayout& layout,
                       const void* thread_state) {
  if (!g_api.Load())
    return false;
  constexpr int kPyFileInput = 257;  // Py_file_input
  const Owned globals(g_api.PyDict_New());
  const Owned code(g_api.Py_CompileString(kFrames, "<vramscope>", kPyFileInput));
  const Owned ask(g_api.PyCFunction_NewEx(&g_ask, nullptr, nullptr));
  if (!globals || !code || !ask ||
      g_api.PyDict_SetItemString(globals.get(), "__builtins__", g_api.PyEval_GetBuiltins()) != 0 ||
      g_api.PyDict_SetItemString(globals.get(), "ask", ask.get()) != 0) {
    g_api.PyErr_Clear();
    return false;
  }
  Verification verification{&python, &layout, thread_state, code.get(), globals.get()};
  g_verification = &verification;
  Object const thread = g_api.PyThreadState_Get();
  const bool can_hide =
      g_api.PyThreadState_EnterTracing != nullptr && g_api.PyThreadState_LeaveTracing != nullptr;
  if (can_hide)
    g_api.PyThreadState_EnterTracing(thread);
  const bool ran = RunFrames();
  if (can_hide)
    g_api.PyThreadState_LeaveTracing(thread);
  g_verification = nullptr;
  // The functions refer to the dictionary that they are in.
  for (const char* const name : {"outer", "inner"})
    g_api.PyDict_SetItemString(globals.get(), name, g_api.none);
  return ran && verification.same;
}

void Note(const char* key, const char* value) {
  RecordScope scope(Want::kAlways);
  if (scope)
    scope->Append(
        format::Runtime{.key = {key, std::strlen(key)}, .value = {value, std::strlen(value)}});
}

constexpr char kStacks[] = "python stacks";
constexpr char kVerified[] = "verified against the interpreter";
constexpr char kNotAsExpected[] = "off: this interpreter's frames are not as expected";
constexpr char kTooOld[] = "off: this interpreter lacks functions that CPython has since 3.9";

void NotePython(const char* (*get_version)(), const char* stacks) {
  if (get_version != nullptr)
    Note("python", get_version());
  Note(kStacks, stacks);
}

// Python stacks are off in this process.
void GiveUp(const FirstApi& python, const char* why) {
  g_python.trouble.store(why, std::memory_order_release);
  NotePython(python.get_version, why);
  CountLoss(format::Loss::kPythonStacks);
}

// Libraries that come with what we record: seeing one of them is reason enough to begin.
bool IsInteresting(const char* file) {
  for (const char* word : {"torch", "cuda", "c10", "cupy", "jaxlib", "xla"}) {
    if (std::strstr(file, word) != nullptr)
      return true;
  }
  return false;
}

}  // namespace

void PythonObserveOpening(const char* file) {
  if (!g_flags.python || file == nullptr || g_python.ready.load(std::memory_order_relaxed) ||
      g_python.trouble.load(std::memory_order_relaxed) != nullptr || !IsInteresting(file)) {
    return;
  }
  FirstApi python{};
  const bool has_all = python.Load();
  if (python.is_initialized == nullptr || python.is_initialized() == 0)
    return;
  // Before Python 3.4 nothing tells whether this thread holds the GIL: no call into it then.
  if (python.gil_check == nullptr)
    return GiveUp(python, kTooOld);
  if (python.gil_check() == 0)
    return;
  // An exception under way belongs to the program, and so does the moment.
  if (python.error_occurred == nullptr || python.error_occurred() != nullptr)
    return;
  if (!has_all) {
    GiveUp(python, kTooOld);
    return WatchPythonFinalisation();
  }
  // PyEval_GetFrame would make an object of the program's frame.
  if (python.get_globals() == nullptr)
    return;
  const uint32_t version = ParseVersion(python.get_version());
  PythonLayout layout{};
  auto* thread_state =
      reinterpret_cast<void* (*)()>(RealDlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  bool ok = thread_state != nullptr && FindPythonLayout(version, python.runtime, &layout);
  if (ok && !layout.instruction_is_index) {
    // tp_basicsize of the code type is where its instructions begin (Objects/codeobject.c).
    constexpr size_t kTypeBasicSize = 32;
    layout.code_instructions =
        static_cast<uint32_t>(ReadAt<int64_t>(python.code_type, kTypeBasicSize));
  }
  CollectorPrepare();
  if (ok) {
    const CollectorPause collector;
    const auto verify = [&] {
      return version < kFramesAreNoObjects ? Verify(python, layout, thread_state(), kMostFrames)
                                           : VerifyInOwnFrames(python, layout, thread_state());
    };
    ok = verify();
    if (!ok && layout.unicode_state_shift == kWideInterned) {
      layout.unicode_state_shift = kPython312.unicode_state_shift;
      ok = verify();
    }
  }
  if (ok) {
    g_python.layout = layout;
    g_python.version_hex = version;
    g_python.this_thread_state = thread_state;
    g_python.capture = FindPythonCapture(layout);
    g_python.ready.store(true, std::memory_order_release);
    NotePython(python.get_version, kVerified);
  } else {
    GiveUp(python, kNotAsExpected);
  }
  // A module that it imports counts as if the program imported it.
  const bool imports = !g_api.Load() || g_api.PyDict_GetItemString(g_api.PyImport_GetModuleDict(),
                                                                   "atexit") == nullptr;
  if (imports)
    return WatchPythonFinalisation();
  const CollectorPause collector;
  WatchPythonFinalisation();
}

namespace {

void ObserveOpenedFile(const Opening& opening) {
  if (!opening.in_namespace)
    PythonObserveOpening(opening.file);
}

// Notes again what was found out about the interpreter.
void BeginLate() {
  const bool ready = g_python.ready.load(std::memory_order_acquire);
  const char* const trouble = g_python.trouble.load(std::memory_order_relaxed);
  if (!g_flags.python || (!ready && trouble == nullptr))
    return;
  NotePython(reinterpret_cast<const char* (*)()>(RealDlsym(RTLD_DEFAULT, "Py_GetVersion")),
             ready ? kVerified : trouble);
  if (!ready)
    CountLoss(format::Loss::kPythonStacks);
}

}  // namespace

const Source kPythonSource = {.opening = ObserveOpenedFile, .begin_late = BeginLate};

}  // namespace vramscope::probe
