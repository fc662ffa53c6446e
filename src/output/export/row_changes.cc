// SPDX-License-Identifier: Apache-2.0
#include "output/export/row_changes.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tables/row_of.h"

namespace vramscope::output {
namespace {

// No more of it is rounding than it has.
tables::AllocationRow RowIn(const tables::AllocationFrame& frame, size_t at) {
  tables::AllocationRow row = tables::RowOf(frame, at);
  row.rounding_bytes = std::min(row.rounding_bytes, row.bytes);
  return row;
}

}  // namespace

RowChanges::RowChanges(const tables::Recording& recording,
                       const query::Instants& until,
                       std::vector<bool> accounts,
                       uint64_t window_rows)
    : recording_(recording),
      until_(until),
      accounts_(std::move(accounts)),
      window_rows_(window_rows) {}

bool RowChanges::MayMatter(size_t frame) const {
  for (uint32_t account = 0; account < accounts_.size(); ++account) {
    if (accounts_[account] && recording_.zone(frame).MayHoldAccount(tables::AccountId{account}))
      return true;
  }
  return false;
}

// kNoTime where its rows do not count.
int64_t RowChanges::UntilOf(uint32_t site) const {
  const std::vector<tables::SiteRow>& sites = recording_.tables().sites;
  const uint32_t account = site < sites.size() ? sites[site].account.value : 0;
  return account < accounts_.size() && accounts_[account] && account < until_.of_account.size()
             ? until_.of_account[account]
             : query::kNoTime;
}

// Windows end at quantiles of the times, estimated from some of them.
util::Status RowChanges::Plan() {
  planned_ = true;
  constexpr uint64_t kSamples = uint64_t{1} << 16;
  const uint64_t rows = recording_.tables().session.allocation_count;
  if (rows > window_rows_) {
    const uint64_t stride = std::max<uint64_t>(1, 2 * rows / kSamples);
    std::vector<int64_t> times_ns;
    tables::AllocationFrame frame;
    uint64_t seen = 0;
    for (size_t i = 0; i < recording_.frame_count(); ++i) {
      if (!MayMatter(i))
        continue;
      VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(i, tables::kBeginNs | tables::kEndNs, &frame));
      for (size_t at = 0; at < frame.rows; ++at) {
        for (const int64_t time_ns : {frame.begin_ns[at], frame.end_ns[at]}) {
          if (seen++ % stride == 0)
            times_ns.push_back(time_ns);
        }
      }
    }
    std::sort(times_ns.begin(), times_ns.end());
    const uint64_t windows = seen / 2 / window_rows_ + 1;
    for (uint64_t window = 1; window < windows; ++window) {
      const int64_t end_ns = times_ns[times_ns.size() * window / windows];
      if (ends_ns_.empty() || end_ns > ends_ns_.back())
        ends_ns_.push_back(end_ns);
    }
  }
  if (ends_ns_.empty() || ends_ns_.back() != INT64_MAX)
    ends_ns_.push_back(INT64_MAX);
  return {};
}

util::Status RowChanges::ReadWindow(int64_t after_ns, int64_t to_ns) {
  changes_.clear();
  tables::AllocationFrame frame;
  const std::vector<tables::SiteRow>& sites = recording_.tables().sites;
  // The first window has what is at the earliest instant of all, too.
  const auto is_within = [&](int64_t time_ns) {
    return (time_ns > after_ns || next_window_ == 0) && time_ns <= to_ns;
  };
  for (size_t i = 0; i < recording_.frame_count(); ++i) {
    const tables::FrameZone& zone = recording_.zone(i);
    if (zone.min_begin_ns > to_ns || (next_window_ != 0 && zone.max_end_ns <= after_ns) ||
        !MayMatter(i))
      continue;
    VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(i, tables::kAllColumns, &frame));
    for (size_t at = 0; at < frame.rows; ++at) {
      const int64_t until_ns = UntilOf(frame.site[at]);
      // What has no length and no bytes was never there, and what has no memory is not there.
      if (until_ns == query::kNoTime || frame.bytes[at] == 0 ||
          frame.begin_ns[at] >= frame.end_ns[at] || frame.site[at] >= sites.size() ||
          sites[frame.site[at]].unbacked != 0)
        continue;
      const bool is_segment = sites[frame.site[at]].backing != 0;
      using Kind = RowChange::Kind;
      if (frame.begin_ns[at] <= until_ns && is_within(frame.begin_ns[at])) {
        changes_.push_back({frame.begin_ns[at],
                            is_segment ? Kind::kSegmentBegins : Kind::kBlockBegins,
                            RowIn(frame, at)});
      }
      if (frame.end_ns[at] <= until_ns && is_within(frame.end_ns[at])) {
        changes_.push_back({frame.end_ns[at], is_segment ? Kind::kSegmentEnds : Kind::kBlockEnds,
                            RowIn(frame, at)});
      }
    }
  }
  JoinRows();
  std::sort(changes_.begin(), changes_.end(), [](const RowChange& a, const RowChange& b) {
    return std::tie(a.time_ns, a.kind, a.row.address) < std::tie(b.time_ns, b.kind, b.row.address);
  });
  return {};
}

// Where something about an allocation changed, its memory was not freed.
void RowChanges::JoinRows() {
  using Kind = RowChange::Kind;
  using Key = std::tuple<int64_t, uint64_t, int64_t>;
  std::map<Key, RowChange*> going_on;
  for (RowChange& change : changes_) {
    const bool begins = change.kind == Kind::kBlockBegins || change.kind == Kind::kSegmentBegins;
    if (begins && change.row.alloc_ns < change.row.begin_ns)
      going_on[{change.time_ns, change.row.address, change.row.alloc_ns}] = &change;
  }
  if (going_on.empty())
    return;
  for (RowChange& change : changes_) {
    if (change.kind != Kind::kBlockEnds && change.kind != Kind::kSegmentEnds)
      continue;
    const auto found = going_on.find({change.time_ns, change.row.address, change.row.alloc_ns});
    if (found == going_on.end())
      continue;
    RowChange& next = *found->second;
    const bool next_is_block = next.kind == Kind::kBlockBegins;
    if (next.kind != Kind::kGoesOn && next_is_block == (change.kind == Kind::kBlockEnds) &&
        next.row.bytes == change.row.bytes &&
        next.row.rounding_bytes == change.row.rounding_bytes &&
        next.row.segment == change.row.segment) {
      next.kind = Kind::kGoesOn;
      change.row.bytes = 0;
    }
  }
  std::erase_if(changes_, [](const RowChange& change) { return change.row.bytes == 0; });
}

util::Result<std::span<const RowChange>> RowChanges::Next() {
  if (!planned_)
    VRAMSCOPE_RETURN_IF_ERROR(Plan());
  while (next_window_ < ends_ns_.size()) {
    const int64_t after_ns = next_window_ == 0 ? INT64_MIN : ends_ns_[next_window_ - 1];
    VRAMSCOPE_RETURN_IF_ERROR(ReadWindow(after_ns, ends_ns_[next_window_]));
    ++next_window_;
    if (!changes_.empty())
      return std::span<const RowChange>(changes_);
  }
  return std::span<const RowChange>();
}

}  // namespace vramscope::output
