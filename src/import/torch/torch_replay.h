// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "import/builder.h"
#include "import/torch/torch_pickle.h"

// One device of a PyTorch snapshot: what stands at its end, and the events before. A ring that ran
// over has lost the first of them, so that what stood when the others began is found by taking
// them back from the end; then they go forward, and each row is told when it ends.
namespace vramscope::imports {

// Frames of the snapshot as stacks of the recording.
class TorchStacks {
 public:
  TorchStacks(const TorchPickle& pickle, Builder* builder)
      : pickle_(pickle),
        builder_(*builder),
        known_(pickle.stack_count()),
        frames_(pickle.frame_count()) {}
  struct Pair {
    tables::StackId python, native;
    tables::StackId place;  // where people say that it comes from
  };
  const Pair& Of(uint32_t stack);
  bool HasPython(uint32_t stack);
  // A text of the snapshot, which stands at one place however often it comes.
  tables::StringId Text(std::string_view text);

 private:
  struct Frame {
    bool is_known = false;
    bool is_python = false;
    bool is_recorder = false;
    bool hands_out = false;  // part of an allocator: its caller wants the memory
    tables::FrameId id;
    tables::FrameId node;  // says which operation's backward it runs; 0: none's
  };
  const Frame& FrameOf(uint32_t number);

  struct Known {
    bool is_known = false;
    std::optional<bool> has_python;  // empty: nobody asked
    Pair stacks;
  };
  const TorchPickle& pickle_;
  Builder& builder_;
  std::vector<Known> known_;
  std::vector<Frame> frames_;
  std::unordered_map<const char*, tables::StringId> texts_;
};

class TorchReplay {
 public:
  // `is_ours`: vramscope wrote it, and sizes are what was asked for.
  TorchReplay(const TorchPickle& pickle,
              TorchStacks* stacks,
              Builder* builder,
              tables::AccountId account,
              bool is_ours);

  void AddSegment(const PickleValue& segment);
  void SetEvents(const std::vector<PickleValue>* events) { events_ = events; }

  // What stood before the first event; once, after the calls above.
  void TakeBack();
  // `timed`: some event of the snapshot has a time; else a second stands for an event. `begin_ns`:
  // when what stood before the first event of any device is there.
  void Begin(int64_t first_us, bool timed, int64_t begin_ns);
  // Microseconds of the next event; false behind the last.
  bool NextTime(int64_t* time_us) const;
  void Advance(int64_t first_us);
  void End();

 private:
  enum class Action : uint8_t {
    kAlloc,
    kFreeRequested,
    kFreeCompleted,
    kSegmentAlloc,
    kSegmentFree,
    kSegmentMap,
    kSegmentUnmap,
    kOutOfMemory,
    kSnapshot,
    kNamed,
    kIgnored,
    kUnknown
  };
  static constexpr uint32_t kNoFinal = UINT32_MAX;

  // As the snapshot has it, at its end.
  struct FinalBlock {
    uint64_t bytes = 0, requested_bytes = 0, stream = 0;
    uint32_t stack = 0;
    std::string_view category, metadata;
  };
  struct FinalSegment {
    uint64_t bytes = 0, stream = 0;
    uint32_t stack = 0;
    bool is_private = false;
  };
  // While events are taken back.
  struct Past {
    uint64_t bytes = 0;
    uint64_t stream = 0;
    uint32_t final = kNoFinal;
  };
  struct Row {
    tables::AllocationRow row;
    uint64_t end = 0;  // of its addresses
  };

  Action ActionOf(const PickleEvent& event) const;
  bool IsFree(Action action) const {
    return action == (completes_ ? Action::kFreeCompleted : Action::kFreeRequested);
  }
  void AddBlocks(const PickleValue& segment, uint64_t address, uint64_t stream);
  static void AddInterval(std::map<uint64_t, uint64_t>* intervals, uint64_t from, uint64_t to);
  static void RemoveInterval(std::map<uint64_t, uint64_t>* intervals, uint64_t from, uint64_t to);

  void BeginBlock(const FinalBlock& block, uint64_t address, int64_t now_ns, bool is_before);
  void EndBlock(uint64_t address, int64_t now_ns);
  void BeginSegment(const FinalSegment& segment, uint64_t address, int64_t now_ns);
  void EndSegment(uint64_t address, int64_t now_ns);
  void Map(uint64_t from, uint64_t to, const FinalSegment& segment, int64_t now_ns);
  void Unmap(uint64_t from, uint64_t to, int64_t now_ns);
  // A row that begins.
  Row NewRow(uint64_t from, uint64_t to, const tables::SiteRow& site, int64_t now_ns);
  tables::SegmentId SegmentAt(uint64_t address, uint64_t bytes) const;
  tables::SiteRow SiteOf(uint32_t stack, uint64_t stream) const;
  tables::SegmentId MakeSegment(const FinalSegment& segment, uint64_t address, int64_t now_ns);
  void Apply(const PickleEvent& event, uint32_t index, int64_t now_ns);
  int64_t TimeOf(uint32_t index) const;

  const TorchPickle& pickle_;
  TorchStacks& stacks_;
  Builder& builder_;
  tables::AccountId account_;
  bool is_ours_;
  tables::StringId torch_, before_, no_python_;
  const std::vector<PickleValue>* events_ = nullptr;
  bool completes_ = false;  // frees are seen to complete
  // Allocations have Python's frames: those without are of threads that run none, as autograd's.
  bool has_python_ = false;
  uint32_t next_ = 0;  // event
  int64_t last_us_ = INT64_MIN;
  int64_t step_us_ = 1;

  std::vector<FinalBlock> final_blocks_;
  std::vector<FinalSegment> final_segments_;
  std::map<uint64_t, Past> past_blocks_, past_segments_;  // by address
  std::map<uint64_t, uint64_t> past_mapped_;              // intervals
  std::map<uint64_t, uint32_t> mapped_finals_;            // expandable segments, by address
  std::unordered_map<uint32_t, uint32_t>
      final_of_event_;  // what an event made that stands at the end

  std::map<uint64_t, Row> blocks_, segments_, mapped_;  // by address, live
  tables::SegmentId expandable_;                        // all that is mapped
};

}  // namespace vramscope::imports
