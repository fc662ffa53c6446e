// SPDX-License-Identifier: Apache-2.0
#include "resolve/driver/sampled.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace vramscope::resolve {
namespace {

using format::Part;
using price::DeviceInput;
using price::DevicePrices;
using price::DeviceSample;
using price::kNever;
using price::kNone;
using price::ProcessSample;
using price::When;

// Keeps sums of a damaged trace from overflow.
constexpr int64_t kMostBytes = int64_t{1} << 60;

// NVML's list of the processes on the device.
struct List {
  int64_t begin_ns = 0;
  int64_t time_ns = 0;
  int64_t others_bytes = 0;
  std::vector<std::pair<uint32_t, int64_t>> own;  // processes of the command that have memory
  int64_t owns_from_ns = 0;                       // estimated time since when `own` has had it
};

class Sampled {
 public:
  explicit Sampled(const DeviceInput& input) : input_(input) {}

  DevicePrices Price();

 private:
  using Row = std::pair<uint32_t, Part>;

  void ReadLists();
  void FindHandovers();
  int64_t LowestBetween(int64_t from_ns, int64_t to_ns) const;
  void FindBaseline();
  const List& ListAt(int64_t time_ns) const;
  const List& OwnersAt(int64_t time_ns) const;
  void Take(const DeviceSample& sample);
  void Set(Row row, const When& when, int64_t bytes);

  const DeviceInput& input_;
  std::vector<List> lists_;  // the first is empty: before the first list
  int64_t before_bytes_ = 0;
  std::map<Row, uint32_t> counters_;
  std::vector<int64_t> bytes_;  // by counter
  std::vector<bool> is_set_;    // by counter: at the current sample
  DevicePrices out_;
};

void Sampled::ReadLists() {
  lists_.push_back({INT64_MIN, INT64_MIN, 0, {}, INT64_MIN});
  for (const ProcessSample& figure : input_.figures) {
    if (lists_.size() == 1 || lists_.back().begin_ns != figure.when.begin_ns)
      lists_.push_back({figure.when.begin_ns, 0, 0, {}, 0});
    List& list = lists_.back();
    list.time_ns = list.owns_from_ns = figure.when.time_ns;
    if (figure.process == kNone)
      list.others_bytes = std::min(kMostBytes, list.others_bytes + figure.used_bytes);
    else if (figure.used_bytes > 0)
      list.own.emplace_back(figure.process, figure.used_bytes);
  }
}

int64_t Sampled::LowestBetween(int64_t from_ns, int64_t to_ns) const {
  int64_t lowest_bytes = INT64_MAX;
  int64_t lowest_ns = to_ns;
  auto sample = std::partition_point(
      input_.samples.begin(), input_.samples.end(),
      [&](const DeviceSample& before) { return before.when.time_ns <= from_ns; });
  for (; sample != input_.samples.end() && sample->when.time_ns <= to_ns; ++sample) {
    if (sample->used_bytes < lowest_bytes) {
      lowest_bytes = sample->used_bytes;
      lowest_ns = sample->when.time_ns;
    }
  }
  return lowest_ns;
}

// Lists are rare, so a newly listed process had its memory before the list: since the device was
// empty or, if other processes preceded it, since the device had the least memory.
void Sampled::FindHandovers() {
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  for (size_t i = 1; i < lists_.size(); ++i) {
    const List& last = lists_[i - 1];
    List& list = lists_[i];
    if (list.own.empty() ||
        std::equal(last.own.begin(), last.own.end(), list.own.begin(), list.own.end(), same))
      continue;
    list.owns_from_ns = last.own.empty() ? last.time_ns : LowestBetween(last.time_ns, list.time_ns);
  }
  // Where NVML lists none of its processes at all, as in another process namespace.
  const bool never =
      std::all_of(lists_.begin(), lists_.end(), [](const List& list) { return list.own.empty(); });
  for (List& list : lists_) {
    if (never && !input_.processes.empty())
      list.own.emplace_back(0, 0);
  }
}

// Memory in use before the start that no list has is of no known process.
void Sampled::FindBaseline() {
  if (input_.samples.empty())
    return;
  before_bytes_ = input_.samples[0].used_bytes;
  const bool is_first = lists_.size() > 1 && (input_.samples.size() < 2 ||
                                              lists_[1].time_ns < input_.samples[1].when.time_ns);
  if (is_first) {
    List& first = lists_[1];
    first.time_ns = first.owns_from_ns = INT64_MIN;  // covers the first sample too
    before_bytes_ -= first.others_bytes;
    for (const auto& [process, bytes] : first.own)
      before_bytes_ = std::max<int64_t>(0, before_bytes_ - bytes);
  }
  before_bytes_ = std::max<int64_t>(0, before_bytes_);
}

const List& Sampled::ListAt(int64_t time_ns) const {
  return *std::prev(std::partition_point(
      lists_.begin() + 1, lists_.end(), [&](const List& list) { return list.time_ns <= time_ns; }));
}

const List& Sampled::OwnersAt(int64_t time_ns) const {
  const List& list = ListAt(time_ns);
  const List* const next = &list + 1;
  return next != lists_.data() + lists_.size() && next->owns_from_ns <= time_ns ? *next : list;
}

void Sampled::Set(Row row, const When& when, int64_t bytes) {
  const auto [known, is_new] = counters_.try_emplace(row, counters_.size());
  const uint32_t counter = known->second;
  if (is_new) {
    price::Counter added;
    added.process = row.first;
    added.part = row.second;
    out_.counters.push_back(std::move(added));
    bytes_.push_back(0);
    is_set_.push_back(false);
  }
  is_set_[counter] = true;
  if (bytes != bytes_[counter])
    out_.steps.push_back({when, counter, bytes - bytes_[counter]});
  bytes_[counter] = bytes;
}

// The command has the memory beyond the others' and the memory from before. If an unlisted process
// freed memory, those two decrease.
void Sampled::Take(const DeviceSample& sample) {
  std::fill(is_set_.begin(), is_set_.end(), false);
  const int64_t others = ListAt(sample.when.time_ns).others_bytes;
  int64_t left = sample.used_bytes;
  const auto take = [&](Row row, int64_t most) {
    const int64_t bytes = std::min(most, left);
    left -= bytes;
    if (bytes != 0 || counters_.contains(row))
      Set(row, sample.when, bytes);
  };
  take({kNone, Part::kOtherProcesses}, others);
  take({kNone, Part::kBeforeStart}, before_bytes_);
  const List& owners = OwnersAt(sample.when.time_ns);
  for (const auto& [process, bytes] : owners.own)
    take({process, Part::kSampled}, owners.own.size() == 1 ? kMostBytes : bytes);
  take({kNone, Part::kSampled}, kMostBytes);
  for (const auto& [row, counter] : counters_) {
    if (!is_set_[counter])
      Set(row, sample.when, 0);
  }
  out_.has_others |= others > 0;
}

DevicePrices Sampled::Price() {
  ReadLists();
  FindHandovers();
  FindBaseline();
  out_.samples.resize(input_.samples.size());
  out_.figures.resize(input_.figures.size());
  size_t figure = 0;
  const auto compare_until = [&](int64_t time_ns) {
    for (; figure < input_.figures.size() && input_.figures[figure].when.time_ns < time_ns;
         ++figure) {
      const auto row = counters_.find({input_.figures[figure].process, Part::kSampled});
      if (row != counters_.end())
        out_.figures[figure].ledger_bytes = bytes_[row->second];
    }
  };
  for (size_t i = 0; i < input_.samples.size(); ++i) {
    compare_until(input_.samples[i].when.time_ns);
    Take(input_.samples[i]);
    out_.samples[i].ledger_bytes = input_.samples[i].used_bytes;
  }
  compare_until(kNever);
  return std::move(out_);
}

}  // namespace

DevicePrices PriceSampledDevice(const DeviceInput& input) {
  return Sampled(input).Price();
}

}  // namespace vramscope::resolve
