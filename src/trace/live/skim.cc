// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <utility>

#include "trace/live/scan.h"
#include "util/on_threads.h"

namespace vramscope::trace {
namespace {

// Larger ids are damage, or so rare that they may cost a walk.
constexpr uint64_t kMaxId = 1 << 20;
constexpr size_t kMaxSkimmedDevices = 64;
constexpr size_t kMaxTexts = 4096;

// How often each id is used in a chunk.
class UseCounter {
 public:
  // False if it cannot be counted here.
  bool Add(uint64_t id) {
    if (id >= counts_.size()) {
      if (id > kMaxId)
        return false;
      counts_.resize(std::max<size_t>(id + 1, 2 * counts_.size()));
    }
    if (counts_[id]++ == 0)
      used_.push_back(id);
    return true;
  }
  // Returns the counts and resets them.
  std::vector<ChunkSkim::Used> Take() {
    std::vector<ChunkSkim::Used> all;
    all.reserve(used_.size());
    for (const uint64_t id : used_)
      all.push_back({id, std::exchange(counts_[id], 0)});
    used_.clear();
    return all;
  }

 private:
  std::vector<uint32_t> counts_;
  std::vector<uint64_t> used_;
};

// The Pass of one chunk after the other.
class Skimmer : public FirstLook<Skimmer> {
 public:
  using FirstLook::On;

  ChunkSkim Skim(const LiveFile& file, const ChunkRef& chunk);

  int64_t Ns(uint64_t ticks) {
    if (!skim_.last_ticks || static_cast<int64_t>(ticks - *skim_.last_ticks) > 0)
      skim_.last_ticks = ticks;
    return static_cast<int64_t>(ticks);
  }
  StringId String(uint64_t) { return {}; }
  StringId Text(const format::Bytes& text) {
    if (skim_.texts.size() == kMaxTexts)
      Leave();
    else
      skim_.texts.push_back(text);
    return {};
  }
  StackId Python(uint64_t local) {
    if (!python_.Add(local))
      Leave();
    return {};
  }
  StackId Native(uint64_t local) {
    if (!native_.Add(local))
      Leave();
    return {};
  }
  void AddDevice(int64_t local) {
    if (std::find(skim_.devices.begin(), skim_.devices.end(), local) != skim_.devices.end())
      return;
    if (skim_.devices.size() == kMaxSkimmedDevices)
      Leave();
    else
      skim_.devices.push_back(local);
  }

  bool On(const format::Anchor& r, Event*) {
    skim_.anchors.push_back({r.time, static_cast<int64_t>(r.monotonic_ns)});
    return false;
  }
  bool On(const format::String&, Event*) { return Leave(); }
  bool On(const format::PyCode&, Event*) { return Leave(); }
  bool On(const format::PyStack&, Event*) { return Leave(); }
  bool On(const format::NativeStack&, Event*) { return Leave(); }
  bool On(const format::Scope&, Event*) { return Leave(); }
  bool On(const format::Image&, Event*) { return Leave(); }
  bool On(const format::Thread&, Event*) { return Leave(); }
  bool On(const format::Device&, Event*) { return Leave(); }
  bool On(const format::Lost&, Event*) { return Leave(); }
  bool On(const format::Runtime&, Event*) { return Leave(); }
  bool On(const format::ProcessSample&, Event*) { return Leave(); }
  bool On(const format::Past&, Event*) { return Leave(); }
  bool On(const format::ProcessExit&, Event*) { return Leave(); }
  bool On(const format::SampledProcess&, Event*) { return Leave(); }
  bool On(const format::HostSample&, Event*) { return Leave(); }

 private:
  bool Leave() {
    has_more_ = true;
    return false;
  }

  ChunkSkim skim_;
  bool has_more_ = false;
  UseCounter python_, native_;
};

ChunkSkim Skimmer::Skim(const LiveFile& file, const ChunkRef& chunk) {
  skim_ = {};
  has_more_ = false;
  ForgetDevice();
  ChunkCursor cursor(file, chunk);
  Event event;
  ChunkCursor::Step step = ChunkCursor::Step::kOther;
  while (!has_more_ && (step == ChunkCursor::Step::kEvent || step == ChunkCursor::Step::kOther)) {
    step = cursor.Next(*this, &event);
    skim_.event_count += step == ChunkCursor::Step::kEvent ? 1 : 0;
  }
  skim_.python_stacks = python_.Take();
  skim_.native_stacks = native_.Take();
  skim_.is_told = !has_more_ && step == ChunkCursor::Step::kEnd;
  return std::move(skim_);
}

}  // namespace

std::vector<ChunkSkim> SkimChunks(const LiveFile& file,
                                  std::span<const ChunkRef> chunks,
                                  size_t workers) {
  std::vector<ChunkSkim> skims(chunks.size());
  std::atomic<size_t> next{0};
  (void)util::OnThreads(std::min(workers, chunks.size()), [&](size_t) {
    Skimmer skimmer;
    for (size_t i = next++; i < chunks.size(); i = next++)
      skims[i] = skimmer.Skim(file, chunks[i]);
    return util::Status();
  });
  return skims;
}

}  // namespace vramscope::trace
