// SPDX-License-Identifier: Apache-2.0
#include "ledger/trace_builder.h"

#include <algorithm>
#include <span>

namespace vramscope::query {

trace::DeviceId TraceBuilder::AddDevice(tables::DeviceKind kind,
                                        int32_t index,
                                        uint64_t total_bytes) {
  trace::Device device;
  device.kind = kind;
  device.index = index;
  device.total_bytes = total_bytes;
  devices_.push_back(device);
  return trace::DeviceId{static_cast<int16_t>(devices_.size() - 1)};
}

trace::DeviceId TraceBuilder::AddGpu(int32_t index) {
  return AddDevice(tables::DeviceKind::kGpu, index, 100'000 * kMiB);
}

trace::ProcessId TraceBuilder::AddProcess(uint32_t pid) {
  trace::Process process;
  process.pid = pid;
  process.command = "python train.py";
  process.executable = "/usr/bin/python3";
  process.start_ns = kStartNs;
  processes_.push_back(process);
  return trace::ProcessId{static_cast<uint16_t>(processes_.size() - 1)};
}

void TraceBuilder::ParentIs(trace::ProcessId child, trace::ProcessId parent) {
  processes_[child.value].parent_pid = processes_[parent.value].pid;
}

tables::ThreadId TraceBuilder::AddThread(uint32_t tid, const std::string& name) {
  threads_.push_back({trace::ProcessId{0}, tid, name});
  return tables::ThreadId{static_cast<uint32_t>(threads_.size() - 1)};
}

tables::StringId TraceBuilder::Text(const std::string& text) {
  return dictionaries_.AddText(text);
}

tables::StackId TraceBuilder::Python(
    const std::vector<std::tuple<std::string, uint32_t, std::string>>& frames) {
  tables::StackId stack;
  for (const auto& [file, line, function] : frames) {
    tables::FrameRow frame;
    frame.file = Text(file);
    frame.line = line;
    frame.function = Text(function);
    stack = dictionaries_.AddStack(stack, dictionaries_.AddFrame(frame));
  }
  return stack;
}

tables::StackId TraceBuilder::PythonIn(
    const std::vector<std::tuple<std::string, uint32_t, std::string, uint64_t>>& frames) {
  tables::StackId stack;
  for (const auto& [file, line, function, object] : frames) {
    tables::FrameRow frame;
    frame.file = Text(file);
    frame.line = line;
    frame.function = Text(function);
    stack = dictionaries_.AddStack(stack, dictionaries_.AddFrame(frame), object);
  }
  return stack;
}

tables::StackId TraceBuilder::Native(const std::vector<std::string>& images) {
  tables::StackId stack;
  for (const std::string& image : images) {
    tables::FrameRow frame;
    frame.kind = tables::FrameKind::kNative;
    frame.image = Text(image);
    frame.function = Text("f");
    stack = dictionaries_.AddStack(stack, dictionaries_.AddFrame(frame));
  }
  return stack;
}

void TraceBuilder::SetSource(const std::string& file, uint32_t line, std::string text) {
  sources_[{Text(file).value, line}] = std::move(text);
}

void TraceBuilder::AddTraceLoss(const std::string& name, uint64_t count) {
  losses_.push_back({name, count, 0});
}

trace::Event& TraceBuilder::Next() {
  trace::Event& event = events_.emplace_back();
  event.process = process_;
  event.thread = thread_;
  event.scope = scope_;
  event.time_ns = event.begin_ns = event.end_ns = now_ns_;
  now_ns_ += step_ns_;
  return event;
}

void TraceBuilder::StackIs(tables::StackId stack, tables::StackId native) {
  stack_ = stack;
  native_ = native;
}

void TraceBuilder::NextNode(uint64_t number) {
  sequence_ = 2 * number + 1;
}

void TraceBuilder::InNode(uint64_t number) {
  sequence_ = 2 * number + 2;
}

trace::Event& TraceBuilder::Alloc(uint64_t address, uint64_t size) {
  return Add(trace::BlockAlloc{
      .address = address, .size = size, .stack = stack_, .native = native_, .sequence = sequence_});
}

trace::Event& TraceBuilder::PoolAlloc(uint64_t address,
                                      uint64_t size,
                                      uint64_t requested,
                                      const std::string& name) {
  return Add(trace::PoolBlock{.address = address,
                              .size = size,
                              .requested = requested,
                              .name = Text(name),
                              .stack = stack_,
                              .native = native_});
}

trace::Event& TraceBuilder::Free(uint64_t address, uint64_t size) {
  return Add(trace::BlockFree{.address = address, .size = size});
}

trace::Event& TraceBuilder::DriverAlloc(uint64_t address, uint64_t size, format::MemoryKind kind) {
  return Add(trace::Alloc{.api = Text("cuMemAlloc_v2"),
                          .kind = kind,
                          .address = address,
                          .size = size,
                          .stack = stack_,
                          .native = native_});
}

trace::Event& TraceBuilder::DriverFree(uint64_t address, format::MemoryKind kind) {
  return Add(trace::Free{.kind = kind, .address = address});
}

trace::Event& TraceBuilder::Implicit(format::ImplicitKind kind,
                                     const std::string& api,
                                     const std::string& name) {
  return Add(trace::Implicit{
      .api = Text(api), .kind = kind, .name = Text(name), .stack = stack_, .native = native_});
}

trace::Event& TraceBuilder::ContextCreate(uint64_t context) {
  return Add(trace::ContextCreate{.api = Text("cuCtxCreate_v4"), .context = context});
}

trace::Event& TraceBuilder::Reading(uint64_t used) {
  const uint64_t total = 100'000 * kMiB;
  return Add(trace::Reading{.free = total - used, .total = total});
}

trace::Event& TraceBuilder::Sample(uint64_t used) {
  trace::Event& event = Add(trace::DeviceSample{.used = used});
  event.process = trace::kNoProcess;
  return event;
}

trace::Event& TraceBuilder::ProcessSample(uint64_t used) {
  return Add(trace::ProcessSample{.used = used});
}

trace::Event& TraceBuilder::Mark(const std::string& name) {
  return Add(trace::Mark{.name = Text(name)});
}

trace::Event& TraceBuilder::Name(format::NameKind kind,
                                 uint64_t address,
                                 const std::string& name,
                                 uint64_t requested,
                                 uint64_t owner,
                                 const std::string& detail) {
  trace::Event& event = Next();
  event.Become(trace::Name{.address = address,
                           .size = requested,
                           .kind = kind,
                           .owner = owner,
                           .name = Text(name),
                           .detail = Text(detail)});
  return event;
}

trace::Event& TraceBuilder::Module(uint64_t object,
                                   uint64_t root,
                                   const std::string& path,
                                   const std::string& type) {
  return Add(trace::Module{.object = object, .root = root, .path = Text(path), .type = Text(type)});
}

trace::Event& TraceBuilder::ModuleGone(uint64_t object) {
  return Add(trace::ModuleGone{.object = object});
}

trace::Event& TraceBuilder::Step(format::StepKind kind, uint64_t optimizer) {
  return Add(trace::Step{.kind = kind, .optimizer = optimizer, .name = Text("SGD")});
}

std::string_view TraceBuilder::SourceLine(tables::StringId file, uint32_t line) const {
  const auto found = sources_.find({file.value, line});
  return found == sources_.end() ? std::string_view() : std::string_view(found->second);
}

util::Status TraceBuilder::ForEachEvent(const EventSink& sink) {
  ++passes_;
  for (size_t first = 0; first < events_.size(); first += kBatch) {
    const auto events = std::span(events_).subspan(first, std::min(kBatch, events_.size() - first));
    std::vector<trace::Event> batch(events.begin(), events.end());
    sink(batch);
  }
  return {};
}

std::unique_ptr<trace::Trace> TraceBuilder::Build() {
  session_.end_ns = events_.empty() ? kStartNs : events_.back().time_ns;
  return std::make_unique<TraceBuilder>(*this);
}

}  // namespace vramscope::query
