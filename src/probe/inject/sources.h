// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "probe/session/source.h"

// The list of sources, and the moments at which all of them have something to do.
namespace vramscope::probe {

// Reads the configuration, and sees to forks from then on. The constructors of other libraries can
// come here before ours.
void SourcesLoad();

void SourcesBegin();
void SourcesObserveOpening(const Opening& opening);
// In a running process, once it is recorded: attaches to the libraries that are loaded.
void SourcesBeginLate();
void SourcesForget();
void SourcesEnd();

// Points the slots of what is loaded already at the hooks: of PyTorch's libraries, and of all that
// calls dlopen. Needs no recording. A recording in a running process must begin after it: other
// threads allocate and free while slots are patched, and a block whose allocation went through an
// unpatched slot would have only its free recorded. Harmless where the probe was found first, and
// when repeated, which is for objects that were bound past the probe since.
void PatchLoadedObjects();

}  // namespace vramscope::probe
