// SPDX-License-Identifier: Apache-2.0
#pragma once

// The line profiler's part in C++: python/vramscope/_line_tracer.py has the rest.
namespace vramscope::probe {

// A new dict of builtin functions; null with an exception set, or where Python lacks something
// (then there is none). With the GIL.
void* LineProfilerFunctions();

}  // namespace vramscope::probe
