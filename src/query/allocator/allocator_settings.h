// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "util/status.h"

namespace vramscope::query {

inline constexpr uint64_t kMebibyte = uint64_t{1} << 20;

// What differs between PyTorch's versions. Each switch says what the newer ones do.
struct AllocatorRules {
  bool full_fraction_limits = false;    // a fraction of 1.0 is a limit too
  bool scope_is_capture = false;        // an open pool scope holds back events and releases
  bool newest_scope_first = true;       // of nested pool scopes
  bool fallback_before_release = true;  // pools for out of memory, before the cache is released
  bool rest_begins_after_last = true;   // what ">" means in roundup_power2_divisions
  bool has_large_segment_size = true;   // large_segment_size_mb
  bool has_no_split = true;             // pools whose blocks are never split
};

// "2.9.1", "2.13.0+cu130". Of a version that is not known, those of the nearest one.
AllocatorRules RulesOf(std::string_view pytorch_version);

// What PYTORCH_CUDA_ALLOC_CONF says.
struct AllocatorSettings {
  uint64_t max_split_bytes = UINT64_MAX;
  uint64_t max_non_split_rounding_bytes = 20 * kMebibyte;
  uint64_t large_segment_bytes = 20 * kMebibyte;
  double garbage_collection_threshold = 0;  // 0: off
  bool expandable_segments = false;
  // By power of two, from 1 MiB; 0 and 1: multiples of 512 bytes.
  std::array<uint32_t, 16> roundup_divisions{};

  // Bytes of the block that a request gets.
  uint64_t Round(uint64_t requested_bytes) const;
  friend bool operator==(const AllocatorSettings&, const AllocatorSettings&) = default;
};

// Applies "key:value,key:value", as a call of _set_allocator_settings() does: what it does not name
// gets its default, but for the two settings of segments. Keys without an effect on device memory
// are skipped.
util::Status ApplyAllocatorSettings(std::string_view text,
                                    const AllocatorRules& rules,
                                    AllocatorSettings* settings);

}  // namespace vramscope::query
