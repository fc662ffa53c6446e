// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "format/memory_words.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"

namespace vramscope::query {

// Given by a caching allocator or a program's own pool, and no allocation of the driver's.
inline bool IsBlock(const tables::SiteRow& site) {
  return site.backing == 0 && site.allocator.value != 0 && site.api.value == 0;
}
// In use, not slack.
constexpr bool IsUse(format::Part part) {
  return part != format::Part::kUncut && !format::IsSlack(part);
}

// It is meant to be freed within an iteration, or soon after.
constexpr bool IsPassing(format::Category category) {
  using format::Category;
  return category == Category::kActivation || category == Category::kRetained ||
         category == Category::kTemporary || category == Category::kInput ||
         category == Category::kUnknown;
}

// Free bytes of an allocator's segments: no line, layer or thread has them.
constexpr bool IsFree(format::Part part) {
  return part == format::Part::kCached || part == format::Part::kFragmentation ||
         part == format::Part::kGraphPool || part == format::Part::kGraphCached;
}

// The owner of what PyTorch's caching allocator keeps; 0 where the recording has none. Owners are
// compared by id.
tables::StringId PyTorchOwner(const tables::Recording& recording);

// "allocated" and "reserved" as PyTorch means them (torch.cuda.memory_allocated, memory_reserved).
class AllocatedRule {
 public:
  explicit AllocatedRule(const tables::Tables& tables);

  // In the program's hands, and none of the driver's own: blocks with their rounding; where no
  // caching allocator has any, the allocations themselves.
  bool IsAllocated(const tables::SiteRow& site) const;
  // In the segments of a caching allocator, allocated or free.
  bool IsReserved(const tables::SiteRow& site) const;

 private:
  struct Account {
    bool is_process = false;
    bool has_blocks = false;
    bool has_segments = false;
  };
  std::vector<Account> accounts_;
};

// The sites of an account whose rows are allocated, with device memory below them.
class AllocatedSites {
 public:
  AllocatedSites(const tables::Tables& tables, tables::AccountId account);

  bool Has(uint32_t site) const { return site < sites_.size() && sites_[site]; }
  // Whether the rounding of its rows is allocated as well: it is of blocks.
  bool HasRounding(uint32_t site) const { return Has(site) && rounding_[site]; }
  // Of a counter, unless the counter has the bytes of a segment: the segment's blocks are rows.
  bool HasCounter(const tables::CounterRow& counter) const {
    return counter.segment.value == 0 && Has(counter.site.value);
  }

 private:
  std::vector<bool> sites_;
  std::vector<bool> rounding_;
};

// Sites that are not in the table: that of the rounding of a site's allocations, and that of a
// segment's free bytes.
tables::SiteRow RoundingSite(const tables::SiteRow& site);
tables::SiteRow FreeSite(const tables::Recording& recording,
                         const tables::SegmentRow& segment,
                         bool in_use);

// What histories tell bytes apart by: a few hundred of them where sites are many thousands.
struct Cell {
  tables::AccountId account;
  tables::DeviceId device;       // none for what no device memory is mapped below
  tables::DeviceId unbacked_of;  // the device of its allocator, for that
  tables::StringId owner;
  format::Part part = format::Part::kAllocated;
  format::Category category = format::Category::kUnknown;
  bool block = false;
  bool backward = false;  // allocated by a backward
  bool allocated = false;
  bool reserved = false;
  tables::Estimated estimated = tables::Estimated::kExact;
  tables::DeviceId stands_for;  // the GPU in whose place the host's memory is; 0: it is not
  uint32_t group = 0;           // of Cells::groups()
  friend auto operator<=>(const Cell&, const Cell&) = default;
};

class Cells {
 public:
  explicit Cells(const tables::Recording& recording);
  // Tells them apart by a dimension of sites too, whose texts are the groups.
  Cells(const tables::Recording& recording, Dimension by);
  // Group 1 is what `selects` lets through, group 0 the rest.
  Cells(const tables::Recording& recording,
        const std::function<bool(const tables::SiteRow& site)>& selects);

  const std::vector<Cell>& all() const { return cells_; }
  const std::vector<std::string>& groups() const { return groups_; }
  uint32_t OfSite(uint32_t site) const { return sites_[site].own; }
  uint32_t OfRounding(uint32_t site) const { return sites_[site].rounding; }
  uint32_t OfFree(uint32_t segment, bool in_use) const {
    return in_use ? segments_[segment].in_use : segments_[segment].idle;
  }

 private:
  struct SiteCells {
    uint32_t own = 0;
    uint32_t rounding = 0;
  };
  struct SegmentCells {
    uint32_t idle = 0;
    uint32_t in_use = 0;
  };

  using GroupOf = std::function<uint32_t(const tables::SiteRow& site)>;
  void Fill(const tables::Recording& recording, const GroupOf& group_of);

  std::vector<Cell> cells_;
  std::vector<std::string> groups_;
  std::vector<SiteCells> sites_;
  std::vector<SegmentCells> segments_;
};

}  // namespace vramscope::query
