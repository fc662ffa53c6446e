// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "resolve/iteration_table.h"
#include "resolve/module_names.h"
#include "resolve/names.h"
#include "resolve/owners.h"
#include "resolve/phases.h"
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
  const std::vector<DeviceState>& devices() const { return devices_; }
  const std::vector<ProcessState>& processes() const { return processes_; }
  const std::vector<Space>& spaces() const { return spaces_; }
  const std::vector<SlowItem>& slow_items() const { return slow_items_; }
  const std::vector<SlowChange>& slow_log() const { return slow_log_; }
  const Owners& owners() const { return owners_; }
  const Names& names() const { return names_; }
  const ModuleNames& modules() const { return modules_; }
  const IterationTable& iterations() const { return iterations_; }
  const Phases& phases() const { return phases_; }
  const std::vector<MarkRecord>& marks() const { return marks_; }
  const std::vector<tables::ChangeRow>& changes() const { return changes_; }
  const std::vector<tables::OutOfMemoryRow>& out_of_memory() const { return out_of_memory_; }
  const Violations& violations() const { return violations_; }
  RowWriter& rows() { return rows_; }
  const trace::Loss& unknown_frees() const { return unknown_frees_; }
  const trace::Loss& double_allocs() const { return double_allocs_; }
  const trace::Loss& unknown_names() const { return unknown_names_; }
  int64_t first_ns() const { return first_ns_; }
  int64_t last_ns() const { return last_ns_; }
  uint64_t event_count() const { return event_count_; }
  // Whether processes that are not recorded had memory on the device then or later.
  bool HasStrangers(const DeviceState& device, int64_t since_ns = INT64_MIN) const;
  // The account of a device's memory that is of no recorded process, and that of a space.
  static uint32_t AccountOfDevice(trace::DeviceId device) {
    return static_cast<uint32_t>(device.value) + 1;
  }
  uint32_t AccountOfSpace(uint32_t space) const {
    return static_cast<uint32_t>(devices_.size()) + space + 1;
  }

 private:
  friend class Change;

  // ledger.cc: spaces, dispatch
  void ApplyOne(const trace::Event& event);
  uint32_t SpaceIndex(trace::ProcessId process, trace::DeviceId device, int64_t time_ns);
  void Add(DeviceState& device, Space* space, Part part, int64_t bytes);
  void NoteVersion(DeviceState& device);
  void OnTeardown(const trace::Event& event);
  void OnProcessEnd(const trace::Event& event);
  void OnOutOfMemory(const trace::Event& event);
  DeviceState& DeviceOf(const Space& space) {
    return devices_[static_cast<size_t>(space.device.value)];
  }
  bool ValidDevice(trace::DeviceId device) const {
    return device.value >= 0 && static_cast<size_t>(device.value) < devices_.size();
  }
  bool ValidProcess(trace::ProcessId process) const { return process.value < processes_.size(); }

  // rows.cc: what becomes a row
  void EndRow(Block* block, uint32_t space, bool freed);
  void EndRow(Holding* holding, bool freed);
  SiteKey KeyOf(const Holding& holding) const;
  void Describe(Segment& segment, const Holding* backing);
  tables::SegmentId SlabSegment(uint32_t space);

  // blocks.cc
  void OnBlockAlloc(const trace::Event& event);
  void OnBlockFree(const trace::Event& event);
  void OnAllocatorTotals(const trace::Event& event);
  void OnState(const trace::Event& event);
  void EndBlock(uint32_t space_index, uint32_t block, bool freed);
  void MoveBlock(DeviceState& device,
                 Space& space,
                 Segment& segment,
                 const Block& block,
                 int64_t count);
  uint32_t ProgramSegment(uint32_t space_index);
  void UnknownBlockFree(uint32_t space_index, const trace::Event& event);
  void Suballocate(Segment& segment, DeviceState& device, Space& space, bool of_program);
  uint32_t BeforeItem(uint32_t space_index);
  void ChangeBefore(uint32_t space_index, int64_t bytes, int64_t time_ns);
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
  void EndPool(uint32_t segment);
  void OnContextCreate(const trace::Event& event);
  void OnContextDestroy(const trace::Event& event);
  uint32_t NewSegment(SegmentKind kind, uint32_t space, uint64_t begin, uint64_t size);
  uint32_t PoolSegment(ProcessState& process, uint32_t space, uint64_t pool, OwnerId owner);
  uint32_t ReservationFor(ProcessState& process, uint32_t space, uint64_t begin, uint64_t size);
  void ChangeSegment(Segment& segment, int64_t held, int64_t live, int64_t count);
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

  // absences.cc
  void OnCheckpoint(const trace::Event& event);
  void Leave(Space& space, int64_t time_ns, int64_t begin_ns, int64_t end_ns);
  void Return(Space& space, int64_t time_ns, int64_t begin_ns, int64_t end_ns);
  void MoveAll(DeviceState& device, const Space& space, int64_t sign);
  void EndAbsence(Space& space, int64_t time_ns);
  void LookForAbsence(Space& space, const trace::Event& sample);
  void ReturnByFigure(Space& space, const trace::Event& sample);
  void ReturnByDevice(DeviceState& device, const trace::Event& sample);
  void ReturnByCall(const trace::Event& event);
  int64_t LastAgreeing(const DeviceState& device, int64_t not_before_ns) const;

  // prior.cc
  void OnPrior(const trace::Event& event);
  void OnPriorSegment(const trace::Event& event);
  void MoveInto(uint32_t segment);
  void SettleBefore(trace::ProcessId process, trace::DeviceId device, int64_t time_ns);
  void TakeFromBefore(uint32_t space_index, int64_t bytes);
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

  // readings.cc
  void OnImplicit(const trace::Event& event);
  void OnReading(const trace::Event& event);
  void AddOpenCall(DeviceState& device, OpenCall call);
  void NoteCall(DeviceState& device, int64_t begin_ns, int64_t end_ns);
  std::vector<OpenCall> TakeBackUnclear(DeviceState& device, const trace::Event& reading);
  void TakeBackAssigned(const std::vector<SlowChange>& assigned);
  // `reading_ns`: when the reading began that showed the bytes.
  int64_t Assign(DeviceState& device,
                 const std::vector<OpenCall>& calls,
                 int64_t bytes,
                 int64_t time_ns,
                 int64_t reading_ns);
  int64_t TakeBack(DeviceState& device, const std::vector<OpenCall>& calls, int64_t bytes);
  uint32_t NewSlowItem(SlowItem item);
  void ChangeSlow(uint32_t item, int64_t bytes);
  int64_t DriverOwnedBytes(const trace::Event& event) const;
  std::string TriggerText(const std::vector<OpenCall>& calls) const;

  // arrays.cc
  void OnArray(DeviceState& device, const trace::Event& event, uint32_t index);
  void OnArrayFreed(DeviceState& device, const trace::Event& event, uint64_t life);
  Holding* ArrayOf(trace::ProcessId process, uint32_t index, uint64_t life);
  void Reprice(int64_t bytes, Holding* array);
  bool AssignToArrays(DeviceState& device, const std::vector<OpenCall>& calls, int64_t bytes);
  void TakeBackPrices(DeviceState& device, const std::vector<ArrayPrice>& repriced);

  // joint_shares.cc: rows of several processes together
  void ShareOut(DeviceState& device,
                const std::vector<OpenCall>& calls,
                uint32_t holder,
                const Bracket& bracket);
  void DropShares(const DeviceState& device);
  bool IsHolder(const Space& space) const;
  bool CommitShare(DeviceState& device, Space& space);

  // neighbours.cc: processes that are not recorded
  void OnStranger(const trace::Event& event);
  bool IsShared(const DeviceState& device, int64_t since_ns) const;
  void AddBracket(uint32_t space, const Bracket& bracket);
  void DropBrackets(const DeviceState& device, int64_t from_ns);
  void Agree(Space& space, int64_t gap);
  bool IsTelling(const Space& space, int64_t growth) const;
  bool CommitFigure(DeviceState& device, Space& space);
  int64_t MakeGood(DeviceState& device, Space& space, int64_t growth);
  int64_t MoveFromOthers(DeviceState& device, const Bracket& bracket, int64_t bytes);
  void CorrectEntry(DeviceState& device, size_t log_index, int64_t bytes, int64_t from_ns);

  // late_figures.cc
  void CommitPending(DeviceState& device, int64_t begin_ns);
  void ProposeOffset(DeviceState& device, int64_t offset, int64_t until_ns);
  void CommitOffset(DeviceState& device);
  void CommitRmInternal(DeviceState& device, Space& space);

  // samples.cc
  void OnDeviceSample(const trace::Event& event);
  void OnProcessSample(const trace::Event& event);
  void NoteMovement(DeviceState& device, int64_t begin_ns, int64_t end_ns, int64_t bytes);
  uint32_t BaselineItem(DeviceState& device, int64_t time_ns);
  void SetBaseline(DeviceState& device, const trace::Event& event);
  void RewindBaseline(DeviceState& device, const trace::Event& init);

  const trace::Trace& trace_;
  RowWriter rows_;
  Owners owners_;
  Phases phases_;
  Names names_;
  ModuleNames modules_;
  IterationTable iterations_;
  std::vector<DeviceState> devices_;
  std::vector<ProcessState> processes_;
  std::vector<Space> spaces_;
  std::vector<uint32_t> space_index_;  // [process][device]
  Slab<Segment> segments_;
  std::vector<SlowItem> slow_items_;
  std::vector<SlowChange> slow_log_;
  std::vector<MarkRecord> marks_;
  std::vector<tables::ChangeRow> changes_;
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
  uint64_t next_life_ = 0;
  uint64_t event_count_ = 0;
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
  int64_t now_ns_ = 0;     // of the event under way
  bool finished_ = false;  // what ends now was never freed
};

// A change of one device by something rarer than a block: opens before, closes after, and tells
// samples what moved.
class Change {
 public:
  // [begin_ns, end_ns] is the call that makes it.
  Change(Ledger& ledger, trace::DeviceId device, int64_t begin_ns, int64_t end_ns);
  ~Change();
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  Ledger& ledger_;
  trace::DeviceId device_;
  int64_t begin_ns_;
  int64_t end_ns_;
  int64_t total_before_;
  int64_t away_before_;
};

}  // namespace vramscope::resolve
