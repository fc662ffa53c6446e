// SPDX-License-Identifier: Apache-2.0
// Names for memory: of parameters and their like, of the program's own tags, of pools.
#include <algorithm>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

using format::NameKind;

}  // namespace

void Ledger::Decide(trace::ProcessId process, bool freed, Block* block) {
  phases_.Decide(process, names_, freed, block->owner == kPyTorch, &block->origin);
}

void Ledger::Decide(trace::ProcessId process, bool freed, Holding* holding) {
  // PyTorch's stream-ordered backend gives no blocks: the driver's allocations are the tensors.
  const bool by_phase = holding->owner == kPyTorch && holding->memory == format::MemoryKind::kAsync;
  phases_.Decide(process, names_, freed, by_phase, &holding->origin);
}

// A tag in place of another one: the memory was given out again.
bool Ledger::NameTakesTurn(uint32_t set, const MemoryName& name) const {
  return name.kind == NameKind::kTag && names_.set(set).tag != 0;
}

bool Ledger::NameBlock(const trace::Event& event,
                       trace::DeviceId device_id,
                       const MemoryName& name) {
  const size_t at =
      event.process.value * trace_.devices().size() + static_cast<size_t>(device_id.value);
  const uint32_t space_index = space_index_[at];
  if (space_index == kNoIndex)
    return false;
  Space& space = spaces_[space_index];
  const uint32_t index = space.block_index.Find(event.address);
  if (index == FlatMap::kNone)
    return false;
  Block& block = space.blocks[index];
  const uint32_t set = names_.Add(block.origin.names, name);
  if (set == block.origin.names)
    return true;
  if (!NameTakesTurn(block.origin.names, name)) {
    block.origin.names = set;
    return true;
  }
  EndRow(&block, space_index, true);
  block.alloc_ns = event.time_ns;
  block.origin.names = set;
  return true;
}

bool Ledger::NameHolding(const trace::Event& event, const MemoryName& name) {
  ProcessState& process = processes_[event.process.value];
  uint32_t index = FlatMap::kNone;
  for (const FlatMap& numbers : process.holding_index) {
    // Handles are small numbers that no address can be.
    if (index == FlatMap::kNone)
      index = numbers.Find(event.address);
  }
  if (const uint32_t mapping = process.mapping_index.Find(event.address); mapping != FlatMap::kNone)
    index = process.holdings[mapping].handle;
  if (index == FlatMap::kNone)
    return false;
  Holding& holding = process.holdings[index];
  const uint32_t set = names_.Add(holding.origin.names, name);
  if (set == holding.origin.names)
    return true;
  const bool splits = NameTakesTurn(holding.origin.names, name) && !holding.backing &&
                      holding.kind == HoldingKind::kMemory;
  if (!splits) {
    holding.origin.names = set;
    return true;
  }
  EndRow(&holding, true);
  holding.alloc_ns = event.time_ns;
  holding.origin.names = set;
  return true;
}

void Ledger::OnPoolName(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  uint32_t& known = process.pool_names[event.address];
  known = names_.Add(known, {NameKind::kPool, event.name, event.api, event.value, 0});
  if (const uint32_t segment = process.pools.Find(event.address); segment != FlatMap::kNone) {
    segments_[segment].names = known;
    Describe(segments_[segment], nullptr);
  }
}

void Ledger::OnName(const trace::Event& event) {
  if (event.address == 0 || event.subkind > static_cast<uint8_t>(NameKind::kPool))
    return;
  const auto kind = static_cast<NameKind>(event.subkind);
  if (kind == NameKind::kPool)
    return OnPoolName(event);
  if (kind == NameKind::kParameter)
    modules_.OnParameter(event);
  const uint64_t requested = event.size > kLargestSize ? 0 : event.size;
  const MemoryName name{kind, event.name, event.api, event.value, requested};
  bool found = false;
  if (ValidDevice(event.device)) {
    found = NameBlock(event, event.device, name);
  } else {
    for (size_t i = 0; i < trace_.devices().size() && !found; ++i)
      found = NameBlock(event, trace::DeviceId{static_cast<int16_t>(i)}, name);
  }
  if (found || NameHolding(event, name))
    return;
  ++unknown_names_.count;
  unknown_names_.bytes += requested;
}

}  // namespace vramscope::resolve
