// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "resolve/attribute/captures.h"
#include "resolve/attribute/module_names.h"
#include "resolve/attribute/xla_programs.h"
#include "resolve/ledger/base.h"
#include "resolve/ledger/blocks.h"
#include "resolve/ledger/driver_objects.h"
#include "resolve/ledger/pools.h"
#include "resolve/ledger/rows.h"
#include "resolve/ledger/segments.h"
#include "tables/rows.h"
#include "trace/trace.h"

namespace vramscope::resolve {

struct MarkRecord {
  tables::StringId name;
  int64_t time_ns = 0;
  trace::ProcessId process;
};

// Counters that the processes publish; a sample's counter is an index plus 1.
struct NvtxCounters {
  struct Counter {
    trace::ProcessId process;
    trace::DeviceId device;
    tables::StringId name;
  };
  std::vector<Counter> counters;
  std::map<std::pair<trace::ProcessId, uint64_t>, tables::NvtxCounterId> ids;  // by its number
  std::vector<tables::NvtxSampleRow> samples;

  void Add(const trace::EventContext& at, const trace::NvtxCounter& e);
};

// Follows who holds how many bytes of each device, event by event in time order.
//
//   trace::Event -> Ledger -> On(context, record) of its part
//                     Blocks          blocks of caching allocators, CPU tensors
//                     DriverObjects   allocations, mappings, contexts of the driver
//                     Pools, Slabs    stream-ordered pools, pages of small requests
//                     ModuleNames, Phases, Names   what memory is called
//                     PriceInputs     input of attributing the rest, at the end
//                   -> RowWriter -> AllocationSink
//
// Resolve() passes all batches of a trace, then calls Finish(). Memory that ends becomes a row at
// once and is forgotten. A row is never written twice and never changed. Any sequence of events is
// valid input: inconsistent ones are counted. Each event gets a unique time, no earlier than its
// own, so times define the order. Not thread-safe.
class Ledger {
 public:
  Ledger(const trace::Trace& trace, tables::AllocationSink& sink);

  void Apply(std::span<const trace::Event> events);
  // All events are read: adds attributed driver memory, and rows that were never freed.
  void Finish();

  const trace::Trace& trace() const { return base_.trace; }
  const LedgerBase& base() const { return base_; }
  RowWriter& writer() { return base_.writer; }
  const DriverObjects& objects() const { return objects_; }
  const ModuleNames& modules() const { return modules_; }
  // 0: unknown.
  uint64_t CommunicatorRanks(uint64_t communicator) const {
    const auto found = communicator_ranks_.find(communicator);
    return found == communicator_ranks_.end() ? 0 : found->second;
  }
  // By device.
  const std::vector<price::DevicePrices>& prices() const { return prices_; }
  const std::vector<MarkRecord>& marks() const { return marks_; }
  const Captures& captures() const { return captures_; }
  const ExecutedPrograms& xla_programs() const { return xla_programs_; }
  const NvtxCounters& nvtx_counters() const { return nvtx_counters_; }
  const std::vector<tables::OutOfMemoryRow>& out_of_memory() const { return out_of_memory_; }
  // By number of the trace's host samples.
  const std::vector<uint64_t>& pinned_at_samples() const { return pinned_at_samples_; }
  int64_t first_ns() const { return first_ns_; }
  int64_t last_ns() const { return last_ns_; }
  uint64_t event_count() const { return event_count_; }

 private:
  // Parts with their own events.
  template <class Record>
  void On(const trace::EventContext& at, const Record& e) {
    if constexpr (requires { blocks_.On(at, e); })
      blocks_.On(at, e);
    else if constexpr (requires { objects_.On(at, e); })
      objects_.On(at, e);
    else if constexpr (requires { pools_.On(at, e); })
      pools_.On(at, e);
    else if constexpr (requires { modules_.On(at, e); })
      modules_.On(at, e);
    else
      base_.prices.On(at, e);
  }
  // Events of several parts.
  void On(const trace::EventContext& at, const trace::ContextCreate& e);
  void On(const trace::EventContext& at, const trace::ContextDestroy& e);
  void On(const trace::EventContext& at, const trace::Implicit& e);
  void On(const trace::EventContext& at, const trace::Reading& e);
  void On(const trace::EventContext& at, const trace::ProcessSample& e);
  void On(const trace::EventContext& at, const trace::Prior& e);
  void On(const trace::EventContext& at, const trace::Name& e);
  void On(const trace::EventContext& at, const trace::XlaBlock& e);
  void On(const trace::EventContext& at, const trace::Communicator& e);
  void On(const trace::EventContext& at, const trace::ModuleGone& e);
  void On(const trace::EventContext& at, const trace::Mark& e);
  void On(const trace::EventContext& at, const trace::NvtxCounter& e);
  void On(const trace::EventContext& at, const trace::Step& e);
  void On(const trace::EventContext& at, const trace::Past& e);
  void On(const trace::EventContext& at, const trace::Capture& e);
  void On(const trace::EventContext& at, const trace::OutOfMemory& e);
  void On(const trace::EventContext& at, const trace::Failure& e);
  void On(const trace::EventContext& at, const trace::Teardown& e);
  void On(const trace::EventContext& at, const trace::ProcessExit& e);
  void ApplyOfNobody(const trace::Event& event);
  // Notes the pinned memory at the host samples before `time_ns`.
  void NoteHostSamples(int64_t time_ns);
  void AddOutOfMemory(const trace::EventContext& at,
                      trace::DeviceId device,
                      uint64_t bytes,
                      tables::StackId stack,
                      tables::StackId native,
                      tables::StringId api);
  uint32_t AccountOf(const trace::EventContext& at, trace::DeviceId device) {
    return base_.accounts.FindOrAdd(at.process, device, at.time_ns);
  }

  LedgerBase base_;
  Segments segments_;
  Slabs slabs_;
  Pools pools_;
  RowMaker rows_;
  DriverObjects objects_;
  Blocks blocks_;
  Captures captures_;
  ExecutedPrograms xla_programs_;
  ModuleNames modules_;
  std::vector<price::DevicePrices> prices_;
  std::vector<MarkRecord> marks_;
  NvtxCounters nvtx_counters_;
  std::map<uint64_t, uint64_t> communicator_ranks_;  // by id
  // Names without an allocation, by process and address: each is one loss, even if repeated.
  std::set<std::tuple<trace::ProcessId, uint64_t, tables::StringId>> lost_names_;
  std::vector<tables::OutOfMemoryRow> out_of_memory_;
  std::vector<uint64_t> pinned_at_samples_;
  int64_t next_host_sample_ns_ = INT64_MIN;
  uint64_t event_count_ = 0;
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
};

}  // namespace vramscope::resolve
