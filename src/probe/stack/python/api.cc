// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/python/api.h"

#include <dlfcn.h>

#include <type_traits>

#include "probe/platform/dynamic.h"

namespace vramscope::probe {

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

}  // namespace vramscope::probe
