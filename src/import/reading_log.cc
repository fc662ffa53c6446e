// SPDX-License-Identifier: Apache-2.0
#include "import/reading_log.h"

#include <fmt/core.h>

#include <algorithm>

#include "format/memory_words.h"
#include "util/size_text.h"

namespace vramscope::imports {
namespace {

using format::Part;

// Time stamps within one query differ slightly.
constexpr int64_t kQueryNs = 100'000'000;
constexpr int64_t kNoClockStepNs = 1'000'000'000;
// Rows used to decide how many devices a log has.
constexpr size_t kFirstRows = 512;
constexpr size_t kMostLogDevices = 64;
// With stamps in whole seconds, equal stamps alone do not prove one query; this many queries do.
constexpr size_t kFewestCoarseQueries = 3;
// Two headers may be two concatenated logs.
constexpr size_t kFewestBlocks = 3;

}  // namespace

void ReadingLog::Add(Reading reading) {
  if (is_decided_) {
    PlaceInQuery(&reading);
    return;
  }
  first_rows_.push_back(std::move(reading));
  if (first_rows_.size() == kFirstRows)
    Decide();
}

void ReadingLog::EndBlock() {
  if (!is_decided_) {
    if (!first_rows_.empty())
      first_blocks_.push_back(first_rows_.size());
    return;
  }
  EndQuery();
}

size_t ReadingLog::PeriodOfNames() const {
  const size_t rows = first_rows_.size();
  for (size_t period = 1; period <= std::min(kMostLogDevices, rows / 2); ++period) {
    size_t i = period;
    while (i < rows && IdentityOf(first_rows_[i]) == IdentityOf(first_rows_[i - period]))
      ++i;
    if (i == rows)
      return period;
  }
  return 1;
}

size_t ReadingLog::RowsPerBlock() const {
  if (first_blocks_.size() + 1 < kFewestBlocks)
    return 1;
  const size_t size = first_blocks_[0];
  for (size_t i = 1; i < first_blocks_.size(); ++i) {
    if (first_blocks_[i] - first_blocks_[i - 1] != size)
      return 1;
  }
  return size <= kMostLogDevices && first_rows_.size() - first_blocks_.back() <= size ? size : 1;
}

// Queries of several GPUs have short gaps within each query and a long one between queries.
size_t ReadingLog::RowsBetweenPauses() const {
  const size_t rows = first_rows_.size();
  std::vector<int64_t> gaps_ns(rows, 0);  // before each row
  for (size_t i = 1; i < rows; ++i) {
    if (!first_rows_[i].time_ns || !first_rows_[i - 1].time_ns)
      return 1;
    gaps_ns[i] = *first_rows_[i].time_ns - *first_rows_[i - 1].time_ns;
  }
  const bool is_fine = std::any_of(first_rows_.begin(), first_rows_.end(),
                                   [](const Reading& reading) { return reading.has_fraction; });
  for (size_t size = 2; size <= std::min(kMostLogDevices, rows / 2); ++size) {
    size_t queries = 0, odd = 0;
    for (size_t begin = size; begin < rows; begin += size) {
      int64_t within_ns = 0;
      for (size_t i = begin - size + 1; i < std::min(begin + size, rows); ++i) {
        if (i != begin)
          within_ns = std::max(within_ns, gaps_ns[i]);
      }
      ++queries;
      if (within_ns >= kQueryNs || gaps_ns[begin] < 2 * within_ns || gaps_ns[begin] <= 0)
        ++odd;
    }
    if (is_fine ? odd * 10 <= queries : odd == 0 && queries + 1 >= kFewestCoarseQueries)
      return size;
  }
  return 1;
}

std::vector<ReadingLog::Identity> ReadingLog::DevicesOfQuery() const {
  size_t rows = PeriodOfNames();
  if (rows == 1)
    rows = RowsPerBlock();
  if (rows == 1)
    rows = RowsBetweenPauses();
  std::vector<Identity> devices;
  for (const Reading& reading : first_rows_) {
    const bool is_new =
        std::find(devices.begin(), devices.end(), IdentityOf(reading)) == devices.end();
    // Without a regular order, each name is a device.
    if (rows > 1 ? devices.size() < rows : is_new)
      devices.push_back(IdentityOf(reading));
  }
  return devices;
}

void ReadingLog::Decide() {
  is_decided_ = true;
  const bool is_told = std::all_of(first_rows_.begin(), first_rows_.end(), [](const Reading& row) {
    return row.pid || !row.device.empty();
  });
  if (!is_told)
    by_place_ = DevicesOfQuery();
  size_t next_block = 0;
  for (size_t i = 0; i < first_rows_.size(); ++i) {
    for (; next_block < first_blocks_.size() && first_blocks_[next_block] == i; ++next_block)
      EndQuery();
    PlaceInQuery(&first_rows_[i]);
  }
  if (next_block < first_blocks_.size())
    EndQuery();
  first_rows_ = {};
}

// The device of a row without one is the next position with the same name and size.
void ReadingLog::PlaceInQuery(Reading* reading) {
  if (reading->device.empty() && !reading->pid && !by_place_.empty()) {
    if (reading->time_ns && !query_.empty() && TimeOf(*reading) - query_ns_ > kQueryNs)
      EndQuery();
    const auto matches = [&](const auto& identity) { return identity == IdentityOf(*reading); };
    auto found =
        std::find_if(by_place_.begin() + static_cast<ptrdiff_t>(place_), by_place_.end(), matches);
    if (found == by_place_.end()) {
      EndQuery();
      found = std::find_if(by_place_.begin(), by_place_.end(), matches);
    }
    // A row unlike the first ones is another device.
    if (found == by_place_.end())
      found = by_place_.insert(found, IdentityOf(*reading));
    place_ = static_cast<size_t>(found - by_place_.begin()) + 1;
    reading->device = fmt::format("@{}", place_);
  }
  AddToQuery(*reading);
}

tables::DeviceId ReadingLog::DeviceOf(const Reading& reading) {
  const auto known = devices_.find(reading.device);
  if (known != devices_.end())
    return known->second;
  const auto number = static_cast<int32_t>(devices_.size());
  const tables::DeviceId id = builder_.Gpu(reading.index.value_or(number));
  tables::DeviceRow& row = builder_.device(id);
  row.uuid = builder_.Text(reading.uuid);
  row.name = builder_.Text(reading.name);
  row.total_bytes = reading.total_bytes;
  devices_.emplace(reading.device, id);
  return id;
}

// Nanoseconds from the log's first stamp.
int64_t ReadingLog::TimeOf(const Reading& reading) {
  if (!reading.time_ns)
    return 0;
  has_clock_ = true;
  if (!first_wall_ns_) {
    first_wall_ns_ = *reading.time_ns;
    builder_.SetWallTime(*first_wall_ns_);
  }
  return *reading.time_ns - *first_wall_ns_;
}

void ReadingLog::AddToQuery(const Reading& reading) {
  const tables::DeviceId device = DeviceOf(reading);
  tables::ProcessId process;
  if (reading.pid) {
    of_processes_ = true;
    process = builder_.Process(*reading.pid);
    if (builder_.process(process).command.value == 0)
      builder_.process(process).command = builder_.Text(reading.process);
  }
  const tables::AccountId account = builder_.Account(process, device);
  const int64_t time_ns = TimeOf(reading);
  if (query_.contains(account) || (!query_.empty() && time_ns - query_ns_ > kQueryNs))
    EndQuery();
  if (query_.empty()) {
    backwards_ += has_clock_ && time_ns < query_ns_ ? 1 : 0;
    const int64_t step_ns = options_.period_ns.value_or(kNoClockStepNs);
    query_ns_ =
        has_clock_ ? std::max(time_ns, query_ns_) : static_cast<int64_t>(queries_) * step_ns;
  }
  query_.emplace(account, reading.used_bytes);
}

void ReadingLog::EndQuery() {
  place_ = 0;
  if (query_.empty())
    return;
  const int64_t time_ns = builder_.Tick(query_ns_);
  for (const auto& [account, bytes] : query_) {
    if (!counters_.contains(account))
      counters_[account] =
          builder_.Counter(builder_.Site(Builder::SiteOf(account, Part::kSampled)));
  }
  for (const auto& [account, counter] : counters_) {
    const auto said = query_.find(account);
    // An unlisted process has no memory; a device without a reading keeps its value.
    if (said == query_.end() && !of_processes_)
      continue;
    const uint64_t bytes = said == query_.end() ? 0 : said->second;
    builder_.Set(counter, time_ns, bytes);
    if (said == query_.end())
      continue;
    if (of_processes_)
      builder_.ProcessSample(account, time_ns, bytes, static_cast<int64_t>(bytes));
    else
      builder_.Sample(builder_.account(account).device, time_ns, bytes,
                      static_cast<int64_t>(bytes));
    builder_.Event();
  }
  ++queries_;
  query_.clear();
}

void ReadingLog::Finish() {
  if (!is_decided_)
    Decide();
  EndQuery();
  builder_.Note(format::kModeNote, format::kSampledMode);
  builder_.Note("readings", util::FormatCount(queries_));
  if (has_clock_) {
    builder_.Note("clock", "the log's own");
  } else if (options_.period_ns) {
    builder_.Note("clock", fmt::format("none in the log: one reading every {} (--period)",
                                       util::FormatDuration(*options_.period_ns)));
  } else {
    builder_.CountSeconds("readings",
                          "none in the log: one reading each second (--period changes it)");
  }
  if (by_place_.size() > 1)
    builder_.Note("devices", fmt::format("{} GPUs by the order of the rows: the log has no index",
                                         by_place_.size()));
  else if (by_place_.size() == 1 && queries_ > 1)
    builder_.Note("devices", "all rows count as one GPU: the log has no index");
  builder_.Lacks("allocations, and memory that was allocated and freed between two readings");
  builder_.Lacks(of_processes_ ? "memory of processes that the log does not list"
                               : "the processes");
  builder_.Lose("readings with an earlier time than the previous one", backwards_);
}

}  // namespace vramscope::imports
