// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "probe/session/source.h"

// The functions of libc10 that the probe stands in front of. A preloaded probe is found by name;
// the slots of objects that were loaded before it are pointed here.
namespace vramscope::probe {

extern const Source kC10Source;

}  // namespace vramscope::probe
