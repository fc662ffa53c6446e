// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// What a GPU that is large enough would have held of a run with --overflow: the recorded processes'
// memory on it, and the host's that stood in for it.
struct Overflow {
  struct Named {
    std::string name;
    uint64_t bytes = 0;
  };
  tables::DeviceId device;
  uint64_t device_bytes = 0;     // its size; 0: not known
  int64_t time_ns = 0;           // of the instant at which most was in use
  uint64_t used_bytes = 0;       // then, less what allocators held free
  uint64_t held_bytes = 0;       // then, with that
  uint64_t host_bytes = 0;       // of `held_bytes`, in the host's memory
  uint64_t most_host_bytes = 0;  // in the host's memory at any time
  // At that instant, largest first. Everything by category; of what was in the host's memory the
  // categories, layers and lines.
  std::vector<Named> all_categories, categories, layers, lines;
  // The smallest usual size of a card that holds it, in GB as cards are sold; 0: larger than those.
  uint32_t card_gb = 0;
  // How much of the batch fits this device, in percent, where activations, temporaries and inputs
  // are all that depends on it; empty: nobody knows, 0: the rest alone is larger.
  std::optional<uint32_t> batch_percent;
};

// By device; none of a run in which nothing was served from the host.
util::Result<std::vector<Overflow>> FindOverflow(const tables::Recording& recording);

}  // namespace vramscope::query
