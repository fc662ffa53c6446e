// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/model/parts.h"
#include "engine/model/stack_facts.h"

namespace vramscope::engine {

// Sees every change of a process's rows on a device. One event may make several that belong
// together: only behind the event do they add up.
class MovementObserver {
 public:
  virtual ~MovementObserver() = default;
  // `of_block`: of the bytes of a block, rounding included; `phase` is that of its allocation.
  virtual void OnMovement(uint32_t space,
                          Part part,
                          Category category,
                          bool of_block,
                          Phase phase,
                          int64_t bytes) = 0;
};

}  // namespace vramscope::engine
