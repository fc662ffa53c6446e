// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "output/export/live_stacks.h"
#include "query/core/ledger_state.h"
#include "query/dimensions/dimensions.h"
#include "tables/recording.h"

// The ledger as PyTorch's snapshots see memory: address ranges called segments, with blocks in
// them.
namespace vramscope::output {

// What many blocks have in common.
struct SnapshotLabel {
  tables::AccountId account;
  tables::StackId stack;
  std::string below;  // the stack, innermost last, with ';' between
  std::string category;
  std::string names;  // module, parameter, tag
  uint64_t stream = 0;
  bool graph_pool = false;
  friend auto operator<=>(const SnapshotLabel&, const SnapshotLabel&) = default;
};

class SnapshotLabels {
 public:
  explicit SnapshotLabels(const tables::Recording& recording);
  uint32_t OfSite(uint32_t site);
  uint32_t Of(const tables::SiteRow& site);
  uint32_t Of(const SnapshotLabel& label);
  const SnapshotLabel& operator[](uint32_t number) const { return *labels_[number]; }

 private:
  const tables::Recording& recording_;
  query::DimensionValues texts_;
  std::map<SnapshotLabel, uint32_t> numbers_;
  std::vector<const SnapshotLabel*> labels_;
  std::vector<uint32_t> of_site_;  // number + 1; 0: not asked yet
};

struct SnapshotBlock {
  uint64_t bytes = 0;
  uint64_t requested_bytes = 0;
  uint32_t label = 0;
  int64_t alloc_ns = 0;
  uint32_t segment = 0;    // SegmentId that it was cut out of; 0: none
  bool has_range = false;  // a range was made for it alone
};

struct SnapshotRange {
  uint64_t bytes = 0;
  uint32_t label = 0;
  int64_t alloc_ns = 0;
  uint32_t segment = 0;    // SegmentId that it backs; 0: none
  bool is_mapped = false;  // a piece of a larger reservation
};

struct SnapshotEvent {
  const char* action;
  uint64_t address;
  uint64_t bytes;
  uint32_t label;
  bool frees;
};

// Memory of one device number. What has no address of its own, as most of what the driver owns, or
// one that is taken, gets one that no GPU gives.
class SnapshotState {
 public:
  using Sink = std::function<void(const SnapshotEvent&)>;
  SnapshotState(const tables::Recording& recording, SnapshotLabels* labels, Sink sink);

  void BeginBlock(const tables::AllocationRow& row);
  void EndBlock(const tables::AllocationRow& row);
  void BeginSegment(const tables::AllocationRow& row);
  void EndSegment(const tables::AllocationRow& row);
  // The same memory under another site.
  void GoOn(const tables::AllocationRow& row);
  void AddStep(tables::CounterId counter, int64_t bytes);
  void AddInUse(uint32_t label, uint64_t bytes);
  // Its memory leaves the device, and comes back.
  void SetCheckpointed(tables::AccountId account, bool checkpointed);

  const std::map<uint64_t, SnapshotRange>& ranges() const { return ranges_; }
  const std::map<uint64_t, SnapshotBlock>& blocks() const { return blocks_; }
  bool IsCheckpointed(uint32_t label) const;
  // Forgets how it came to be what it is.
  void Finish() { sink_ = {}; }

 private:
  // Of a segment, what the ledger says and how much of that ranges show.
  struct Segment {
    query::SegmentState ledger;
    uint64_t range_bytes = 0;
    uint64_t used_in_ranges = 0;
  };
  // Memory that grows and shrinks: of segments what no range shows, of counters, of rounding.
  enum class RegionKind : uint8_t { kSlack, kCounter, kRounding };
  struct Region {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };

  void SetRegion(RegionKind kind, uint32_t number, uint32_t label, uint64_t bytes, bool in_use);
  void SetSlack(uint32_t segment);
  void AddRounding(const tables::AllocationRow& row, bool begins);
  bool IsFree(uint64_t address, uint64_t bytes) const;
  bool IsInRanges(uint64_t address, uint64_t bytes, uint32_t segment) const;
  bool HasBlockIn(uint64_t address, uint64_t bytes) const;
  uint64_t MakeAddress(uint64_t bytes);
  // Where a row is: its own address, but for those that got another.
  uint64_t Place(const tables::AllocationRow& row);
  uint64_t FindPlace(const tables::AllocationRow& row) const;
  void Unplace(const tables::AllocationRow& row, uint64_t address);

  void AddRange(uint64_t address, const SnapshotRange& range);
  void RemoveRange(uint64_t address);
  void AddBlock(uint64_t address, const SnapshotBlock& block);
  void RemoveBlock(uint64_t address);
  void TellRange(uint64_t address, const SnapshotRange& range, bool begins);
  void TellBlock(uint64_t address, const SnapshotBlock& block, bool begins);
  void Tell(const char* action, uint64_t address, uint64_t bytes, uint32_t label, bool frees);

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  SnapshotLabels& labels_;
  Sink sink_;
  std::map<uint64_t, SnapshotRange> ranges_;  // by address, as the blocks
  std::map<uint64_t, SnapshotBlock> blocks_;
  std::vector<Segment> segments_;          // by SegmentId
  std::vector<uint64_t> counters_;         // by CounterId; they wrap
  std::map<uint32_t, uint64_t> rounding_;  // by label
  std::map<std::pair<RegionKind, uint32_t>, Region> regions_;
  // By address, time of allocation and bytes.
  std::map<std::tuple<uint64_t, int64_t, uint64_t>, uint64_t> moved_;
  std::multimap<uint64_t, uint64_t> spare_addresses_;  // by size
  uint64_t next_address_;
  std::vector<bool> checkpointed_;  // by AccountId
};

}  // namespace vramscope::output
