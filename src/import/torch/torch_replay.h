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

// Replays one device of a PyTorch snapshot, which has the memory at its end and the last events. A
// full ring has lost the first events. So the replay first undoes the events from the end, to find
// the memory at the first event, and then applies them forward to make rows.
namespace vramscope::imports {

// Converts the snapshot's frames to stacks of the recording.
class TorchStacks {
 public:
  TorchStacks(const TorchPickle& pickle, Builder* builder)
      : pickle_(pickle),
        builder_(*builder),
        known_(pickle.stack_count()),
        frames_(pickle.frame_count()) {}
  struct Pair {
    tables::StackId python, native;
    tables::StackId place;  // the stack to show as call site
  };
  const Pair& Of(uint32_t stack);
  bool HasPython(uint32_t stack);
  // A text of the snapshot. Equal texts have the same address.
  tables::StringId Text(std::string_view text);

 private:
  struct Frame {
    bool is_known = false;
    bool is_python = false;
    bool is_recorder = false;
    bool hands_out = false;  // allocator code: its caller is the requester
    tables::FrameId id;
    tables::FrameId node;  // operation whose backward it runs; 0: none
  };
  const Frame& FrameOf(uint32_t number);

  struct Known {
    bool is_known = false;
    std::optional<bool> has_python;  // empty: not checked yet
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
  // `is_ours`: vramscope wrote it, and sizes are the requested ones.
  TorchReplay(const TorchPickle& pickle,
              TorchStacks* stacks,
              Builder* builder,
              tables::AccountId account,
              bool is_ours);

  void AddSegment(const PickleValue& segment);
  void SetEvents(const std::vector<PickleValue>* events) { events_ = events; }

  // Finds the memory before the first event. Call once, after the calls above.
  void TakeBack();
  // `timed`: events have times; otherwise each takes a second. `begin_ns`: the begin of memory from
  // before the first event of any device.
  void Begin(int64_t first_us, bool timed, int64_t begin_ns);
  // Time of the next event in microseconds; false after the last.
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

  // Memory at the end, from the snapshot.
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
  // Memory while events are undone.
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
  // An open row.
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
  bool completes_ = false;  // frees have completion events
  // Allocations have Python frames; those without are of threads without Python, such as
  // autograd's.
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
      final_of_event_;  // memory that an event made and that is live at the end

  std::map<uint64_t, Row> blocks_, segments_, mapped_;  // by address, live
  tables::SegmentId expandable_;                        // all mapped memory
};

}  // namespace vramscope::imports
