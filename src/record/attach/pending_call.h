// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "record/attach/remote_process.h"
#include "util/status.h"

// Has a running Python program execute a script, without a debugger.
//
//   this process                            the target's main thread
//   ------------                            ------------------------
//   PTRACE_SEIZE, PTRACE_INTERRUPT          stops
//   writes code into unused bytes of
//   an executable page, and a return
//   address below the stack
//   PTRACE_SETREGS: the code is next
//   PTRACE_DETACH                           saves all registers
//                                           Py_AddPendingCall(the script)
//                                           restores all registers and returns to where it was
//                                           ... at the next safe point of the interpreter: the
//                                           script
//
// The thread never depends on this process. If this process dies, the kernel detaches and the
// thread continues: before PTRACE_SETREGS where it was, afterwards in the code, which returns there
// by itself. A system call that the stop interrupted is restarted as the kernel restarts it.
//
// Source: ptrace(2); the restart codes are those of the kernel's arch/x86/kernel/signal.c.
namespace vramscope::cli {

// What a Python program exports that the code needs.
struct PythonCalls {
  RemoteObject::Symbol add_pending_call;  // int Py_AddPendingCall(int (*)(void*), void*)
  RemoteObject::Symbol make_pending_calls;
  uint64_t new_dict = 0;
  uint64_t run_string = 0;  // PyObject* PyRun_StringFlags(const char*, int, globals, locals, flags)
  uint64_t release = 0;
  uint64_t is_initialized = 0;              // int Py_IsInitialized(), at any moment
  std::vector<Mapping> mappings;            // of the whole process
  std::vector<RemoteObject::Range> unused;  // executable bytes that nothing uses
};

// An error if no Python interpreter is loaded, or its functions are not to be found.
util::Result<PythonCalls> FindPython(pid_t pid);

// Has the main thread of `pid` execute the Python text `text` as soon as its interpreter can run
// any. An exception that the text lets out reaches the program, as one of a signal handler does.
util::Status AddPendingCall(pid_t pid, const PythonCalls& python, const std::string& text);

}  // namespace vramscope::cli
