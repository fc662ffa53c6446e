// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>
#include <link.h>

#include <cstdint>

namespace vramscope::probe {

// Whether the object is mapped at that address.
inline bool Contains(const dl_phdr_info& info, uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    if (header.p_type == PT_LOAD && address - (info.dlpi_addr + header.p_vaddr) < header.p_memsz)
      return true;
  }
  return false;
}

// Calls `visit(entry, address)` for each entry of a loaded object's dynamic section; `address` is
// where the entry points to, if it is of the kind that points somewhere.
template <class Visit>
void ForEachDynamicEntry(const dl_phdr_info& info, Visit visit) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    if (info.dlpi_phdr[i].p_type != PT_DYNAMIC)
      continue;
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      // glibc relocates these entries in place, other loaders leave them as they are in the file.
      uintptr_t address = entry->d_un.d_ptr;
      if (address < info.dlpi_addr)
        address += info.dlpi_addr;
      visit(*entry, address);
    }
  }
}

}  // namespace vramscope::probe
