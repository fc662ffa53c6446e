// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <cstdint>

#include "probe/stack/unwind_cfi.h"

// Which binary code belongs to, and when that may have changed.
namespace vramscope::probe {

// Looks for the C library's lock-free search. Once, when this library is loaded.
void LoadModuleSearch();

// The binary that `pc` lies in; false for code that no file has. With glibc 2.35 or newer it takes
// no lock and is safe in signal handlers; before, it takes the loader's lock.
bool FindModule(uintptr_t pc, CodeModule* module);

// What dl_iterate_phdr would say of that binary, by the same search: `info` has no headers where no
// file has the code. False where only the loader's list can say.
bool DescribeModule(uintptr_t pc, dl_phdr_info* info);

// Grows when FindModule() comes to a binary for the first time.
uint64_t SeenModules();
// Grows when binaries were unloaded: what was learnt of code before may be of other code.
uint64_t CodeGeneration();
// To be called before a library is loaded: code can only come to the addresses of other code after
// that was unloaded. Takes the loader's lock for a moment.
void NoteUnloadedModules();

}  // namespace vramscope::probe
