// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/compact/compaction.h"
#include "resolve/attribute/iteration_table.h"
#include "resolve/attribute/phases.h"
#include "resolve/ledger/records.h"
#include "trace/trace.h"
#include "util/containers/flat_map.h"

namespace vramscope::compact {

// Decides what a ring keeps of the events that become past (docs/FORMAT.md): so much that what
// lives at the cut, and what lived at chosen instants, resolves as it would with all events.
// Allocations that begin and end between two such instants are left out as a pair. So at any other
// instant the kept bytes are at most the real ones, and peaks are preserved.
//
// Feed it all events of the trace, then Finish().
class CompactionPlanner {
 public:
  // `instants`: by device, in the ledger's time. `plans`: by file of the trace, their chunks
  // chosen; what is kept is entered in them.
  CompactionPlanner(const trace::LiveTrace& trace,
                    std::vector<std::vector<int64_t>> instants,
                    std::vector<CompactionPlan>* plans);

  void Apply(std::span<const trace::Event> events);
  void Finish();

 private:
  // Identifies an event: its stream and its record.
  struct Place {
    uint16_t source = 0;
    uint32_t record = 0;
    bool is_old = false;  // it becomes past
  };
  struct NamePlace {
    Place place;
    uint64_t hash = 0;
    int64_t time_ns = 0;
    bool is_tag = false;
  };
  // A block of a caching allocator or a pool, or a CPU tensor.
  struct Open {
    bool used = false;
    bool must_keep = false;  // it ends an earlier allocation at its address, or it is a witness
    bool has_origin = false;
    Place place;
    int64_t time_ns = 0;
    uint64_t address = 0;
    uint64_t bytes = 0;
    tables::StringId scope;
    resolve::Origin origin;
    std::vector<NamePlace> names;
    bool live() const { return used; }
  };
  // Memory that the driver gave or mapped at an address. If a block of it is kept, that shows that
  // it is a segment, whose free bytes are cached.
  struct Range {
    uint64_t end = 0;
    bool has_witness = false;
  };
  struct OpenOf {
    trace::ProcessId process;
    trace::DeviceId device;
    util::FlatMap numbers;
    util::Slab<Open> slab;
  };
  // A series of figures: each is valid until the next.
  struct Series {
    bool seen = false;
    bool waits = false;  // `last` is not decided
    Place last;
    int64_t time_ns = 0;
    int64_t most_bytes = 0;  // of a counter
  };

  // Records that do not form pairs are kept.
  template <class Record>
  void On(const trace::EventContext&, const Record&, const Place& place) {
    Keep(place);
  }
  void On(const trace::EventContext& at, const trace::BlockAlloc& e, const Place& place) {
    Add(at, e, e.sequence, place);
  }
  void On(const trace::EventContext& at, const trace::PoolBlock& e, const Place& place) {
    Add(at, e, 0, place);
  }
  void On(const trace::EventContext& at, const trace::XlaBlock& e, const Place& place) {
    Add(at, e, 0, place);
  }
  void On(const trace::EventContext& at, const trace::GraphTensor& e, const Place& place) {
    if (e.size != 0)
      Add(at, e, e.sequence, place);
    else
      Free(at, e.device, e.address, place);
  }
  void On(const trace::EventContext& at, const trace::BlockFree& e, const Place& place) {
    Free(at, e.device, e.address, place);
  }
  void On(const trace::EventContext& at, const trace::Alloc& e, const Place& place);
  void On(const trace::EventContext& at, const trace::HandleCreate& e, const Place& place);
  void On(const trace::EventContext& at, const trace::Map& e, const Place& place);
  void On(const trace::EventContext& at, const trace::Free& e, const Place& place);
  void On(const trace::EventContext& at, const trace::Unmap& e, const Place& place);
  void On(const trace::EventContext& at, const trace::Name& e, const Place& place);
  void On(const trace::EventContext& at, const trace::Step& e, const Place& place);
  void On(const trace::EventContext& at, const trace::Mark& e, const Place& place);
  void On(const trace::EventContext& at, const trace::AllocatorTotals& e, const Place& place);
  void On(const trace::EventContext& at, const trace::NvtxCounter& e, const Place& place);
  void On(const trace::EventContext& at, const trace::DeviceSample& e, const Place& place);
  void On(const trace::EventContext& at, const trace::ProcessSample& e, const Place& place);
  void On(const trace::EventContext& at, const trace::Past& e, const Place& place);
  void Free(const trace::EventContext& at,
            trace::DeviceId device,
            uint64_t address,
            const Place& place);
  template <class Block>
  void Add(const trace::EventContext& at, const Block& e, uint64_t sequence, const Place& place);
  // Whether it is the first block of that memory.
  bool IsWitness(trace::ProcessId process, uint64_t address);
  // Memory from the driver is kept, with its surroundings.
  void AddOther(const trace::EventContext& at,
                uint64_t number,
                tables::StackId stack,
                tables::StackId native,
                const Place& place);
  void AddRange(trace::ProcessId process, uint64_t address, uint64_t size);
  void OnFigure(const trace::EventContext& at,
                trace::DeviceId device,
                bool is_sample,
                uint64_t key,
                const Place& place);
  // It ended at now_ns, by a record at that place (or none).
  void Close(OpenOf& of, uint32_t index, const Place* end);
  // Enters the surroundings of an allocation in that scope.
  void SetOrigin(const Place& place,
                 const resolve::Origin& origin,
                 tables::StringId scope,
                 format::OriginEnd end);
  void KeepOpen(const Open& open, format::OriginEnd end);
  void EndProcess(trace::ProcessId process);
  // All events of the file up to its cut were seen.
  void Cut(size_t file);
  void Keep(const Place& place);
  static bool HasSplitName(const Open& open);
  bool HasInstant(const OpenOf& of, int64_t begin_ns, int64_t end_ns) const;
  OpenOf& Of(trace::ProcessId process, trace::DeviceId device);

  const trace::LiveTrace& trace_;
  std::vector<CompactionPlan>& plans_;
  std::vector<std::pair<size_t, size_t>> streams_;  // by source: file, stream
  std::vector<size_t> file_of_;                     // by process
  std::vector<bool> is_cut_;                        // by file
  std::vector<std::set<int64_t>> instants_;         // by device
  std::map<std::pair<uint16_t, int16_t>, OpenOf> open_;
  OpenOf* last_ = nullptr;  // of open_
  std::pair<uint16_t, int16_t> last_key_;
  std::vector<std::tuple<Place, trace::ProcessId, tables::StringId, resolve::Origin>> others_;
  std::map<std::tuple<uint16_t, int16_t, uint8_t, uint64_t>, Series> series_;
  // The latest name of memory that is not a block or a driver allocation, by process, address and
  // kind.
  std::map<std::tuple<uint16_t, uint64_t, uint8_t>, uint64_t> other_names_;
  std::map<std::pair<uint16_t, uint64_t>, Range> ranges_;  // by process and begin
  std::map<std::pair<uint16_t, uint64_t>, Place> steps_;   // under way
  std::map<uint16_t, PhaseMarks<Place>> phase_marks_;      // by process
  resolve::Phases phases_;
  resolve::IterationTable iterations_;
  int64_t now_ns_ = 0;
  bool any_ = false;
};

}  // namespace vramscope::compact
