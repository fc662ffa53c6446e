// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "output/terminal.h"
#include "util/status.h"

// What keeps a process's tensors alive, as python/vramscope/_holders.py wrote it.
namespace vramscope::cli {

struct HolderGroup {
  std::string way;
  uint64_t bytes = 0;
  uint64_t tensors = 0;
  int64_t root_bytes = -1;  // -1: not known
  int64_t device = 0;       // CUDA's number, or format::kCpuDevice
};

struct Holders {
  std::vector<HolderGroup> groups;
  uint64_t objects = 0, objects_seen = 0;
  int64_t walk_ns = 0;
  uint64_t tensors = 0, bytes = 0;
  uint64_t tensors_left = 0, bytes_left = 0;
};

util::Result<Holders> ParseHolders(std::string_view json);
std::string HoldersText(const Holders& holders, const output::Style& style);

}  // namespace vramscope::cli
