// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "probe/session/source.h"

// JAX: when XLA's own pool refuses memory, of which the driver never hears.
namespace vramscope::probe {

extern const Source kJaxSource;

}  // namespace vramscope::probe
