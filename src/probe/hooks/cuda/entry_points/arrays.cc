// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"

// Arrays have a hidden layout: their size is estimated from their shape. The readings before and
// after have what the device really lost; a reader of the trace can see the calls of other threads
// in between.
namespace vramscope::probe::cuda {
namespace {

// Bytes of one element with `channels` channels. Block-compressed and planar formats, whose element
// is not a whole number of bytes, count as one byte a channel.
uint64_t ElementBytes(int format, unsigned int channels) {
  switch (format) {
    case 0x02:  // CU_AD_FORMAT_UNSIGNED_INT16
    case 0x09:  // CU_AD_FORMAT_SIGNED_INT16
    case 0x10:  // CU_AD_FORMAT_HALF
      return 2ull * channels;
    case 0x03:  // CU_AD_FORMAT_UNSIGNED_INT32
    case 0x0a:  // CU_AD_FORMAT_SIGNED_INT32
    case 0x20:  // CU_AD_FORMAT_FLOAT
      return 4ull * channels;
    default:
      return channels;
  }
}

uint64_t AtLeastOne(uint64_t extent) {
  return extent != 0 ? extent : 1;
}

template <class Descriptor>
uint64_t EstimateBytes(const Descriptor& shape) {
  uint64_t elements = AtLeastOne(shape.Width) * AtLeastOne(shape.Height);
  if constexpr (requires { shape.Depth; }) {
    constexpr unsigned int kSparse = 0x40;    // CUDA_ARRAY3D_SPARSE: memory is mapped into it
    constexpr unsigned int kDeferred = 0x80;  // CUDA_ARRAY3D_DEFERRED_MAPPING: the same
    if ((shape.Flags & (kSparse | kDeferred)) != 0)
      return 0;
    constexpr unsigned int kCubemap = 0x04;  // CUDA_ARRAY3D_CUBEMAP: Depth counts the faces
    elements *= (shape.Flags & kCubemap) != 0 && shape.Depth == 0 ? 6 : AtLeastOne(shape.Depth);
  }
  return elements * ElementBytes(shape.Format, shape.NumChannels);
}

uint64_t EstimateBytes(CUDA_ARRAY3D_DESCRIPTOR shape, unsigned int levels) {
  constexpr unsigned int kMaxLevels = 32;
  constexpr unsigned int kLayered = 0x01;  // CUDA_ARRAY3D_LAYERED: layers do not shrink
  uint64_t bytes = 0;
  for (unsigned int level = 0; level < levels && level < kMaxLevels; ++level) {
    bytes += EstimateBytes(shape);
    shape.Width /= 2;
    shape.Height /= 2;
    if ((shape.Flags & kLayered) == 0)
      shape.Depth /= 2;
  }
  return bytes;
}

template <HookId kId, class Handle, class Descriptor, class... Levels>
CUresult CreateArray(Handle* handle, const Descriptor* shape, Levels... levels) {
  HookCall<kId> call;
  if (!call.watching())
    return call(handle, shape, levels...);
  const uint64_t estimate = shape != nullptr ? EstimateBytes(*shape, levels...) : 0;
  const Place place = CurrentPlace();
  TakeReading(place);
  const CUresult result = call(handle, shape, levels...);
  if (result != kSuccess) {
    RecordFailure(kId, call.times(), place, result, estimate);
    return result;
  }
  RecordAlloc(kId, call.times(), place,
              {.kind = format::MemoryKind::kArray, .address = Bits(*handle), .size = estimate});
  RequestReading(place.device);
  CatchUpReading(place);
  return result;
}

template <HookId kId, class Handle>
CUresult DestroyArray(Handle handle) {
  HookCall<kId> call;
  const CUresult result = call(handle);
  if (call.watching() && result == kSuccess)
    RecordFree(kId, call.times(), format::MemoryKind::kArray, Bits(handle));
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_ARRAYS 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_ARRAYS
