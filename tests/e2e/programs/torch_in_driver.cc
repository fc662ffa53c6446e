// SPDX-License-Identifier: Apache-2.0
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

// Puts PyTorch's CPU tensors into the memory of a driver, for machines without a GPU. It is a
// caching allocator that cuts segments like PyTorch's, reports blocks and failures like that one,
// and makes the addresses of a fake driver readable.
extern "C" {
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cuMemAlloc_v2(uint64_t* address, size_t size);
int cuMemFree_v2(uint64_t address);
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes);
}

namespace {

constexpr size_t kLeastBlock = 512;
constexpr size_t kSmall = size_t{1} << 20;
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kLeastOwnSegment = size_t{10} << 20;

size_t RoundUp(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

struct Segment {
  size_t size;
  int pool;  // of a captured graph; 0: everybody's
};

struct Block {
  size_t size;
  bool used;
  bool first;  // of its segment
};

class InDriver : public c10::Allocator {
 public:
  InDriver() {
    void* context = nullptr;
    const bool ready = cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 &&
                       cuCtxSetCurrent(context) == 0;
    TORCH_CHECK(ready, "the driver does not start");
  }

  c10::DataPtr allocate(size_t wanted) override {
    const size_t size = RoundUp(wanted == 0 ? 1 : wanted, kLeastBlock);
    const std::lock_guard<std::mutex> lock(mutex_);
    auto block = Find(size);
    if (block == blocks_.end() && !(Grow(size) || (GiveBackCached() && Grow(size)))) {
      c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), used_, held_, Device());
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", size);
    }
    if (block == blocks_.end())
      block = Find(size);
    const size_t rest = block->second.size - size;
    if (block->second.size <= kSmallSegment ? rest >= kLeastBlock : rest > kSmall) {
      blocks_[block->first + size] = {rest, false, false};
      block->second.size = size;
    }
    block->second.used = true;
    used_ += block->second.size;
    void* const memory = reinterpret_cast<void*>(block->first);
    Say(memory, static_cast<int64_t>(block->second.size));
    return {memory, memory, &Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  // Until 0 is set again, what is asked for comes from a private pool.
  void SetPool(int pool) { pool_ = pool; }
  int PoolOf(uintptr_t segment) const {
    const auto found = segments_.find(segment);
    return found == segments_.end() ? -1 : found->second.pool;
  }
  uintptr_t SegmentAfter(uintptr_t address) const {
    const auto found = segments_.upper_bound(address);
    return found == segments_.end() ? 0 : found->first;
  }

  static InDriver& The() {
    static auto* const allocator = new InDriver;
    return *allocator;
  }

 private:
  using Blocks = std::map<uintptr_t, Block>;

  static c10::Device Device() { return {c10::kCUDA, 0}; }
  void Say(void* memory, int64_t size) const {
    c10::reportMemoryUsageToProfiler(memory, size, used_, held_, Device());
  }

  Blocks::iterator Find(size_t size) {
    auto best = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
      if (!block->second.used && block->second.size >= size && Serves(SegmentOf(block), size) &&
          (best == blocks_.end() || block->second.size < best->second.size))
        best = block;
    }
    return best;
  }
  const Segment& SegmentOf(Blocks::iterator block) const {
    return std::prev(segments_.upper_bound(block->first))->second;
  }
  bool Serves(const Segment& segment, size_t size) const {
    return segment.pool == pool_ && (size <= kSmall) == (segment.size == kSmallSegment);
  }

  bool Grow(size_t size) {
    const size_t bytes = size <= kSmall            ? kSmallSegment
                         : size < kLeastOwnSegment ? kLargeSegment
                                                   : RoundUp(size, kSmallSegment);
    uint64_t address = 0;
    if (cuMemAlloc_v2(&address, bytes) != 0)
      return false;
    void* const at = reinterpret_cast<void*>(address);
    TORCH_CHECK(
        mmap(at, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == at,
        "the address is taken");
    segments_[address] = {bytes, pool_};
    blocks_[address] = {bytes, false, true};
    held_ += bytes;
    return true;
  }

  bool GiveBackCached() {
    std::vector<uintptr_t> whole;
    for (const auto& [address, segment] : segments_) {
      const Block& block = blocks_.at(address);
      if (segment.pool == 0 && !block.used && block.size == segment.size)
        whole.push_back(address);
    }
    for (const uintptr_t address : whole) {
      munmap(reinterpret_cast<void*>(address), segments_[address].size);
      cuMemFree_v2(address);
      held_ -= segments_[address].size;
      segments_.erase(address);
      blocks_.erase(address);
    }
    return !whole.empty();
  }

  static void Free(void* memory) { The().Release(memory); }
  void Release(void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto block = blocks_.find(reinterpret_cast<uintptr_t>(memory));
    block->second.used = false;
    used_ -= block->second.size;
    Say(memory, -static_cast<int64_t>(block->second.size));
    const auto next = std::next(block);
    if (next != blocks_.end() && !next->second.used && !next->second.first) {
      block->second.size += next->second.size;
      blocks_.erase(next);
    }
    if (!block->second.first) {
      const auto before = std::prev(block);
      if (!before->second.used) {
        before->second.size += block->second.size;
        blocks_.erase(block);
      }
    }
  }

  std::mutex mutex_;
  std::map<uintptr_t, Segment> segments_;
  Blocks blocks_;
  int pool_ = 0;
  size_t used_ = 0;
  size_t held_ = 0;
};

}  // namespace

// From here on CPU tensors are in the driver's memory. Its free memory is reported.
extern "C" size_t most_bytes() {
  c10::SetCPUAllocator(&InDriver::The(), 1);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  return cuMemGetInfo_v2(&free_bytes, &total_bytes) == 0 ? free_bytes : 0;
}

extern "C" void set_pool(int pool) {
  InDriver::The().SetPool(pool);
}
extern "C" int pool_of(uintptr_t segment) {
  return InDriver::The().PoolOf(segment);
}
// 0 behind the last.
extern "C" uintptr_t segment_after(uintptr_t address) {
  return InDriver::The().SegmentAfter(address);
}
