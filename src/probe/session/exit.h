// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "format/enums.h"

// Where the program's own life ends and its teardown begins: frees after that moment say nothing
// about the program. The first of: Python's finalisation, exit(), the return from main.
namespace vramscope::probe {

// Called once, with the GIL, when Python begins to end and all still works; null: nothing is.
// Whether no exception of the program's is set afterwards.
extern std::atomic<bool (*)()> g_before_python_exit;

void NoteTeardown(format::TeardownKind kind);
// Whether that has happened.
bool TeardownBegan();

// Registers with Python's atexit. The calling thread holds the GIL and has no exception set.
void WatchPythonFinalisation();

}  // namespace vramscope::probe
