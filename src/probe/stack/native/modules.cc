// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <atomic>
#include <cstring>

#include "probe/platform/dynamic.h"
#include "probe/session/tables.h"
#include "probe/stack/native/unwind.h"
#include "probe/stack/native/window.h"

namespace vramscope::probe {
namespace {

// As in <dlfcn.h> of glibc 2.35 and newer, on the processors whose tables we read.
struct FoundObject {
  unsigned long long flags;
  char* map_begin;
  char* map_end;
  link_map* map;
  void* eh_frame_hdr;
  unsigned long long reserved[7];
};
using FindObjectFn = int (*)(void* address, FoundObject* result);

constinit FindObjectFn g_find_object = nullptr;

constinit std::atomic<uint64_t> g_seen_count{1};
constinit std::atomic<uint64_t> g_generation{1};
constinit std::atomic<uint64_t> g_unloads{0};

// Binaries that were come to, by a hash of what tells them apart. Direct-mapped: one that was
// replaced counts as new again, which costs a look at all binaries and nothing else.
constexpr size_t kSeenSlots = 1024;
constinit std::atomic<uint64_t> g_seen[kSeenSlots]{};

void NoteSeen(uintptr_t begin, const void* eh_frame_hdr) {
  uint64_t identity = HashMix(CodeGeneration(), begin);
  identity = HashMix(identity, reinterpret_cast<uintptr_t>(eh_frame_hdr)) | 1;
  std::atomic<uint64_t>& slot = g_seen[(identity >> 32) & (kSeenSlots - 1)];
  if (slot.load(std::memory_order_relaxed) == identity)
    return;
  slot.store(identity, std::memory_order_relaxed);
  g_seen_count.fetch_add(1, std::memory_order_relaxed);
}

// The headers of a binary that is mapped from its beginning on, as almost all are.
bool ReadHeaders(const FoundObject& object, CodeModule* module) {
  constexpr size_t kPageBytes = 4096;
  ElfW(Ehdr) file;
  if (!IsReadable(reinterpret_cast<uintptr_t>(object.map_begin)))
    return false;
  std::memcpy(&file, object.map_begin, sizeof file);
  const size_t headers_bytes = size_t{file.e_phnum} * sizeof(ElfW(Phdr));
  if (std::memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 || file.e_phentsize != sizeof(ElfW(Phdr)) ||
      file.e_phoff > kPageBytes || headers_bytes > kPageBytes - file.e_phoff) {
    return false;
  }
  module->headers = reinterpret_cast<const ElfW(Phdr)*>(object.map_begin + file.e_phoff);
  module->header_count = file.e_phnum;
  module->bias = object.map->l_addr;
  module->eh_frame_hdr = static_cast<const uint8_t*>(object.eh_frame_hdr);
  // The headers must be this mapping's, and lie in what was mapped.
  const auto* const begin = reinterpret_cast<const uint8_t*>(object.map_begin);
  const ByteRange first = module->SegmentAround(begin);
  return first.Contains(begin) &&
         first.end - begin >= static_cast<ptrdiff_t>(file.e_phoff + headers_bytes);
}

struct ModuleRequest {
  uintptr_t pc;
  CodeModule* module;
};

int MatchModule(dl_phdr_info* info, size_t, void* data) {
  auto* const request = static_cast<ModuleRequest*>(data);
  bool is_there = false;
  const uint8_t* eh_frame_hdr = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    const uintptr_t at = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD)
      is_there |= request->pc - at < header.p_memsz;
    else if (header.p_type == PT_GNU_EH_FRAME)
      eh_frame_hdr = reinterpret_cast<const uint8_t*>(at);
  }
  if (!is_there)
    return 0;
  *request->module = {info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum, eh_frame_hdr};
  NoteSeen(info->dlpi_addr, eh_frame_hdr);
  return 1;
}

int ReadUnloads(dl_phdr_info* info, size_t size, void* data) {
  if (size >= offsetof(dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs)
    *static_cast<uint64_t*>(data) = info->dlpi_subs;
  return 1;
}

}  // namespace

void LoadModuleSearch() {
#if defined(__x86_64__)
  g_find_object = reinterpret_cast<FindObjectFn>(RealDlsym(RTLD_DEFAULT, "_dl_find_object"));
#endif
}

bool FindModule(uintptr_t pc, CodeModule* module) {
  if (g_find_object != nullptr) {
    FoundObject object{};
    if (g_find_object(reinterpret_cast<void*>(pc), &object) != 0)
      return false;
    if (ReadHeaders(object, module)) {
      NoteSeen(reinterpret_cast<uintptr_t>(object.map_begin), object.eh_frame_hdr);
      return true;
    }
  }
  ModuleRequest request{pc, module};
  return dl_iterate_phdr(MatchModule, &request) != 0;
}

bool DescribeModule(uintptr_t pc, dl_phdr_info* info) {
  *info = {};
  if (g_find_object == nullptr)
    return false;
  FoundObject object{};
  if (g_find_object(reinterpret_cast<void*>(pc), &object) != 0)
    return true;
  CodeModule module;
  if (!ReadHeaders(object, &module))
    return false;
  info->dlpi_addr = module.bias;
  info->dlpi_name = object.map->l_name;
  info->dlpi_phdr = module.headers;
  info->dlpi_phnum = static_cast<ElfW(Half)>(module.header_count);
  return true;
}

uint64_t SeenModules() {
  return g_seen_count.load(std::memory_order_relaxed);
}

uint64_t CodeGeneration() {
  return g_generation.load(std::memory_order_relaxed);
}

void NoteUnloadedModules() {
  uint64_t unloads = 0;
  dl_iterate_phdr(ReadUnloads, &unloads);
  if (g_unloads.exchange(unloads, std::memory_order_relaxed) != unloads)
    g_generation.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace vramscope::probe
