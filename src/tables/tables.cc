// SPDX-License-Identifier: Apache-2.0
#include "tables/recording.h"

namespace vramscope::tables {

Tables::Tables()
    : hosts(1),
      devices(1),
      processes(1),
      accounts(1),
      threads(1),
      frames(1),
      stacks(1),
      sites(1),
      segments(1),
      counters(1) {}

}  // namespace vramscope::tables
