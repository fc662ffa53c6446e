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

// One row of a GPU monitor: memory in use on a device, or by a process on it.
struct Reading {
  std::optional<int64_t> time_ns;  // since 1970
  bool has_fraction = false;       // time_ns is finer than a second
  std::string device;              // distinguishes devices; empty: unknown
  std::optional<int32_t> index;
  std::string uuid, name, process;
  std::optional<uint32_t> pid;
  uint64_t used_bytes = 0;
  uint64_t total_bytes = 0;  // 0: unknown
};

// Makes counters and samples of a log's readings, in the order of its rows. Rows of one query have
// one time. If rows have no device, the log's first rows give the number of GPUs: by names and
// sizes, by the blocks between headers, or by the pauses between queries. Then a row's position in
// its query is its device, as in nvidia-smi's output.
class ReadingLog {
 public:
  ReadingLog(const Options& options, Builder* builder) : options_(options), builder_(*builder) {}

  void Add(Reading reading);
  // A header or a new table was read: the following rows belong to another query.
  void EndBlock();
  void Finish();

 private:
  // A GPU's name and total size identify the device of a row without an index.
  using Identity = std::pair<std::string, uint64_t>;

  static Identity IdentityOf(const Reading& reading) { return {reading.name, reading.total_bytes}; }
  void Decide();
  // The devices of one query, in row order.
  std::vector<Identity> DevicesOfQuery() const;
  // Rows of one query; 1 if unknown.
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
  // The first rows, until the number of devices is decided.
  bool is_decided_ = false;
  std::vector<Reading> first_rows_;
  std::vector<size_t> first_blocks_;  // ends of blocks, in rows
  std::vector<Identity> by_place_;    // of rows without a device
  size_t place_ = 0;                  // position of the next such row in its query

  std::map<std::string, tables::DeviceId> devices_;
  std::map<tables::AccountId, tables::CounterId> counters_;
  std::map<tables::AccountId, uint64_t> query_;  // readings of the current query
  bool of_processes_ = false;
  bool has_clock_ = false;
  std::optional<int64_t> first_wall_ns_;
  int64_t query_ns_ = 0;
  uint64_t queries_ = 0;
  uint64_t backwards_ = 0;
};

}  // namespace vramscope::imports
