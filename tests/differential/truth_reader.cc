// SPDX-License-Identifier: Apache-2.0
#include "differential/truth_reader.h"

#include <fstream>
#include <sstream>

namespace differential {

bool ReadTruth(const char* path, TruthLog* log) {
  std::ifstream file(path);
  if (!file)
    return false;
  uint64_t operation = 0;
  std::string operation_name;
  for (std::string line; std::getline(file, line);) {
    if (line.empty())
      continue;
    std::istringstream words(line.substr(1));
    Instant* const last = log->instants.empty() ? nullptr : &log->instants.back();
    switch (line[0]) {
      case kOperationLine:
        words >> operation >> std::ws;
        std::getline(words, operation_name);
        break;
      case kCallLine:
        log->has_threads = true;
        continue;
      case kInstantLine: {
        Instant instant;
        instant.operation = operation;
        instant.operation_name = operation_name;
        words >> instant.number >> instant.time_ns >> instant.call >> instant.result;
        log->instants.push_back(std::move(instant));
        if (log->instants.back().number != log->instants.size())
          return false;
        break;
      }
      case kDeviceLine: {
        DeviceLine device;
        words >> device.device >> device.used >> device.process_bytes >> device.device_bytes >>
            device.linear_asked >> device.linear_charged >> device.linear_count >>
            device.array_charged >> device.array_count >> device.physical_bytes >>
            device.physical_count >> device.imported_count >> device.pool_reserved >>
            device.graph_reserved >> device.graph_used >> device.driver_bytes >> device.contexts >>
            device.uvm >> device.block_bytes >> device.unbacked_bytes;
        if (last == nullptr)
          return false;
        last->devices.push_back(device);
        break;
      }
      case kPoolLine: {
        PoolLine pool;
        words >> pool.device >> pool.handle >> pool.reserved >> pool.used >> pool.allocations;
        if (last == nullptr)
          return false;
        last->pools.push_back(pool);
        break;
      }
      case kHostLine: {
        if (last == nullptr)
          return false;
        HostLine& host = last->host;
        words >> host.pinned_bytes >> host.pinned_count >> host.registered_bytes >>
            host.registered_count >> host.managed_bytes >> host.managed_count >> host.capturing;
        break;
      }
      default:
        return false;
    }
    if (words.fail())
      return false;
  }
  return true;
}

}  // namespace differential
