// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vramscope::engine {

// A device's history in bounded memory: a fixed number of buckets of equal width that pair up and
// double their width when the time runs out of them. Each keeps its highest instant: the total, and
// every group's bytes there.
//
// Copying the groups at every new height would cost a copy per allocation while memory grows, so
// the copy waits until the height is about to be left.
class TimelineRecorder {
 public:
  static constexpr size_t kBuckets = 4096;

  // Higher is a larger total; among equal totals, more bytes in use.
  struct Height {
    int64_t total = 0;
    int64_t used = 0;
    friend auto operator<=>(const Height&, const Height&) = default;
  };
  struct Bucket {
    int64_t begin_ns = 0;
    std::vector<int64_t> groups;  // may be shorter than the list of groups: the rest is 0
  };

  void Start(int64_t time_ns);
  bool started() const { return started_; }

  // Before the state changes at `time_ns`; `lower`: the change may leave the present height.
  void Before(int64_t time_ns, bool lower, const std::vector<int64_t>& groups, Height now) {
    if (time_ns >= bucket_end_ns_)
      Advance(time_ns, groups, now);
    if (lower && pending_)
      Keep(groups);
  }
  void After(Height now) {
    if (now > heights_[current_]) {
      heights_[current_] = now;
      pending_ = true;
    }
  }
  // After the last event.
  void Finish(int64_t time_ns, const std::vector<int64_t>& groups, Height now);

  // Adds `bytes` to a group in all buckets that [from_ns, to_ns) touches, or in those that lie
  // within it: a figure learnt later.
  enum class Reach : uint8_t { kTouched, kWithin };
  void Correct(size_t group, int64_t bytes, int64_t from_ns, int64_t to_ns, Reach reach);

  // The history in at most `buckets` buckets.
  std::vector<Bucket> Read(size_t buckets) const;

 private:
  void Advance(int64_t time_ns, const std::vector<int64_t>& groups, Height now);
  void Keep(const std::vector<int64_t>& groups);
  void Halve();
  void Widen(size_t groups);

  bool started_ = false;
  bool pending_ = false;  // the current bucket's groups are still to be copied
  int64_t start_ns_ = 0;
  int64_t width_ns_ = 1 << 10;
  int64_t bucket_end_ns_ = INT64_MAX;
  size_t current_ = 0;
  size_t stride_ = 0;
  std::vector<Height> heights_;
  std::vector<int64_t> data_;  // [bucket][group], `stride_` groups a bucket
};

}  // namespace vramscope::engine
