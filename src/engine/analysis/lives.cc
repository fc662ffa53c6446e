// SPDX-License-Identifier: Apache-2.0
#include "engine/analysis/lives.h"

#include <algorithm>

#include "engine/replay/pricing.h"

namespace vramscope::engine {

LifeRecord RecordOf(const Block& block, uint32_t space, int64_t free_ns) {
  LifeRecord record;
  record.life = block.life;
  record.space = space;
  record.owner = block.owner;
  record.origin = block.origin;
  record.python = block.stack;
  record.stack = block.stack.value != 0 ? block.stack : block.native;
  record.address = block.address;
  record.bytes = block.size;
  record.alloc_ns = block.alloc_ns;
  record.free_ns = free_ns;
  return record;
}

LifeRecord RecordOf(const Holding& holding, int64_t free_ns) {
  LifeRecord record;
  record.life = holding.first_life;
  record.space = holding.space;
  record.owner = holding.owner;
  record.origin = holding.origin;
  record.part = PartOfMemory(holding.memory);
  record.is_segment = holding.carved_life != kNoLife;
  record.api = holding.api;
  record.python = holding.stack;
  record.stack = holding.stack.value != 0 ? holding.stack : holding.native;
  record.address = holding.address;
  record.bytes = std::min(holding.size, holding.priced);
  record.alloc_ns = holding.alloc_ns;
  record.free_ns = free_ns;
  return record;
}

Category CategoryOf(const Ledger& ledger, const LifeRecord& record) {
  const Category of_part = PartCategory(record.part);
  if (of_part != Category::kUnknown || record.is_segment)
    return of_part;
  return ledger.CategoryOf(ledger.spaces()[record.space].process, record.origin);
}

bool LargestLives::Wants(uint64_t bytes, int64_t alloc_ns, int64_t free_ns, double* weight) {
  ++seen_;
  const int64_t until = free_ns == kNever ? end_ns_ : free_ns;
  *weight =
      static_cast<double>(bytes) * static_cast<double>(std::max<int64_t>(until - alloc_ns, 0) + 1);
  return *weight > lightest_ && limit_ > 0;
}

void LargestLives::Keep(double weight, const LifeRecord& record) {
  entries_.push_back({weight, record});
  if (entries_.size() >= 2 * limit_)
    DropLightest();
}

void LargestLives::DropLightest() {
  if (entries_.size() <= limit_)
    return;
  const auto last = entries_.begin() + static_cast<ptrdiff_t>(limit_) - 1;
  std::nth_element(entries_.begin(), last, entries_.end(), Heavier);
  lightest_ = last->weight;
  entries_.resize(limit_);
}

void LargestLives::OnBlock(const Block& block, uint32_t space, int64_t free_ns) {
  double weight;
  if (Wants(block.size, block.alloc_ns, free_ns, &weight))
    Keep(weight, RecordOf(block, space, free_ns));
}

void LargestLives::OnHolding(const Holding& holding, int64_t free_ns) {
  if (holding.carved_life != kNoLife)
    return;
  double weight;
  if (Wants(std::min(holding.size, holding.priced), holding.alloc_ns, free_ns, &weight))
    Keep(weight, RecordOf(holding, free_ns));
}

std::vector<LifeRecord> LargestLives::Take() {
  DropLightest();
  std::sort(entries_.begin(), entries_.end(), Heavier);
  std::vector<LifeRecord> records;
  records.reserve(entries_.size());
  for (const Entry& entry : entries_)
    records.push_back(entry.record);
  entries_.clear();
  return records;
}

void LeftOutPeak::Move(uint64_t life, int64_t bytes) {
  if (std::binary_search(kept_.begin(), kept_.end(), life))
    return;
  now_ += bytes;
  peak_ = std::max(peak_, now_);
}

void LeftOutPeak::OnBlock(const Block& block, uint32_t, int64_t) {
  Move(block.life, -static_cast<int64_t>(block.size));
}

void LeftOutPeak::OnHolding(const Holding& holding, int64_t) {
  if (holding.carved_life == kNoLife)
    Move(holding.first_life, -static_cast<int64_t>(std::min(holding.size, holding.priced)));
}

void LeftOutPeak::OnBlockBegin(const Block& block, uint32_t) {
  Move(block.life, static_cast<int64_t>(block.size));
}

void LeftOutPeak::OnHoldingBegin(const Holding& holding) {
  Move(holding.first_life, static_cast<int64_t>(std::min(holding.size, holding.priced)));
}

void LeftOutPeak::OnCarved(const Holding& holding) {
  Move(holding.first_life, -static_cast<int64_t>(std::min(holding.size, holding.priced)));
}

void LifeEnds::Set(uint64_t life, int64_t free_ns, const Origin& origin) {
  if (life >= ends_.size())
    ends_.resize(std::max<size_t>(life + 1, ends_.size() + ends_.size() / 2));
  ends_[life] = {free_ns == kNever ? 0 : free_ns, origin.names, origin.category,
                 origin.without_phases};
}

void LifeEnds::Complete(uint64_t life, Origin* origin) const {
  if (life >= ends_.size())
    return;
  origin->names = ends_[life].names;
  origin->category = ends_[life].category;
  origin->without_phases = ends_[life].without_phases;
}

void LifeEnds::OnBlock(const Block& block, uint32_t, int64_t free_ns) {
  Set(block.life, free_ns, block.origin);
}

void LifeEnds::OnHolding(const Holding& holding, int64_t free_ns) {
  Set(holding.first_life, free_ns, holding.origin);
  if (holding.carved_life == kNoLife)
    return;
  if (holding.first_life >= carved_.size())
    carved_.resize(holding.first_life + 1);
  carved_[holding.first_life] = true;
}

void LifeLister::OnBlockBegin(const Block& block, uint32_t space) {
  LifeRecord record = RecordOf(block, space, ends_.free_ns(block.life));
  ends_.Complete(block.life, &record.origin);
  sink_(record);
}

void LifeLister::OnHoldingBegin(const Holding& holding) {
  LifeRecord record = RecordOf(holding, ends_.free_ns(holding.first_life));
  record.is_segment = ends_.is_segment(holding.first_life);
  ends_.Complete(holding.first_life, &record.origin);
  sink_(record);
}

}  // namespace vramscope::engine
