// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/replay.h"

#include <algorithm>
#include <map>

namespace vramscope::query {
namespace {

constexpr uint64_t kMostReplayedSteps = 50'000'000;
constexpr uint64_t kHiddenBytes = kMebibyte - 512;

// Gives memory where the recording had it, so that ties by address are the same.
class RecordedDriver : public SimulatedDriver {
 public:
  RecordedDriver() : SimulatedDriver(UINT64_MAX) {}

  // The segment that the next call makes, if its size is that.
  void Expect(const RecordedSegment* segment) { expected_ = segment; }

  uint64_t Allocate(uint64_t bytes) override {
    const uint64_t address = SimulatedDriver::Allocate(bytes);
    const bool is_it = expected_ != nullptr && expected_->address != 0 && expected_->bytes == bytes;
    return is_it ? expected_->address : address;
  }
  uint64_t Reserve(uint64_t bytes) override {
    const uint64_t address = SimulatedDriver::Reserve(bytes);
    const bool is_it = expected_ != nullptr && expected_->address != 0 && expected_->expandable;
    return is_it ? expected_->address : address;
  }

 private:
  const RecordedSegment* expected_ = nullptr;
};

// Counts what goes to the driver.
class CallCounter : public AllocatorListener {
 public:
  void OnAllocatorEvent(const AllocatorEvent& event) override {
    const AllocatorAction action = event.action;
    if (action == AllocatorAction::kSegmentAlloc || action == AllocatorAction::kSegmentFree ||
        action == AllocatorAction::kMap || action == AllocatorAction::kUnmap)
      ++calls_;
  }
  uint64_t calls() const { return calls_; }

 private:
  uint64_t calls_ = 0;
};

void NotePeak(const AllocatorModel& model, int64_t time_ns, AllocatorReplay* replay) {
  if (model.reserved_bytes() <= replay->peak_bytes)
    return;
  replay->peak_bytes = model.reserved_bytes();
  replay->peak_ns = time_ns;
  replay->allocated_bytes = model.allocated_bytes();
}

using SegmentPair = std::pair<uint32_t, uint32_t>;
SegmentPair Ordered(uint32_t a, uint32_t b) {
  return {std::min(a, b), std::max(a, b)};
}

// One try to reproduce a recording, with what earlier tries found out.
class ReproductionTry {
 public:
  ReproductionTry(const RecordedRequests& requests,
                  const AllocatorRules& rules,
                  const AllocatorSettings& settings,
                  uint64_t device_bytes,
                  std::set<SegmentPair>* apart)
      : requests_(requests),
        apart_(apart),
        model_(rules, device_bytes, &driver_, &counter_),
        blocks_(requests.blocks.size()) {
    model_.settings() = settings;
    out_.streams.resize(requests.segments.size());
    known_.resize(requests.segments.size());
  }

  // False: a pair of segments was found that is of two streams. Not looked for in the `last` one.
  bool Run(bool last);
  uint64_t steps() const { return steps_; }
  Reproduction Take() { return std::move(out_); }

 private:
  bool Allocate(const RecordedStep& step, bool last);
  void ChooseStream(const RecordedBlock& block);
  bool MayShare(uint32_t segment, uint64_t stream) const;
  // The recorded segment that an address of the model is in; 0: none.
  uint32_t SegmentAt(uint64_t address) const;
  void Compare(int64_t time_ns);

  const RecordedRequests& requests_;
  std::set<SegmentPair>* const apart_;
  RecordedDriver driver_;
  CallCounter counter_;
  AllocatorModel model_;
  std::vector<AllocatorBlock*> blocks_;
  std::vector<bool> known_;  // segments whose stream is chosen
  std::vector<std::vector<uint32_t>> of_stream_;
  std::map<uint64_t, uint32_t> by_address_;  // segments, the last at each address
  uint64_t reserved_bytes_ = 0;
  bool changed_ = false;  // and not compared yet
  uint64_t steps_ = 0;
  Reproduction out_;
};

bool ReproductionTry::MayShare(uint32_t segment, uint64_t stream) const {
  const std::vector<uint32_t>& others = of_stream_[stream];
  return std::none_of(others.begin(), others.end(),
                      [&](uint32_t other) { return apart_->count(Ordered(segment, other)) > 0; });
}

// Of a new segment: the first stream that had no free block for its first request.
void ReproductionTry::ChooseStream(const RecordedBlock& block) {
  const uint32_t segment = block.segment.value;
  by_address_[requests_.segments[segment].address] = segment;
  if (known_[segment])
    return;
  uint64_t stream = 0;
  while (stream < of_stream_.size() &&
         (!MayShare(segment, stream) || model_.HasFree(block.requested_bytes, stream)))
    ++stream;
  if (stream == of_stream_.size())
    of_stream_.emplace_back();
  of_stream_[stream].push_back(segment);
  out_.streams[segment] = stream;
  known_[segment] = true;
}

uint32_t ReproductionTry::SegmentAt(uint64_t address) const {
  auto it = by_address_.upper_bound(address);
  if (it == by_address_.begin())
    return 0;
  --it;
  return address - it->first < requests_.segments[it->second].bytes ? it->second : 0;
}

bool ReproductionTry::Allocate(const RecordedStep& step, bool last) {
  const RecordedBlock& recorded = requests_.blocks[step.block];
  const uint32_t segment = recorded.segment.value;
  ChooseStream(recorded);
  driver_.Expect(&requests_.segments[segment]);
  AllocatorBlock* const block = model_.Allocate(recorded.requested_bytes, out_.streams[segment]);
  driver_.Expect(nullptr);
  blocks_[step.block] = block;
  if (block == nullptr)
    return true;
  // A block that was split off shows its size. One taken whole may hide a part.
  if (block->bytes > kMebibyte && (block->next == nullptr || block->next->allocated) &&
      recorded.requested_bytes == recorded.bytes)
    ++out_.hidden_blocks;
  // Some logs do not know where a segment is.
  if (block->address == recorded.address || requests_.segments[segment].address == 0)
    return true;
  ++out_.moved_blocks;
  const uint32_t other = SegmentAt(block->address);
  return last || other == 0 || other == segment || !apart_->insert(Ordered(segment, other)).second;
}

void ReproductionTry::Compare(int64_t time_ns) {
  changed_ = false;
  ++out_.events;
  const uint64_t modelled = model_.reserved_bytes();
  if (modelled == reserved_bytes_)
    return;
  const uint64_t difference =
      std::max(modelled, reserved_bytes_) - std::min(modelled, reserved_bytes_);
  if (out_.different_events++ == 0)
    out_.first_different_ns = time_ns;
  out_.largest_difference_bytes = std::max(out_.largest_difference_bytes, difference);
}

bool ReproductionTry::Run(bool last) {
  for (size_t i = 0; i < requests_.steps.size(); ++i) {
    const RecordedStep& step = requests_.steps[i];
    ++steps_;
    switch (step.kind) {
      case RecordedStep::Kind::kAllocate: {
        const uint64_t before = model_.reserved_bytes();
        if (!Allocate(step, last))
          return false;
        NotePeak(model_, step.time_ns, &out_.replay);
        changed_ |= model_.reserved_bytes() != before;
        break;
      }
      case RecordedStep::Kind::kFree:
        if (blocks_[step.block] != nullptr)
          model_.Free(blocks_[step.block]);
        continue;
      case RecordedStep::Kind::kReserved:
        reserved_bytes_ = step.reserved_bytes;
        changed_ = true;
        continue;
      case RecordedStep::Kind::kEmpty:
        model_.EmptyCache();
        // One call frees many segments.
        if (i + 1 < requests_.steps.size() &&
            requests_.steps[i + 1].kind == RecordedStep::Kind::kReserved)
          continue;
        break;
    }
    if (changed_)
      Compare(step.time_ns);
  }
  out_.stream_count = of_stream_.size();
  out_.replay.driver_calls = counter_.calls();
  return true;
}

}  // namespace

Reproduction Reproduce(const RecordedRequests& requests,
                       const AllocatorRules& rules,
                       const AllocatorSettings& settings,
                       uint64_t device_bytes,
                       size_t most_tries) {
  std::set<SegmentPair> apart;
  uint64_t steps = 0;
  for (size_t i = 1;; ++i) {
    ReproductionTry attempt(requests, rules, settings, device_bytes, &apart);
    const bool last = i >= most_tries || steps > kMostReplayedSteps;
    const bool done = attempt.Run(last);
    steps += attempt.steps();
    if (done)
      return attempt.Take();
  }
}

AllocatorSettings EffectOf(const AllocatorSettings& settings,
                           const AllocatorSettings& recorded,
                           const RecordedRequests& requests) {
  AllocatorSettings effect = settings;
  effect.garbage_collection_threshold = 0;
  AllocatorSettings as_recorded = recorded;
  as_recorded.garbage_collection_threshold = 0;
  as_recorded.max_split_bytes = settings.max_split_bytes;
  // A small request that was served from a segment may make one of the usual size.
  uint64_t largest_bytes = recorded.large_segment_bytes;
  for (const RecordedSegment& segment : requests.segments)
    largest_bytes = std::max(largest_bytes, segment.bytes);
  if (effect == as_recorded && !recorded.expandable_segments &&
      largest_bytes < std::min(settings.max_split_bytes, recorded.max_split_bytes))
    effect.max_split_bytes = UINT64_MAX;
  return effect;
}

AllocatorReplay ReplayWith(const RecordedRequests& requests,
                           const std::vector<uint64_t>& streams,
                           const AllocatorRules& rules,
                           const AllocatorSettings& settings,
                           uint64_t device_bytes,
                           uint64_t capacity_bytes) {
  AllocatorReplay out;
  SimulatedDriver driver(capacity_bytes);
  CallCounter counter;
  AllocatorModel model(rules, device_bytes, &driver, &counter);
  model.settings() = settings;
  std::vector<AllocatorBlock*> blocks(requests.blocks.size());
  for (const RecordedStep& step : requests.steps) {
    if (step.kind == RecordedStep::Kind::kEmpty) {
      model.EmptyCache();
    } else if (step.kind == RecordedStep::Kind::kFree) {
      if (blocks[step.block] != nullptr)
        model.Free(blocks[step.block]);
    } else if (step.kind == RecordedStep::Kind::kAllocate) {
      const RecordedBlock& block = requests.blocks[step.block];
      blocks[step.block] = model.Allocate(block.requested_bytes, streams[block.segment.value]);
      if (blocks[step.block] == nullptr) {
        out.failed_block = step.block;
        break;
      }
      NotePeak(model, step.time_ns, &out);
    }
  }
  out.driver_calls = counter.calls();
  return out;
}

}  // namespace vramscope::query
