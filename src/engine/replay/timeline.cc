// SPDX-License-Identifier: Apache-2.0
#include "engine/replay/timeline.h"

#include <algorithm>

namespace vramscope::engine {

void TimelineRecorder::Start(int64_t time_ns) {
  started_ = true;
  start_ns_ = time_ns;
  bucket_end_ns_ = time_ns + width_ns_;
  stride_ = 8;
  heights_.assign(kBuckets, {});
  data_.assign(kBuckets * stride_, 0);
  pending_ = true;
}

void TimelineRecorder::Widen(size_t groups) {
  size_t stride = stride_;
  while (stride < groups)
    stride *= 2;
  std::vector<int64_t> data(kBuckets * stride, 0);
  for (size_t bucket = 0; bucket <= current_; ++bucket) {
    std::copy_n(data_.begin() + static_cast<ptrdiff_t>(bucket * stride_), stride_,
                data.begin() + static_cast<ptrdiff_t>(bucket * stride));
  }
  data_.swap(data);
  stride_ = stride;
}

void TimelineRecorder::Keep(const std::vector<int64_t>& groups) {
  if (groups.size() > stride_)
    Widen(groups.size());
  std::copy(groups.begin(), groups.end(),
            data_.begin() + static_cast<ptrdiff_t>(current_ * stride_));
  std::fill_n(data_.begin() + static_cast<ptrdiff_t>(current_ * stride_ + groups.size()),
              stride_ - groups.size(), 0);
  pending_ = false;
}

// Pairs become one bucket, which takes the higher one's picture.
void TimelineRecorder::Halve() {
  const size_t used = current_ + 1;
  for (size_t to = 0; to * 2 < used; ++to) {
    size_t from = to * 2;
    if (from + 1 < used && heights_[from + 1] > heights_[from])
      ++from;
    heights_[to] = heights_[from];
    std::copy_n(data_.begin() + static_cast<ptrdiff_t>(from * stride_), stride_,
                data_.begin() + static_cast<ptrdiff_t>(to * stride_));
  }
  current_ = (used - 1) / 2;
  width_ns_ *= 2;
}

void TimelineRecorder::Advance(int64_t time_ns, const std::vector<int64_t>& groups, Height now) {
  if (pending_)
    Keep(groups);
  int64_t target = (time_ns - start_ns_) / width_ns_;
  while (target >= static_cast<int64_t>(kBuckets)) {
    Halve();
    target = (time_ns - start_ns_) / width_ns_;
  }
  // Nothing happened in the buckets between: they show the state as it stands.
  while (current_ < static_cast<size_t>(target)) {
    ++current_;
    heights_[current_] = now;
    Keep(groups);
  }
  // The state at the start of this bucket is copied; a higher one sets `pending_` again.
  bucket_end_ns_ = start_ns_ + static_cast<int64_t>(current_ + 1) * width_ns_;
}

void TimelineRecorder::Finish(int64_t time_ns, const std::vector<int64_t>& groups, Height now) {
  if (!started_)
    return;
  if (time_ns >= bucket_end_ns_)
    Advance(time_ns, groups, now);
  if (pending_)
    Keep(groups);
}

void TimelineRecorder::Correct(size_t group,
                               int64_t bytes,
                               int64_t from_ns,
                               int64_t to_ns,
                               Reach reach) {
  if (!started_ || bytes == 0)
    return;
  if (group >= stride_)
    Widen(group + 1);
  for (size_t bucket = 0; bucket <= current_; ++bucket) {
    const int64_t begin = start_ns_ + static_cast<int64_t>(bucket) * width_ns_;
    const int64_t end = begin + width_ns_;
    const bool reached = reach == Reach::kTouched ? end > from_ns && begin < to_ns
                                                  : begin >= from_ns && end <= to_ns;
    if (!reached)
      continue;
    data_[bucket * stride_ + group] += bytes;
    heights_[bucket].total += bytes;
    heights_[bucket].used += bytes;
  }
}

std::vector<TimelineRecorder::Bucket> TimelineRecorder::Read(size_t buckets) const {
  std::vector<Bucket> out;
  if (!started_ || buckets == 0)
    return out;
  const size_t used = current_ + 1;
  const size_t step = (used + buckets - 1) / buckets;
  for (size_t first = 0; first < used; first += step) {
    size_t best = first;
    for (size_t i = first + 1; i < std::min(first + step, used); ++i) {
      if (heights_[i] > heights_[best])
        best = i;
    }
    Bucket bucket;
    bucket.begin_ns = start_ns_ + static_cast<int64_t>(first) * width_ns_;
    bucket.groups.assign(data_.begin() + static_cast<ptrdiff_t>(best * stride_),
                         data_.begin() + static_cast<ptrdiff_t>((best + 1) * stride_));
    out.push_back(std::move(bucket));
  }
  return out;
}

}  // namespace vramscope::engine
