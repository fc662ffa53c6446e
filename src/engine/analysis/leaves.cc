// SPDX-License-Identifier: Apache-2.0
#include "engine/analysis/leaves.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "engine/replay/pricing.h"

namespace vramscope::engine {
namespace {

uint64_t Positive(int64_t bytes) {
  return bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

// What was cut out of a segment at the instant, and what the segment was.
struct SegmentView {
  uint64_t held = 0;
  uint64_t live_bytes = 0;
  uint64_t live_count = 0;
  bool carved = false;
  Leaf base;  // of the allocation, handle or pool behind it
};

// One process on one device at one instant.
class SpaceView {
 public:
  SpaceView(const Ledger& ledger,
            uint32_t space_index,
            const Capture& capture,
            const std::function<void(const Leaf&)>& sink)
      : ledger_(ledger),
        space_index_(space_index),
        space_(ledger.spaces()[space_index]),
        process_(ledger.processes()[space_.process.value]),
        capture_(capture),
        sink_(sink) {}

  void Emit() {
    space_.blocks.ForEach([&](uint32_t, const Block& block) {
      if (block.life < capture_.lives)
        EmitBlock(block, kNever);
    });
    for (const Capture::FreedBlock& freed : capture_.blocks) {
      if (freed.space == space_index_)
        EmitBlock(freed.block, freed.free_ns);
    }
    ForEachHolding([&](const Holding& holding, int64_t, bool live) {
      if (holding.kind == HoldingKind::kMapping)
        SeeMapping(holding, live);
    });
    ForEachHolding([&](const Holding& holding, int64_t free_ns, bool) {
      if (holding.kind == HoldingKind::kHandle)
        EmitHandle(holding, free_ns);
      else if (holding.kind == HoldingKind::kMemory)
        EmitMemory(holding, free_ns);
    });
  }

  // After Emit: bytes of a pool or of the default segment, from the slow log.
  void SetHeld(uint32_t segment, const SlowItem& item, int64_t bytes) {
    SegmentView& view = segments_[segment];
    view.held = Positive(bytes);
    view.carved = true;
    view.base.owner = ledger_.segments()[segment].owner;
    if (segment == space_.default_segment)
      view.base.owner = kPyTorch;
    view.base.alloc_ns = item.alloc_ns;
    pools_.insert(segment);
  }

  void EmitSlack() {
    for (auto& [index, view] : segments_) {
      if (!view.carved || view.held <= view.live_bytes)
        continue;
      Leaf leaf = view.base;
      Complete(leaf);
      leaf.part =
          view.live_count == 0 || pools_.contains(index) ? Part::kCached : Part::kFragmentation;
      leaf.bytes = view.held - view.live_bytes;
      leaf.count = 0;
      leaf.has_lifetime = false;
      leaf.has_origin = false;
      leaf.pool_names = ledger_.segments()[index].names;
      Emit(leaf);
    }
    const uint64_t slabs = slab_pages_.size() * kDriverPageBytes;
    if (slabs > small_bytes_) {
      Leaf leaf;
      Complete(leaf);
      leaf.owner = kDriverOwned;
      leaf.part = Part::kSlabSlack;
      leaf.bytes = slabs - small_bytes_;
      Emit(leaf);
    }
  }

 private:
  template <class Visitor>
  void ForEachHolding(Visitor visit) {
    process_.holdings.ForEach([&](uint32_t, const Holding& holding) {
      if (holding.space == space_index_ && holding.life < capture_.lives)
        visit(holding, kNever, true);
    });
    for (const Capture::FreedHolding& freed : capture_.holdings) {
      if (freed.holding.space == space_index_)
        visit(freed.holding, freed.free_ns, false);
    }
  }

  void Complete(Leaf& leaf) const {
    leaf.device = space_.device;
    leaf.process = space_.process;
  }

  // Names say more than the part, except of free memory and slack.
  void Emit(Leaf& leaf) const {
    leaf.category = PartCategory(leaf.part);
    if (leaf.has_origin && leaf.category == Category::kUnknown)
      leaf.category = ledger_.CategoryOf(space_.process, leaf.origin);
    sink_(leaf);
  }

  // Cuts off what goes beyond the bytes that were asked for, as a row of its own.
  void EmitRounding(const Leaf& whole, uint64_t bytes) const {
    if (bytes == 0)
      return;
    Leaf rounding = whole;
    rounding.part = Part::kRounding;
    rounding.bytes = bytes;
    rounding.count = 0;
    rounding.has_lifetime = false;
    Emit(rounding);
  }

  uint64_t Requested(const Origin& origin, uint64_t bytes) const {
    const uint64_t requested = ledger_.names().set(origin.names).requested;
    return requested == 0 ? bytes : std::min(bytes, requested);
  }

  void EmitBlock(const Block& block, int64_t free_ns) {
    SegmentView& segment = segments_[block.segment];
    segment.live_bytes += block.size;
    ++segment.live_count;
    Leaf leaf;
    Complete(leaf);
    leaf.owner = block.owner;
    leaf.is_block = true;
    leaf.origin = block.origin;
    leaf.has_origin = true;
    leaf.stack = block.stack;
    leaf.native = block.native;
    leaf.thread = block.thread;
    leaf.alloc_ns = block.alloc_ns;
    leaf.free_ns = free_ns;
    leaf.has_lifetime = true;
    leaf.bytes = Requested(block.origin, block.size);
    leaf.count = 1;
    EmitRounding(leaf, block.size - leaf.bytes);
    if (block.origin.purpose == Purpose::kPrior && block.origin.names == 0)
      leaf.part = Part::kBeforeRecording;
    Emit(leaf);
  }

  Leaf LeafOf(const Holding& holding, int64_t free_ns) const {
    Leaf leaf;
    Complete(leaf);
    leaf.owner = holding.owner;
    leaf.origin = holding.origin;
    leaf.has_origin = true;
    leaf.api = holding.api;
    leaf.stack = holding.stack;
    leaf.native = holding.native;
    leaf.thread = holding.thread;
    leaf.stream = holding.stream;
    leaf.has_stream = holding.memory == format::MemoryKind::kAsync;
    leaf.alloc_ns = holding.alloc_ns;
    leaf.free_ns = free_ns;
    leaf.has_lifetime = true;
    leaf.count = 1;
    return leaf;
  }

  void SeeMapping(const Holding& mapping, bool live) {
    const uint64_t carved_life =
        live ? ledger_.segments()[mapping.segment].carved_life : mapping.carved_life;
    if (carved_life >= capture_.lives)
      return;
    SegmentView& segment = segments_[mapping.segment];
    segment.held += mapping.accounted;
    segment.carved = true;
    segment.base = LeafOf(mapping, kNever);
    if (!(live ? ledger_.segments()[mapping.segment].of_program : mapping.of_program))
      segment.base.owner = kPyTorch;
    accounted_[mapping.handle] += mapping.accounted;
  }

  void EmitHandle(const Holding& handle, int64_t free_ns) {
    Leaf leaf = LeafOf(handle, free_ns);
    leaf.part = PartOfHolding(handle);
    const auto accounted = accounted_.find(handle.self);
    const uint64_t elsewhere = accounted == accounted_.end() ? 0 : accounted->second;
    leaf.bytes = handle.priced - std::min(handle.priced, elsewhere);
    if (leaf.bytes > 0 || handle.priced == 0)
      Emit(leaf);
  }

  void EmitMemory(const Holding& holding, int64_t free_ns) {
    Leaf leaf = LeafOf(holding, free_ns);
    const uint64_t base = std::min(holding.size, holding.priced);
    EmitRounding(leaf, holding.priced - base);
    if (holding.small) {
      small_bytes_ += holding.priced;
      const uint64_t last =
          (holding.address + std::max<uint64_t>(holding.size, 1) - 1) >> kDriverPageBits;
      for (uint64_t page = holding.address >> kDriverPageBits; page <= last; ++page)
        slab_pages_.insert(page);
    }
    if (holding.memory == format::MemoryKind::kAsync) {
      SegmentView& pool = segments_[holding.segment];
      pool.live_bytes += holding.priced;
      ++pool.live_count;
      leaf.pool_names = ledger_.segments()[holding.segment].names;
    } else if (holding.carved_life < capture_.lives) {
      SegmentView& segment = segments_[holding.segment];
      segment.held = base;
      segment.carved = true;
      segment.base = leaf;
      if (!holding.of_program)
        segment.base.owner = kPyTorch;
      return;
    }
    leaf.part = PartOfHolding(holding);
    leaf.bytes = Requested(holding.origin, base);
    EmitRounding(leaf, base - leaf.bytes);
    Emit(leaf);
  }

  const Ledger& ledger_;
  uint32_t space_index_;
  const Space& space_;
  const ProcessState& process_;
  const Capture& capture_;
  const std::function<void(const Leaf&)>& sink_;
  std::unordered_map<uint32_t, SegmentView> segments_;
  std::unordered_map<uint32_t, uint64_t> accounted_;  // by handle: bytes that carved segments hold
  std::unordered_set<uint32_t> pools_;
  std::unordered_set<uint64_t> slab_pages_;
  uint64_t small_bytes_ = 0;
};

}  // namespace

trace::StackId PlaceOf(const Leaf& leaf, StackFactsTable& facts) {
  if (leaf.has_origin && leaf.origin.forward.value != 0) {
    // The program's own line in a backward says most; that of the call to backward() says nothing.
    if (leaf.stack.value == 0 || !facts.Of(leaf.stack).user_inside)
      return leaf.origin.forward;
  }
  return leaf.stack.value != 0 ? leaf.stack : leaf.native;
}

const Capture* CaptureFor(const Ledger& ledger,
                          const DeviceState& device,
                          trace::ProcessId process,
                          Moment moment) {
  const Capture* capture = nullptr;
  switch (moment) {
    case Moment::kPeak:
      capture = &device.peak;
      break;
    case Moment::kRequested:
      capture = &ledger.requested();
      break;
    case Moment::kEnd:
      // Rows of no process stand as they stood at the last process's end.
      for (size_t i = 0; i < ledger.processes().size(); ++i) {
        const Capture& end = ledger.processes()[i].end;
        if (process == trace::kNoProcess) {
          if (capture == nullptr || end.log_size > capture->log_size)
            capture = &end;
        } else if (i == process.value) {
          capture = &end;
        }
      }
      break;
  }
  return capture != nullptr && capture->set ? capture : nullptr;
}

void ForEachLeaf(const Ledger& ledger,
                 trace::DeviceId device_id,
                 Moment moment,
                 const std::function<void(const Leaf&)>& sink) {
  const DeviceState& device = ledger.devices()[static_cast<size_t>(device_id.value)];
  // Slow rows at the instant: sums over the prefix of the log that the item's capture saw.
  std::vector<int64_t> slow(ledger.slow_items().size());
  std::vector<size_t> cut(slow.size());
  for (size_t i = 0; i < slow.size(); ++i) {
    const Capture* capture = CaptureFor(ledger, device, ledger.slow_items()[i].process, moment);
    cut[i] = capture == nullptr ? 0 : capture->log_size;
  }
  for (size_t i = 0; i < ledger.slow_log().size(); ++i) {
    const SlowChange& change = ledger.slow_log()[i];
    if (i < cut[change.item])
      slow[change.item] += change.bytes;
  }
  for (uint32_t index = 0; index < ledger.spaces().size(); ++index) {
    const Space& space = ledger.spaces()[index];
    if (space.device != device_id)
      continue;
    const Capture* capture = CaptureFor(ledger, device, space.process, moment);
    if (capture == nullptr || space.WasAway(*capture))
      continue;
    SpaceView view(ledger, index, *capture, sink);
    view.Emit();
    if (capture->time_ns >= space.first_ns && capture->time_ns < space.end_ns &&
        space.before_offset > 0 && space.before_item == kNoIndex) {
      Leaf leaf;
      leaf.device = device_id;
      leaf.process = space.process;
      leaf.part = Part::kBeforeRecording;
      leaf.bytes = static_cast<uint64_t>(space.before_offset);
      leaf.category = PartCategory(leaf.part);
      sink(leaf);
    }
    for (size_t i = 0; i < slow.size(); ++i) {
      const SlowItem& item = ledger.slow_items()[i];
      if (item.space == index && item.segment != kNoIndex)
        view.SetHeld(item.segment, item, slow[i]);
    }
    view.EmitSlack();
  }
  for (size_t i = 0; i < slow.size(); ++i) {
    const SlowItem& item = ledger.slow_items()[i];
    if (item.device != device_id || item.segment != kNoIndex)
      continue;
    const Capture* capture = CaptureFor(ledger, device, item.process, moment);
    if (capture != nullptr && item.space != kNoIndex &&
        ledger.spaces()[item.space].WasAway(*capture))
      continue;
    int64_t bytes = slow[i];
    if (item.part == Part::kBeforeRecording) {
      const Space& space = ledger.spaces()[item.space];
      if (capture != nullptr && capture->time_ns < space.end_ns)
        bytes += space.before_offset;
    }
    if (bytes <= 0)
      continue;
    Leaf leaf;
    leaf.device = device_id;
    leaf.process = item.process;
    leaf.owner = item.owner;
    leaf.part = item.part;
    leaf.category = PartCategory(item.part);
    leaf.api = item.api;
    leaf.stack = item.stack;
    leaf.native = item.native;
    leaf.thread = item.thread;
    leaf.alloc_ns = item.alloc_ns;
    leaf.bytes = static_cast<uint64_t>(bytes);
    leaf.count = IsSlack(item.part) || item.process == trace::kNoProcess ? 0 : 1;
    leaf.trigger = item.trigger.empty() ? nullptr : &item.trigger;
    sink(leaf);
  }
}

}  // namespace vramscope::engine
