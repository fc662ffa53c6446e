// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "trace/event.h"
#include "trace/file/live_file.h"
#include "trace/file/tick_clock.h"
#include "trace/live/converter.h"
#include "trace/live/definitions.h"

namespace vramscope::trace {

// The facts about a stream's file that later passes need.
struct FileContext {
  const LiveFile* file = nullptr;
  const TickClock* clock = nullptr;
  ProcessId process = kNoProcess;
  std::map<int64_t, DeviceId> devices;
  // By pid, the processes of that number in order of their begin: (start_ns, process).
  const std::map<uint32_t, std::vector<std::pair<int64_t, ProcessId>>>* processes_by_pid = nullptr;
};

// The events of one stream in time order. A thread writes an event when its call returned, but what
// gives memory back counts from the call's begin: a small window puts those right.
class StreamSource {
 public:
  // `number` is the stream's, counted through all files.
  StreamSource(const FileContext& context,
               const std::vector<ChunkRef>& chunks,
               const DefinitionLog& log,
               size_t number)
      : pass_(context, log), chunks_(&chunks), number_(static_cast<uint16_t>(number)) {}

  // The next event, or nullptr at the end; valid until Pop().
  const Event* Peek() {
    if (head_ == ready_)
      Fill();
    return head_ < ready_ ? &window_[head_] : nullptr;
  }
  void Pop() { ++head_; }
  // The file has grown: goes on behind the end. The arguments are the constructor's.
  void Continue(const std::vector<ChunkRef>& chunks, const DefinitionLog& log);

 private:
  // The Pass of every walk after the first: definitions come off the log.
  class Pass : public Converter<Pass> {
   public:
    using Converter::On;

    Pass(const FileContext& context, const DefinitionLog& log) : context_(&context), log_(&log) {}

    void EnterChunk(const ChunkRef& chunk) {
      scope_ = {};
      if (chunk.tid != 0 && chunk.tid != tid_)
        EnterThread(chunk.tid);
    }

    void Continue(const DefinitionLog& log) { log_ = &log; }
    const LiveFile& file() const { return *context_->file; }
    void ForgetChunk(const ChunkRef& chunk) const { context_->file->Forget(chunk); }

    int64_t Ns(uint64_t ticks) const { return context_->clock->ToNs(ticks); }
    StringId String(uint64_t local) const { return StringId{ids_.strings.FindOrNone(local)}; }
    StringId Text(const format::Bytes&) { return StringId{Take()}; }
    StackId Python(uint64_t local) const { return StackId{ids_.python_stacks.FindOrNone(local)}; }
    StackId Native(uint64_t local) const { return StackId{ids_.native_stacks.FindOrNone(local)}; }
    DeviceId Device(int64_t local);
    ThreadId thread() const { return thread_; }
    StringId scope() const { return scope_; }
    ProcessId process() const { return context_->process; }
    ProcessId ProcessOf(uint64_t pid, int64_t time_ns) const;

    bool On(const format::String& r, Event*) {
      ids_.strings.Set(r.id, Take());
      return false;
    }
    bool On(const format::PyStack& r, Event*) {
      ids_.python_stacks.Set(r.id, Take());
      return false;
    }
    bool On(const format::NativeStack& r, Event*) {
      ids_.native_stacks.Set(r.id, Take());
      return false;
    }
    bool On(const format::Scope& r, Event*) {
      ids_.scopes.Set(r.id, Take());
      return false;
    }
    bool On(const format::ScopeIs& r, Event*) {
      scope_ = StringId{ids_.scopes.FindOrNone(r.scope)};
      return false;
    }
    bool On(const format::Thread& r, Event*) {
      EnterThread(static_cast<uint32_t>(r.tid));
      return false;
    }
    bool On(const format::Anchor&, Event*) { return false; }
    bool On(const format::PyCode&, Event*) { return false; }
    bool On(const format::Image&, Event*) { return false; }
    bool On(const format::Device&, Event*) { return false; }
    bool On(const format::Lost&, Event*) { return false; }
    bool On(const format::Runtime&, Event*) { return false; }
    bool On(const format::ProcessExit&, Event*) { return false; }
    bool On(const format::SampledProcess&, Event*) { return false; }
    bool On(const format::HostSample&, Event*) { return false; }
    bool On(const format::PastOrigin& r, Event*) {
      origin_ = {.scope = StringId{ids_.scopes.FindOrNone(r.scope)},
                 .has_origin = true,
                 .origin_phase = static_cast<uint8_t>(r.phase),
                 .origin_end = static_cast<uint8_t>(r.end),
                 .origin_forward = Python(r.forward)};
      return false;
    }

    // Copies what the preceding PastOrigin record describes into its event.
    void TakeOrigin(Event* event) {
      if (!origin_.has_origin) [[likely]]
        return;
      event->has_origin = true;
      event->origin_phase = origin_.origin_phase;
      event->origin_end = origin_.origin_end;
      event->origin_forward = origin_.origin_forward;
      if (origin_.scope.value != 0)
        event->scope = origin_.scope;
      origin_.has_origin = false;
    }

   private:
    uint32_t Take() { return next_ < log_->size() ? (*log_)[next_++] : 0; }
    void EnterThread(uint32_t tid) {
      tid_ = tid;
      thread_ = ThreadId{Take()};
    }

    const FileContext* context_;
    const DefinitionLog* log_;
    size_t next_ = 0;
    StreamIds ids_;
    uint32_t tid_ = 0;
    ThreadId thread_;
    StringId scope_;
    EventContext origin_;  // of the next allocation, where the past says it
    int64_t last_local_ = INT64_MIN;
    DeviceId last_device_ = kNoDevice;
  };

  void Fill();
  // Decodes one more event to the window's end; false at the stream's end.
  bool Decode();

  Pass pass_;
  const std::vector<ChunkRef>* chunks_;
  size_t next_chunk_ = 0;
  uint16_t number_ = 0;
  uint32_t record_ = 0;  // behind those that were decoded
  ChunkCursor cursor_;
  uint32_t cursor_bytes_ = 0;  // of its chunk, as far as the cursor knows
  // [head_, ready_) can go out; [ready_, end_) may still be overtaken. Its events stay where they
  // are: to make one anew is to write two cache lines.
  std::vector<Event> window_;
  size_t head_ = 0;
  size_t ready_ = 0;
  size_t end_ = 0;
};

}  // namespace vramscope::trace
