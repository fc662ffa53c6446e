// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "query/results.h"

// What `vramscope top` shows, of one instant.
namespace vramscope::cli {

struct TopGpu {
  int32_t index = 0;
  std::string uuid;
  std::string name;
  uint64_t total_bytes = 0;
  std::optional<uint64_t> used_bytes;
};

struct TopCategory {
  std::string name;
  uint64_t bytes = 0;
  std::optional<double> growth;  // bytes a minute
};

// A recording's figures of a process on one device.
struct TopDetails {
  std::string recording;  // the live directory
  int64_t read_ns = 0;    // CLOCK_MONOTONIC
  uint64_t bytes = 0;
  std::optional<uint64_t> peak_bytes;  // a live screen reads no history
  uint64_t reserved_bytes = 0;
  std::optional<double> growth;         // bytes a minute
  std::vector<TopCategory> categories;  // largest first
  std::vector<query::TopLine> lines;    // largest first
};

// A process on a device.
struct TopProcess {
  uint32_t pid = 0;
  std::string user;
  std::string command;
  std::string device;  // NVML's number, "host" or "cpu"
  std::optional<uint64_t> nvml_bytes;
  std::shared_ptr<const TopDetails> details;  // null: it is not recorded
  std::optional<double> growth;               // bytes a minute
  bool ended = false;

  uint64_t bytes() const {
    return nvml_bytes ? *nvml_bytes : details != nullptr ? details->bytes : 0;
  }
};

struct TopModel {
  int64_t now_ns = 0;       // CLOCK_MONOTONIC
  double unix_seconds = 0;  // the same instant
  std::string no_nvml;      // why NVML is not there; "": it is
  std::vector<TopGpu> gpus;
  std::vector<TopProcess> processes;
  std::vector<std::string> notes;  // what could not be read, and why
};

enum class TopOrder : uint8_t { kBytes, kGrowth, kPid, kName };
// Ties keep the order by bytes, then by number.
void SortProcesses(TopOrder order, std::vector<TopProcess>* processes);

// The model as JSON (docs/howto/top.md).
std::string TopJson(const TopModel& model);

}  // namespace vramscope::cli
