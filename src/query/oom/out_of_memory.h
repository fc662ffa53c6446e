// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "format/memory_words.h"
#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

// Why a request for device memory failed: who held the device then, and what would help.
namespace vramscope::query {

// In order of time. A request that was never served failed, whether or not the program handled the
// error.
util::Result<std::vector<Refusal>> FindRefusals(const tables::Recording& recording);

util::Result<OutOfMemory> ExplainRefusal(const tables::Recording& recording,
                                         const Refusal& refusal);

// What advice is made of, beyond the explanation itself. Bytes are of the process that was refused,
// at the refusal.
struct RefusalFacts {
  std::array<uint64_t, format::kCategoryCount> categories{};
  uint64_t kept_activations = 0;          // of forwards that do not run again
  uint64_t largest_layer_activation = 0;  // of these
  uint64_t forward_bytes = 0;             // what repeated layers' forward passes keep
  uint64_t largest_forward_bytes = 0;     // of one layer
  uint64_t forwards = 0;                  // that repeated layers ran
  uint64_t unread_bytes = 0;              // results of their forwards, which no backward has read
  uint64_t old_gradient_bytes = 0;        // since an earlier iteration
  uint64_t torch_fragmentation_bytes = 0;
  uint64_t torch_cached_bytes = 0;
  bool expandable_segments = false;  // PyTorch's segments are mapped, not allocated
  bool any_backward = false;
  bool in_forward = false;  // the request was made outside of backward and optimizer
  int32_t ranks = 0;        // seen in the recording
};

// Only what these facts support, largest first.
std::vector<Advice> AdviceFor(const OutOfMemory& what, const RefusalFacts& facts);

// A sentence: which of all this is why the request did not fit.
std::string CauseOf(const OutOfMemory& what);

XlaPool FindXlaPool(const tables::Recording& recording, const Refusal& refusal);

// Why a request was refused by such a pool, as a sentence.
std::string CauseInXlaPool(const XlaPool& pool, uint64_t requested_bytes);

}  // namespace vramscope::query
