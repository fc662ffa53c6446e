// SPDX-License-Identifier: Apache-2.0
#include "query/cached.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "query/frames.h"
#include "query/parallel.h"
#include "query/texts.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using format::Part;

// Less than this, or than this part of the segments, is there in any program.
constexpr uint64_t kLeastBytes = uint64_t{32} << 20;
constexpr uint64_t kLeastShare = 10;

// Of a segment: a block that is live at the instant, or was when the newest was made; or memory
// that it is made of.
struct Range {
  uint32_t segment;
  uint64_t address;
  uint64_t bytes;
  int64_t begin_ns;
  uint32_t site;
};

bool IsBefore(const Range& a, const Range& b) {
  return std::pair(a.segment, a.address) < std::pair(b.segment, b.address);
}

class CachedFinder {
 public:
  CachedFinder(const tables::Recording& recording, const LiveSet& live)
      : recording_(recording), tables_(recording.tables()), live_(live) {}

  util::Result<std::optional<CachedMemory>> Of(tables::AccountId account, int64_t at_ns) {
    if (!FindSegments(account))
      return std::optional<CachedMemory>();
    VRAMSCOPE_RETURN_IF_ERROR(Read(at_ns, at_ns));
    if (newest_.bytes == 0)
      return std::optional<CachedMemory>();
    if (newest_.begin_ns < at_ns)
      VRAMSCOPE_RETURN_IF_ERROR(Read(newest_.begin_ns, at_ns));
    out_.device = tables_.accounts[account.value].device;
    out_.pid = RowOf(tables_.processes, tables_.accounts[account.value].process).pid;
    out_.segment_ns = newest_.begin_ns;
    out_.segment_bytes = newest_.bytes;
    FindRequest();
    std::sort(blocks_.begin(), blocks_.end(), IsBefore);
    std::sort(mapped_.begin(), mapped_.end(), IsBefore);
    for (uint32_t segment = 1; segment < mine_.size(); ++segment) {
      if (mine_[segment] && live_.segments[segment].free_bytes() > 0)
        AddSegment(segment);
    }
    return std::optional(std::move(out_));
  }

 private:
  // Whether it is worth a look.
  bool FindSegments(tables::AccountId account) {
    uint64_t held = 0;
    mine_.assign(live_.segments.size(), false);
    for (size_t i = 1; i < live_.segments.size(); ++i) {
      const tables::SiteRow& site = RowOf(tables_.sites, tables_.segments[i].site);
      if (site.account != account || recording_.string(site.owner) != "PyTorch")
        continue;
      mine_[i] = live_.segments[i].held_bytes > 0;
      held += static_cast<uint64_t>(std::max<int64_t>(live_.segments[i].held_bytes, 0));
      out_.free_bytes += live_.segments[i].free_bytes();
    }
    return out_.free_bytes >= std::max(kLeastBytes, held / kLeastShare);
  }

  // What is live at the instant; or, with an earlier `from_ns`, what ended between the two.
  util::Status Read(int64_t from_ns, int64_t at_ns) {
    const bool is_live = from_ns == at_ns;
    std::vector<size_t> frames;
    for (size_t i = 0; i < recording_.frame_count(); ++i) {
      const tables::FrameZone& zone = recording_.zone(i);
      if (is_live ? zone.MayHoldLiveAt(at_ns)
                  : zone.min_end_ns <= at_ns && from_ns < zone.max_end_ns)
        frames.push_back(i);
    }
    const uint32_t wanted = tables::kBeginNs | tables::kEndNs | tables::kAddress | tables::kBytes |
                            tables::kSite | tables::kSegment;
    return ForEachFrame(
        recording_, frames, wanted, 1, [&](size_t, const tables::AllocationFrame& frame) {
          for (size_t i = 0; i < frame.rows; ++i) {
            const uint32_t segment = frame.segment[i];
            const int64_t end_ns = frame.end_ns[i];
            if (segment < mine_.size() && mine_[segment] && frame.begin_ns[i] <= at_ns &&
                end_ns > from_ns && (is_live || end_ns <= at_ns))
              Add({segment, frame.address[i], frame.bytes[i], frame.begin_ns[i], frame.site[i]},
                  is_live);
          }
        });
  }

  void Add(const Range& range, bool is_live) {
    const tables::SiteRow& site = RowOf(tables_.sites, tables::SiteId{range.site});
    if (site.unbacked != 0)
      return;
    if (site.backing == 0)
      return blocks_.push_back(range);
    if (!is_live)
      return;
    mapped_.push_back(range);
    if ((newest_.bytes == 0 || range.begin_ns > newest_.begin_ns) && !IsOfGraphs(range.segment))
      newest_ = range;
  }

  bool IsOfGraphs(uint32_t segment) const {
    return static_cast<Part>(tables_.segments[segment].part_in_use) == Part::kGraphPool;
  }

  // The first block in the newest segment.
  void FindRequest() {
    const Range* first = nullptr;
    for (const Range& block : blocks_) {
      if (block.segment == newest_.segment && block.begin_ns >= newest_.begin_ns &&
          (first == nullptr || block.begin_ns < first->begin_ns))
        first = &block;
    }
    if (first == nullptr)
      return;
    out_.request_bytes = first->bytes;
    const tables::FrameId line =
        DimensionTexts(recording_).LineOf(RowOf(tables_.sites, tables::SiteId{first->site}));
    out_.place = line.value == 0 ? "" : FormatFrame(recording_, line);
  }

  static std::pair<const Range*, const Range*> OfSegment(const std::vector<Range>& sorted,
                                                         uint32_t segment) {
    const auto found =
        std::equal_range(sorted.begin(), sorted.end(), Range{segment, 0, 0, 0, 0},
                         [](const Range& a, const Range& b) { return a.segment < b.segment; });
    return {sorted.data() + (found.first - sorted.begin()),
            sorted.data() + (found.second - sorted.begin())};
  }

  void AddSegment(uint32_t segment) {
    const uint64_t free_bytes = live_.segments[segment].free_bytes();
    if (IsOfGraphs(segment)) {
      out_.graph_bytes += free_bytes;
      return;
    }
    uint64_t left = free_bytes;
    auto [block, last_block] = OfSegment(blocks_, segment);
    const auto [first, last] = OfSegment(mapped_, segment);
    const auto was_there = [&](const Range& piece) { return piece.begin_ns < newest_.begin_ns; };
    uint64_t at = 0;
    for (const Range* piece = std::find_if(first, last, was_there); piece != last;
         piece = std::find_if(piece, last, was_there)) {
      at = std::max(at, piece->address);
      uint64_t end = piece->address;
      for (; piece != last && piece->address == end && was_there(*piece); ++piece)
        end += piece->bytes;
      for (; block != last_block && block->address < end; ++block) {
        AddGap(at, block->address, &left);
        at = std::max(at, block->address + block->bytes);
      }
      AddGap(at, end, &left);
      at = std::max(at, end);
    }
    // What is no gap was in use, or is of the newest.
    out_.freed_since_bytes += left;
  }

  void AddGap(uint64_t from, uint64_t to, uint64_t* left) {
    const uint64_t bytes = std::min(to > from ? to - from : 0, *left);
    *left -= bytes;
    if (bytes >= out_.request_bytes) {
      out_.elsewhere_bytes += bytes;
    } else {
      out_.too_small_bytes += bytes;
      out_.largest_piece_bytes = std::max(out_.largest_piece_bytes, bytes);
    }
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const LiveSet& live_;
  std::vector<bool> mine_;  // by SegmentId
  std::vector<Range> blocks_;
  std::vector<Range> mapped_;
  Range newest_{};
  CachedMemory out_;
};

}  // namespace

util::Result<std::vector<CachedMemory>> FindCached(const tables::Recording& recording,
                                                   const Instants& at,
                                                   const LiveSet& live) {
  std::vector<CachedMemory> found;
  for (uint32_t i = 1; i < at.of_account.size(); ++i) {
    if (at.of_account[i] == kNoTime)
      continue;
    auto one = CachedFinder(recording, live).Of(tables::AccountId{i}, at.of_account[i]);
    if (!one.ok())
      return one.status();
    if (*one)
      found.push_back(std::move(**one));
  }
  std::stable_sort(found.begin(), found.end(), [](const CachedMemory& a, const CachedMemory& b) {
    return a.free_bytes > b.free_bytes;
  });
  return found;
}

}  // namespace vramscope::query
