// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include "record/attach/remote_code.h"
#include "util/status.h"

// Has a running process execute code, without a debugger.
//
//   this process                            the target's main thread
//   ------------                            ------------------------
//   PTRACE_SEIZE, PTRACE_INTERRUPT          stops
//   writes code into unused bytes of
//   an executable page, and a return
//   address below the stack
//   PTRACE_SETREGS: the code is next
//   PTRACE_DETACH                           saves all registers
//                                           pthread_create or Py_AddPendingCall
//                                           restores all registers and returns to where it was
//
// The thread never depends on this process. If this process dies, the kernel detaches and the
// thread continues: before PTRACE_SETREGS where it was, afterwards in the code, which returns
// there. A system call that the stop interrupted is restarted as the kernel restarts it.
//
// Source: ptrace(2); the restart codes are those of the kernel's arch/x86/kernel/signal.c.
namespace vramscope::cli {

// Whether the process has begun the task, or why not.
//   kSafePoint: at any instruction.
//   kThread: only while the main thread is idle. If it is not, or if the process has no threads,
//            the task is done as kSafePoint.
//   kLibrary: only while the main thread is idle, or outside of the C library, the loader and other
//            allocators: to create a thread is to allocate. Tries for two seconds.
util::Status Detour(pid_t pid, const RemoteProgram& program, const RemoteTask& task);

// Whether a thread that is in this system call waits for something outside of the C library: it
// holds no lock that creating a thread needs. `number` and `first`, `second`: the call and its
// arguments.
bool IsIdleCall(uint64_t number, uint64_t second);

}  // namespace vramscope::cli
