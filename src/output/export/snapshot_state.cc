// SPDX-License-Identifier: Apache-2.0
#include "output/export/snapshot_state.h"

#include <algorithm>
#include <iterator>

#include "format/memory_words.h"
#include "output/names.h"
#include "query/dimensions/cells.h"

namespace vramscope::output {
namespace {

// Beyond what GPUs give addresses in (2^49), and exact in JavaScript's numbers.
constexpr uint64_t kFirstMadeAddress = uint64_t{1} << 50;
constexpr uint64_t kAlignment = 512;

// Numbers of a file are anybody's claims.
uint64_t End(uint64_t address, uint64_t bytes) {
  uint64_t end = 0;
  return __builtin_add_overflow(address, bytes, &end) ? UINT64_MAX : end;
}

}  // namespace

SnapshotLabels::SnapshotLabels(const tables::Recording& recording)
    : recording_(recording), texts_(recording), of_site_(recording.tables().sites.size()) {}

uint32_t SnapshotLabels::OfSite(uint32_t site) {
  if (of_site_[site] == 0)
    of_site_[site] = Of(recording_.tables().sites[site]) + 1;
  return of_site_[site] - 1;
}

uint32_t SnapshotLabels::Of(const tables::SiteRow& site) {
  SnapshotLabel label;
  label.account = site.account;
  label.stack = StackOf(site);
  label.below = Joined(BelowStack(recording_, LiveStackOf({}, {}, site)), ";");
  label.category = format::CategoryName(site.category);
  for (const query::Dimension dimension :
       {query::Dimension::kModule, query::Dimension::kParameter, query::Dimension::kTag}) {
    const uint64_t id = texts_.Id(dimension, site, nullptr);
    const std::string text = texts_.Text(dimension, id);
    if (query::DimensionValues::IsName(dimension, id) && !text.empty())
      label.names += (label.names.empty() ? "" : ", ") +
                     std::string(query::DimensionName(dimension)) + " " + text;
  }
  label.stream = site.stream == 0 ? 0 : site.stream - 1;
  label.graph_pool = site.part == format::Part::kGraphPool;
  return Of(label);
}

uint32_t SnapshotLabels::Of(const SnapshotLabel& label) {
  const auto [found, added] = numbers_.try_emplace(label, static_cast<uint32_t>(labels_.size()));
  if (added)
    labels_.push_back(&found->first);
  return found->second;
}

SnapshotState::SnapshotState(const tables::Recording& recording, SnapshotLabels* labels, Sink sink)
    : recording_(recording),
      tables_(recording.tables()),
      labels_(*labels),
      sink_(std::move(sink)),
      segments_(tables_.segments.size()),
      counters_(tables_.counters.size()),
      next_address_(kFirstMadeAddress),
      checkpointed_(tables_.accounts.size()) {}

void SnapshotState::BeginBlock(const tables::AllocationRow& row) {
  SnapshotBlock block;
  block.bytes = row.bytes;
  block.requested_bytes = row.bytes - row.rounding_bytes;
  block.label = labels_.OfSite(row.site.value);
  block.alloc_ns = row.alloc_ns;
  block.segment = row.segment.value < segments_.size() ? row.segment.value : 0;
  block.has_range = block.segment == 0 || !IsInRanges(row.address, row.bytes, block.segment) ||
                    HasBlockIn(row.address, row.bytes);
  Segment* const segment = block.segment == 0 ? nullptr : &segments_[block.segment];
  if (segment != nullptr) {
    segment->ledger.Use(row.bytes, 1);
    segment->used_in_ranges += block.has_range ? 0 : row.bytes;
    // What it was cut out of gets smaller before it comes.
    SetSlack(block.segment);
  }
  uint64_t address = row.address;
  if (block.has_range) {
    address = Place(row);
    AddRange(address, {row.bytes, block.label, row.alloc_ns, 0, false});
  }
  AddBlock(address, block);
}

void SnapshotState::EndBlock(const tables::AllocationRow& row) {
  const uint64_t address = FindPlace(row);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.alloc_ns != row.alloc_ns)
    return;
  const SnapshotBlock block = found->second;
  RemoveBlock(address);
  if (block.has_range) {
    RemoveRange(address);
    Unplace(row, address);
  }
  if (block.segment != 0) {
    Segment& segment = segments_[block.segment];
    segment.ledger.Use(-block.bytes, -uint64_t{1});
    segment.used_in_ranges -= block.has_range ? 0 : block.bytes;
    SetSlack(block.segment);
  }
}

void SnapshotState::BeginSegment(const tables::AllocationRow& row) {
  AddRounding(row, true);
  const uint32_t number = row.segment.value < segments_.size() ? row.segment.value : 0;
  const uint64_t bytes = row.bytes - row.rounding_bytes;
  if (number == 0 || bytes == 0)
    return;
  Segment& segment = segments_[number];
  segment.ledger.Back(bytes);
  if (IsFree(row.address, bytes)) {
    segment.range_bytes += bytes;
    AddRange(row.address, {bytes, labels_.OfSite(row.site.value), row.alloc_ns, number,
                           bytes < tables_.segments[number].size_bytes});
  }
  SetSlack(number);
}

void SnapshotState::EndSegment(const tables::AllocationRow& row) {
  AddRounding(row, false);
  const uint32_t number = row.segment.value < segments_.size() ? row.segment.value : 0;
  const uint64_t bytes = row.bytes - row.rounding_bytes;
  if (number == 0 || bytes == 0)
    return;
  Segment& segment = segments_[number];
  segment.ledger.Back(-bytes);
  const auto range = ranges_.find(row.address);
  if (range != ranges_.end() && range->second.segment == number &&
      range->second.alloc_ns == row.alloc_ns) {
    // Blocks that are still in it are in nothing then: a range of their own.
    std::vector<std::pair<uint64_t, SnapshotBlock>> left;
    const uint64_t end = End(row.address, bytes);
    auto at = blocks_.lower_bound(row.address);
    if (at != blocks_.begin() &&
        End(std::prev(at)->first, std::prev(at)->second.bytes) > row.address)
      --at;
    while (at != blocks_.end() && at->first < end) {
      left.emplace_back(at->first, at->second);
      ++at;
    }
    for (const auto& [address, block] : left)
      RemoveBlock(address);
    segment.range_bytes -= bytes;
    RemoveRange(row.address);
    for (auto& [address, block] : left) {
      segments_[block.segment].used_in_ranges -= block.has_range ? 0 : block.bytes;
      block.has_range = true;
      uint64_t place = address;
      if (!IsFree(address, block.bytes)) {
        place = MakeAddress(block.bytes);
        moved_[{address, block.alloc_ns, block.bytes}] = place;
      }
      AddRange(place, {block.bytes, block.label, block.alloc_ns, 0, false});
      AddBlock(place, block);
    }
  }
  SetSlack(number);
}

void SnapshotState::GoOn(const tables::AllocationRow& row) {
  const uint32_t label = labels_.OfSite(row.site.value);
  if (tables_.sites[row.site.value].backing != 0) {
    const auto range = ranges_.find(row.address);
    if (range != ranges_.end() && range->second.alloc_ns == row.alloc_ns)
      range->second.label = label;
    return;
  }
  const auto block = blocks_.find(FindPlace(row));
  if (block == blocks_.end() || block->second.alloc_ns != row.alloc_ns)
    return;
  block->second.label = label;
  const auto range = ranges_.find(block->first);
  if (block->second.has_range && range != ranges_.end())
    range->second.label = label;
}

void SnapshotState::AddStep(tables::CounterId counter, int64_t bytes) {
  if (counter.value >= counters_.size())
    return;
  const tables::CounterRow& row = tables_.counters[counter.value];
  if (row.segment.value != 0 && row.segment.value < segments_.size()) {
    segments_[row.segment.value].ledger.Back(static_cast<uint64_t>(bytes));
    SetSlack(row.segment.value);
    return;
  }
  uint64_t& value = counters_[counter.value];
  value += static_cast<uint64_t>(bytes);
  SetRegion(RegionKind::kCounter, counter.value, labels_.OfSite(row.site.value),
            value <= INT64_MAX ? value : 0, true);
}

void SnapshotState::AddInUse(uint32_t label, uint64_t bytes) {
  SetRegion(RegionKind::kCounter, UINT32_MAX, label, bytes, true);
}

void SnapshotState::AddRounding(const tables::AllocationRow& row, bool begins) {
  if (row.rounding_bytes == 0)
    return;
  const uint32_t label = labels_.Of(query::RoundingSite(tables_.sites[row.site.value]));
  uint64_t& bytes = rounding_[label];
  bytes = begins ? bytes + row.rounding_bytes : bytes - row.rounding_bytes;
  SetRegion(RegionKind::kRounding, label, label, bytes, false);
}

void SnapshotState::SetSlack(uint32_t number) {
  const Segment& segment = segments_[number];
  // Of hostile figures nothing adds up, and nothing has to.
  const auto free_bytes = static_cast<int64_t>(segment.ledger.FreeBytes());
  const auto shown_bytes = static_cast<int64_t>(segment.range_bytes - segment.used_in_ranges);
  const int64_t slack_bytes = free_bytes - std::max<int64_t>(shown_bytes, 0);
  if (slack_bytes <= 0 && regions_.find({RegionKind::kSlack, number}) == regions_.end())
    return;
  const tables::SiteRow site =
      query::FreeSite(recording_, tables_.segments[number], segment.ledger.IsInUse());
  SetRegion(RegionKind::kSlack, number, labels_.Of(site),
            static_cast<uint64_t>(std::max<int64_t>(slack_bytes, 0)), false);
}

void SnapshotState::SetRegion(RegionKind kind,
                              uint32_t number,
                              uint32_t label,
                              uint64_t bytes,
                              bool in_use) {
  Region& region = regions_[{kind, number}];
  if (region.bytes == bytes)
    return;
  if (region.bytes != 0) {
    if (in_use)
      RemoveBlock(region.address);
    RemoveRange(region.address);
    spare_addresses_.emplace(region.bytes, region.address);
  }
  region.bytes = bytes;
  if (bytes == 0)
    return;
  region.address = MakeAddress(bytes);
  AddRange(region.address, {bytes, label, 0, 0, false});
  if (in_use)
    AddBlock(region.address, {bytes, bytes, label, 0, 0, true});
}

bool SnapshotState::IsFree(uint64_t address, uint64_t bytes) const {
  const uint64_t end = End(address, bytes);
  if (address == 0 || end >= kFirstMadeAddress)
    return false;
  const auto after = ranges_.lower_bound(end);
  return after == ranges_.begin() ||
         End(std::prev(after)->first, std::prev(after)->second.bytes) <= address;
}

bool SnapshotState::IsInRanges(uint64_t address, uint64_t bytes, uint32_t segment) const {
  const uint64_t end = End(address, bytes);
  for (auto range = ranges_.upper_bound(address);;) {
    if (range == ranges_.begin())
      return false;
    const auto holder = std::prev(range);
    const uint64_t holder_end = End(holder->first, holder->second.bytes);
    if (holder->second.segment != segment || holder_end <= address)
      return false;
    if (end <= holder_end)
      return true;
    // The next one begins where this one ends.
    if (range == ranges_.end() || range->first != holder_end)
      return false;
    address = holder_end;
    ++range;
  }
}

bool SnapshotState::HasBlockIn(uint64_t address, uint64_t bytes) const {
  const auto after = blocks_.lower_bound(End(address, bytes));
  return after != blocks_.begin() &&
         End(std::prev(after)->first, std::prev(after)->second.bytes) > address;
}

uint64_t SnapshotState::MakeAddress(uint64_t bytes) {
  const auto spare = spare_addresses_.lower_bound(bytes);
  if (spare != spare_addresses_.end() && spare->first / 2 <= bytes) {
    const uint64_t address = spare->second;
    spare_addresses_.erase(spare);
    return address;
  }
  const uint64_t address = next_address_;
  next_address_ = End(address, bytes / kAlignment * kAlignment + 2 * kAlignment);
  return address;
}

uint64_t SnapshotState::Place(const tables::AllocationRow& row) {
  if (IsFree(row.address, row.bytes) && !HasBlockIn(row.address, row.bytes))
    return row.address;
  const uint64_t address = MakeAddress(row.bytes);
  moved_[{row.address, row.alloc_ns, row.bytes}] = address;
  return address;
}

uint64_t SnapshotState::FindPlace(const tables::AllocationRow& row) const {
  const auto found = moved_.find({row.address, row.alloc_ns, row.bytes});
  return found == moved_.end() ? row.address : found->second;
}

void SnapshotState::Unplace(const tables::AllocationRow& row, uint64_t address) {
  if (moved_.erase({row.address, row.alloc_ns, row.bytes}) != 0)
    spare_addresses_.emplace(row.bytes, address);
}

void SnapshotState::AddRange(uint64_t address, const SnapshotRange& range) {
  ranges_[address] = range;
  TellRange(address, range, true);
}

void SnapshotState::RemoveRange(uint64_t address) {
  const auto found = ranges_.find(address);
  if (found == ranges_.end())
    return;
  TellRange(address, found->second, false);
  ranges_.erase(found);
}

void SnapshotState::AddBlock(uint64_t address, const SnapshotBlock& block) {
  blocks_[address] = block;
  TellBlock(address, block, true);
}

void SnapshotState::RemoveBlock(uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end())
    return;
  TellBlock(address, found->second, false);
  blocks_.erase(found);
}

void SnapshotState::TellRange(uint64_t address, const SnapshotRange& range, bool begins) {
  const char* const action = begins ? (range.is_mapped ? "segment_map" : "segment_alloc")
                                    : (range.is_mapped ? "segment_unmap" : "segment_free");
  Tell(action, address, range.bytes, range.label, !begins);
}

void SnapshotState::TellBlock(uint64_t address, const SnapshotBlock& block, bool begins) {
  if (begins) {
    Tell("alloc", address, block.requested_bytes, block.label, false);
    return;
  }
  Tell("free_requested", address, block.requested_bytes, block.label, true);
  Tell("free_completed", address, block.requested_bytes, block.label, true);
}

void SnapshotState::Tell(const char* action,
                         uint64_t address,
                         uint64_t bytes,
                         uint32_t label,
                         bool frees) {
  if (sink_ && !IsCheckpointed(label))
    sink_({action, address, bytes, label, frees});
}

bool SnapshotState::IsCheckpointed(uint32_t label) const {
  const uint32_t account = labels_[label].account.value;
  return account < checkpointed_.size() && checkpointed_[account];
}

void SnapshotState::SetCheckpointed(tables::AccountId account, bool checkpointed) {
  if (account.value >= checkpointed_.size() || checkpointed_[account.value] == checkpointed)
    return;
  checkpointed_[account.value] = false;
  const auto blocks = [&] {
    for (const auto& [address, block] : blocks_) {
      if (labels_[block.label].account == account)
        TellBlock(address, block, !checkpointed);
    }
  };
  if (checkpointed)
    blocks();
  for (const auto& [address, range] : ranges_) {
    if (labels_[range.label].account == account)
      TellRange(address, range, !checkpointed);
  }
  if (!checkpointed)
    blocks();
  checkpointed_[account.value] = checkpointed;
}

}  // namespace vramscope::output
