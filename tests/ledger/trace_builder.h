// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/units.h"
#include "trace/trace.h"

// A trace in memory, for tests: one line an event. Times count up by 1 us an event unless said.
namespace vramscope::query {

inline constexpr uint64_t kBase = uint64_t{0x7f} << 40;  // an address of a device

class TraceBuilder : public trace::Trace {
 public:
  static constexpr int64_t kStartNs = 1'000'000'000;

  TraceBuilder() { session_.start_ns = session_.end_ns = kStartNs; }

  // ---- tables ----
  trace::DeviceId AddDevice(tables::DeviceKind kind, int32_t index, uint64_t total_bytes = 0);
  trace::DeviceId AddCpu() { return AddDevice(tables::DeviceKind::kCpu, -1); }
  trace::DeviceId AddHost() { return AddDevice(tables::DeviceKind::kHost, -2); }
  trace::DeviceId AddGpu(int32_t index = 0);
  trace::ProcessId AddProcess(uint32_t pid);
  void NamesAreOff() { processes_[0].unnamed = true; }
  void ParentIs(trace::ProcessId child, trace::ProcessId parent);
  void IsForked(trace::ProcessId child) { processes_[child.value].is_forked = true; }
  tables::ThreadId AddThread(uint32_t tid, const std::string& name);
  tables::StringId Text(const std::string& text);
  // Frames outermost first: {file, line, function}.
  tables::StackId Python(const std::vector<std::tuple<std::string, uint32_t, std::string>>& frames);
  // The same with the module whose method each frame runs, 0 for none.
  tables::StackId PythonIn(
      const std::vector<std::tuple<std::string, uint32_t, std::string, uint64_t>>& frames);
  // Images outermost first.
  tables::StackId Native(const std::vector<std::string>& images);
  void SetSource(const std::string& file, uint32_t line, std::string text);
  void AddTraceLoss(const std::string& name, uint64_t count);

  // ---- events ---- On the given device, or on that of On().
  template <class Record>
  trace::Event& Add(Record record) {
    if constexpr (requires { record.device; }) {
      if (record.device == trace::kNoDevice)
        record.device = device_;
    }
    trace::Event& event = Next();
    event.Become(record);
    return event;
  }
  void On(trace::DeviceId device) { device_ = device; }
  void In(trace::ProcessId process) { process_ = process; }
  void At(int64_t after_start_ns) { now_ns_ = kStartNs + after_start_ns; }
  void StackIs(tables::StackId stack, tables::StackId native = {});
  void OnThread(tables::ThreadId thread) { thread_ = thread; }
  // The path of scopes that what follows is inside of, "" for none.
  void ScopeIs(const std::string& path) { scope_ = Text(path); }
  // What the thread's next autograd node will be numbered, of all that follows.
  void NextNode(uint64_t number);
  // The node that autograd evaluates.
  void InNode(uint64_t number);
  void NoNode() { sequence_ = 0; }
  // Between events that are not placed by At().
  void StepIs(int64_t step_ns) { step_ns_ = step_ns; }

  trace::Event& Alloc(uint64_t address, uint64_t size);
  // A block of the program's own pool.
  trace::Event& PoolAlloc(uint64_t address,
                          uint64_t size,
                          uint64_t requested,
                          const std::string& name);
  trace::Event& Free(uint64_t address, uint64_t size = 0);
  trace::Event& DriverAlloc(uint64_t address,
                            uint64_t size,
                            format::MemoryKind kind = format::MemoryKind::kDevice);
  trace::Event& DriverFree(uint64_t address, format::MemoryKind kind = format::MemoryKind::kDevice);
  trace::Event& Implicit(format::ImplicitKind kind,
                         const std::string& api,
                         const std::string& name = "");
  trace::Event& ContextCreate(uint64_t context);
  // The driver's figure, as bytes used.
  trace::Event& Reading(uint64_t used);
  trace::Event& Sample(uint64_t used);
  trace::Event& ProcessSample(uint64_t used);
  trace::Event& Mark(const std::string& name);
  // Its memory is on a device that is not said.
  trace::Event& Name(format::NameKind kind,
                     uint64_t address,
                     const std::string& name,
                     uint64_t requested = 0,
                     uint64_t owner = 0,
                     const std::string& detail = "");
  // The root if there is no path.
  trace::Event& Module(uint64_t object,
                       uint64_t root,
                       const std::string& path,
                       const std::string& type);
  trace::Event& ModuleGone(uint64_t object);
  void StepBegin(uint64_t optimizer) { Step(format::StepKind::kBegin, optimizer); }
  void StepEnd(uint64_t optimizer) { Step(format::StepKind::kEnd, optimizer); }
  trace::Event& Step(format::StepKind kind, uint64_t optimizer);
  void Teardown() { Add(trace::Teardown{}); }
  void ProcessEnd() { Add(trace::ProcessExit{}); }

  // ---- trace::Trace ----
  std::string_view SourceLine(tables::StringId file, uint32_t line) const override;
  util::Status ForEachEvent(const EventSink& sink) override;
  int passes() const { return passes_; }
  const std::vector<trace::Event>& events() const { return events_; }
  // Call last: the session ends with the last event.
  std::unique_ptr<trace::Trace> Build();

 private:
  static constexpr size_t kBatch = 7;  // small, so that batch borders are tested too

  trace::Event& Next();

  std::vector<trace::Event> events_;
  std::map<std::pair<uint32_t, uint32_t>, std::string> sources_;
  trace::ProcessId process_{0};
  trace::DeviceId device_{0};
  tables::StackId stack_;
  tables::StackId native_;
  tables::ThreadId thread_;
  tables::StringId scope_;
  uint64_t sequence_ = 0;
  int64_t now_ns_ = kStartNs;
  int64_t step_ns_ = 1000;
  int passes_ = 0;
};

}  // namespace vramscope::query
