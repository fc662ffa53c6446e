// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "import/import.h"

namespace vramscope::imports {

// What a monitor of GPUs said in one row: how much of a device is in use, or of it by a process.
struct Reading {
  std::optional<int64_t> time_ns;  // since 1970
  bool has_fraction = false;       // of time_ns
  std::string device;              // tells it from other devices; empty: unknown
  std::optional<int32_t> index;
  std::string uuid, name, process;
  std::optional<uint32_t> pid;
  uint64_t used_bytes = 0;
  uint64_t total_bytes = 0;  // 0: unknown
};

// The readings of a log, in the order of its rows, become counters and samples. Rows of one query
// belong to one instant. Where rows do not say their device, the log's first rows decide how many
// GPUs there are: by names and sizes, by the blocks between headers, or by the pauses between
// queries. Then a row's place in its query is its device, as in nvidia-smi's output.
class ReadingLog {
 public:
  ReadingLog(const Options& options, Builder* builder) : options_(options), builder_(*builder) {}

  void Add(Reading reading);
  // The rows that follow are another query's: a header or a new table stands between.
  void EndBlock();
  void Finish();

 private:
  // A GPU's name and total size: all that a row without an index says of its device.
  using Identity = std::pair<std::string, uint64_t>;

  static Identity IdentityOf(const Reading& reading) { return {reading.name, reading.total_bytes}; }
  void Decide();
  // The devices of one query, in the order of its rows.
  std::vector<Identity> DevicesOfQuery() const;
  // How many rows make one query; 1 where the rows do not tell.
  size_t PeriodOfNames() const;
  size_t RowsPerBlock() const;
  size_t RowsBetweenPauses() const;
  void PlaceInQuery(Reading* reading);
  void AddToQuery(const Reading& reading);
  void EndQuery();
  tables::DeviceId DeviceOf(const Reading& reading);
  int64_t TimeOf(const Reading& reading);

  const Options& options_;
  Builder& builder_;
  // The first rows, until it is decided how many devices there are.
  bool is_decided_ = false;
  std::vector<Reading> first_rows_;
  std::vector<size_t> first_blocks_;  // where blocks end, in rows
  std::vector<Identity> by_place_;    // of rows that do not say their device
  size_t place_ = 0;                  // of the next such row in its query

  std::map<std::string, tables::DeviceId> devices_;
  std::map<tables::AccountId, tables::CounterId> counters_;
  std::map<tables::AccountId, uint64_t> query_;  // what it said so far
  bool of_processes_ = false;
  bool has_clock_ = false;
  std::optional<int64_t> first_wall_ns_;
  int64_t query_ns_ = 0;
  uint64_t queries_ = 0;
  uint64_t backwards_ = 0;
};

}  // namespace vramscope::imports
