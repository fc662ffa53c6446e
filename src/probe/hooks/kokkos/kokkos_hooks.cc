// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/compiler.h"
#include "format/enums.h"
#include "format/records.h"
#include "probe/session/scopes.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"

// A Kokkos Tools library: KOKKOS_TOOLS_LIBS names the probe, unless it names another tool. Kokkos
// looks these functions up in it, and calls them after the driver gave a View's memory. A View has
// an allocation of its own, whose address it reports. Versions of the interface differ in functions
// that are not here.
namespace vramscope::probe {
namespace {

constexpr size_t kMaxNameBytes = 1024;

// As Kokkos passes it, by value.
struct SpaceHandle {
  char name[64];
};

struct ToolSettings {
  bool requires_global_fencing;
  bool padding[255];
};

// Memory that the driver gives: Cuda, CudaUVM, CudaHostPinned.
bool IsCuda(const SpaceHandle& space) {
  return std::strncmp(space.name, "Cuda", 4) == 0;
}

}  // namespace
}  // namespace vramscope::probe

using namespace vramscope;
using namespace vramscope::probe;

// Without it Kokkos waits for the device around each kernel and region.
VRAMSCOPE_EXPORT void kokkosp_request_tool_settings(uint32_t count, ToolSettings* settings) {
  if (count > 0 && settings != nullptr)
    settings->requires_global_fencing = false;
}

VRAMSCOPE_EXPORT void kokkosp_allocate_data(SpaceHandle space,
                                            const char* label,
                                            const void* memory,
                                            uint64_t size_bytes) {
  if (memory == nullptr || label == nullptr || *label == '\0' || !IsCuda(space))
    return;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Name{.time = Now(),
                             .address = reinterpret_cast<uintptr_t>(memory),
                             .size = size_bytes,
                             .device = format::kNoDevice,
                             .kind = static_cast<uint64_t>(format::NameKind::kTag),
                             .name = scope->InternString(label, CutText(label, kMaxNameBytes))});
}

VRAMSCOPE_EXPORT void kokkosp_push_profile_region(const char* name) {
  ScopePushText(kKokkosDomain, name);
}

VRAMSCOPE_EXPORT void kokkosp_pop_profile_region() {
  ScopePop(kKokkosDomain);
}
