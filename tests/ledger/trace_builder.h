// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trace/trace.h"

// A trace in memory, for tests: one line an event. Times count up by 1 us an event unless said.
namespace vramscope::query {

class TraceBuilder : public trace::Trace {
 public:
  static constexpr int64_t kStartNs = 1'000'000'000;
  static constexpr uint64_t kMiB = uint64_t{1} << 20;

  TraceBuilder() { session_.start_ns = session_.end_ns = kStartNs; }

  // ---- tables ----
  trace::DeviceId AddDevice(trace::DeviceKind kind, int32_t index, uint64_t total_bytes = 0) {
    trace::Device device;
    device.kind = kind;
    device.index = index;
    device.total_bytes = total_bytes;
    devices_.push_back(device);
    return trace::DeviceId{static_cast<int16_t>(devices_.size() - 1)};
  }
  trace::DeviceId AddCpu() { return AddDevice(trace::DeviceKind::kCpu, -1); }
  trace::DeviceId AddHost() { return AddDevice(trace::DeviceKind::kHost, -2); }
  trace::DeviceId AddGpu(int32_t index = 0) {
    return AddDevice(trace::DeviceKind::kGpu, index, 100'000 * kMiB);
  }
  trace::ProcessId AddProcess(uint32_t pid) {
    trace::Process process;
    process.pid = pid;
    process.command = "python train.py";
    process.executable = "/usr/bin/python3";
    process.start_ns = kStartNs;
    processes_.push_back(process);
    return trace::ProcessId{static_cast<uint16_t>(processes_.size() - 1)};
  }
  trace::ThreadId AddThread(uint32_t tid, const std::string& name) {
    threads_.push_back({trace::ProcessId{0}, tid, name});
    return trace::ThreadId{static_cast<uint32_t>(threads_.size() - 1)};
  }
  trace::StringId Text(const std::string& text) {
    const auto [found, added] = texts_.try_emplace(text, strings_.size());
    if (added)
      strings_.push_back(text);
    return trace::StringId{static_cast<uint32_t>(found->second)};
  }
  // Frames outermost first: {file, line, function}.
  trace::StackId Python(const std::vector<std::tuple<std::string, uint32_t, std::string>>& frames) {
    trace::StackId stack;
    for (const auto& [file, line, function] : frames) {
      trace::Frame frame;
      frame.file = Text(file);
      frame.line = line;
      frame.function = Text(function);
      stack = Push(stack, frame);
    }
    return stack;
  }
  // The same with the module whose method each frame runs, 0 for none.
  trace::StackId PythonIn(
      const std::vector<std::tuple<std::string, uint32_t, std::string, uint64_t>>& frames) {
    trace::StackId stack;
    for (const auto& [file, line, function, object] : frames) {
      trace::Frame frame;
      frame.file = Text(file);
      frame.line = line;
      frame.function = Text(function);
      stack = Push(stack, frame, object);
    }
    return stack;
  }
  // Images outermost first.
  trace::StackId Native(const std::vector<std::string>& images) {
    trace::StackId stack;
    for (const std::string& image : images) {
      trace::Frame frame;
      frame.kind = trace::FrameKind::kNative;
      frame.image = Text(image);
      frame.function = Text("f");
      stack = Push(stack, frame);
    }
    return stack;
  }
  void SetSource(const std::string& file, uint32_t line, std::string text) {
    sources_[{Text(file).value, line}] = std::move(text);
  }
  void AddTraceLoss(const std::string& name, uint64_t count) {
    losses_.push_back({name, count, 0});
  }

  // ---- events ----
  trace::Event& Event(trace::EventKind kind) {
    trace::Event event;
    event.kind = kind;
    event.process = process_;
    event.device = device_;
    event.thread = thread_;
    event.scope = scope_;
    event.time_ns = event.begin_ns = event.end_ns = now_ns_;
    now_ns_ += step_ns_;
    events_.push_back(event);
    return events_.back();
  }
  void On(trace::DeviceId device) { device_ = device; }
  void In(trace::ProcessId process) { process_ = process; }
  void At(int64_t after_start_ns) { now_ns_ = kStartNs + after_start_ns; }
  void StackIs(trace::StackId stack, trace::StackId native = {}) {
    stack_ = stack;
    native_ = native;
  }
  void OnThread(trace::ThreadId thread) { thread_ = thread; }
  // The path of scopes that what follows is inside of, "" for none.
  void ScopeIs(const std::string& path) { scope_ = Text(path); }
  // What the thread's next autograd node will be numbered, of all that follows.
  void NextNode(uint64_t number) {
    autograd_ = trace::Autograd::kForward;
    node_ = number;
  }
  // The node that autograd evaluates.
  void InNode(uint64_t number) {
    autograd_ = trace::Autograd::kBackward;
    node_ = number;
  }
  void NoNode() { autograd_ = trace::Autograd::kNone; }
  // Between events that are not placed by At().
  void StepIs(int64_t step_ns) { step_ns_ = step_ns; }

  trace::Event& Alloc(uint64_t address, uint64_t size) {
    trace::Event& event = Stacked(Fill(trace::EventKind::kBlockAlloc, address, size));
    event.subkind = static_cast<uint8_t>(autograd_);
    event.sequence = autograd_ == trace::Autograd::kNone ? 0 : node_;
    return event;
  }
  // A block of the program's own pool.
  trace::Event& PoolAlloc(uint64_t address,
                          uint64_t size,
                          uint64_t requested,
                          const std::string& name) {
    trace::Event& event = Stacked(Fill(trace::EventKind::kBlockAlloc, address, size, requested));
    event.flags = trace::kPoolOfProgram;
    event.name = Text(name);
    return event;
  }
  trace::Event& Free(uint64_t address, uint64_t size = 0) {
    return Fill(trace::EventKind::kBlockFree, address, size);
  }
  trace::Event& DriverAlloc(uint64_t address,
                            uint64_t size,
                            format::MemoryKind kind = format::MemoryKind::kDevice) {
    trace::Event& event = Stacked(Fill(trace::EventKind::kAlloc, address, size));
    event.subkind = static_cast<uint8_t>(kind);
    event.api = Text("cuMemAlloc_v2");
    return event;
  }
  trace::Event& DriverFree(uint64_t address,
                           format::MemoryKind kind = format::MemoryKind::kDevice) {
    trace::Event& event = Fill(trace::EventKind::kFree, address, 0);
    event.subkind = static_cast<uint8_t>(kind);
    return event;
  }
  trace::Event& Fill(trace::EventKind kind, uint64_t address, uint64_t size, uint64_t value = 0) {
    trace::Event& event = Event(kind);
    event.address = address;
    event.size = size;
    event.value = value;
    return event;
  }
  trace::Event& Implicit(format::ImplicitKind kind,
                         const std::string& api,
                         const std::string& name = "") {
    trace::Event& event = Stacked(Event(trace::EventKind::kImplicit));
    event.subkind = static_cast<uint8_t>(kind);
    event.api = Text(api);
    event.name = Text(name);
    return event;
  }
  trace::Event& ContextCreate(uint64_t context) {
    trace::Event& event = Event(trace::EventKind::kContextCreate);
    event.context = context;
    event.api = Text("cuCtxCreate_v4");
    return event;
  }
  // The driver's figure, as bytes used.
  trace::Event& Reading(uint64_t used) {
    const uint64_t total = 100'000 * kMiB;
    return Fill(trace::EventKind::kReading, 0, total - used, total);
  }
  trace::Event& Sample(uint64_t used) {
    trace::Event& event = Fill(trace::EventKind::kDeviceSample, 0, used);
    event.process = trace::kNoProcess;
    return event;
  }
  trace::Event& ProcessSample(uint64_t used) {
    return Fill(trace::EventKind::kProcessSample, 0, used);
  }
  trace::Event& Mark(const std::string& name) {
    trace::Event& event = Event(trace::EventKind::kMark);
    event.name = Text(name);
    return event;
  }
  // Its memory is on a device that is not said.
  trace::Event& Name(format::NameKind kind,
                     uint64_t address,
                     const std::string& name,
                     uint64_t requested = 0,
                     uint64_t owner = 0,
                     const std::string& detail = "") {
    trace::Event& event = Fill(trace::EventKind::kName, address, requested, owner);
    event.device = trace::kNoDevice;
    event.subkind = static_cast<uint8_t>(kind);
    event.name = Text(name);
    event.api = Text(detail);
    return event;
  }
  // The root itself where there is no path.
  trace::Event& Module(uint64_t object,
                       uint64_t root,
                       const std::string& path,
                       const std::string& type) {
    trace::Event& event = Fill(trace::EventKind::kModule, object, 0, root);
    event.name = Text(path);
    event.api = Text(type);
    return event;
  }
  trace::Event& ModuleGone(uint64_t object) {
    return Fill(trace::EventKind::kModuleGone, object, 0);
  }
  void StepBegin(uint64_t optimizer) { Step(format::StepKind::kBegin, optimizer); }
  void StepEnd(uint64_t optimizer) { Step(format::StepKind::kEnd, optimizer); }
  trace::Event& Step(format::StepKind kind, uint64_t optimizer) {
    trace::Event& event = Fill(trace::EventKind::kStep, optimizer, 0);
    event.subkind = static_cast<uint8_t>(kind);
    event.name = Text("SGD");
    return event;
  }
  void Teardown() { Event(trace::EventKind::kTeardown); }
  void ProcessEnd() { Event(trace::EventKind::kProcessEnd); }

  // ---- trace::Trace ----
  std::string_view SourceLine(trace::StringId file, uint32_t line) const override {
    const auto found = sources_.find({file.value, line});
    return found == sources_.end() ? std::string_view() : std::string_view(found->second);
  }
  util::Status ForEachEvent(const EventSink& sink) override {
    ++passes_;
    for (size_t first = 0; first < events_.size(); first += kBatch)
      sink(std::span(events_).subspan(first, std::min(kBatch, events_.size() - first)));
    return {};
  }
  int passes() const { return passes_; }
  const std::vector<trace::Event>& events() const { return events_; }
  // Call last: the session ends with the last event.
  std::unique_ptr<trace::Trace> Build() {
    session_.end_ns = events_.empty() ? kStartNs : events_.back().time_ns;
    return std::make_unique<TraceBuilder>(*this);
  }

 private:
  static constexpr size_t kBatch = 7;  // small, so that batch borders are tested too

  trace::StackId Push(trace::StackId parent, const trace::Frame& frame, uint64_t object = 0) {
    for (size_t i = 1; i < stacks_.size(); ++i) {
      const trace::Frame& other = frames_[stacks_[i].frame.value];
      if (stacks_[i].parent == parent && stacks_[i].object == object && other.kind == frame.kind &&
          other.file == frame.file && other.line == frame.line &&
          other.function == frame.function && other.image == frame.image)
        return trace::StackId{static_cast<uint32_t>(i)};
    }
    frames_.push_back(frame);
    stacks_.push_back({parent, trace::FrameId{static_cast<uint32_t>(frames_.size() - 1)}, object});
    return trace::StackId{static_cast<uint32_t>(stacks_.size() - 1)};
  }
  trace::Event& Stacked(trace::Event& event) {
    event.stack = stack_;
    event.native_stack = native_;
    return event;
  }

  std::vector<trace::Event> events_;
  std::map<std::string, size_t> texts_{{"", 0}};
  std::map<std::pair<uint32_t, uint32_t>, std::string> sources_;
  trace::ProcessId process_{0};
  trace::DeviceId device_{0};
  trace::StackId stack_;
  trace::StackId native_;
  trace::ThreadId thread_;
  trace::StringId scope_;
  trace::Autograd autograd_ = trace::Autograd::kNone;
  uint64_t node_ = 0;
  int64_t now_ns_ = kStartNs;
  int64_t step_ns_ = 1000;
  int passes_ = 0;
};

}  // namespace vramscope::query
