// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "driver.h"

// Device memory in blocks of a few sizes, cut out of slabs and used again. To the driver a slab is
// all there is; annotate.h tells vramscope what each block is, each time it goes out.
class Pool {
 public:
  explicit Pool(const driver::Api& cu) : cu_(cu) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  driver::DevicePointer Take(size_t bytes, const std::string& name);
  void Give(driver::DevicePointer block);

 private:
  const driver::Api& cu_;
  std::vector<driver::DevicePointer> slabs_;
  driver::DevicePointer fresh_ = 0;  // the part of the last slab that was never used
  size_t fresh_bytes_ = 0;
  std::map<size_t, std::vector<driver::DevicePointer>> free_;  // by size
  std::map<driver::DevicePointer, size_t> taken_;
};

// A block of floats that goes back when its owner ends.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Pool& pool, size_t count, const std::string& name)
      : pool_(&pool), address_(pool.Take(count * sizeof(float), name)) {}
  Buffer(Buffer&& other) noexcept : pool_(other.pool_), address_(other.address_) {
    other.address_ = 0;
  }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(address_, other.address_);
    return *this;
  }
  ~Buffer() {
    if (address_ != 0)
      pool_->Give(address_);
  }

  explicit operator bool() const { return address_ != 0; }
  driver::DevicePointer get() const { return address_; }

 private:
  Pool* pool_ = nullptr;
  driver::DevicePointer address_ = 0;
};
