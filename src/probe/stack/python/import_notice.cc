// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "probe/stack/python/api.h"

namespace vramscope::probe {
namespace {

// `own` is [plain, ask].
Object SetAttribute(Object own, Object arguments) {
  Object const spec = Argument(arguments, 0);
  Object const name = Argument(arguments, 1);
  Object const value = Argument(arguments, 2);
  if (value == nullptr || g_api.PyObject_GenericSetAttr(spec, name, value) != 0)
    return value == nullptr ? g_api.None() : nullptr;
  constexpr char kInitializing[] = "_initializing";
  size_t size = 0;
  const char* const text = g_api.Text(name, &size);
  if (size == sizeof kInitializing - 1 && std::memcmp(text, kInitializing, size) == 0 &&
      g_api.PyLong_AsLong(value) == 0) {
    if (g_api.PyObject_SetAttrString(spec, "__class__", g_api.PyList_GetItem(own, 0)) != 0)
      g_api.PyErr_Clear();
    const Owned asked(g_api.PyObject_CallFunctionObjArgs(g_api.PyList_GetItem(own, 1), nullptr));
  }
  return g_api.None();
}

constinit PyMethodDef g_set_attribute = {"__setattr__", {SetAttribute}, kMethVarArgs, nullptr};

}  // namespace

Object ImportNotice(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  const Owned own(g_api.PyList_New(0));
  if (!own || g_api.PyList_Append(own.get(), arguments[0]) != 0 ||
      g_api.PyList_Append(own.get(), arguments[1]) != 0)
    return nullptr;
  const Owned function(g_api.PyCFunction_NewEx(&g_set_attribute, own.get(), nullptr));
  return function ? g_api.PyInstanceMethod_New(function.get()) : nullptr;
}

}  // namespace vramscope::probe
