// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "probe/stack/python/api.h"

// The calls of profiled functions that are under way. Each line is open from its first instruction
// to the next line's, or to the function's end; what it calls is in it. All with the GIL.
namespace vramscope::probe {

// Where an event is told with the code object alone (sys.monitoring) `frame` is null. False where a
// sampler left an exception that the program is to have (Ctrl-C).
void EnterFunction(Object code, Object frame, int32_t line, bool is_resumed);
bool EnterLine(Object code, int32_t line);
bool LeaveFunction(Object code);

// Whether this thread's innermost profiled call is of that frame; its code then, else null.
Object InnermostCode(Object frame);

// Whether calls are under way in this thread that were too deep to be followed. They are counted
// with LeaveFunction() all the same.
bool IsTooDeep();

// That device is watched from now on: lines that are open begin there with what it holds now.
void BeginDevice(int device);

// Nothing is profiled any more: the calls under way will not say when they end.
void ForgetCalls();

// Calls that could not be followed: too deep, or in too many threads at once.
extern int64_t g_frames_lost;

}  // namespace vramscope::probe
