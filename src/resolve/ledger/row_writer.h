// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "resolve/attribute/owners.h"
#include "resolve/ledger/records.h"
#include "tables/recording.h"
#include "trace/event.h"
#include "util/containers/intern_table.h"

namespace vramscope::resolve {

// Which level of the allocation hierarchy the rows of a site are.
enum class Holding : uint8_t {
  kDriver,   // allocated by the driver
  kBacking,  // the same, and it backs a segment
  kBlock,    // allocated in a segment
};

// Everything that allocations share, as ids of the trace. Values that need the whole recording
// (module names, whether phases are known) become text at the end.
struct SiteKey {
  uint32_t account = 0;
  Owner owner = Owner::kNone;
  Part part = Part::kAllocated;
  Category category = Category::kUnknown;
  Category without_phases = Category::kUnknown;
  format::Phase phase = format::Phase::kNone;
  tables::Estimated estimated = tables::Estimated::kExact;
  Holding holding = Holding::kDriver;
  uint32_t names = 0;       // a set of Names
  uint32_t pool_names = 0;  // of the pool that it is in: a set of Names
  uint32_t module_epoch = 0;
  tables::StringId api;
  tables::StringId scope;
  tables::ThreadId thread;
  tables::StackId stack;
  tables::StackId native;
  tables::StackId forward;
  uint32_t stands_for = 0;  // row of the device whose memory this host memory replaces; 0: none
  uint32_t maker = 0;       // as of DriverObject
  uint32_t unbacked = 0;    // 1: no device memory is mapped below it
  uint64_t stream = 0;      // handle + 1; 0: none
  friend bool operator==(const SiteKey&, const SiteKey&) = default;
};

// A site while it is collected.
struct Site {
  SiteKey key;
  int64_t alloc_ns = 0;  // of one of its allocations, to look up modules
  uint64_t allocated_bytes = 0;
  uint64_t allocated_count = 0;
};

// Passes rows to the sink when they end, and keeps their sites and segments.
//
//   SiteKey (all that allocations have in common) -> SiteId, each key once
//   AllocationRow {times, address, bytes, SiteId, SegmentId} -> AllocationSink, in order of its end
//
// The parts of the ledger call it when a row ends. It keeps sites and segments, never rows. Names
// in a key are numbers; TablesOf in resolve.cc turns them into text at the end. After the sink
// fails, no more rows are written; status() has the error.
class RowWriter {
 public:
  explicit RowWriter(tables::AllocationSink& sink) : sink_(sink), sites_(1), segments_(1) {}

  tables::SiteId SiteOf(const SiteKey& key, int64_t alloc_ns);
  // Adds a site without looking for an equal one: few rows share it.
  tables::SiteId AddSite(const SiteKey& key, std::string trigger, int64_t alloc_ns);
  // Skips a row that begins when it ends.
  void Add(const tables::AllocationRow& row) {
    if (row.begin_ns >= row.end_ns)
      return;
    if (row.begin_ns == row.alloc_ns) {
      Site& site = sites_[row.site.value];
      site.allocated_bytes += row.bytes;
      ++site.allocated_count;
    }
    if (status_.ok())
      status_ = sink_.Add(row);
  }
  tables::SegmentId AddSegment(const tables::SegmentRow& row) {
    segments_.push_back(row);
    return tables::SegmentId{static_cast<uint32_t>(segments_.size() - 1)};
  }
  tables::SegmentRow& segment(tables::SegmentId id) { return segments_[id.value]; }

  const std::vector<Site>& sites() const { return sites_; }
  const std::string& TriggerOf(tables::SiteId site) const;
  std::vector<tables::SegmentRow>& segments() { return segments_; }
  // The sink's first error.
  const util::Status& status() const { return status_; }

 private:
  tables::AllocationSink& sink_;
  util::Status status_;
  std::vector<Site> sites_;
  std::vector<tables::SegmentRow> segments_;
  util::InternTable ids_;         // of sites from SiteOf()
  std::vector<uint32_t> latest_;  // last site of each stack: mostly the next one too
  std::unordered_map<uint32_t, std::string> triggers_;  // by site, if it has one
};

}  // namespace vramscope::resolve
