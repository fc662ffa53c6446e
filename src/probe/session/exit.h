// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "format/enums.h"

// Where the program's own life ends and its teardown begins: frees after that moment say nothing
// about the program. The first of: Python's finalisation, exit(), the return from main.
namespace vramscope::probe {

void NoteTeardown(format::TeardownKind kind);
// Whether that has happened.
bool TeardownBegan();

// Registers with Python's atexit. The calling thread holds the GIL and has no exception set.
void WatchPythonFinalisation();

}  // namespace vramscope::probe
