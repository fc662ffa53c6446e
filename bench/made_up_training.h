// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace bench {

// What happens to memory in a made-up training, one call an event.
class TrainingSink {
 public:
  enum class Thread : uint8_t { kMain, kAutograd };
  struct Block {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint32_t place = 0;     // where in the program, below places()
    uint64_t sequence = 0;  // as in format::BlockAlloc
  };
  virtual ~TrainingSink() = default;
  virtual void OnSegment(uint64_t time_ns, uint64_t address, uint64_t bytes) = 0;
  virtual void OnAlloc(uint64_t time_ns, Thread thread, const Block& block) = 0;
  virtual void OnFree(uint64_t time_ns, Thread thread, const Block& block) = 0;
  virtual void OnStep(uint64_t time_ns, bool begins) = 0;
};

// A transformer's training under PyTorch's allocator: forward leaves activations behind, backward
// (on autograd's thread) frees them in turn and leaves gradients, an optimizer's step has
// temporaries, and the next step frees the gradients. Addresses repeat from step to step, times do
// not; a block in ten thousand stays.
class MadeUpTraining {
 public:
  static constexpr uint32_t kLayers = 48;
  static constexpr uint32_t kOperators = 12;  // of a layer
  static constexpr uint32_t kPlaces = kLayers * kOperators * 4;
  static constexpr uint64_t kSegmentBytes = uint64_t{20} << 20;
  static constexpr uint64_t kFirstNs = 1'000'000'000;

  explicit MadeUpTraining(TrainingSink* sink) : sink_(sink) {}

  // Whole steps, until there were that many allocations and frees.
  void Run(uint64_t events) {
    while (events_ < events)
      Step();
  }
  uint64_t events() const { return events_; }
  uint64_t now_ns() const { return now_ns_; }

  static uint32_t LayerOf(uint32_t place) { return place / 4 / kOperators; }
  static uint32_t OperatorOf(uint32_t place) { return place / 4 % kOperators; }
  static uint32_t LineOf(uint32_t place) { return place % 4; }

 private:
  using Thread = TrainingSink::Thread;
  using Block = TrainingSink::Block;
  // Lines of an operator that allocate.
  enum Line : uint32_t { kTemporary, kActivation, kGradient, kOptimizer };

  // Times of calls are noisy: most take about as long as ever, some much longer.
  void Pass(uint64_t typical_ns) {
    const uint64_t noise = random_();
    now_ns_ += typical_ns + noise % (typical_ns / 4 + 1);
    if (noise >> 58 == 0)
      now_ns_ += random_() % 20'000;
  }

  Block Allocate(uint32_t layer, uint32_t op, Line line, uint64_t bytes, uint64_t sequence) {
    std::vector<uint64_t>& free = free_[bytes];
    if (free.empty()) {
      if (segment_left_ < bytes) {
        Pass(50'000);
        sink_->OnSegment(now_ns_, next_address_ += segment_left_, kSegmentBytes);
        segment_left_ = kSegmentBytes;
      }
      free.push_back(next_address_);
      next_address_ += bytes;
      segment_left_ -= bytes;
    }
    Block block{free.back(), bytes, (layer * kOperators + op) * 4 + line, sequence};
    free.pop_back();
    Pass(900);
    sink_->OnAlloc(now_ns_, thread_, block);
    ++events_;
    return block;
  }

  void Free(const Block& block) {
    if (random_() % 10'000 == 0)
      return;
    Pass(500);
    free_[block.bytes].push_back(block.address);
    sink_->OnFree(now_ns_, thread_, block);
    ++events_;
  }

  void Temporary(uint32_t layer, uint32_t op, Line line, uint64_t bytes, uint64_t sequence) {
    const Block block = Allocate(layer, op, line, bytes, sequence);
    Pass(4000);
    Free(block);
  }

  void Step() {
    thread_ = Thread::kMain;
    for (const Block& gradient : std::exchange(gradients_, {}))
      Free(gradient);
    std::vector<Block> activations;
    const uint64_t first_node = node_;
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t op = 0; op < kOperators; ++op) {
        const uint64_t forward = 2 * ++node_ + 1;
        Temporary(layer, op, kTemporary, 8192 + op % 3 * 1024, forward);
        activations.push_back(Allocate(layer, op, kActivation, 16'384 + op * 2048, forward));
        Pass(2000);
      }
    }
    thread_ = Thread::kAutograd;
    for (uint32_t i = kLayers * kOperators; i-- > 0;) {
      const uint32_t layer = i / kOperators;
      const uint32_t op = i % kOperators;
      const uint64_t backward = 2 * (first_node + i) + 2;
      Temporary(layer, op, kTemporary, 16'384 + op * 2048, backward);
      if (op % 2 == 0)
        gradients_.push_back(Allocate(layer, op, kGradient, 32'768, backward));
      Free(activations.back());
      activations.pop_back();
    }
    thread_ = Thread::kMain;
    sink_->OnStep(now_ns_ += 1000, true);
    for (uint32_t i = 0; i < kLayers * kOperators; i += 2)
      Temporary(i / kOperators, i % kOperators, kOptimizer, 32'768, 0);
    sink_->OnStep(now_ns_ += 1000, false);
  }

  TrainingSink* sink_;
  uint64_t events_ = 0;
  uint64_t now_ns_ = kFirstNs;
  uint64_t next_address_ = 0x7f0000000000;
  uint64_t segment_left_ = 0;
  uint64_t node_ = 0;
  Thread thread_ = Thread::kMain;
  std::map<uint64_t, std::vector<uint64_t>> free_;
  std::vector<Block> gradients_;
  std::mt19937_64 random_{1};
};

}  // namespace bench
