// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <link.h>

#include <cstdint>

namespace vramscope::probe {

// The hash of a name in .gnu.hash.
inline uint32_t GnuHash(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name)
    hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// The dynamic symbol table of a loaded library, in memory: looking names up without the loader, and
// changing what the loader will find.
//
//   dlsym(handle, "cuMemAlloc_v2")
//     -> .gnu.hash -> Elf64_Sym { st_name, ..., st_value } -> l_addr + st_value
//                                                 ^ this is rewritten to wrapper - l_addr
//
// The table belongs to a private mapping of the file, so other processes do not see the change. All
// look-ups come by here, whatever the handle, scope or namespace flag, also those of later
// relocations; pointers that were taken before the change stay what they are.
class SymbolTable {
 public:
  // The table of the library that contains `address`. False if there is none or where it has no
  // hash table.
  static bool OfAddress(const void* address, SymbolTable* table);

  // A defined function of that name, or nullptr.
  ElfW(Sym) * FindFunction(const char* name) const;
  void* AddressOf(const ElfW(Sym) & symbol) const {
    return reinterpret_cast<void*>(base_ + symbol.st_value);
  }

  // Makes [first, last] writable; Protect() undoes it. False when the system refuses.
  bool Unprotect(const ElfW(Sym) * first, const ElfW(Sym) * last) const;
  void Protect(const ElfW(Sym) * first, const ElfW(Sym) * last) const;
  // Lets look-ups of `symbol` find `address`. One store: a look-up sees the old value or the new.
  void Redirect(ElfW(Sym) * symbol, void* address) const;

 private:
  bool Change(const ElfW(Sym) * first, const ElfW(Sym) * last, int protection) const;
  ElfW(Sym) * FindByGnuHash(const char* name) const;
  ElfW(Sym) * FindBySysvHash(const char* name) const;
  bool Matches(const ElfW(Sym) & symbol, const char* name) const;

  uintptr_t base_ = 0;
  ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const uint32_t* gnu_hash_ = nullptr;
  const uint32_t* sysv_hash_ = nullptr;
  int protection_ = 0;  // of the segment that holds the symbols
};

}  // namespace vramscope::probe
