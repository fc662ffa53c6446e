// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "record/sample/nvml.h"
#include "top/model.h"
#include "top/recorded.h"

namespace vramscope::cli {

// Joins NVML's figures, /proc and the recordings into one model a second.
class TopWatch {
 public:
  // `monitor` may be null; `no_nvml` then says why.
  TopWatch(TopTarget target, std::unique_ptr<GpuMonitor> monitor, std::string no_nvml)
      : target_(std::move(target)), monitor_(std::move(monitor)), no_nvml_(std::move(no_nvml)) {}

  TopModel Look(const RecordedProcesses& recorded);

 private:
  struct Identity {
    std::string user;
    std::string command;
  };
  struct Row {
    TopProcess process;
    GrowthHistory history;
    int64_t ended_ns = 0;  // 0: it runs
  };
  using Key = std::pair<uint32_t, std::string>;  // pid, device

  void AddNvml(const RecordedProcesses& recorded, TopModel* model);
  std::string DeviceOf(const RecordedProcess& process) const;
  Row& RowOf(uint32_t pid, const std::string& device, const std::string& command);
  const Identity& IdentityOf(uint32_t pid, const std::string& command);

  TopTarget target_;
  std::unique_ptr<GpuMonitor> monitor_;
  std::string no_nvml_;
  std::map<Key, Row> rows_;
  std::map<uint32_t, Identity> identities_;
};

}  // namespace vramscope::cli
