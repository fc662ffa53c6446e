// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "resolve/counters.h"
#include "resolve/iteration_table.h"
#include "resolve/module_names.h"
#include "resolve/names.h"
#include "resolve/owners.h"
#include "resolve/phases.h"
#include "resolve/price_inputs.h"
#include "resolve/row_writer.h"
#include "resolve/state.h"
#include "trace/trace.h"

namespace vramscope::resolve {

struct MarkRecord {
  trace::StringId name;
  int64_t time_ns = 0;
  trace::ProcessId process;
};

// What a holding's number is unique among, in its process.
enum NumberSpace : size_t { kAddresses, kArrays, kHandles, kRegistered };

// Memory that several processes hold: counted once, with the first of them that is still there.
struct SharedMemory {
  struct Holder {
    trace::ProcessId process;
    uint32_t holding;
  };
  trace::DeviceId device = trace::kNoDevice;
  uint64_t bytes = 0;
  std::vector<Holder> holders;  // in the order in which they came
};

// A row whose bytes are not known yet.
struct ArrayRow {
  tables::AllocationRow row;
  SiteKey key;
  trace::DeviceId device = trace::kNoDevice;
  uint32_t number = 0;     // among the arrays of the device
  uint64_t size = 0;       // asked for
  uint64_t requested = 0;  // of them, by the program's own word; 0: it says nothing
};

// What went against the invariants, with the first case of each.
struct Violations {
  uint64_t freed_twice = 0;
  std::string first_freed_twice;
  uint64_t outside_segment = 0;
  std::string first_outside_segment;
  uint64_t overfull_segments = 0;
  std::string first_overfull;
};

// Who holds which bytes of which device, event by event in time order; what ends becomes a row.
// Feed it all batches of a trace, then Finish(). Tolerates any sequence of events: what makes no
// sense is counted.
//
// Each event gets a time of its own, no earlier than it says, so that time is order.
class Ledger {
 public:
  Ledger(const trace::Trace& trace, tables::AllocationSink& sink);

  void Apply(std::span<const trace::Event> events);
  void Finish();

  const trace::Trace& trace() const { return trace_; }
  const std::vector<ProcessState>& processes() const { return processes_; }
  const std::vector<Space>& spaces() const { return spaces_; }
  const Counters& counters() const { return counters_; }
  const PriceInputs& price_inputs() const { return prices_; }
  // By device.
  const std::vector<price::DevicePrices>& prices() const { return device_prices_; }
  const Owners& owners() const { return owners_; }
  const Names& names() const { return names_; }
  const ModuleNames& modules() const { return modules_; }
  const IterationTable& iterations() const { return iterations_; }
  const Phases& phases() const { return phases_; }
  const std::vector<MarkRecord>& marks() const { return marks_; }
  const std::vector<tables::OutOfMemoryRow>& out_of_memory() const { return out_of_memory_; }
  const Violations& violations() const { return violations_; }
  RowWriter& rows() { return rows_; }
  const trace::Loss& unknown_frees() const { return unknown_frees_; }
  const trace::Loss& double_allocs() const { return double_allocs_; }
  const trace::Loss& unknown_names() const { return unknown_names_; }
  int64_t first_ns() const { return first_ns_; }
  int64_t last_ns() const { return last_ns_; }
  uint64_t event_count() const { return event_count_; }
  // The account of a device's memory that is of no recorded process, and that of a space.
  static uint32_t AccountOfDevice(trace::DeviceId device) {
    return static_cast<uint32_t>(device.value) + 1;
  }
  uint32_t AccountOfSpace(uint32_t space) const {
    return static_cast<uint32_t>(trace_.devices().size()) + space + 1;
  }
  uint32_t SpaceOf(trace::ProcessId process, trace::DeviceId device) const {
    return space_index_[process.value * trace_.devices().size() +
                        static_cast<size_t>(device.value)];
  }

 private:
  // ledger.cc: spaces, dispatch
  void ApplyOne(const trace::Event& event);
  uint32_t SpaceIndex(trace::ProcessId process, trace::DeviceId device, int64_t time_ns);
  void Move(const Space& space, int64_t bytes) {
    if (bytes != 0)
      prices_.Move(space.process, space.device, bytes);
  }
  void ChangeCounter(uint32_t counter, int64_t bytes);
  void OnTeardown(const trace::Event& event);
  void OnProcessEnd(const trace::Event& event);
  void OnOutOfMemory(const trace::Event& event);
  void OnImplicit(const trace::Event& event);
  void OnContextCreate(const trace::Event& event);
  void OnContextDestroy(const trace::Event& event);
  void OnReading(const trace::Event& event);
  void OnProcessSample(const trace::Event& event);
  void EndSpace(ProcessState& process, uint32_t space);
  bool ValidDevice(trace::DeviceId device) const {
    return device.value >= 0 && static_cast<size_t>(device.value) < trace_.devices().size();
  }
  bool ValidProcess(trace::ProcessId process) const { return process.value < processes_.size(); }

  // rows.cc: what becomes a row
  void EndRow(Block* block, uint32_t space, bool freed);
  void EndRow(Holding* holding, bool freed);
  void EndArrayRows();
  SiteKey KeyOf(const Holding& holding) const;
  void Describe(Segment& segment, const Holding* backing);
  tables::SegmentId SlabSegment(uint32_t space);

  // blocks.cc
  void OnBlockAlloc(const trace::Event& event);
  void OnBlockFree(const trace::Event& event);
  void OnAllocatorTotals(const trace::Event& event);
  void OnState(const trace::Event& event);
  void EndBlock(uint32_t space_index, uint32_t block, bool freed);
  void MoveBlock(Space& space, Segment& segment, const Block& block, int64_t count);
  uint32_t ProgramSegment(uint32_t space_index);
  void UnknownBlockFree(uint32_t space_index, const trace::Event& event);
  void Suballocate(Segment& segment, Space& space, bool of_program);
  uint32_t BeforeCounter(uint32_t space_index);
  void NoteFree(uint64_t address);
  bool FreedBefore(uint64_t address) const;

  // driver_events.cc
  void OnAlloc(const trace::Event& event);
  void OnFree(const trace::Event& event);
  void OnHandleCreate(const trace::Event& event);
  void OnHandleRelease(const trace::Event& event);
  void OnHandleRetain(const trace::Event& event);
  void OnMap(const trace::Event& event);
  void OnUnmap(const trace::Event& event);
  void OnReserve(const trace::Event& event);
  void OnUnreserve(const trace::Event& event);
  void OnPoolReading(const trace::Event& event);
  void OnPoolCreate(const trace::Event& event);
  void OnPoolDestroy(const trace::Event& event);
  uint32_t NewSegment(SegmentKind kind, uint32_t space, uint64_t begin, uint64_t size);
  uint32_t PoolSegment(ProcessState& process, uint32_t space, uint64_t pool, OwnerId owner);
  uint32_t ReservationFor(ProcessState& process, uint32_t space, uint64_t begin, uint64_t size);
  void ChangeSegment(Segment& segment, int64_t held, int64_t live, int64_t count);
  void ChangeHeld(Segment& segment, int64_t bytes);
  void ChangeSlabs(Space& space, const Holding& holding, bool add);
  uint32_t StartHolding(ProcessState& process, const trace::Event& event, uint32_t space);
  void PriceHolding(const Holding& holding, bool add);
  void EndHolding(ProcessState& process, uint32_t index, bool freed);
  void EndMapping(ProcessState& process, uint32_t index, bool freed);
  void EndHandleIfUnused(ProcessState& process, uint32_t index, bool freed);
  void EndHoldingsOfContext(ProcessState& process, uint64_t context);
  void ReleaseSegment(ProcessState& process, uint32_t segment);

  // shared_memory.cc: memory that several processes hold
  void OnShare(const trace::Event& event);
  void JoinShared(uint32_t shared, trace::ProcessId process, uint32_t holding);
  void JoinByMapping(trace::ProcessId process, uint32_t handle, uint64_t bytes);
  void LeaveShared(uint32_t shared, trace::ProcessId process, uint32_t holding, uint64_t paid);

  // prior.cc
  void OnPrior(const trace::Event& event);
  void OnPriorSegment(const trace::Event& event);
  void MoveInto(uint32_t segment);
  // What PyTorch holds there in segments that are known.
  uint64_t SegmentBytes(uint32_t space_index) const;

  // name_events.cc
  void OnName(const trace::Event& event);
  void OnPoolName(const trace::Event& event);
  bool NameBlock(const trace::Event& event, trace::DeviceId device, const MemoryName& name);
  bool NameHolding(const trace::Event& event, const MemoryName& name);
  bool NameTakesTurn(uint32_t set, const MemoryName& name) const;
  void Decide(trace::ProcessId process, bool freed, Block* block);
  void Decide(trace::ProcessId process, bool freed, Holding* holding);

  // priced.cc
  void AddPriced(trace::DeviceId device);
  uint32_t AddPriced(trace::DeviceId device, const price::Counter& priced, int64_t begin_ns);
  void LiftBefore();

  const trace::Trace& trace_;
  RowWriter rows_;
  Owners owners_;
  Phases phases_;
  Names names_;
  ModuleNames modules_;
  IterationTable iterations_;
  PriceInputs prices_;
  std::vector<price::DevicePrices> device_prices_;
  std::vector<ProcessState> processes_;
  std::vector<Space> spaces_;
  std::vector<uint32_t> space_index_;  // [process][device]
  Slab<Segment> segments_;
  Counters counters_;
  std::vector<ArrayRow> array_rows_;
  std::vector<MarkRecord> marks_;
  std::vector<tables::OutOfMemoryRow> out_of_memory_;
  std::vector<SharedMemory> shared_;
  std::unordered_map<uint64_t, uint32_t> shared_by_key_;
  std::vector<uint32_t> shared_without_key_;  // exports that only their sizes tell apart
  Violations violations_;
  trace::Loss unknown_frees_;
  trace::Loss double_allocs_;
  trace::Loss unknown_names_;
  std::vector<uint64_t> recently_freed_;
  trace::DeviceId host_device_ = trace::kNoDevice;
  trace::DeviceId cpu_device_ = trace::kNoDevice;
  uint64_t next_life_ = 0;
  uint64_t event_count_ = 0;
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
  int64_t now_ns_ = 0;     // of the event under way
  bool finished_ = false;  // what ends now was never freed
};

}  // namespace vramscope::resolve
