// SPDX-License-Identifier: Apache-2.0
#include "pool.h"

#include <vramscope/annotate.h>

#include <algorithm>
#include <bit>

namespace {

constexpr size_t kSlabBytes = size_t{8} << 20;
constexpr size_t kSmallestBytes = 4096;

// Blocks have sizes of 2^n and 1.5 * 2^n: few enough to be used again, and the rest is small.
size_t BlockBytes(size_t bytes) {
  const size_t power = std::bit_ceil(std::max(bytes, kSmallestBytes));
  return bytes <= power / 4 * 3 && power > kSmallestBytes ? power / 4 * 3 : power;
}

const void* AsPointer(driver::DevicePointer address) {
  return reinterpret_cast<const void*>(address);
}

}  // namespace

Pool::~Pool() {
  for (const driver::DevicePointer slab : slabs_)
    driver::Check(cu_.MemFree(slab), "cuMemFree");
}

driver::DevicePointer Pool::Take(size_t bytes, const std::string& name) {
  const size_t size = BlockBytes(bytes);
  driver::DevicePointer block = 0;
  if (std::vector<driver::DevicePointer>& free = free_[size]; !free.empty()) {
    block = free.back();
    free.pop_back();
  } else {
    if (fresh_bytes_ < size) {
      fresh_bytes_ = std::max(size, kSlabBytes);
      driver::Check(cu_.MemAlloc(&fresh_, fresh_bytes_), "cuMemAlloc");
      slabs_.push_back(fresh_);
    }
    block = fresh_;
    fresh_ += size;
    fresh_bytes_ -= size;
  }
  taken_[block] = size;
  vramscope_annotate_block_alloc(AsPointer(block), size, bytes, name.c_str());
  return block;
}

void Pool::Give(driver::DevicePointer block) {
  const auto taken = taken_.find(block);
  free_[taken->second].push_back(block);
  taken_.erase(taken);
  vramscope_annotate_block_free(AsPointer(block));
}
