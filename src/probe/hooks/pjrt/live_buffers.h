// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vramscope::probe::pjrt {

// Buffers whose memory is recorded as live, their devices and sizes. Any thread may call any of it,
// without a lock. Each buffer is taken out once, by the first thread that ends it. All bits zero is
// the empty table, so an unused one costs no memory.
//
// A buffer is in one of the 7 places of its bucket or, if that was ever full, in one of the next
// buckets. A place that is left empty is used again, so a long run does not fill the table.
template <size_t kBuckets>
class LiveBuffers {
  static_assert((kBuckets & (kBuckets - 1)) == 0);

 public:
  static constexpr uint32_t kDevices = 16;  // in the bits that addresses leave free

  // False if there is no place for it.
  bool Insert(const void* buffer, uint32_t device, uint64_t bytes, bool is_named = false) {
    const auto address = reinterpret_cast<uintptr_t>(buffer);
    if (address == 0 || device >= kDevices || (address & (kDeviceBits | kNamed)) != 0)
      return false;
    for (size_t i = 0; i < kMostBuckets; ++i) {
      Bucket& bucket = buckets_[BucketOf(address, i)];
      for (Place& place : bucket.places) {
        uintptr_t empty = 0;
        if (place.key.load(std::memory_order_relaxed) == 0 &&
            place.key.compare_exchange_strong(empty, address | device | (is_named ? kNamed : 0),
                                              std::memory_order_relaxed)) {
          place.bytes.store(bytes, std::memory_order_relaxed);
          return true;
        }
      }
      bucket.was_full.store(true, std::memory_order_relaxed);
    }
    return false;
  }

  // The device, or -1 if the buffer is not in the table.
  int32_t Take(const void* buffer, uint64_t* bytes) {
    return Change(buffer, [bytes](Place& place, uintptr_t) {
      *bytes = place.bytes.load(std::memory_order_relaxed);
      return uintptr_t{0};
    });
  }

  // The same, and the buffer stays.
  int32_t Find(const void* buffer) {
    return Change(buffer, [](Place&, uintptr_t found) { return found; });
  }

  // The same of a buffer that has a name from now on, and whether it had one.
  int32_t TakeName(const void* buffer, bool* was_named) {
    return Change(buffer, [was_named](Place&, uintptr_t found) {
      *was_named = (found & kNamed) != 0;
      return found | kNamed;
    });
  }

  void Clear() {
    for (Bucket& bucket : buckets_) {
      for (Place& place : bucket.places) {
        if (place.key.load(std::memory_order_relaxed) != 0)
          place.key.store(0, std::memory_order_relaxed);
      }
    }
  }

 private:
  // Addresses of buffers have neither.
  static constexpr uintptr_t kDeviceBits = kDevices - 1;
  static constexpr uintptr_t kNamed = uintptr_t{1} << 63;
  static constexpr size_t kMostBuckets = 8;
  struct Place {
    std::atomic<uintptr_t> key;
    std::atomic<uint64_t> bytes;
  };
  struct alignas(64) Bucket {
    Place places[7];
    std::atomic<bool> was_full;
  };

  // Replaces what is at the buffer's place by what `next` makes of it. The device, or -1.
  template <class Next>
  int32_t Change(const void* buffer, Next next) {
    const auto address = reinterpret_cast<uintptr_t>(buffer);
    if (address == 0)
      return -1;
    for (size_t i = 0; i < kMostBuckets; ++i) {
      Bucket& bucket = buckets_[BucketOf(address, i)];
      for (Place& place : bucket.places) {
        uintptr_t found = place.key.load(std::memory_order_relaxed);
        while ((found & ~(kDeviceBits | kNamed)) == address) {
          if (place.key.compare_exchange_weak(found, next(place, found), std::memory_order_relaxed))
            return static_cast<int32_t>(found & kDeviceBits);
        }
      }
      if (!bucket.was_full.load(std::memory_order_relaxed))
        return -1;
    }
    return -1;
  }

  static size_t BucketOf(uintptr_t address, size_t step) {
    return (static_cast<size_t>((address * 0x9e3779b97f4a7c15u) >> 32) + step) & (kBuckets - 1);
  }

  Bucket buckets_[kBuckets];
};

}  // namespace vramscope::probe::pjrt
