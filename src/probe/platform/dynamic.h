// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

// The C library's own dlopen and dlsym, past every interposer that comes after us, and look-ups in
// libraries that are loaded already.
namespace vramscope::probe {

// The next dlopen in search order. Never null once SessionLoad() ran.
void* RealDlopen(const char* file, int mode);
// Its address and that of the next dlmopen, for the shims that jump to them.
void* RealDlopenAddress();
void* RealDlmopenAddress();
void* RealDlsym(void* handle, const char* symbol);

// A reference to a library that is there, by name or path, or nullptr. It is kept: it costs
// nothing.
void* ReferToLoaded(const char* file);
// Path of the loaded library whose file name begins with `prefix` ("libc10.so"), or nullptr. The
// string stays valid. Takes the loader's lock.
const char* FindLoadedLibrary(const char* prefix);

// Address of `symbol` in the loaded library whose file name begins with `prefix`, or nullptr.
// Nothing is loaded by this.
void* FindInLoadedLibrary(const char* prefix, const char* symbol);

// The path's last part.
inline const char* FileName(const char* path) {
  const char* const slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

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

// Changing what loaded objects have bound already: the slots that hold addresses of functions that
// they call by name (JUMP_SLOT, GLOB_DAT, pointers in data), of other objects or of their own.
//
//   call cuMemAlloc_v2@plt -> jmp *slot        slot: 0x7f..  the function of libcuda
//                                                            ^ this is rewritten
//
// For what was loaded before the probe could come first. Later look-ups are another matter
// (symbol_table.h).

// One slot of one object that imports the function.
struct Import {
  const char* object;     // path of the importing object, "" for the program itself
  uintptr_t object_base;  // its load address
  const char* symbol;     // the name that the slot was bound by
  void* target;           // what it holds; before lazy binding an address in the object's own PLT
};

// The new target of the slot, or nullptr to leave it. Runs under the loader's lock: it may neither
// allocate nor call the loader.
using ChooseTarget = void* (*)(const Import& import, void* data);

// Shows every slot of every object in the probe's namespace, but the probe's own, to `choose`, and
// writes what it answers with one aligned store. Pages that the loader made read-only are so again
// afterwards. Returns how many slots were changed. Takes the loader's lock; a system call only
// where something is to change.
size_t PatchImports(ChooseTarget choose, void* data);

// The same for every aligned word of the objects' writable data: functions that a library looked up
// by hand and keeps, as the CUDA runtime does with the driver's. `symbol` is "". Only for a running
// process, and with a `choose` that knows the exact addresses: all of the data is read by the
// kernel, so that a page without access is not a fault.
size_t PatchPointers(ChooseTarget choose, void* data);

// Functions that loaded objects are to call instead of those that they were bound to.
class ImportPlan {
 public:
  // `object`: only in objects whose file name begins so; nullptr: in all. Texts are kept by
  // pointer. Beyond kMaxEntries nothing is added.
  void Add(const char* symbol, const char* object, void* function);
  // Changes the slots of all loaded objects in one look at their hundred thousand.
  void Apply() const;

 private:
  static constexpr size_t kMaxEntries = 32;
  struct Entry {
    const char* symbol;
    const char* object;
    void* function;
  };

  static void* Choose(const Import& import, void* plan);

  Entry entries_[kMaxEntries] = {};
  size_t count_ = 0;
};

}  // namespace vramscope::probe
