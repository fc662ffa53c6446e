// SPDX-License-Identifier: Apache-2.0
#include "probe/platform/symbol_table.h"

#include <elf.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "probe/platform/dynamic.h"

namespace vramscope::probe {
namespace {

struct ImageRequest {
  uintptr_t address;
  dl_phdr_info info;
};

int MatchImage(dl_phdr_info* info, size_t, void* data) {
  auto* request = static_cast<ImageRequest*>(data);
  if (!Contains(*info, request->address))
    return 0;
  request->info = *info;
  return 1;
}

int ProtectionAt(const dl_phdr_info& info, uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    if (header.p_type != PT_LOAD || address - (info.dlpi_addr + header.p_vaddr) >= header.p_memsz)
      continue;
    return ((header.p_flags & PF_R) != 0 ? PROT_READ : 0) |
           ((header.p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
           ((header.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
  }
  return PROT_NONE;
}

uint32_t SysvHash(const char* name) {
  uint32_t hash = 0;
  for (; *name != '\0'; ++name) {
    hash = (hash << 4) + static_cast<unsigned char>(*name);
    const uint32_t high = hash & 0xf0000000;
    hash ^= high >> 24;
    hash &= ~high;
  }
  return hash;
}

}  // namespace

bool SymbolTable::OfAddress(const void* address, SymbolTable* table) {
  ImageRequest request{reinterpret_cast<uintptr_t>(address), {}};
  if (dl_iterate_phdr(MatchImage, &request) == 0)
    return false;
  const dl_phdr_info& info = request.info;
  *table = {};
  table->base_ = info.dlpi_addr;
  ForEachDynamicEntry(info, [table](const ElfW(Dyn) & entry, uintptr_t at) {
    switch (entry.d_tag) {
      case DT_SYMTAB:
        table->symbols_ = reinterpret_cast<ElfW(Sym)*>(at);
        break;
      case DT_STRTAB:
        table->strings_ = reinterpret_cast<const char*>(at);
        break;
      case DT_GNU_HASH:
        table->gnu_hash_ = reinterpret_cast<const uint32_t*>(at);
        break;
      case DT_HASH:
        table->sysv_hash_ = reinterpret_cast<const uint32_t*>(at);
        break;
      default:
        break;
    }
  });
  if (table->symbols_ == nullptr || table->strings_ == nullptr)
    return false;
  table->protection_ = ProtectionAt(info, reinterpret_cast<uintptr_t>(table->symbols_));
  return (table->gnu_hash_ != nullptr || table->sysv_hash_ != nullptr) &&
         (table->protection_ & PROT_READ) != 0;
}

bool SymbolTable::Matches(const ElfW(Sym) & symbol, const char* name) const {
  return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
         ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
         std::strcmp(strings_ + symbol.st_name, name) == 0;
}

ElfW(Sym) * SymbolTable::FindFunction(const char* name) const {
  return gnu_hash_ != nullptr ? FindByGnuHash(name) : FindBySysvHash(name);
}

// .gnu.hash:  buckets | first symbol | bloom words | shift || bloom[] || bucket[] || chain[] A
// chain has the hashes of the symbols of one bucket; the last one has its lowest bit set.
ElfW(Sym) * SymbolTable::FindByGnuHash(const char* name) const {
  const uint32_t bucket_count = gnu_hash_[0];
  const uint32_t first = gnu_hash_[1];
  const uint32_t bloom_words = gnu_hash_[2];
  const uint32_t* const buckets = gnu_hash_ + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* const chains = buckets + bucket_count;
  if (bucket_count == 0)
    return nullptr;
  const uint32_t hash = GnuHash(name);
  uint32_t index = buckets[hash % bucket_count];
  if (index < first)
    return nullptr;
  for (;; ++index) {
    const uint32_t link = chains[index - first];
    if ((link | 1) == (hash | 1) && Matches(symbols_[index], name))
      return &symbols_[index];
    if ((link & 1) != 0)
      return nullptr;
  }
}

// .hash:  buckets | chains || bucket[] || chain[]
ElfW(Sym) * SymbolTable::FindBySysvHash(const char* name) const {
  const uint32_t bucket_count = sysv_hash_[0];
  const uint32_t chain_count = sysv_hash_[1];
  const uint32_t* const buckets = sysv_hash_ + 2;
  const uint32_t* const chains = buckets + bucket_count;
  if (bucket_count == 0)
    return nullptr;
  for (uint32_t index = buckets[SysvHash(name) % bucket_count];
       index != STN_UNDEF && index < chain_count; index = chains[index]) {
    if (Matches(symbols_[index], name))
      return &symbols_[index];
  }
  return nullptr;
}

bool SymbolTable::Change(const ElfW(Sym) * first, const ElfW(Sym) * last, int protection) const {
  const int saved_errno = errno;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(first) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(last + 1);
  const bool ok = mprotect(reinterpret_cast<void*>(begin), end - begin, protection) == 0;
  errno = saved_errno;
  return ok;
}

// Execution, where the pages have it, stays allowed throughout: old linkers put the table into the
// same segment as the code, and other threads may be running there.
bool SymbolTable::Unprotect(const ElfW(Sym) * first, const ElfW(Sym) * last) const {
  return Change(first, last, protection_ | PROT_WRITE);
}

void SymbolTable::Protect(const ElfW(Sym) * first, const ElfW(Sym) * last) const {
  Change(first, last, protection_);
}

void SymbolTable::Redirect(ElfW(Sym) * symbol, void* address) const {
  __atomic_store_n(&symbol->st_value, reinterpret_cast<uintptr_t>(address) - base_,
                   __ATOMIC_RELEASE);
}

}  // namespace vramscope::probe
