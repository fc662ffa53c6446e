// SPDX-License-Identifier: Apache-2.0
#pragma once

// A probe that comes into a process under way.
namespace vramscope::probe {

// Points the slots of what is loaded already at the hooks: of PyTorch's libraries, and of all that
// calls dlopen. Harmless where the probe was found first, and when repeated, which is for objects
// that were bound past the probe since.
void PatchLoadedObjects();

}  // namespace vramscope::probe
