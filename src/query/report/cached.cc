// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "query/core/parallel.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/frames.h"
#include "query/report/report_parts.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using format::Part;

// Less than this, or than this part of the segments, is there in any program.
constexpr uint64_t kLeastBytes = uint64_t{32} << 20;
constexpr uint64_t kLeastShareOfHeld = 10;

// The first block of a segment begins within this time after it.
constexpr int64_t kRequestNs = 10'000'000;

// Of a segment: a block, or memory that the segment is made of.
struct Range {
  uint32_t segment;
  uint64_t address;
  uint64_t bytes;
  int64_t begin_ns;
  uint32_t site;
};
using Ranges = std::vector<Range>;

// Memory of the segments and blocks: at the instant, when the newest segment was made, and just
// after that.
struct Found {
  Ranges mapped, now, then, behind;

  std::array<Ranges*, 4> all() { return {&mapped, &now, &then, &behind}; }
};

// Those of one segment, of ranges that are sorted.
std::pair<const Range*, const Range*> OfSegment(const Ranges& sorted, uint32_t segment) {
  const auto found =
      std::equal_range(sorted.begin(), sorted.end(), Range{segment, 0, 0, 0, 0},
                       [](const Range& a, const Range& b) { return a.segment < b.segment; });
  return {sorted.data() + (found.first - sorted.begin()),
          sorted.data() + (found.second - sorted.begin())};
}

// What is free now was in use when the newest segment was made, or in a gap between blocks. Two
// instants are read, however much happened between them.
class CachedFinder {
 public:
  CachedFinder(const tables::Recording& recording, const LiveSet& live)
      : recording_(recording), tables_(recording.tables()), live_(live) {}

  // `segments`: those of the account, with `free_bytes` free.
  util::Result<std::optional<CachedMemory>> Of(tables::AccountId account,
                                               const std::vector<uint32_t>& segments,
                                               uint64_t free_bytes,
                                               int64_t at_ns) {
    account_ = account;
    out_.device = tables_.accounts[account.value].device;
    out_.pid = RowOf(tables_.processes, tables_.accounts[account.value].process).pid;
    out_.free_bytes = free_bytes;
    mine_.assign(live_.segments.size(), false);
    for (const uint32_t segment : segments)
      mine_[segment] = true;
    // The newest segment is the newest memory, unless an expandable one has grown since.
    int64_t newest_ns = INT64_MIN;
    for (const uint32_t segment : segments) {
      if (!IsOfGraphs(segment))
        newest_ns = std::max(newest_ns, tables_.segments[segment].begin_ns);
    }
    VRAMSCOPE_RETURN_IF_ERROR(Read(newest_ns, at_ns));
    if (FindNewest(); out_.segment_ns != newest_ns)
      VRAMSCOPE_RETURN_IF_ERROR(Read(out_.segment_ns, at_ns));
    FindRequest();
    // Without an earlier one nothing could have served the request.
    if (out_.request_bytes == 0 || std::none_of(found_.mapped.begin(), found_.mapped.end(),
                                                [&](const Range& r) { return WasThere(r); }))
      return std::optional<CachedMemory>();
    for (Ranges* ranges : found_.all()) {
      std::sort(ranges->begin(), ranges->end(), [](const Range& a, const Range& b) {
        return std::pair(a.segment, a.address) < std::pair(b.segment, b.address);
      });
    }
    for (const uint32_t segment : segments)
      AddSegment(segment);
    return std::optional(std::move(out_));
  }

 private:
  util::Status Read(int64_t then_ns, int64_t at_ns) {
    const int64_t until_ns =
        then_ns + std::min(kRequestNs, INT64_MAX - std::max<int64_t>(then_ns, 0));
    uint64_t rows = 0;
    std::vector<size_t> frames;
    for (size_t i = 0; i < recording_.frame_count(); ++i) {
      const tables::FrameZone& zone = recording_.zone(i);
      if (zone.MayHoldAccount(account_) &&
          (zone.MayHoldLiveAt(at_ns) || zone.MayHoldLiveAt(then_ns) ||
           (zone.min_begin_ns <= until_ns && then_ns <= zone.max_begin_ns)))
        frames.push_back(i);
    }
    for (const size_t frame : frames)
      rows += recording_.zone(frame).rows;
    std::vector<Found> found(WorkersFor(rows));
    const uint32_t wanted = tables::kBeginNs | tables::kEndNs | tables::kAddress | tables::kBytes |
                            tables::kSite | tables::kSegment;
    VRAMSCOPE_RETURN_IF_ERROR(ForEachFrame(
        recording_, frames, wanted, found.size(),
        [&](size_t worker, const tables::AllocationFrame& frame) {
          Found& out = found[worker];
          for (size_t i = 0; i < frame.rows; ++i) {
            const int64_t begin_ns = frame.begin_ns[i];
            const bool is_now = begin_ns <= at_ns && at_ns < frame.end_ns[i];
            const bool is_then = begin_ns < then_ns && then_ns < frame.end_ns[i];
            const bool is_behind = then_ns <= begin_ns && begin_ns <= until_ns;
            const uint32_t segment = frame.segment[i];
            if (!(is_now || is_then || is_behind) || segment >= mine_.size() || !mine_[segment])
              continue;
            const tables::SiteRow& site = RowOf(tables_.sites, frame.site[i]);
            if (site.unbacked != 0)
              continue;
            const Range range{segment, frame.address[i], frame.bytes[i], begin_ns, frame.site[i]};
            const bool is_block = site.backing == 0;
            if (is_now)
              (is_block ? out.now : out.mapped).push_back(range);
            if (is_then && is_block)
              out.then.push_back(range);
            if (is_behind && is_block)
              out.behind.push_back(range);
          }
        }));
    found_ = {};
    for (Found& of_worker : found) {
      for (size_t i = 0; i < found_.all().size(); ++i)
        found_.all()[i]->insert(found_.all()[i]->end(), of_worker.all()[i]->begin(),
                                of_worker.all()[i]->end());
    }
    return {};
  }

  void FindNewest() {
    for (const Range& range : found_.mapped) {
      if (range.begin_ns > out_.segment_ns && !IsOfGraphs(range.segment)) {
        newest_ = range.segment;
        out_.segment_ns = range.begin_ns;
        out_.segment_bytes = range.bytes;
      }
    }
  }

  // The first block in the newest segment.
  void FindRequest() {
    const Range* first = nullptr;
    for (const Range& block : found_.behind) {
      if (block.segment == newest_ && (first == nullptr || block.begin_ns < first->begin_ns))
        first = &block;
    }
    if (first == nullptr)
      return;
    out_.request_bytes = first->bytes;
    const tables::FrameId line =
        DimensionValues(recording_).LineOf(RowOf(tables_.sites, first->site));
    out_.place = line.value == 0 ? "" : FormatFrame(recording_, line);
  }

  bool WasThere(const Range& piece) const { return piece.begin_ns < out_.segment_ns; }
  bool IsOfGraphs(uint32_t segment) const {
    return tables_.segments[segment].part_in_use == Part::kGraphPool;
  }

  void AddSegment(uint32_t segment) {
    uint64_t left = live_.segments[segment].FreeBytes();
    if (IsOfGraphs(segment)) {
      out_.graph_bytes += left;
      return;
    }
    auto [block, last_block] = OfSegment(found_.then, segment);
    const auto [first, last] = OfSegment(found_.mapped, segment);
    const auto was_there = [&](const Range& piece) { return WasThere(piece); };
    uint64_t at = 0;
    for (const Range* piece = std::find_if(first, last, was_there); piece != last;
         piece = std::find_if(piece, last, was_there)) {
      at = std::max(at, piece->address);
      uint64_t end = piece->address;
      for (; piece != last && piece->address == end && was_there(*piece); ++piece)
        end += piece->bytes;
      for (; block != last_block && block->address < end; ++block) {
        AddGap(segment, at, block->address, &left);
        at = std::max(at, block->address + block->bytes);
      }
      AddGap(segment, at, end, &left);
      at = std::max(at, end);
    }
    // What was no gap was in use, or is of the newest.
    out_.freed_since_bytes += left;
  }

  // A gap of that time: what is free in it now.
  void AddGap(uint32_t segment, uint64_t from, uint64_t to, uint64_t* left) {
    if (to <= from)
      return;
    uint64_t bytes = to - from;
    const auto [first, last] = OfSegment(found_.now, segment);
    const Range* block = std::partition_point(
        first, last, [&](const Range& range) { return range.address + range.bytes <= from; });
    for (; block != last && block->address < to; ++block) {
      const uint64_t used =
          std::min(block->address + block->bytes, to) - std::max(block->address, from);
      bytes -= std::min(bytes, used);
    }
    bytes = std::min(bytes, *left);
    *left -= bytes;
    if (to - from >= out_.request_bytes) {
      out_.elsewhere_bytes += bytes;
    } else if (bytes != 0) {
      out_.too_small_bytes += bytes;
      out_.largest_piece_bytes = std::max(out_.largest_piece_bytes, to - from);
    }
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const LiveSet& live_;
  tables::AccountId account_;
  std::vector<bool> mine_;  // by SegmentId
  Found found_;
  uint32_t newest_ = 0;
  CachedMemory out_;
};

}  // namespace

util::Result<std::vector<CachedMemory>> FindCached(const tables::Recording& recording,
                                                   const Instants& at,
                                                   const LiveSet& live) {
  struct OfAccount {
    std::vector<uint32_t> segments;
    uint64_t held = 0, free = 0;
  };
  const tables::Tables& tables = recording.tables();
  const tables::StringId pytorch = PyTorchOwner(recording);
  if (pytorch.value == 0)
    return std::vector<CachedMemory>();
  std::map<uint32_t, OfAccount> accounts;
  for (uint32_t i = 1; i < live.segments.size(); ++i) {
    const tables::SiteRow& site = RowOf(tables.sites, tables.segments[i].site);
    if (live.segments[i].HeldBytes() == 0 || site.owner != pytorch)
      continue;
    OfAccount& of = accounts[site.account.value];
    of.segments.push_back(i);
    of.held += live.segments[i].HeldBytes();
    of.free += live.segments[i].FreeBytes();
  }
  std::vector<CachedMemory> found;
  for (const auto& [account, of] : accounts) {
    if (of.free < std::max(kLeastBytes, of.held / kLeastShareOfHeld) ||
        account >= at.of_account.size() || at.of_account[account] == kNoTime)
      continue;
    VRAMSCOPE_ASSIGN_OR_RETURN(auto one, CachedFinder(recording, live)
                                             .Of(tables::AccountId{account}, of.segments, of.free,
                                                 at.of_account[account]));
    if (one)
      found.push_back(std::move(*one));
  }
  std::stable_sort(found.begin(), found.end(), [](const CachedMemory& a, const CachedMemory& b) {
    return a.free_bytes > b.free_bytes;
  });
  return found;
}

}  // namespace vramscope::query
