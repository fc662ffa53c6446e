// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "probe/stack/python/api.h"

// The functions whose lines are profiled, and the figures of each line. All of it is used with the
// GIL, which is its lock.
namespace vramscope::probe {

// The figures of one line on one of its profiler's devices. Python reads it as an array of 64-bit
// numbers (python/vramscope/_line_tracer.py has the same list).
struct LineFigures {
  int64_t hits;
  // The most of all executions.
  int64_t peak_allocated, peak_reserved;
  int64_t allocated, reserved;  // at its end
  int64_t bytes_given, bytes_back, blocks_given, blocks_back;
  // The sum of all executions.
  int64_t net, gross;
  // The bytes that a call of the function allocated in this line and had not freed when it
  // returned: the most of all calls.
  int64_t grown;
  int64_t grown_in_call;  // adds it up
};

// The figures of a function on one device; they come before its lines.
struct FunctionFigures {
  int64_t calls;
  int64_t peak_allocated, peak_line;
  int64_t grown_unknown;  // calls whose blocks were too many to be kept
};

// One function of one profiler.
struct Function {
  Object code;  // a reference; null: the place is free
  int32_t first_line;
  int32_t line_count;
  int32_t next;  // of the same code, -1: none
  int32_t target_count;
  bool is_enabled;
  int8_t targets[18];  // devices; those of the profiler can change while it runs
  uint8_t* figures;    // for each target: FunctionFigures, then the lines
  size_t figures_bytes;
  Object sampler;  // called with (id, line) after the first executions of a line; may be null

  FunctionFigures& Of(int target) const {
    return *reinterpret_cast<FunctionFigures*>(
        figures +
        static_cast<size_t>(target) *
            (sizeof(FunctionFigures) + sizeof(LineFigures) * static_cast<size_t>(line_count)));
  }
  LineFigures* Line(int target, int32_t line) const {
    const int32_t index = line - first_line;
    return index < 0 || index >= line_count
               ? nullptr
               : reinterpret_cast<LineFigures*>(&Of(target) + 1) + index;
  }
};

inline constexpr int32_t kMostFunctions = 4096;
extern Function* g_functions;

// An id, or -1: out of room.
int32_t AddFunction(Object code, int32_t first_line, int32_t line_count, int32_t target_count);
void RemoveFunction(int32_t id);
void ClearFunction(int32_t id);

// The first function of that code object, -1 if there is none.
int32_t FirstFunction(Object code);

// A new dict of builtin functions; null with an exception set, or where Python lacks something
// (then there is none). With the GIL.
void* LineProfilerFunctions();

// The calls of profiled functions that are under way. Each line is open from its first instruction
// to the next line's, or to the function's end; what it calls is in it. All with the GIL.

// If an event has the code object alone (sys.monitoring), `frame` is null. False if a sampler
// left an exception that the program is to have (Ctrl-C).
void EnterFunction(Object code, Object frame, int32_t line, bool is_resumed);
bool EnterLine(Object code, int32_t line);
bool LeaveFunction(Object code);

// Whether this thread's innermost profiled call is of that frame; its code then, else null.
Object InnermostCode(Object frame);

// Whether calls are under way in this thread that were too deep to be followed. They are counted
// with LeaveFunction() all the same.
bool IsTooDeep();

// The device is watched from now on: open lines begin with what it holds now.
void BeginDevice(int device);

// Nothing is profiled any more: the calls under way will not say when they end.
void ForgetCalls();

// Calls that could not be followed: too deep, or in too many threads at once.
extern int64_t g_frames_lost;

}  // namespace vramscope::probe
