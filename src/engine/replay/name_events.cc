// SPDX-License-Identifier: Apache-2.0
// Names for memory: of parameters and their like, of the program's own tags, of pools.
#include <algorithm>

#include "engine/replay/ledger.h"
#include "engine/replay/pricing.h"

namespace vramscope::engine {
namespace {

using format::NameKind;

}  // namespace

// The category that stands in groups while the recording is replayed: what an earlier replay found.
Category Ledger::KnownCategory(const Holding& holding) const {
  const Category of_part = PartCategory(PartOfHolding(holding));
  if (options_.categories == nullptr || of_part != Category::kUnknown)
    return of_part;
  return options_.categories->Of(spaces_[holding.space].process, holding.life);
}

void Ledger::Decide(trace::ProcessId process, bool freed, Block* block) {
  const bool by_phase = block->owner == kPyTorch;
  phases_.Decide(process, names_, freed, by_phase, &block->origin);
  const uint64_t requested =
      block->origin.names == 0 ? 0 : names_.set(block->origin.names).requested;
  life_categories_.Set(block->life, block->origin,
                       requested == 0 ? 0 : block->size - std::min(block->size, requested));
}

void Ledger::Decide(trace::ProcessId process, bool freed, Holding* holding) {
  // PyTorch's stream-ordered backend gives no blocks: the driver's allocations are the tensors.
  const bool by_phase = holding->owner == kPyTorch && holding->memory == format::MemoryKind::kAsync;
  phases_.Decide(process, names_, freed, by_phase, &holding->origin);
  const uint64_t requested = names_.set(holding->origin.names).requested;
  const uint64_t base = std::min(holding->size, holding->priced);
  const bool cut = holding->carved_life != kNoLife;
  life_categories_.Set(holding->life, holding->origin,
                       requested == 0 || cut ? 0 : base - std::min(base, requested));
}

// A tag in place of another one: the memory was given out again.
bool Ledger::NameTakesTurn(uint32_t set, const MemoryName& name) const {
  return name.kind == NameKind::kTag && names_.set(set).tag != 0;
}

bool Ledger::NameBlock(const trace::Event& event,
                       trace::DeviceId device_id,
                       const MemoryName& name) {
  const size_t at = event.process.value * devices_.size() + static_cast<size_t>(device_id.value);
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
  DeviceState& device = DeviceOf(space);
  Segment& segment = segments_[block.segment];
  device.timeline.Before(event.time_ns, true, device.groups, device.height());
  Decide(space.process, true, &block);
  PushBlock(block, space_index, event.time_ns);
  if (options_.observer != nullptr)
    options_.observer->OnBlock(block, space_index, event.time_ns);
  AddToGroups(device, segment, block, -1);
  block.life = next_life_++;
  block.alloc_ns = event.time_ns;
  block.origin.names = set;
  AddToGroups(device, segment, block, 1);
  if (options_.observer != nullptr)
    options_.observer->OnBlockBegin(block, space_index);
  device.timeline.After(device.height());
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
  // A reading may still tell the array's size, and looks for it by its life.
  const bool splits = NameTakesTurn(holding.origin.names, name) && holding.carved_life == kNoLife &&
                      holding.kind == HoldingKind::kMemory &&
                      holding.memory != format::MemoryKind::kArray;
  if (!splits) {
    holding.origin.names = set;
    return true;
  }
  Space& space = spaces_[holding.space];
  Change change(*this, space.device, event.time_ns, event.time_ns, event.time_ns);
  Decide(event.process, true, &holding);
  PushHolding(holding, event.time_ns);
  if (options_.observer != nullptr)
    options_.observer->OnHolding(holding, event.time_ns);
  PriceHolding(holding, false);
  holding.first_life = holding.life = next_life_++;
  holding.alloc_ns = event.time_ns;
  holding.origin.names = set;
  PriceHolding(holding, true);
  if (options_.observer != nullptr)
    options_.observer->OnHoldingBegin(holding);
  return true;
}

void Ledger::OnPoolName(const trace::Event& event) {
  ProcessState& process = processes_[event.process.value];
  uint32_t& known = process.pool_names[event.address];
  known = names_.Add(known, {NameKind::kPool, event.name, event.api, event.value, 0});
  if (const uint32_t segment = process.pools.Find(event.address); segment != FlatMap::kNone)
    segments_[segment].names = known;
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
    for (size_t i = 0; i < devices_.size() && !found; ++i)
      found = NameBlock(event, devices_[i].id, name);
  }
  if (found || NameHolding(event, name))
    return;
  ++unknown_names_.count;
  unknown_names_.bytes += requested;
}

}  // namespace vramscope::engine
