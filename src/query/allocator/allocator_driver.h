// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include "query/allocator/allocator_settings.h"

namespace vramscope::query {

// What the model asks the CUDA driver for. Address 0: there is not enough memory.
class AllocatorDriver {
 public:
  virtual ~AllocatorDriver() = default;
  virtual uint64_t Allocate(uint64_t bytes) = 0;
  virtual void Free(uint64_t address, uint64_t bytes) = 0;
  // Address space of an expandable segment.
  virtual uint64_t Reserve(uint64_t bytes) = 0;
  virtual void Release(uint64_t address, uint64_t bytes) = 0;
  virtual bool Map(uint64_t address, uint64_t bytes) = 0;
  virtual void Unmap(uint64_t address, uint64_t bytes) = 0;
  // Events of streams, as numbers.
  virtual uint64_t RecordEvent(uint64_t stream) = 0;
  virtual bool IsReady(uint64_t stream, uint64_t event) = 0;
  virtual void Synchronize(uint64_t stream, uint64_t event) = 0;
};

// A device with a number of bytes. Memory takes whole pages of 2 MiB, and addresses only go up.
class SimulatedDriver : public AllocatorDriver {
 public:
  explicit SimulatedDriver(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  void set_capacity_bytes(uint64_t bytes) { capacity_bytes_ = bytes; }
  uint64_t free_bytes() const {
    return capacity_bytes_ > used_bytes_ ? capacity_bytes_ - used_bytes_ : 0;
  }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t calls() const { return calls_; }
  // All that was recorded on a stream until now is over.
  void Finish(uint64_t stream) { streams_[stream].finished = streams_[stream].recorded; }

  uint64_t Allocate(uint64_t bytes) override;
  void Free(uint64_t address, uint64_t bytes) override;
  uint64_t Reserve(uint64_t bytes) override;
  void Release(uint64_t address, uint64_t bytes) override;
  bool Map(uint64_t address, uint64_t bytes) override;
  void Unmap(uint64_t address, uint64_t bytes) override;
  uint64_t RecordEvent(uint64_t stream) override;
  bool IsReady(uint64_t stream, uint64_t event) override;
  void Synchronize(uint64_t stream, uint64_t event) override;

 private:
  struct StreamEvents {
    uint64_t recorded = 0;
    uint64_t finished = 0;
  };
  bool Take(uint64_t bytes);

  uint64_t capacity_bytes_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t calls_ = 0;
  uint64_t next_address_ = uint64_t{0x7000} << 32;
  std::map<uint64_t, StreamEvents> streams_;
};

}  // namespace vramscope::query
