// SPDX-License-Identifier: Apache-2.0
#include "query/core/change_stream.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace vramscope::query {
namespace {

// A window's changes fit into the second-level cache while they are sorted.
constexpr uint64_t kChangesPerWindow = 16 * 1024;
constexpr uint32_t kSitesLimit = uint32_t{1} << 30;
constexpr size_t kChangesPerBucket = 4;

struct Earlier {
  bool operator()(const Change& a, const Change& b) const { return a.time_ns < b.time_ns; }
};

}  // namespace

ChangeStream::ChangeStream(const tables::Recording& recording, TimeSpan span)
    : recording_(recording), span_(span) {
  PlanWindows();
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
    first_ns_ = std::min(first_ns_, zone.min_begin_ns);
    for (const int64_t time_ns : {zone.max_begin_ns, zone.max_end_ns}) {
      if (time_ns != tables::kNever)
        final_ns_ = std::max(final_ns_, time_ns);
    }
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

bool ChangeStream::Find(int64_t time_ns, Place* place) const {
  if (time_ns <= span_.from_ns || time_ns > span_.to_ns || time_ns == tables::kNever)
    return false;
  const auto last = std::lower_bound(last_ns_.begin(), last_ns_.end(), time_ns);
  const auto window = static_cast<size_t>(last - last_ns_.begin());
  // A damaged zone may hide that the window is over.
  place->window = std::max(window, made_);
  place->after_ns = window == 0 ? span_.from_ns : last_ns_[window - 1];
  place->last_ns = std::min(*last, tables::kNever - 1);
  return true;
}

inline void ChangeStream::Push(int64_t time_ns, uint64_t bytes, Change::What what, Place* place) {
  if ((time_ns <= place->after_ns || time_ns > place->last_ns) && !Find(time_ns, place))
    return;
  Block*& block = pending_[place->window];
  if (block == nullptr || block->count == Block::kChanges)
    block = NewBlock(block);
  Change& change = block->changes[block->count++];
  change.time_ns = time_ns;
  change.bytes = bytes;
  change.what = what;
}

ChangeStream::Block* ChangeStream::NewBlock(Block* next) {
  Block* block = spare_;
  if (block == nullptr)
    block = &blocks_.emplace_back();
  else
    spare_ = block->next;
  block->next = next;
  block->count = 0;
  return block;
}

util::Status ChangeStream::ReadFrame(size_t frame) {
  VRAMSCOPE_RETURN_IF_ERROR(
      recording_.Read(frame, tables::kBeginNs | tables::kEndNs | tables::kShape, &frame_));
  const auto sites =
      static_cast<uint32_t>(std::min<uint64_t>(recording_.tables().sites.size(), kSitesLimit));
  const size_t segments = recording_.tables().segments.size();
  kinds_.clear();
  for (const tables::AllocationShape& shape : frame_.shapes) {
    Kind& kind = kinds_.emplace_back();
    kind.bytes = shape.bytes;
    kind.rounding_bytes = std::min(shape.rounding_bytes, shape.bytes);
    kind.what.site = shape.site < sites ? shape.site & (kSitesLimit - 1) : 0;
    // What no memory is mapped below takes nothing of its segment's.
    const bool is_unbacked = recording_.tables().sites[kind.what.site].unbacked != 0;
    kind.what.segment = shape.segment < segments && !is_unbacked ? shape.segment : 0;
  }
  const auto push = [&](const std::vector<int64_t>& times) {
    Place place;
    for (size_t i = 0; i < frame_.rows; ++i) {
      // Not live at any instant.
      if (frame_.begin_ns[i] >= frame_.end_ns[i])
        continue;
      const Kind& kind = kinds_[frame_.shape[i]];
      Push(times[i], kind.bytes, kind.what, &place);
      if (kind.rounding_bytes == 0)
        continue;
      Change::What rounding = kind.what;
      rounding.is_rounding = 1;
      Push(times[i], kind.rounding_bytes, rounding, &place);
    }
  };
  push(frame_.begin_ns);
  for (Kind& kind : kinds_)
    kind.what.ends = 1;
  push(frame_.end_ns);
  return {};
}

// Instants are spread about evenly: they are nearly in order once they are in buckets by time.
void ChangeStream::TakeWindow(size_t window) {
  size_t count = 0;
  for (const Block* block = pending_[window]; block != nullptr; block = block->next)
    count += block->count;
  current_count_ = count;
  if (count == 0)
    return;
  const auto for_each = [&](const auto& visit) {
    for (const Block* block = pending_[window]; block != nullptr; block = block->next) {
      for (uint32_t i = 0; i < block->count; ++i)
        visit(block->changes[i]);
    }
  };
  // Where a zone is damaged there may be others: they go to the first bucket or the last one.
  const int64_t begin_ns = window == 0 ? std::max(first_ns_, span_.from_ns) : last_ns_[window - 1];
  const int64_t end_ns = std::max(begin_ns, std::min(last_ns_[window], final_ns_));
  const uint64_t width_ns = static_cast<uint64_t>(end_ns) - static_cast<uint64_t>(begin_ns);
  const auto wanted_bits = static_cast<int>(std::bit_width(count / kChangesPerBucket));
  const int shift = std::max(0, static_cast<int>(std::bit_width(width_ns)) - wanted_bits);
  const auto bucket_of = [&](const Change& change) {
    const int64_t time_ns = std::clamp(change.time_ns, begin_ns, end_ns);
    return static_cast<size_t>((static_cast<uint64_t>(time_ns) - static_cast<uint64_t>(begin_ns)) >>
                               shift);
  };
  std::vector<uint32_t>& ends = bucket_ends_;
  ends.assign((width_ns >> shift) + 2, 0);
  for_each([&](const Change& change) { ++ends[bucket_of(change) + 1]; });
  for (size_t i = 1; i < ends.size(); ++i)
    ends[i] += ends[i - 1];
  if (current_.size() < count)
    current_.resize(count);
  Change* const sorted = current_.data();
  for_each([&](const Change& change) { sorted[ends[bucket_of(change)]++] = change; });
  uint32_t begin = 0;
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    if (ends[i] - begin > 1)
      std::sort(sorted + begin, sorted + ends[i], Earlier());
    begin = ends[i];
  }
  while (Block* block = pending_[window]) {
    pending_[window] = block->next;
    block->next = spare_;
    spare_ = block;
  }
}

util::Result<std::span<const Change>> ChangeStream::Next() {
  current_count_ = 0;
  while (current_count_ == 0 && made_ < last_ns_.size()) {
    const size_t window = made_;
    while (next_frame_ < frames_.size() &&
           recording_.zone(frames_[next_frame_]).min_begin_ns <= last_ns_[window]) {
      if (const util::Status status = ReadFrame(frames_[next_frame_++]); !status.ok())
        return status;
    }
    TakeWindow(window);
    made_ = window + 1;
  }
  return std::span<const Change>(current_.data(), current_count_);
}

}  // namespace vramscope::query
