// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/python/api.h"

#include <dlfcn.h>
#include <sys/syscall.h>

#include <type_traits>

#include "base/compiler.h"
#include "probe/platform/dynamic.h"
#include "probe/stack/python/layout.h"

namespace vramscope::probe {
namespace {

// _Py_DebugOffsets (Include/internal/pycore_debug_offsets.h): a cookie, then 64-bit words in
// groups. `group` is where the thread state's group begins, `frame_words` the size of the frame's
// group.
bool FromDebugOffsets(const void* runtime,
                      uint32_t version_hex,
                      size_t group,
                      size_t frame_words,
                      PythonLayout* layout) {
  if (runtime == nullptr || std::memcmp(runtime, "xdebugpy", 8) != 0)
    return false;
  const auto word = [&](size_t index) {
    return static_cast<uint32_t>(ReadAt<uint64_t>(runtime, index * 8));
  };
  if (word(1) != version_hex || word(2) != 0)
    return false;  // another build, or free-threaded
  constexpr size_t kThreadStateWords = 9;
  const size_t frame = group + kThreadStateWords;
  const size_t code = frame + frame_words;
  *layout = kPython312;
  layout->tstate_frame = word(group + 4);
  layout->cframe_frame = -1;
  layout->frame_previous = word(frame + 1);
  layout->frame_code = word(frame + 2);
  layout->frame_instruction = word(frame + 3);
  layout->frame_locals = word(frame + 4);
  layout->frame_owner = static_cast<int32_t>(word(frame + 5));
  layout->code_filename = word(code + 1);
  layout->code_name = word(code + 2);
  layout->code_qualname = word(code + 3);
  layout->code_linetable = word(code + 4);
  layout->code_firstlineno = word(code + 5);
  layout->code_argcount = word(code + 6);
  layout->code_variables = word(code + 7);
  layout->code_instructions = word(code + 9);
  return true;
}

constinit VRAMSCOPE_TLS bool t_gives_way = false;

}  // namespace

constinit PythonApi g_api{};

bool PythonApi::Load() {
  const auto get = [](auto& slot, const char* name) {
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(RealDlsym(RTLD_DEFAULT, name));
    return slot != nullptr;
  };
  get(PyThreadState_EnterTracing, "PyThreadState_EnterTracing");
  get(PyThreadState_LeaveTracing, "PyThreadState_LeaveTracing");
#define VRAMSCOPE_GET(result, name, arguments) get(name, #name)&&
  return VRAMSCOPE_PYTHON_API(VRAMSCOPE_GET) get(none, "_Py_NoneStruct") &&
         get(dict_type, "PyDict_Type") && get(list_type, "PyList_Type") &&
         get(tuple_type, "PyTuple_Type") && get(unicode_type, "PyUnicode_Type") &&
         get(exception_type, "PyExc_Exception");
#undef VRAMSCOPE_GET
}

const char* PythonApi::Text(Object object, size_t* size_bytes) const {
  *size_bytes = 0;
  if (object == nullptr || !Is(object, unicode_type))
    return "";
  ptrdiff_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object, &size);
  if (text == nullptr) {
    PyErr_Clear();  // a lone surrogate
    return "";
  }
  *size_bytes = static_cast<size_t>(size);
  return text;
}

bool FindPythonLayout(uint32_t version_hex, const void* runtime, PythonLayout* layout) {
  switch (version_hex >> 16) {
    case 0x0309:
      *layout = kPython39;
      return true;
    case 0x030a:
      *layout = kPython310;
      return true;
    case 0x030b:
      *layout = kPython311;
      return true;
    case 0x030c:
      *layout = kPython312;
      return true;
    case 0x030d:
      return FromDebugOffsets(runtime, version_hex, 19, 6, layout);
    case 0x030e:
      // Three words more for the interpreter state, two for the frame; strings may keep `interned`
      // in sixteen bits, and do not in 3.14.10; references have two bits of their own
      // (Include/internal/pycore_stackref.h).
      if (!FromDebugOffsets(runtime, version_hex, 22, 8, layout))
        return false;
      layout->unicode_state_shift = kWideInterned;
      layout->reference_tags = 3;
      return true;
    default:
      return false;
  }
}

bool ExceptionIsOfProgram() {
  if (g_api.PyErr_ExceptionMatches(*g_api.exception_type) == 0)
    return true;  // KeyboardInterrupt, SystemExit
  Object type = nullptr, value = nullptr, traceback = nullptr;
  g_api.PyErr_Fetch(&type, &value, &traceback);
  const bool entered = traceback != nullptr;
  g_api.PyErr_Restore(type, value, traceback);
  return entered;
}

WayGiver::WayGiver() {
  t_gives_way = syscall(SYS_gettid) != getpid();
}

WayGiver::~WayGiver() {
  t_gives_way = false;
}

bool WayGiver::IsAlive() {
  return t_gives_way;
}

void GiveWay() {
  constexpr useconds_t kTimeToTakeIt = 200;
  if (!t_gives_way)
    return;
  Object const thread = g_api.PyEval_SaveThread();
  usleep(kTimeToTakeIt);
  g_api.PyEval_RestoreThread(thread);
}

}  // namespace vramscope::probe
