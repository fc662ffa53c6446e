// SPDX-License-Identifier: Apache-2.0
#include "trace/live/stream_source.h"

#include <algorithm>
#include <iterator>

namespace vramscope::trace {
namespace {

// How many events of its own thread an event can be late by: calls that one hooked call makes
// inside, and the readings around it.
constexpr size_t kReorder = 64;
constexpr size_t kWindow = 256;

}  // namespace

DeviceId StreamSource::Pass::Device(int64_t local) {
  if (local != last_local_) {
    const auto it = context_->devices.find(local);
    last_device_ = it != context_->devices.end() ? it->second : kNoDevice;
    last_local_ = local;
  }
  return last_device_;
}

ProcessId StreamSource::Pass::ProcessOf(uint64_t pid, int64_t time_ns) const {
  const auto it = context_->processes_by_pid->find(static_cast<uint32_t>(pid));
  if (it == context_->processes_by_pid->end())
    return kNoProcess;
  // The one that began last before that time; they are in order of their begin.
  const auto after =
      std::upper_bound(it->second.begin(), it->second.end(), time_ns,
                       [](int64_t time, const auto& process) { return time < process.first; });
  return after == it->second.begin() ? after->second : std::prev(after)->second;
}

bool StreamSource::Decode() {
  for (;;) {
    switch (cursor_.Next(pass_, &window_[end_])) {
      case ChunkCursor::Step::kEvent:
        pass_.TakeOrigin(&window_[end_]);
        window_[end_].source = number_;
        window_[end_].record = record_++;
        ++end_;
        return true;
      case ChunkCursor::Step::kOther:
      case ChunkCursor::Step::kUnknown:
        ++record_;
        break;
      case ChunkCursor::Step::kDamaged:  // counted by the first pass
        cursor_ = {};
        [[fallthrough]];
      case ChunkCursor::Step::kEnd:
        if (next_chunk_ != 0)
          pass_.ForgetChunk((*chunks_)[next_chunk_ - 1]);
        if (next_chunk_ == chunks_->size())
          return false;
        const ChunkRef& chunk = (*chunks_)[next_chunk_++];
        pass_.EnterChunk(chunk);
        cursor_ = ChunkCursor(pass_.file(), chunk);
        cursor_bytes_ = chunk.bytes;
        break;
    }
  }
}

void StreamSource::Continue(const std::vector<ChunkRef>& chunks, const DefinitionLog& log) {
  chunks_ = &chunks;
  pass_.Continue(log);
  if (next_chunk_ == 0)
    return;
  const uint32_t bytes = chunks[next_chunk_ - 1].bytes;
  cursor_.Extend(bytes - cursor_bytes_);
  cursor_bytes_ = bytes;
}

void StreamSource::Fill() {
  window_.resize(kWindow + kReorder);
  std::copy(window_.begin() + static_cast<ptrdiff_t>(head_),
            window_.begin() + static_cast<ptrdiff_t>(end_), window_.begin());
  end_ -= head_;
  head_ = 0;
  bool at_end = false;
  while (end_ < window_.size()) {
    if (!Decode()) {
      at_end = true;
      break;
    }
    // Insertion from the back: nearly always the event is in place.
    for (size_t i = end_ - 1; i > 0 && window_[i].time_ns < window_[i - 1].time_ns; --i)
      std::swap(window_[i], window_[i - 1]);
  }
  ready_ = at_end ? end_ : end_ - kReorder;
}

}  // namespace vramscope::trace
