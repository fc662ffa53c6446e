// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/allocator_driver.h"

#include <algorithm>

namespace vramscope::query {
namespace {

constexpr uint64_t kPageBytes = 2 * kMebibyte;

uint64_t WholePages(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

bool SimulatedDriver::Take(uint64_t bytes) {
  if (bytes > free_bytes())
    return false;
  used_bytes_ += bytes;
  return true;
}

uint64_t SimulatedDriver::Allocate(uint64_t bytes) {
  ++calls_;
  const uint64_t taken = WholePages(bytes);
  if (!Take(taken))
    return 0;
  const uint64_t address = next_address_;
  next_address_ += taken;
  return address;
}

void SimulatedDriver::Free(uint64_t /*address*/, uint64_t bytes) {
  ++calls_;
  used_bytes_ -= WholePages(bytes);
}

uint64_t SimulatedDriver::Reserve(uint64_t bytes) {
  ++calls_;
  const uint64_t address = next_address_;
  next_address_ += WholePages(bytes);
  return address;
}

void SimulatedDriver::Release(uint64_t /*address*/, uint64_t /*bytes*/) {
  ++calls_;
}

bool SimulatedDriver::Map(uint64_t /*address*/, uint64_t bytes) {
  ++calls_;
  return Take(bytes);
}

void SimulatedDriver::Unmap(uint64_t /*address*/, uint64_t bytes) {
  ++calls_;
  used_bytes_ -= bytes;
}

uint64_t SimulatedDriver::RecordEvent(uint64_t stream) {
  return ++streams_[stream].recorded;
}

bool SimulatedDriver::IsReady(uint64_t stream, uint64_t event) {
  return event <= streams_[stream].finished;
}

void SimulatedDriver::Synchronize(uint64_t stream, uint64_t event) {
  uint64_t& finished = streams_[stream].finished;
  finished = std::max(finished, event);
}

}  // namespace vramscope::query
