// SPDX-License-Identifier: Apache-2.0
// Calls Kokkos Tools as Kokkos does (core/src/impl/Kokkos_Profiling.cpp): loads the first library
// of KOKKOS_TOOLS_LIBS, looks its functions up by name, and reports each View after the driver gave
// its memory: the driver's address, and the bytes without Kokkos's header of 128 bytes.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "steps.h"

namespace {

struct SpaceHandle {
  char name[64];
};
struct ToolSettings {
  bool requires_global_fencing = true;
  bool padding[255] = {};
};

constexpr uint64_t kVersion = 20240906;
constexpr uint64_t kHeaderBytes = 128;
constexpr int kViews = 100;

struct Tool {
  void (*init)(int, uint64_t, uint32_t, void*) = nullptr;
  void (*settings)(uint32_t, ToolSettings*) = nullptr;
  void (*finalize)() = nullptr;
  void (*allocate)(SpaceHandle, const char*, const void*, uint64_t) = nullptr;
  void (*deallocate)(SpaceHandle, const char*, const void*, uint64_t) = nullptr;
  void (*push)(const char*) = nullptr;
  void (*pop)() = nullptr;
};

template <class Function>
void Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
}

Tool Load() {
  Tool tool;
  const char* const names = std::getenv("KOKKOS_TOOLS_LIBS");
  if (names == nullptr)
    return tool;
  const std::string first(names, std::strcspn(names, ";"));
  void* const library = dlopen(first.c_str(), RTLD_NOW | RTLD_GLOBAL);
  REQUIRE(library != nullptr);
  Find(library, "kokkosp_init_library", &tool.init);
  Find(library, "kokkosp_request_tool_settings", &tool.settings);
  Find(library, "kokkosp_finalize_library", &tool.finalize);
  Find(library, "kokkosp_allocate_data", &tool.allocate);
  Find(library, "kokkosp_deallocate_data", &tool.deallocate);
  Find(library, "kokkosp_push_profile_region", &tool.push);
  Find(library, "kokkosp_pop_profile_region", &tool.pop);
  return tool;
}

SpaceHandle Space(const char* name) {
  SpaceHandle space{};
  std::strncpy(space.name, name, sizeof space.name - 1);
  return space;
}

}  // namespace

int main() {
  const Tool tool = Load();
  ToolSettings settings;
  if (tool.init != nullptr)
    tool.init(0, kVersion, 0, nullptr);
  if (tool.settings != nullptr)
    tool.settings(1, &settings);
  // Plain, there is no tool; recorded by the probe, it must ask for no fences.
  if (std::getenv("VRAMSCOPE_DIR") != nullptr && tool.settings != nullptr)
    REQUIRE(!settings.requires_global_fencing);

  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  DRIVER_HOOK(driver, cuMemFree_v2);
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));

  CUdeviceptr views[kViews] = {};
  const auto view = [&](int i, const char* label) {
    const uint64_t size = (uint64_t{1} << 20) * static_cast<uint64_t>(2 + i % 5);
    CHECK(cuMemAlloc_v2(&views[i], size + kHeaderBytes));
    if (tool.allocate != nullptr)
      tool.allocate(Space("Cuda"), label, reinterpret_cast<void*>(views[i]), size);
  };
  const auto drop = [&](int i, const char* label) {
    if (tool.deallocate != nullptr)
      tool.deallocate(Space("Cuda"), label, reinterpret_cast<void*>(views[i]), 0);
    CHECK(cuMemFree_v2(views[i]));
  };
  if (tool.push != nullptr)
    tool.push("assembly");
  for (int i = 0; i < kViews; ++i)
    view(i, ("field " + std::to_string(i)).c_str());
  if (tool.pop != nullptr)
    tool.pop();
  Step("all");
  drop(7, "field 7");
  drop(8, "field 8");
  // Memory of another name at an address that was freed, and Views of the host, which are not here.
  view(7, "matrix");
  if (tool.allocate != nullptr) {
    tool.allocate(Space("Host"), "on the host", &views, sizeof views);
    tool.allocate(Space("Cuda"), nullptr, nullptr, 0);
  }
  Step("changed");
  if (tool.finalize != nullptr)
    tool.finalize();
  return 0;
}
