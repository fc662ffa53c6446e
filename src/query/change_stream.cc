// SPDX-License-Identifier: Apache-2.0
#include "query/change_stream.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace vramscope::query {
namespace {

// 4 MiB: they stay in the second-level cache's reach while they are sorted.
constexpr uint64_t kChangesPerWindow = 128 * 1024;
constexpr uint64_t kSitesLimit = uint64_t{1} << 31;

bool Earlier(const Change& a, const Change& b) {
  return a.time_ns < b.time_ns;
}

// Instants are spread about evenly: most are in order once they are in buckets by time.
void SortByTime(std::vector<Change>* changes) {
  if (changes->size() < 64) {
    std::sort(changes->begin(), changes->end(), Earlier);
    return;
  }
  const auto [first, last] = std::minmax_element(changes->begin(), changes->end(), Earlier);
  const int64_t begin_ns = first->time_ns;
  const auto width_ns = static_cast<uint64_t>(last->time_ns) - static_cast<uint64_t>(begin_ns);
  const auto wanted_bits = static_cast<int>(std::bit_width(changes->size() / 8));
  const int shift = std::max(0, static_cast<int>(std::bit_width(width_ns)) - wanted_bits);
  const auto bucket_of = [&](const Change& change) {
    return static_cast<size_t>(
        (static_cast<uint64_t>(change.time_ns) - static_cast<uint64_t>(begin_ns)) >> shift);
  };
  std::vector<uint32_t> ends((width_ns >> shift) + 2);
  for (const Change& change : *changes)
    ++ends[bucket_of(change) + 1];
  for (size_t i = 1; i < ends.size(); ++i)
    ends[i] += ends[i - 1];
  std::vector<Change> sorted(changes->size());
  for (const Change& change : *changes)
    sorted[ends[bucket_of(change)]++] = change;
  uint32_t begin = 0;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    std::sort(sorted.begin() + begin, sorted.begin() + ends[i], Earlier);
    begin = ends[i];
  }
  changes->swap(sorted);
}

}  // namespace

ChangeStream::ChangeStream(const tables::Recording& recording, TimeSpan span)
    : recording_(recording), span_(span) {
  PlanWindows();
  if (!last_ns_.empty())
    next_ = std::async(std::launch::async, [this] { return Make(0); });
}

ChangeStream::~ChangeStream() {
  if (next_.valid())
    next_.wait();
}

// Cuts time where as many changes have come as a window shall have, by what the zones say: half of
// a frame's rows begin before the middle of their begins.
void ChangeStream::PlanWindows() {
  std::vector<std::pair<int64_t, uint64_t>> weights;
  const auto weigh = [&](int64_t min_ns, int64_t max_ns, uint64_t rows) {
    if (min_ns > max_ns || min_ns == tables::kNever)
      return;
    max_ns = max_ns == tables::kNever ? min_ns : max_ns;
    // In pieces, so that a frame of many rows is not in one window.
    const uint64_t pieces = std::clamp<uint64_t>(rows / (kChangesPerWindow / 8), 1, 64);
    const auto width = static_cast<uint64_t>(max_ns) - static_cast<uint64_t>(min_ns);
    for (uint64_t i = 0; i < pieces; ++i) {
      const uint64_t offset = width / pieces * i + width / pieces / 2;
      weights.emplace_back(static_cast<int64_t>(static_cast<uint64_t>(min_ns) + offset),
                           rows / pieces);
    }
  };
  for (size_t i = 0; i < recording_.frame_count(); ++i) {
    const tables::FrameZone& zone = recording_.zone(i);
    if (zone.rows == 0 || zone.min_begin_ns > span_.to_ns || zone.max_end_ns <= span_.from_ns)
      continue;
    frames_.push_back(i);
    weigh(zone.min_begin_ns, zone.max_begin_ns, zone.rows);
    weigh(zone.min_end_ns, zone.max_end_ns, zone.rows);
  }
  std::sort(frames_.begin(), frames_.end(), [&](size_t a, size_t b) {
    return recording_.zone(a).min_begin_ns < recording_.zone(b).min_begin_ns;
  });
  std::sort(weights.begin(), weights.end());
  uint64_t sum = 0;
  for (const auto& [time_ns, rows] : weights) {
    sum += rows;
    const bool within = time_ns > span_.from_ns && time_ns < span_.to_ns;
    if (sum < kChangesPerWindow || !within || (!last_ns_.empty() && time_ns <= last_ns_.back()))
      continue;
    last_ns_.push_back(time_ns);
    sum = 0;
  }
  if (!frames_.empty())
    last_ns_.push_back(span_.to_ns);
  pending_.resize(last_ns_.size());
}

void ChangeStream::Push(const Change& change, size_t* hint) {
  if (change.time_ns <= span_.from_ns || change.time_ns > span_.to_ns ||
      change.time_ns == tables::kNever)
    return;
  // Neighbours of a frame are mostly of one window.
  size_t window = *hint;
  if (change.time_ns > last_ns_[window] || (window > 0 && change.time_ns <= last_ns_[window - 1]))
    window = static_cast<size_t>(
        std::lower_bound(last_ns_.begin(), last_ns_.end(), change.time_ns) - last_ns_.begin());
  // A damaged zone may hide that the window is over.
  *hint = std::max(window, made_);
  pending_[*hint].push_back(change);
}

util::Status ChangeStream::ReadFrame(size_t frame) {
  VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(frame,
                                            tables::kBeginNs | tables::kEndNs | tables::kBytes |
                                                tables::kRoundingBytes | tables::kSite |
                                                tables::kSegment,
                                            &frame_));
  const uint64_t sites = std::min<uint64_t>(recording_.tables().sites.size(), kSitesLimit);
  const uint64_t segments = recording_.tables().segments.size();
  size_t begin_hint = made_;
  size_t end_hint = made_;
  for (size_t i = 0; i < frame_.rows; ++i) {
    // Not live at any instant.
    if (frame_.begin_ns[i] >= frame_.end_ns[i])
      continue;
    Change change;
    change.time_ns = frame_.begin_ns[i];
    change.bytes = frame_.bytes[i];
    change.rounding_bytes = std::min(frame_.rounding_bytes[i], change.bytes);
    change.site = frame_.site[i] < sites ? frame_.site[i] & 0x7fffffff : 0;
    change.segment = frame_.segment[i] < segments ? frame_.segment[i] : 0;
    Push(change, &begin_hint);
    change.time_ns = frame_.end_ns[i];
    change.ends = 1;
    Push(change, &end_hint);
  }
  return {};
}

ChangeStream::Window ChangeStream::Make(size_t window) {
  Window made;
  made_ = window;
  while (next_frame_ < frames_.size() &&
         recording_.zone(frames_[next_frame_]).min_begin_ns <= last_ns_[window]) {
    made.status = ReadFrame(frames_[next_frame_++]);
    if (!made.status.ok())
      return made;
  }
  made.changes = std::move(pending_[window]);
  SortByTime(&made.changes);
  return made;
}

util::Result<std::span<const Change>> ChangeStream::Next() {
  while (next_.valid()) {
    current_ = next_.get();
    if (!current_.status.ok())
      return current_.status;
    if (made_ + 1 < last_ns_.size())
      next_ = std::async(std::launch::async, [this, window = made_ + 1] { return Make(window); });
    if (!current_.changes.empty())
      return std::span<const Change>(current_.changes);
  }
  current_ = {};
  return std::span<const Change>();
}

}  // namespace vramscope::query
