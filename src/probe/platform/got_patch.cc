// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "base/raw_file.h"
#include "probe/platform/dynamic.h"

namespace vramscope::probe {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr uint32_t kGlobDat = R_X86_64_GLOB_DAT;
constexpr uint32_t kPointer = R_X86_64_64;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr uint32_t kGlobDat = R_AARCH64_GLOB_DAT;
constexpr uint32_t kPointer = R_AARCH64_ABS64;
#endif

struct Relocations {
  const ElfW(Rela) * begin = nullptr;
  size_t size_bytes = 0;
};

// The entries of an object's dynamic section that are needed.
struct Dynamic {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  Relocations plt;
  Relocations data;
};

struct Request {
  ChooseTarget choose;
  void* data;
  size_t changed;
};

bool ReadDynamic(const dl_phdr_info& info, Dynamic* out) {
  bool plt_is_rela = true;
  ForEachDynamicEntry(info, [&](const ElfW(Dyn) & entry, uintptr_t at) {
    switch (entry.d_tag) {
      case DT_SYMTAB:
        out->symbols = reinterpret_cast<const ElfW(Sym)*>(at);
        break;
      case DT_STRTAB:
        out->strings = reinterpret_cast<const char*>(at);
        break;
      case DT_JMPREL:
        out->plt.begin = reinterpret_cast<const ElfW(Rela)*>(at);
        break;
      case DT_PLTRELSZ:
        out->plt.size_bytes = entry.d_un.d_val;
        break;
      case DT_PLTREL:
        plt_is_rela = entry.d_un.d_val == DT_RELA;
        break;
      case DT_RELA:
        out->data.begin = reinterpret_cast<const ElfW(Rela)*>(at);
        break;
      case DT_RELASZ:
        out->data.size_bytes = entry.d_un.d_val;
        break;
    }
  });
  return plt_is_rela && out->symbols != nullptr && out->strings != nullptr;
}

uint64_t ParseHex(const char** text) {
  uint64_t value = 0;
  for (;; ++*text) {
    const char c = **text;
    if (c >= '0' && c <= '9')
      value = value * 16 + static_cast<uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value * 16 + static_cast<uint64_t>(c - 'a' + 10);
    else
      return value;
  }
}

struct Permissions {
  bool read = false;
  bool write = false;
};

// The permissions of the page at `address`, from /proc/self/maps. Program headers do not say: a
// page of a read-only-after-relocation segment is writable while the loader works on it.
Permissions PermissionsOf(uintptr_t address) {
  const int fd = base::OpenFile("/proc/self/maps", O_RDONLY);
  if (fd < 0)
    return {};
  char buffer[4096];
  size_t filled = 0;
  Permissions found;
  bool line_begins = true;
  for (ssize_t got; (got = base::ReadFile(fd, buffer + filled, sizeof buffer - filled - 1)) > 0;) {
    filled += static_cast<size_t>(got);
    buffer[filled] = '\0';
    char* at = buffer;
    while (char* const end = std::strchr(at, '\n')) {
      if (line_begins) {
        const char* text = at;
        const uint64_t first = ParseHex(&text);
        const uint64_t last = *text == '-' ? (++text, ParseHex(&text)) : 0;
        if (first <= address && address < last)
          found = {text[0] == ' ' && text[1] == 'r', text[0] == ' ' && text[2] == 'w'};
      }
      line_begins = true;
      at = end + 1;
    }
    filled = static_cast<size_t>(buffer + filled - at);
    std::memmove(buffer, at, filled);
    // A path longer than the buffer: its rest is not a line of its own.
    if (filled == sizeof buffer - 1) {
      filled = 0;
      line_begins = false;
    }
  }
  base::CloseFile(fd);
  return found;
}

// The loader's lock is held, so other patches wait. A thread that relocates an object at this
// moment still has its pages writable, and they stay writable.
bool WriteSlot(void** slot, void* target) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t page = reinterpret_cast<uintptr_t>(slot) & ~(page_bytes - 1);
  auto* const start = reinterpret_cast<void*>(page);
  const Permissions before = PermissionsOf(page);
  if (mprotect(start, page_bytes, PROT_READ | PROT_WRITE) != 0)
    return false;
  __atomic_store_n(slot, target, __ATOMIC_RELEASE);
  if (before.read && !before.write)
    mprotect(start, page_bytes, PROT_READ);
  return true;
}

void PatchRelocations(const dl_phdr_info& info,
                      const Dynamic& dynamic,
                      const Relocations& relocations,
                      Request* request) {
  if (relocations.begin == nullptr)
    return;
  const size_t count = relocations.size_bytes / sizeof(ElfW(Rela));
  for (size_t i = 0; i < count; ++i) {
    const ElfW(Rela)& relocation = relocations.begin[i];
    const auto type = static_cast<uint32_t>(ELF64_R_TYPE(relocation.r_info));
    const auto index = static_cast<uint32_t>(ELF64_R_SYM(relocation.r_info));
    const bool is_slot = type == kJumpSlot || type == kGlobDat;
    if (index == 0 || (!is_slot && (type != kPointer || relocation.r_addend != 0)))
      continue;
    auto* const slot = reinterpret_cast<void**>(info.dlpi_addr + relocation.r_offset);
    if (reinterpret_cast<uintptr_t>(slot) % alignof(void*) != 0)
      continue;
    const Import import{info.dlpi_name != nullptr ? info.dlpi_name : "", info.dlpi_addr,
                        dynamic.strings + dynamic.symbols[index].st_name,
                        __atomic_load_n(slot, __ATOMIC_RELAXED)};
    void* const target = request->choose(import, request->data);
    if (target != nullptr && target != import.target && WriteSlot(slot, target))
      ++request->changed;
  }
}

int PatchObject(dl_phdr_info* info, size_t, void* data) {
  if (Contains(*info, reinterpret_cast<uintptr_t>(&PatchObject)))
    return 0;
  Dynamic dynamic;
  if (!ReadDynamic(*info, &dynamic))
    return 0;
  auto* const request = static_cast<Request*>(data);
  PatchRelocations(*info, dynamic, dynamic.plt, request);
  PatchRelocations(*info, dynamic, dynamic.data, request);
  return 0;
}

// Words of [begin, end), read by the kernel a buffer at a time.
void PatchWords(const dl_phdr_info& info, uintptr_t begin, uintptr_t end, Request* request) {
  constexpr size_t kWords = 1024;
  void* words[kWords];
  uintptr_t checked_page = 0;
  bool is_writable = false;
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (uintptr_t at = begin; at < end; at += sizeof words) {
    const size_t left = (end - at) / sizeof words[0];
    const size_t wanted = left < kWords ? left : kWords;
    iovec local{words, wanted * sizeof words[0]};
    iovec remote{reinterpret_cast<void*>(at), wanted * sizeof words[0]};
    const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    const size_t count = got > 0 ? static_cast<size_t>(got) / sizeof words[0] : 0;
    for (size_t i = 0; i < count; ++i) {
      if (words[i] == nullptr)
        continue;
      const Import import{info.dlpi_name != nullptr ? info.dlpi_name : "", info.dlpi_addr, "",
                          words[i]};
      void* const target = request->choose(import, request->data);
      if (target == nullptr)
        continue;
      auto* const slot = reinterpret_cast<void**>(at + i * sizeof words[0]);
      const uintptr_t page = reinterpret_cast<uintptr_t>(slot) & ~(page_bytes - 1);
      if (page != checked_page) {
        checked_page = page;
        is_writable = PermissionsOf(page).write;
      }
      void* expected = words[i];
      if (is_writable && __atomic_compare_exchange_n(slot, &expected, target, false,
                                                     __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
        ++request->changed;
      }
    }
  }
}

int PatchData(dl_phdr_info* info, size_t, void* data) {
  if (Contains(*info, reinterpret_cast<uintptr_t>(&PatchData)))
    return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_W) == 0)
      continue;
    constexpr uintptr_t kMask = sizeof(void*) - 1;
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    PatchWords(*info, (begin + kMask) & ~kMask, (begin + header.p_memsz) & ~kMask,
               static_cast<Request*>(data));
  }
  return 0;
}

size_t Patch(int (*of_object)(dl_phdr_info*, size_t, void*), ChooseTarget choose, void* data) {
  const int saved_errno = errno;
  Request request{choose, data, 0};
  dl_iterate_phdr(of_object, &request);
  errno = saved_errno;
  return request.changed;
}

}  // namespace

size_t PatchImports(ChooseTarget choose, void* data) {
  return Patch(PatchObject, choose, data);
}

size_t PatchPointers(ChooseTarget choose, void* data) {
  return Patch(PatchData, choose, data);
}

namespace {

bool IsFile(const char* path, const char* prefix) {
  const char* const slash = std::strrchr(path, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : path, prefix, std::strlen(prefix)) == 0;
}

}  // namespace

void ImportPlan::Add(const char* symbol, const char* object, void* function) {
  if (count_ < kMaxEntries)
    entries_[count_++] = {symbol, object, function};
}

void* ImportPlan::Choose(const Import& import, void* data) {
  const auto* const plan = static_cast<const ImportPlan*>(data);
  for (size_t i = 0; i < plan->count_; ++i) {
    const Entry& entry = plan->entries_[i];
    // This check skips most of the names.
    if (import.symbol[0] != entry.symbol[0] || std::strcmp(import.symbol, entry.symbol) != 0)
      continue;
    const bool wanted = entry.object == nullptr || IsFile(import.object, entry.object);
    return wanted ? entry.function : nullptr;
  }
  return nullptr;
}

void ImportPlan::Apply() const {
  PatchImports(Choose, const_cast<ImportPlan*>(this));
}

}  // namespace vramscope::probe
