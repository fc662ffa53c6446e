// SPDX-License-Identifier: Apache-2.0
#include "tables/table_checks.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <vector>

#include "format/memory_words.h"
#include "tables/file_layout.h"

namespace vramscope::tables {
namespace {

// More frames than any stack that is recorded: what walks a stack takes a time that is bounded.
constexpr uint32_t kMaxStackDepth = 65536;

size_t RowsOf(const Tables& tables, StringId) {
  return tables.strings.size();
}
size_t RowsOf(const Tables& tables, HostId) {
  return tables.hosts.size();
}
size_t RowsOf(const Tables& tables, DeviceId) {
  return tables.devices.size();
}
size_t RowsOf(const Tables& tables, ProcessId) {
  return tables.processes.size();
}
size_t RowsOf(const Tables& tables, AccountId) {
  return tables.accounts.size();
}
size_t RowsOf(const Tables& tables, ThreadId) {
  return tables.threads.size();
}
size_t RowsOf(const Tables& tables, FrameId) {
  return tables.frames.size();
}
size_t RowsOf(const Tables& tables, StackId) {
  return tables.stacks.size();
}
size_t RowsOf(const Tables& tables, SiteId) {
  return tables.sites.size();
}
size_t RowsOf(const Tables& tables, SegmentId) {
  return tables.segments.size();
}
size_t RowsOf(const Tables& tables, CounterId) {
  return tables.counters.size();
}
size_t RowsOf(const Tables& tables, NvtxCounterId) {
  return tables.nvtx_counters.size();
}

template <class Row, class Type>
bool IdsExist(const Tables& tables, const std::vector<Row>& rows, const Column<Row, Type>& column) {
  if constexpr (!kIsId<Type>) {
    return true;
  } else {
    const size_t count = RowsOf(tables, Type{});
    return std::all_of(rows.begin(), rows.end(),
                       [&](const Row& row) { return (row.*column.field).value < count; });
  }
}

bool StacksAreTrees(const std::vector<StackRow>& stacks) {
  std::vector<uint32_t> depth(stacks.size());
  for (size_t i = 1; i < stacks.size(); ++i) {
    const uint32_t parent = stacks[i].parent.value;
    if (parent >= i)
      return false;
    depth[i] = depth[parent] + 1;
    if (depth[i] > kMaxStackDepth)
      return false;
  }
  return true;
}

// The checks of frames run over every allocation that a question reads: the compiler makes vector
// code of them for any processor, which it does not of comparisons of 64 bits.

// The top bit is set where a < b.
constexpr uint64_t Borrow(uint64_t a, uint64_t b) {
  return (~a & b) | (~(a ^ b) & (a - b));
}
constexpr bool TopBit(uint64_t bits) {
  return bits >> 63 != 0;
}

bool AllWithin(const std::vector<int64_t>& times_ns, int64_t min_ns, int64_t max_ns) {
  const auto min = static_cast<uint64_t>(min_ns);
  const uint64_t range = static_cast<uint64_t>(max_ns) - min;
  uint64_t outside = 0;
  for (const int64_t time_ns : times_ns)
    outside |= Borrow(range, static_cast<uint64_t>(time_ns) - min);
  return !TopBit(outside);
}

bool AllBelow(const std::vector<uint32_t>& ids, size_t count) {
  uint64_t outside = 0;
  for (const uint32_t id : ids)
    outside |= count - 1 - uint64_t{id};
  return !TopBit(outside);
}

bool AllBelow(const std::vector<AllocationShape>& shapes, size_t sites, size_t segments) {
  return std::all_of(shapes.begin(), shapes.end(), [&](const AllocationShape& shape) {
    return shape.site < sites && shape.segment < segments;
  });
}

bool NoneEndsBeforeItBegins(const AllocationFrame& frame) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  uint64_t before = 0;
  for (size_t i = 0; i < frame.rows; ++i) {
    before |= Borrow(static_cast<uint64_t>(frame.end_ns[i]) ^ kSign,
                     static_cast<uint64_t>(frame.begin_ns[i]) ^ kSign);
  }
  return !TopBit(before);
}

int64_t Bounded(int64_t time_ns) {
  return std::clamp(time_ns, -kMaxTimeNs, kMaxTimeNs);
}
int64_t BoundedEnd(int64_t time_ns) {
  return time_ns == kNever ? kNever : Bounded(time_ns);
}

template <class Row, class Type>
void BoundColumn(std::vector<Row>* rows, const Column<Row, Type>& column) {
  if constexpr (std::is_same_v<Type, int64_t>) {
    if (std::string_view(column.unit) != "ns")
      return;
    const bool is_end = std::string_view(column.name) == "end_ns";
    for (Row& row : *rows) {
      int64_t& time_ns = row.*column.field;
      time_ns = is_end ? BoundedEnd(time_ns) : Bounded(time_ns);
    }
  }
}

}  // namespace

void BoundTimes(Tables* tables) {
  Tables::ForEach(*tables, [&]<class Row>(std::vector<Row>& rows) {
    TableOf<Row>::VisitColumns([&](const auto& column) { BoundColumn(&rows, column); });
  });
  Session& session = tables->session;
  for (int64_t* time_ns :
       {&session.begin_ns, &session.end_ns, &session.history_ns, &session.begin_wall_ns})
    *time_ns = Bounded(*time_ns);
}

void BoundTimes(FrameZone* zone) {
  zone->min_begin_ns = Bounded(zone->min_begin_ns);
  zone->max_begin_ns = Bounded(zone->max_begin_ns);
  zone->min_end_ns = BoundedEnd(zone->min_end_ns);
  zone->max_end_ns = BoundedEnd(zone->max_end_ns);
}

void BoundTimes(const FrameZone& zone, AllocationFrame* frame) {
  // Hardly ever: the zone says whether there is anything to do.
  if (zone.min_begin_ns == -kMaxTimeNs || zone.max_begin_ns == kMaxTimeNs) {
    for (int64_t& time_ns : frame->begin_ns)
      time_ns = Bounded(time_ns);
  }
  const bool ends_fit = zone.min_end_ns == kNever || zone.max_end_ns < kMaxTimeNs;
  if (zone.min_end_ns == -kMaxTimeNs || !ends_fit) {
    for (int64_t& time_ns : frame->end_ns)
      time_ns = BoundedEnd(time_ns);
  }
  for (int64_t& time_ns : frame->alloc_ns)
    time_ns = Bounded(time_ns);
}

void BoundWords(Tables* tables) {
  const auto bound = []<class Word>(Word* word, size_t count, Word otherwise) {
    if (static_cast<size_t>(*word) >= count)
      *word = otherwise;
  };
  for (SiteRow& site : tables->sites) {
    bound(&site.part, format::kPartCount, format::Part::kAllocated);
    bound(&site.category, format::kCategoryCount, format::Category::kUnknown);
    bound(&site.phase, format::kPhaseCount, format::Phase::kNone);
    bound(&site.estimated, static_cast<size_t>(Estimated::kCorrected) + 1,
          Estimated::kByFreeMemory);
  }
  for (SegmentRow& segment : tables->segments)
    bound(&segment.part_in_use, format::kPartCount, format::Part::kAllocated);
  for (DeviceRow& device : tables->devices)
    bound(&device.kind, static_cast<size_t>(DeviceKind::kCpu) + 1, DeviceKind::kGpu);
  for (FrameRow& frame : tables->frames)
    bound(&frame.kind, static_cast<size_t>(FrameKind::kNative) + 1, FrameKind::kNative);
  for (ViolationRow& violation : tables->violations) {
    bound(&violation.invariant, static_cast<size_t>(InvariantKind::kOverfullSegment) + 1,
          InvariantKind::kFreedTwice);
  }
}

const char* FindBadReference(const Tables& tables) {
  const char* bad = nullptr;
  Tables::ForEach(tables, [&]<class Row>(const std::vector<Row>& rows) {
    bool exist = true;
    TableOf<Row>::VisitColumns(
        [&](const auto& column) { exist = exist && IdsExist(tables, rows, column); });
    if (!exist && bad == nullptr)
      bad = TableOf<Row>::kName;
  });
  if (bad == nullptr && !StacksAreTrees(tables.stacks))
    bad = TableOf<StackRow>::kName;
  return bad;
}

uint64_t NamedTextBytes(const Tables& tables) {
  uint64_t bytes = 0;
  Tables::ForEach(tables, [&]<class Row>(const std::vector<Row>& rows) {
    TableOf<Row>::VisitColumns([&]<class Type>(const Column<Row, Type>& column) {
      if constexpr (std::is_same_v<Type, StringId>) {
        for (const Row& row : rows)
          bytes += std::min(tables.strings[row.*column.field].size(), kMaxTextBytes);
      }
    });
  });
  return bytes;
}

bool FrameMakesSense(const AllocationFrame& frame,
                     uint32_t wanted,
                     const FrameZone& zone,
                     const Tables& tables) {
  const bool both = (wanted & kBeginNs) != 0 && (wanted & kEndNs) != 0;
  return AllWithin(frame.begin_ns, zone.min_begin_ns, zone.max_begin_ns) &&
         AllWithin(frame.end_ns, zone.min_end_ns, zone.max_end_ns) &&
         AllBelow(frame.site, tables.sites.size()) &&
         AllBelow(frame.segment, tables.segments.size()) &&
         AllBelow(frame.shapes, tables.sites.size(), tables.segments.size()) &&
         (!both || NoneEndsBeforeItBegins(frame));
}

}  // namespace vramscope::tables
