// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "probe/stack/python/layout.h"

// The part of CPython's C API that the probe needs, found by name in the process: the probe is
// built without Python. All of it has been there, unchanged, from 3.9 on.
namespace vramscope::probe {

using Object = void*;

// X(result, name, arguments)
#define VRAMSCOPE_PYTHON_API(X)                                    \
  X(int, Py_AddPendingCall, (int (*)(void*), void*))               \
  X(void, Py_IncRef, (Object))                                     \
  X(void, Py_DecRef, (Object))                                     \
  X(Object, Py_CompileString, (const char*, const char*, int))     \
  X(Object, PyEval_EvalCode, (Object, Object, Object))             \
  X(Object, PyEval_GetBuiltins, ())                                \
  X(Object, PyEval_SaveThread, ())                                 \
  X(void, PyEval_RestoreThread, (Object))                          \
  X(Object, PyErr_Occurred, ())                                    \
  X(void, PyErr_Clear, ())                                         \
  X(void, PyErr_Fetch, (Object*, Object*, Object*))                \
  X(void, PyErr_Restore, (Object, Object, Object))                 \
  X(int, PyErr_ExceptionMatches, (Object))                         \
  X(Object, PyImport_GetModuleDict, ())                            \
  X(Object, PyInterpreterState_Get, ())                            \
  X(Object, PyInterpreterState_ThreadHead, (Object))               \
  X(Object, PyThreadState_Get, ())                                 \
  X(Object, PyThreadState_Next, (Object))                          \
  X(Object, PyObject_GetAttrString, (Object, const char*))         \
  X(Object, PyObject_GetAttr, (Object, Object))                    \
  X(Object, PyObject_GenericGetAttr, (Object, Object))             \
  X(int, PyObject_GenericSetAttr, (Object, Object, Object))        \
  X(Object, PyObject_CallFunctionObjArgs, (Object, ...))           \
  X(Object, PyObject_Call, (Object, Object, Object))               \
  X(int, PyObject_SetAttrString, (Object, const char*, Object))    \
  X(Object, PyInstanceMethod_New, (Object))                        \
  X(Object, PyCFunction_NewEx, (PyMethodDef*, Object, Object))     \
  X(void, PyObject_GC_UnTrack, (Object))                           \
  X(Object, PyWeakref_NewRef, (Object, Object))                    \
  X(int, PyType_IsSubtype, (Object, Object))                       \
  X(unsigned long, PyType_GetFlags, (Object))                      \
  X(int, PyCode_Addr2Line, (Object, int))                          \
  X(Object, PyDict_New, ())                                        \
  X(int, PyDict_SetItem, (Object, Object, Object))                 \
  X(int, PyDict_SetItemString, (Object, const char*, Object))      \
  X(Object, PyDict_GetItemString, (Object, const char*))           \
  X(Object, PyDict_GetItemWithError, (Object, Object))             \
  X(int, PyDict_DelItem, (Object, Object))                         \
  X(int, PyDict_Next, (Object, ptrdiff_t*, Object*, Object*))      \
  X(ptrdiff_t, PyDict_Size, (Object))                              \
  X(Object, PyList_New, (ptrdiff_t))                               \
  X(int, PyList_Append, (Object, Object))                          \
  X(ptrdiff_t, PyList_Size, (Object))                              \
  X(Object, PyList_GetItem, (Object, ptrdiff_t))                   \
  X(ptrdiff_t, PyTuple_Size, (Object))                             \
  X(Object, PyTuple_GetItem, (Object, ptrdiff_t))                  \
  X(Object, PyLong_FromVoidPtr, (void*))                           \
  X(void*, PyLong_AsVoidPtr, (Object))                             \
  X(Object, PyLong_FromLong, (long))                               \
  X(long, PyLong_AsLong, (Object))                                 \
  X(Object, PyUnicode_InternFromString, (const char*))             \
  X(Object, PyUnicode_FromStringAndSize, (const char*, ptrdiff_t)) \
  X(const char*, PyUnicode_AsUTF8AndSize, (Object, ptrdiff_t*))

// Layout of PyMethodDef, part of CPython's stable ABI.
struct PyMethodDef {
  const char* name;
  union {
    Object (*function)(Object self, Object arguments);
    Object (*fast)(Object self, Object const* arguments, ptrdiff_t count);
  };
  int flags;
  const char* doc;
};
inline constexpr int kMethVarArgs = 0x0001;   // arguments: a tuple
inline constexpr int kMethKeywords = 0x0002;  // with kMethVarArgs: a PyCFunctionWithKeywords
inline constexpr int kMethNoArgs = 0x0004;    // null
inline constexpr int kMethFastCall = 0x0080;
inline constexpr int kMethO = 0x0008;  // the one argument

struct PythonApi {
#define VRAMSCOPE_MEMBER(result, name, arguments) result(*name) arguments;
  VRAMSCOPE_PYTHON_API(VRAMSCOPE_MEMBER)
#undef VRAMSCOPE_MEMBER
  // From 3.11 on: keeps tracers and profilers away from what runs between the two.
  void (*PyThreadState_EnterTracing)(Object);
  void (*PyThreadState_LeaveTracing)(Object);
  Object none;
  Object dict_type, list_type, tuple_type, unicode_type;
  Object* exception_type;  // PyExc_Exception

  bool Load();

  Object None() const {
    Py_IncRef(none);
    return none;
  }
  Object Truth(bool value) const {
    return PyLong_FromLong(value ? 1 : 0);
  }
  static Object TypeOf(Object object) {
    return ReadAt<Object>(object, kObjectType);
  }
  bool Is(Object object, Object type) const {
    return TypeOf(object) == type || PyType_IsSubtype(TypeOf(object), type) != 0;
  }
  // The text of a str, which lives as long as it; empty for anything else.
  const char* Text(Object object, size_t* size_bytes) const;
};
extern constinit PythonApi g_api;

// Holds one reference.
class Owned {
 public:
  explicit Owned(Object object) : object_(object) {}
  ~Owned() {
    if (object_ != nullptr)
      g_api.Py_DecRef(object_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Object get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  Object object_;
};

// The program's tracers and profilers see nothing of the calling thread meanwhile.
class TracingPause {
 public:
  TracingPause() : thread_(CanPause() ? g_api.PyThreadState_Get() : nullptr) {
    if (thread_ != nullptr)
      g_api.PyThreadState_EnterTracing(thread_);
  }
  ~TracingPause() {
    if (thread_ != nullptr)
      g_api.PyThreadState_LeaveTracing(thread_);
  }
  TracingPause(const TracingPause&) = delete;
  TracingPause& operator=(const TracingPause&) = delete;

 private:
  static bool CanPause() {
    return g_api.PyThreadState_EnterTracing != nullptr &&
           g_api.PyThreadState_LeaveTracing != nullptr;
  }
  Object thread_;
};

// Whether the exception that is set came out of a signal handler of the program's, which can run
// between any two instructions of the probe's Python. That lets no other out; what was raised
// before its first instruction is the probe's.
bool ExceptionIsOfProgram();

// A fast builtin's arguments, borrowed; null beyond the last. Their call makes no tuple.
struct Arguments {
  Object const* values;
  ptrdiff_t count;
  Object operator[](ptrdiff_t n) const { return n < count ? values[n] : nullptr; }
};

// The n-th of a builtin's arguments, borrowed; null if there are fewer.
inline Object Argument(Object arguments, ptrdiff_t n) {
  return n < g_api.PyTuple_Size(arguments) ? g_api.PyTuple_GetItem(arguments, n) : nullptr;
}

// A fast builtin, import_notice(plain, ask): a `__setattr__` for a subclass of the class `plain` of
// module specs. When the import machinery notes in such a spec that the import is over, it gives
// the spec its class back and calls ask(). No Python runs, so that no tracer of the program's sees
// a frame.
Object ImportNotice(Object self, Object const* values, ptrdiff_t count);

// Gives up the GIL for a moment if a WayGiver lives in the calling thread, which holds it before
// and after.
void GiveWay();

// While one lives, the calling thread gives way within long work. `attach` has such a thread. It
// has no effect in the main thread.
class WayGiver {
 public:
  WayGiver();
  ~WayGiver();
  WayGiver(const WayGiver&) = delete;
  WayGiver& operator=(const WayGiver&) = delete;

  static bool IsAlive();
};

// ---- the garbage collector
// Python's garbage collector counts allocations, and collects when there were enough. Allocations
// of the probe must not count: collections would come earlier than without it.

// Finds the counts, once, in the memory of the interpreter, and proves them by an allocation. The
// calling thread holds the GIL. If the counters cannot be found, a CollectorPause does nothing.
void CollectorPrepare();

// The calling thread is the only one of a forked child.
void CollectorForked();

// While one lives nothing is collected; afterwards the counts are as before. They nest. The thread
// that makes one holds the GIL, and holds it again at its end.
class CollectorPause {
 public:
  CollectorPause();
  ~CollectorPause();
  CollectorPause(const CollectorPause&) = delete;
  CollectorPause& operator=(const CollectorPause&) = delete;

 private:
  bool outermost_ = false;
};

// Releases the object within a later pause: its end must not count either.
void ReleaseLater(Object object);

// What VisitObjects() calls. Neither function may run Python code.
class ObjectVisitor {
 public:
  virtual bool Begin() = 0;  // before the first object, and if all are visited anew
  virtual bool Visit(Object object) = 0;

 protected:
  ~ObjectVisitor() = default;
};

enum class Visited { kAll, kStopped, kNotPossible };

// Visits all objects of the garbage collector, also those of gc.freeze(), until a function of the
// visitor returns false. The calling thread holds the GIL, and a CollectorPause lives. It gives way
// every millisecond: a process has millions of objects. If the program collects meanwhile, which
// moves them, it visits all of them anew.
Visited VisitObjects(ObjectVisitor* visitor);

// Reads memory of this process at an uncertain address: a wrong address is an error and not a
// fault. Each read is one system call.
struct SafeReader {
  template <class T>
  bool Get(const char* address, T* value) const {
    iovec local{value, sizeof *value};
    iovec remote{const_cast<char*>(address), sizeof *value};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) ==
           static_cast<ssize_t>(sizeof *value);
  }
};

}  // namespace vramscope::probe
