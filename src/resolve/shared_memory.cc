// SPDX-License-Identifier: Apache-2.0
// Memory that several processes hold. Its bytes stand with the process that made it while that has
// it; when it frees it or ends, the memory lives on, and stands with the import that came first.
//
// Which import is of which export: both processes pass on the same content (an IPC handle, a fabric
// handle), of which both recorded a hash. A descriptor has no content: there, the first export of
// the same size that this process has not imported yet is taken. Which of several equal ones it is
// makes no difference to the sum.
#include <algorithm>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

int64_t Signed(uint64_t bytes) {
  return static_cast<int64_t>(bytes);
}

// Blocks of pools and of shared slabs are not exported alone: what holds them pays.
bool CanBeShared(const Holding& holding) {
  return holding.kind == HoldingKind::kHandle ||
         (holding.kind == HoldingKind::kMemory && !holding.small &&
          (IsDeviceMemory(holding.memory) || holding.memory == format::MemoryKind::kIpcImport));
}

}  // namespace

void Ledger::OnShare(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  const uint32_t holding = event.address != 0
                               ? process.holding_index[kAddresses].Find(event.address)
                               : process.holding_index[kHandles].Find(event.value);
  if (holding == FlatMap::kNone || !CanBeShared(process.holdings[holding]))
    return;
  const uint64_t key = event.size;
  const bool exported = event.subkind == static_cast<uint8_t>(format::ShareKind::kExport);
  if (key == 0 && (!exported || event.value == 0 || process.holdings[holding].share != kNoIndex))
    return;  // an import of a descriptor is joined when its size shows
  const auto fresh = static_cast<uint32_t>(shared_.size());
  const uint32_t shared = key == 0 ? fresh : shared_by_key_.try_emplace(key, fresh).first->second;
  if (shared == fresh)
    shared_.emplace_back();
  if (key == 0)
    shared_without_key_.push_back(shared);
  JoinShared(shared, event.process, holding);
}

void Ledger::JoinShared(uint32_t index, trace::ProcessId process, uint32_t holding_index) {
  Holding& holding = processes_[process.value].holdings[holding_index];
  if (holding.share == index)
    return;
  // Exported under another key before: the new key's holders hold the same memory.
  const uint32_t into = holding.share != kNoIndex ? holding.share : index;
  if (into != index) {
    for (const SharedMemory::Holder& holder : shared_[index].holders) {
      processes_[holder.process.value].holdings[holder.holding].share = into;
      shared_[into].holders.push_back(holder);
    }
    shared_[index].holders.clear();
    for (auto& [key, value] : shared_by_key_)
      value = value == index ? into : value;
    return;
  }
  holding.share = index;
  SharedMemory& shared = shared_[index];
  shared.holders.push_back({process, holding_index});
  if (holding.priced == 0)
    return;
  shared.bytes = holding.priced;
  shared.device = spaces_[holding.space].device;
}

void Ledger::JoinByMapping(trace::ProcessId process, uint32_t handle, uint64_t bytes) {
  const trace::DeviceId device = spaces_[processes_[process.value].holdings[handle].space].device;
  for (const uint32_t index : shared_without_key_) {
    const SharedMemory& shared = shared_[index];
    if (shared.bytes != bytes || shared.device != device || shared.holders.empty())
      continue;
    const bool has = std::any_of(shared.holders.begin(), shared.holders.end(),
                                 [&](const auto& holder) { return holder.process == process; });
    if (!has)
      return JoinShared(index, process, handle);
  }
}

// From here on the heir pays.
void Ledger::LeaveShared(uint32_t index,
                         trace::ProcessId process,
                         uint32_t holding,
                         uint64_t paid) {
  SharedMemory& shared = shared_[index];
  std::erase_if(shared.holders, [&](const SharedMemory::Holder& holder) {
    return holder.process == process && holder.holding == holding;
  });
  if (paid == 0 || shared.holders.empty())
    return;
  const SharedMemory::Holder heir = shared.holders.front();
  Holding& next = processes_[heir.process.value].holdings[heir.holding];
  const uint32_t space = SpaceIndex(heir.process, shared.device, last_ns_);
  EndRow(&next, false);
  next.space = space;
  next.priced = paid;
  next.size = next.size == 0 ? paid : next.size;
  if (next.kind == HoldingKind::kHandle)
    Move(spaces_[space], Signed(paid));
  else
    PriceHolding(next, true);
}

}  // namespace vramscope::resolve
