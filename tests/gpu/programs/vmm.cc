// SPDX-License-Identifier: Apache-2.0
// Virtual memory management by hand: arrays that grow in place, physical memory that is mapped
// twice, released before it is unmapped, and moved between ranges.
//
//   gpu_vmm [--seconds S]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "driver.h"

namespace {

using driver::Check;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kReserved = size_t{64} << 30;  // addresses only

struct Piece {
  size_t offset;
  size_t bytes;
  driver::PhysicalHandle handle;
  bool released;
};

class Growing {
 public:
  Growing(const driver::Api& api, driver::Device device) : api_(api) {
    properties_.type = 1;
    properties_.location = {1, device};
    Check(api_.GetGranularity(&granularity_, &properties_, 0), "cuMemGetAllocationGranularity");
    Check(api_.AddressReserve(&base_, kReserved, 0, 0, 0), "cuMemAddressReserve");
  }

  void Grow(size_t bytes, bool release_now) {
    bytes = (bytes + granularity_ - 1) / granularity_ * granularity_;
    driver::PhysicalHandle handle = 0;
    Check(api_.MemCreate(&handle, bytes, &properties_, 0), "cuMemCreate");
    Check(api_.MemMap(base_ + end_, bytes, 0, handle, 0), "cuMemMap");
    const driver::AccessDescriptor access{properties_.location, 3};
    Check(api_.MemSetAccess(base_ + end_, bytes, &access, 1), "cuMemSetAccess");
    if (release_now)
      Check(api_.MemRelease(handle), "cuMemRelease");
    pieces_.push_back({end_, bytes, handle, release_now});
    end_ += bytes;
  }

  void Shrink() {
    const Piece piece = pieces_.back();
    pieces_.pop_back();
    Check(api_.MemUnmap(base_ + piece.offset, piece.bytes), "cuMemUnmap");
    if (!piece.released)
      Check(api_.MemRelease(piece.handle), "cuMemRelease");
    end_ = piece.offset;
  }

  void Clear() {
    while (!pieces_.empty())
      Shrink();
  }

 private:
  const driver::Api& api_;
  driver::AllocationProperties properties_{};
  size_t granularity_ = 0;
  driver::DevicePointer base_ = 0;
  size_t end_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace

int main(int argc, char** argv) {
  double seconds = 18;
  if (argc == 3 && std::strcmp(argv[1], "--seconds") == 0)
    seconds = std::atof(argv[2]);
  const driver::Api& api = driver::Load();
  driver::Device device = 0;
  driver::Context context = nullptr;
  Check(api.Init(0), "cuInit");
  Check(api.DeviceGet(&device, 0), "cuDeviceGet");
  Check(api.PrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  Check(api.CtxSetCurrent(context), "cuCtxSetCurrent");

  std::deque<Growing> arrays;
  arrays.emplace_back(api, device);
  arrays.emplace_back(api, device);
  const auto end =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  unsigned turn = 0;
  for (; std::chrono::steady_clock::now() < end; ++turn) {
    Growing& array = arrays[turn % 2];
    array.Grow((1 + turn % 37) * kMiB, turn % 3 == 0);
    if (turn % 5 == 4)
      array.Shrink();
    if (turn % 64 == 63)
      array.Clear();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (Growing& array : arrays)
    array.Clear();
  std::printf("turns %u\n", turn);
  return 0;
}
