// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "resolve/ledger/records.h"
#include "tables/rows.h"
#include "trace/event.h"

namespace vramscope::resolve {

// Memory that several processes hold. Its bytes count for the process that made it. When that
// process frees it or ends, they count for the earliest import.
//
// An import is matched to its export by the hash of the handle (IPC or fabric), which both
// processes recorded. A descriptor has no content to compare. It is matched by the size, to memory
// that the process does not hold yet. Memory with a descriptor that no process has imported comes
// first: each export makes a descriptor, and most go to one process (NCCL's peers). If there is
// none, the first memory of the size is taken: a descriptor can be sent to several processes.
class SharedMemory {
 public:
  struct Holder {
    trace::ProcessId process;
    uint32_t object = kNoIndex;  // among its driver objects
    friend bool operator==(const Holder&, const Holder&) = default;
  };

  // A process that had the memory, from its export or import on.
  struct Use {
    Holder holder;
    trace::DeviceId device = trace::kNoDevice;
    int64_t begin_ns = 0;
    int64_t end_ns = tables::kNever;
    uint64_t size = 0;     // as the holder sees it
    bool made = false;     // it counted the bytes when it joined
    bool is_over = false;  // `end_ns` is the end of the process
    tables::StackId stack, native;
  };
  // The uses of one memory, in order of joining.
  struct Uses {
    uint64_t bytes = 0;  // 0: no process that made it is known
    std::vector<Use> uses;
  };

  // The number of the memory with that key. Key 0 (a descriptor) gets a new number.
  uint32_t OfKey(uint64_t key);
  // The memory of that size without a key that this process does not hold yet, or kNoIndex. One of
  // its descriptors counts as imported from here on.
  uint32_t ClaimWithoutKey(trace::ProcessId process, trace::DeviceId device, uint64_t bytes);
  // `known`: the object's current number, or kNoIndex. Returns its new number; an object that is
  // exported twice is one memory. `bytes` 0: the holder does not count it.
  uint32_t Join(uint32_t number,
                uint32_t known,
                Holder holder,
                trace::DeviceId device,
                uint64_t bytes);
  // Adds what a report says of the holder that joined last.
  void Describe(uint32_t number, const Use& use);
  // Returns the holder from now on, if any is left. `freed`: it freed or closed the memory;
  // otherwise it ended.
  std::optional<Holder> Leave(uint32_t number,
                              Holder holder,
                              int64_t time_ns = 0,
                              bool freed = true);
  // Calls visit(const Uses&) for each memory.
  template <class Visitor>
  void ForEach(Visitor visit) const {
    for (const Shared& shared : shared_) {
      if (shared.is == kNoIndex && !shared.uses.empty())
        visit(Uses{shared.bytes, shared.uses});
    }
  }
  trace::DeviceId DeviceOf(uint32_t number) const { return shared_[Find(number)].device; }

 private:
  struct Shared {
    uint32_t is = kNoIndex;  // merged into this number; kNoIndex: not merged
    trace::DeviceId device = trace::kNoDevice;
    uint64_t bytes = 0;
    uint32_t unclaimed = 0;       // descriptors that no process has imported
    std::vector<Holder> holders;  // in order of joining
    std::vector<Use> uses;        // the same, and those that left
  };

  uint32_t Find(uint32_t number) const {
    while (shared_[number].is != kNoIndex)
      number = shared_[number].is;
    return number;
  }

  std::vector<Shared> shared_;
  std::unordered_map<uint64_t, uint32_t> by_key_;
  std::vector<uint32_t> without_key_;
};

inline uint32_t SharedMemory::OfKey(uint64_t key) {
  const auto fresh = static_cast<uint32_t>(shared_.size());
  const uint32_t number = key == 0 ? fresh : by_key_.try_emplace(key, fresh).first->second;
  if (number == fresh)
    shared_.emplace_back();
  if (key == 0) {
    without_key_.push_back(number);
    shared_[number].unclaimed = 1;
  }
  return Find(number);
}

inline uint32_t SharedMemory::ClaimWithoutKey(trace::ProcessId process,
                                              trace::DeviceId device,
                                              uint64_t bytes) {
  uint32_t first = kNoIndex;
  for (const uint32_t number : without_key_) {
    Shared& shared = shared_[number];
    if (shared.bytes != bytes || shared.device != device || shared.holders.empty() ||
        std::any_of(shared.holders.begin(), shared.holders.end(),
                    [&](const Holder& holder) { return holder.process == process; }))
      continue;
    if (shared.unclaimed > 0) {
      --shared.unclaimed;
      return number;
    }
    first = first == kNoIndex ? number : first;
  }
  return first;
}

inline uint32_t SharedMemory::Join(uint32_t number,
                                   uint32_t known,
                                   Holder holder,
                                   trace::DeviceId device,
                                   uint64_t bytes) {
  if (known != kNoIndex) {
    // It was exported under another key: the new key's holders hold the same memory.
    known = Find(known);
    if (known != number) {
      std::vector<Holder>& holders = shared_[known].holders;
      holders.insert(holders.end(), shared_[number].holders.begin(), shared_[number].holders.end());
      std::vector<Use>& uses = shared_[known].uses;
      uses.insert(uses.end(), shared_[number].uses.begin(), shared_[number].uses.end());
      shared_[number].uses.clear();
      shared_[known].unclaimed += std::exchange(shared_[number].unclaimed, 0u);
      shared_[number].holders.clear();
      shared_[number].is = known;
    }
    return known;
  }
  Shared& shared = shared_[number];
  shared.holders.push_back(holder);
  if (bytes != 0) {
    shared.bytes = bytes;
    shared.device = device;
  }
  return number;
}

inline void SharedMemory::Describe(uint32_t number, const Use& use) {
  shared_[Find(number)].uses.push_back(use);
}

inline std::optional<SharedMemory::Holder> SharedMemory::Leave(uint32_t number,
                                                               Holder holder,
                                                               int64_t time_ns,
                                                               bool freed) {
  Shared& shared = shared_[Find(number)];
  // From the last: a process may open and close the memory a million times.
  const auto use = std::find_if(shared.uses.rbegin(), shared.uses.rend(), [&](const Use& other) {
    return other.holder == holder && other.end_ns == tables::kNever;
  });
  if (use != shared.uses.rend()) {
    use->end_ns = time_ns;
    use->is_over = !freed;
  }
  std::vector<Holder>& holders = shared.holders;
  std::erase(holders, holder);
  if (holders.empty())
    return std::nullopt;
  return holders.front();
}

}  // namespace vramscope::resolve
