// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/shared_memory.h"

#include <algorithm>

namespace vramscope::resolve {

uint32_t SharedMemory::OfKey(uint64_t key) {
  const auto fresh = static_cast<uint32_t>(shared_.size());
  const uint32_t number = key == 0 ? fresh : by_key_.try_emplace(key, fresh).first->second;
  if (number == fresh)
    shared_.emplace_back();
  if (key == 0)
    without_key_.push_back(number);
  return Find(number);
}

uint32_t SharedMemory::FindWithoutKey(trace::ProcessId process,
                                      trace::DeviceId device,
                                      uint64_t bytes) const {
  for (const uint32_t number : without_key_) {
    const Shared& shared = shared_[number];
    if (shared.bytes != bytes || shared.device != device || shared.holders.empty())
      continue;
    if (std::none_of(shared.holders.begin(), shared.holders.end(),
                     [&](const Holder& holder) { return holder.process == process; }))
      return number;
  }
  return kNoIndex;
}

uint32_t SharedMemory::Join(uint32_t number,
                            uint32_t known,
                            Holder holder,
                            trace::DeviceId device,
                            uint64_t bytes) {
  if (known != kNoIndex) {
    // Exported under another key before: the new key's holders hold the same memory.
    known = Find(known);
    if (known != number) {
      std::vector<Holder>& holders = shared_[known].holders;
      holders.insert(holders.end(), shared_[number].holders.begin(), shared_[number].holders.end());
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

std::optional<SharedMemory::Holder> SharedMemory::Leave(uint32_t number, Holder holder) {
  std::vector<Holder>& holders = shared_[Find(number)].holders;
  std::erase(holders, holder);
  if (holders.empty())
    return std::nullopt;
  return holders.front();
}

}  // namespace vramscope::resolve
