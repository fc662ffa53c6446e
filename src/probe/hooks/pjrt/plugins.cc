// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/pjrt/plugins.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "format/records.h"
#include "probe/hooks/pjrt/elf_exports.h"
#include "probe/hooks/pjrt/readings.h"
#include "probe/platform/dynamic.h"
#include "probe/platform/symbol_table.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"

// Finding plugins, and showing the program a table of its own.
namespace vramscope::probe {
namespace pjrt {
namespace {

constexpr int kMajorVersion = 0;
constexpr size_t kMostPlugins = Plugin::kMost;
constexpr char kGetApi[] = "GetPjrtApi";

constinit Plugin g_plugins[kMostPlugins]{};
constinit std::atomic<size_t> g_plugin_count{0};

struct Hook {
  const char* name;
  Call call;
  void* (*wrapper)(const Plugin& plugin, Word* arguments);
};
constexpr Hook kHooks[] = {
    {"Client_Destroy", Call::kClient_Destroy, DestroyClient},
    {"Client_BufferFromHostBuffer", Call::kClient_BufferFromHostBuffer, FromHost},
    {"LoadedExecutable_Destroy", Call::kLoadedExecutable_Destroy, DestroyExecutable},
    {"LoadedExecutable_Execute", Call::kLoadedExecutable_Execute, Execute},
    {"Buffer_Destroy", Call::kBuffer_Destroy, Destroy},
    {"Buffer_Delete", Call::kBuffer_Delete, Delete},
    {"Buffer_ReadyEvent", Call::kBuffer_ReadyEvent, ReadyEvent},
    {"Buffer_CopyToDevice", Call::kBuffer_CopyToDevice, CopyToDevice},
    {"Buffer_CopyToMemory", Call::kBuffer_CopyToMemory, CopyToMemory},
    {"AsyncHostToDeviceTransferManager_RetrieveBuffer",
     Call::kAsyncHostToDeviceTransferManager_RetrieveBuffer, RetrieveBuffer},
    {"Client_CreateUninitializedBuffer", Call::kClient_CreateUninitializedBuffer, Uninitialized},
    {"Buffer_DonateWithControlDependency", Call::kBuffer_DonateWithControlDependency, Donate},
};
constexpr size_t kHookCount = sizeof kHooks / sizeof kHooks[0];

// The wrapper of one hook in the table of one plugin: the table has no place for data.
template <size_t kPlugin, size_t kHook>
void* Wrapper(Word* arguments) {
  return kHooks[kHook].wrapper(g_plugins[kPlugin], arguments);
}

void Note(const char* key, const char* text) {
  if (RecordScope scope(Want::kAlways); scope)
    scope->Append(
        format::Runtime{.key = {key, std::strlen(key)}, .value = {text, std::strlen(text)}});
}

// Without these nothing is recorded.
bool HasWhatIsNeeded(const Plugin& plugin) {
  for (const Call call :
       {Call::kError_Destroy, Call::kBuffer_Destroy, Call::kBuffer_Delete, Call::kBuffer_IsDeleted,
        Call::kBuffer_OnDeviceSizeInBytes, Call::kDevice_LocalHardwareId}) {
    if (plugin.Get(call) == nullptr)
      return false;
  }
  return true;
}

// JAX's allocators without a pool of XLA's: the driver's allocations are the buffers.
bool HasPool() {
  const char* const allocator = std::getenv("XLA_PYTHON_CLIENT_ALLOCATOR");
  if (allocator == nullptr || *allocator == '\0')
    return true;
  return std::strcmp(allocator, "default") == 0 || std::strcmp(allocator, "bfc") == 0;
}

void Describe(const Plugin& plugin, const char* unseen) {
  const Word* const table = plugin.real.load(std::memory_order_relaxed);
  int version[2];
  std::memcpy(version, &table[4], sizeof version);
  char text[512];
  int size =
      std::snprintf(text, sizeof text, "%s, PJRT %d.%d", plugin.path, version[0], version[1]);
  if (unseen != nullptr) {
    std::snprintf(text + size, sizeof text - static_cast<size_t>(size), ": not recorded, %s",
                  unseen);
    return Note("xla.plugin", text);
  }
  Note("xla.plugin", text);
  size = 0;
  for (const Hook& hook : kHooks) {
    const bool fits = static_cast<size_t>(size) + std::strlen(hook.name) + 3 < sizeof text;
    if (plugin.Get(hook.call) == nullptr && fits)
      size += std::snprintf(text + size, sizeof text - static_cast<size_t>(size), "%s%s",
                            size == 0 ? "" : ", ", hook.name);
  }
  if (size != 0)
    Note("xla.plugin_without", text);
}

// Fills the copy in. Why nothing is recorded, or null.
const char* FillCopy(Plugin* plugin, Function (*wrapper)(size_t hook)) {
  const Word* const table = plugin->real.load(std::memory_order_relaxed);
  int major = 0;
  std::memcpy(&major, &table[4], sizeof major);
  if (table[kSizeWord] < Plugin::kHeaderWords * sizeof(Word) || major != kMajorVersion)
    return "this vramscope knows version 0";
  if (table[kSizeWord] > Plugin::kMostBytes)
    return "its table is too large";
  if (!HasWhatIsNeeded(*plugin))
    return "its table is too small";
  if (!HasPool())
    return "its allocator has no pool, so the driver's allocations are its buffers";
  std::memcpy(plugin->copy, table, table[kSizeWord]);
  for (size_t i = 0; i < kHookCount; ++i) {
    if (plugin->Get(kHooks[i].call) != nullptr)
      plugin->copy[Plugin::kHeaderWords + static_cast<size_t>(kHooks[i].call)] =
          reinterpret_cast<Word>(wrapper(i));
  }
  return nullptr;
}

// What GetPjrtApi() returns to the program: the copy or, where nothing can be recorded, the
// plugin's own table. A thread that comes while another one fills the copy in gets the plugin's
// own; that one has no buffer yet.
void* ShowApi(Plugin* plugin, Function (*wrapper)(size_t hook)) {
  auto* const get_api = plugin->get_api.load(std::memory_order_acquire);
  void* const table = get_api();
  if (Word* const shown = plugin->shown.load(std::memory_order_acquire); shown != nullptr)
    return shown;
  if (table == nullptr || SessionIsOff() || plugin->is_copying.exchange(true))
    return table;
  plugin->real.store(static_cast<const Word*>(table), std::memory_order_release);
  const char* const unseen = FillCopy(plugin, wrapper);
  Describe(*plugin, unseen);
  Word* const shown = unseen == nullptr ? plugin->copy : static_cast<Word*>(table);
  plugin->shown.store(shown, std::memory_order_release);
  return shown;
}

template <size_t kPlugin, size_t... kHook>
Function WrapperOf(size_t hook, std::index_sequence<kHook...>) {
  static constexpr Function kWrappers[] = {Wrapper<kPlugin, kHook>...};
  return kWrappers[hook];
}

template <size_t kPlugin>
void* GetApi() {
  return ShowApi(&g_plugins[kPlugin], [](size_t hook) {
    return WrapperOf<kPlugin>(hook, std::make_index_sequence<kHookCount>());
  });
}

constexpr void* (*kGetApis[kMostPlugins])() = {GetApi<0>, GetApi<1>, GetApi<2>, GetApi<3>};

// "xla_cuda_plugin.so", "pjrt_c_api_gpu_plugin.so", "libtpu.so": only these are opened before the
// program does, and searched.
bool MayBePlugin(const char* file) {
  const char* const slash = std::strrchr(file, '/');
  if (slash == nullptr || std::strchr(file, '$') != nullptr)
    return false;
  for (const char* const part : {"pjrt", "xla", "plugin", "libtpu"}) {
    if (std::strstr(slash, part) != nullptr)
      return true;
  }
  return false;
}

// Leads look-ups of its GetPjrtApi to the probe.
void Attach(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr)
    return;
  SymbolTable table;
  if (!SymbolTable::OfAddress(map->l_ld, &table))
    return;
  ElfW(Sym)* const symbol = table.FindFunction(kGetApi);
  if (symbol == nullptr)
    return;
  void* const found = table.AddressOf(*symbol);
  for (const auto& known : kGetApis) {
    if (found == reinterpret_cast<void*>(known))
      return;
  }
  const size_t number = g_plugin_count.fetch_add(1, std::memory_order_relaxed);
  if (number >= kMostPlugins) {
    g_plugin_count.store(kMostPlugins, std::memory_order_relaxed);
    return Note("xla.plugin", "more than 4 plugins: the others are not recorded");
  }
  Plugin& plugin = g_plugins[number];
  std::memcpy(plugin.path, map->l_name, strnlen(map->l_name, sizeof plugin.path - 1));
  plugin.get_api.store(reinterpret_cast<void* (*)()>(found), std::memory_order_release);
  if (!table.Unprotect(symbol, symbol))
    return Note("xla.plugin", "its symbol cannot be changed");
  table.Redirect(symbol, reinterpret_cast<void*>(kGetApis[number]));
  table.Protect(symbol, symbol);
}

void ObserveOpening(const Opening& opening) {
  if (opening.in_namespace || !MayBePlugin(opening.file) || !ExportsFunction(opening.file, kGetApi))
    return;
  // Kept, as plugins are.
  if (void* const library = RealDlopen(opening.file, opening.mode))
    Attach(library);
}

void Forget() {
  ForgetBuffers();
  ForgetReadings();
}

void ForkedChild() {
  ForgetBuffers();
  ForgetPrograms();
  ForgetDevices();
}

}  // namespace

size_t NumberOf(const Plugin& plugin) {
  return static_cast<size_t>(&plugin - g_plugins);
}

const Plugin& PluginAt(size_t number) {
  return g_plugins[number];
}

}  // namespace pjrt

const Source kPjrtSource = {.opening = pjrt::ObserveOpening,
                            .forget = pjrt::Forget,
                            .forked = pjrt::ForkedChild};

}  // namespace vramscope::probe
