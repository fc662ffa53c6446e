// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <initializer_list>

#include "base/raw_file.h"
#include "probe/hooks/cuda/attach/attach.h"
#include "probe/platform/dynamic.h"

namespace vramscope::probe::cuda {
namespace {

constexpr char kPrefix[] = "libcuda.so";
constexpr size_t kPathBytes = 4096;
constexpr size_t kLinkBytes = 1024;  // asked at every dlopen, so little of the stack is taken

bool HasDriverName(const char* path) {
  return std::strncmp(FileName(path), kPrefix, sizeof kPrefix - 1) == 0;
}

// "DIRECTORY/FILE" into `out` of kPathBytes. False if it does not fit.
bool Join(const char* directory, size_t directory_size, const char* file, char* out) {
  const size_t file_size = std::strlen(file);
  if (directory_size + 1 + file_size + 1 > kPathBytes)
    return false;
  std::memcpy(out, directory, directory_size);
  out[directory_size] = '/';
  std::memcpy(out + directory_size + 1, file, file_size + 1);
  return true;
}

// The directories that the loader searches for an object, in order.
class SearchPath {
 public:
  // Reads the search path of the object that holds `code`. False if the loader does not say.
  bool Read(const void* code) {
    Dl_info info{};
    link_map* map = nullptr;
    if (dladdr1(code, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
        map == nullptr) {
      return false;
    }
    // A handle of dlopen is the link map, and the loader checks nothing else here.
    if (dlinfo(map, RTLD_DI_SERINFOSIZE, list()) != 0 || list()->dls_size > sizeof bytes_)
      return false;
    return dlinfo(map, RTLD_DI_SERINFOSIZE, list()) == 0 &&
           dlinfo(map, RTLD_DI_SERINFO, list()) == 0;
  }
  unsigned count() const { return list()->dls_cnt; }
  const char* directory(unsigned i) const {
    constexpr size_t kFirst = offsetof(Dl_serinfo, dls_serpath);
    return reinterpret_cast<const Dl_serpath*>(bytes_ + kFirst)[i].dls_name;
  }
  bool Has(const char* wanted) const {
    for (unsigned i = 0; i < count(); ++i) {
      if (std::strcmp(directory(i), wanted) == 0)
        return true;
    }
    return false;
  }

 private:
  Dl_serinfo* list() { return reinterpret_cast<Dl_serinfo*>(bytes_); }
  const Dl_serinfo* list() const { return reinterpret_cast<const Dl_serinfo*>(bytes_); }
  alignas(Dl_serinfo) char bytes_[8192] = {};
};

enum class Found {
  kNowhere,   // not in a directory that was named: the loader's cache decides, the same for every
              // caller
  kForAll,    // in a directory that is searched for the probe too
  kForCaller  // in one that is searched for the caller alone
};

// Finds the file that the loader would open for `file` and code at `caller`.
Found Search(const char* file, const void* caller, char* path) {
  SearchPath theirs;
  SearchPath ours;
  if (!theirs.Read(caller) || !ours.Read(reinterpret_cast<const void*>(&Search)))
    return Found::kNowhere;
  for (unsigned i = 0; i < theirs.count(); ++i) {
    const char* const directory = theirs.directory(i);
    if (!Join(directory, std::strlen(directory), file, path) || access(path, R_OK) != 0)
      continue;
    return ours.Has(directory) ? Found::kForAll : Found::kForCaller;
  }
  return Found::kNowhere;
}

// "$ORIGIN/..." for code at `caller`. False for other tokens.
bool ExpandOrigin(const char* file, const void* caller, char* out) {
  size_t token = 0;
  for (const char* name : {"$ORIGIN/", "${ORIGIN}/"}) {
    if (std::strncmp(file, name, std::strlen(name)) == 0)
      token = std::strlen(name);
  }
  if (token == 0 || std::strchr(file + token, '$') != nullptr)
    return false;
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(caller, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr) {
    return false;
  }
  char program[kPathBytes];
  const char* object = map->l_name;
  if (object == nullptr || *object == '\0') {  // the program itself
    const ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
    if (size <= 0)
      return false;
    program[size] = '\0';
    object = program;
  }
  const char* const slash = std::strrchr(object, '/');
  return slash != nullptr && Join(object, static_cast<size_t>(slash - object), file + token, out);
}

// The dynamic section of an ELF file on disk. Bounded reads, nothing mapped.
class ElfFile {
 public:
  explicit ElfFile(const char* path) : fd_(base::OpenFile(path, O_RDONLY)) {}
  ~ElfFile() {
    if (fd_ >= 0)
      base::CloseFile(fd_);
  }
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  // The name by which the file needs the driver, if it does, and whether it names directories.
  bool NeedsDriver(char* name, size_t name_size, bool* has_search_path) {
    ElfW(Ehdr) header{};
    if (!Read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof segments_[0] ||
        header.e_phnum > kMaxSegments) {
      return false;
    }
    count_ = header.e_phnum;
    if (!Read(header.e_phoff, segments_, count_ * sizeof segments_[0]))
      return false;
    uint64_t at = 0, size = 0, strings = 0;
    for (size_t i = 0; i < count_; ++i) {
      if (segments_[i].p_type != PT_DYNAMIC)
        continue;
      at = segments_[i].p_offset;
      size = segments_[i].p_filesz;
    }
    ElfW(Dyn) entries[kMaxEntries];
    size = size < sizeof entries ? size : sizeof entries;
    if (size == 0 || !Read(at, entries, size))
      return false;
    const size_t entry_count = size / sizeof entries[0];
    *has_search_path = false;
    for (size_t i = 0; i < entry_count; ++i) {
      if (entries[i].d_tag == DT_STRTAB)
        strings = FileOffset(entries[i].d_un.d_ptr);
      *has_search_path |= entries[i].d_tag == DT_RUNPATH || entries[i].d_tag == DT_RPATH;
    }
    if (strings == 0)
      return false;
    for (size_t i = 0; i < entry_count && entries[i].d_tag != DT_NULL; ++i) {
      if (entries[i].d_tag != DT_NEEDED)
        continue;
      const ssize_t got =
          base::ReadFileAt(fd_, name, name_size - 1, strings + entries[i].d_un.d_val);
      if (got <= 0)
        continue;
      name[got] = '\0';
      if (HasDriverName(name) && std::strlen(name) < static_cast<size_t>(got))
        return true;
    }
    return false;
  }

 private:
  static constexpr size_t kMaxSegments = 32;
  static constexpr size_t kMaxEntries = 256;

  bool Read(uint64_t offset, void* to, size_t size) const {
    return fd_ >= 0 && base::ReadFileAt(fd_, to, size, offset) == static_cast<ssize_t>(size);
  }
  uint64_t FileOffset(uint64_t address) const {
    for (size_t i = 0; i < count_; ++i) {
      const auto& segment = segments_[i];
      if (segment.p_type == PT_LOAD && address - segment.p_vaddr < segment.p_filesz)
        return segment.p_offset + (address - segment.p_vaddr);
    }
    return 0;
  }

  int fd_;
  size_t count_ = 0;
  ElfW(Phdr) segments_[kMaxSegments] = {};
};

// The name that a loaded object gives itself, or "".
const char* FindSoname(const ElfW(Dyn) * entry, uintptr_t base) {
  const char* strings = nullptr;
  const ElfW(Dyn)* soname = nullptr;
  for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) {
      // glibc relocates this entry in place, other loaders leave it as it is in the file.
      const uintptr_t at = entry->d_un.d_ptr;
      strings = reinterpret_cast<const char*>(at < base ? at + base : at);
    } else if (entry->d_tag == DT_SONAME) {
      soname = entry;
    }
  }
  return strings != nullptr && soname != nullptr ? strings + soname->d_un.d_val : "";
}

// Guarded by the loader's lock, which dl_iterate_phdr holds around its callbacks.
struct Seen {
  unsigned long long subs = 0;  // objects that were unloaded: positions in the list have changed
  size_t count = 0;             // objects from the front of the list that were looked at
};
constinit Seen g_seen;

constexpr size_t kMaxReported = 16;
constinit uintptr_t g_reported[kMaxReported] = {};
constinit size_t g_reported_count = 0;

bool IsReported(uintptr_t base) {
  for (size_t i = 0; i < g_reported_count; ++i) {
    if (g_reported[i] == base)
      return true;
  }
  return false;
}

// Objects loaded so far when all had been looked at.
constinit std::atomic<unsigned long long> g_looked_at{0};

struct FindRequest {
  LoadedDriver* driver;
  size_t position;
  unsigned long long adds;
  bool is_found;
};

int LookAtObject(dl_phdr_info* info, size_t, void* data) {
  auto* const request = static_cast<FindRequest*>(data);
  if (request->position == 0) {
    request->adds = info->dlpi_adds;
    if (g_seen.subs != info->dlpi_subs)
      g_seen = {info->dlpi_subs, 0};
    else if (g_looked_at.load(std::memory_order_relaxed) == info->dlpi_adds)
      return 1;
  }
  if (request->position++ < g_seen.count)
    return 0;
  g_seen.count = request->position;
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  }
  if (dynamic == nullptr || info->dlpi_name == nullptr ||
      (!HasDriverName(info->dlpi_name) && !HasDriverName(FindSoname(dynamic, info->dlpi_addr))) ||
      IsReported(info->dlpi_addr) || g_reported_count == kMaxReported) {
    return 0;
  }
  g_reported[g_reported_count++] = info->dlpi_addr;
  *request->driver = {info->dlpi_name, info->dlpi_addr, dynamic};
  request->is_found = true;
  return 1;
}

// Called for one object, under the loader's lock: that one keeps the lists as they are.
int CountInOtherNamespaces(dl_phdr_info*, size_t, void* data) {
  // From glibc 2.35 on version 2 says that `next` leads to the next namespace.
  struct ExtendedDebug {
    r_debug base;
    const ExtendedDebug* next;
  };
  const void* first = &_r_debug;
  __asm__("" : "+r"(first));  // declared as version 1, whose size the compiler would go by
  const auto* debug = static_cast<const ExtendedDebug*>(first);
  if (debug->base.r_version < 2)
    return 1;
  auto* const count = static_cast<size_t*>(data);
  for (debug = debug->next; debug != nullptr; debug = debug->next) {
    for (const link_map* map = debug->base.r_map; map != nullptr; map = map->l_next)
      *count += map->l_name != nullptr && HasDriverName(map->l_name) ? 1u : 0u;
  }
  return 1;
}

}  // namespace

bool NamesDriver(const char* file) {
  if (HasDriverName(file))
    return true;
  // Only what has a directory can be a link that we can follow; the last part alone counts.
  constexpr int kMaxLinks = 8;
  char path[kLinkBytes];
  const size_t size = std::strlen(file);
  if (std::strchr(file, '/') == nullptr || size >= sizeof path)
    return false;
  std::memcpy(path, file, size + 1);
  const int saved_errno = errno;
  bool names_driver = false;
  for (int i = 0; i < kMaxLinks && !names_driver; ++i) {
    char target[kLinkBytes];
    const ssize_t got = readlink(path, target, sizeof target - 1);
    if (got <= 0)
      break;
    target[got] = '\0';
    names_driver = HasDriverName(target);
    // Relative targets are in the link's own directory.
    const size_t kept = target[0] == '/' ? 0 : static_cast<size_t>(FileName(path) - path);
    const auto target_size = static_cast<size_t>(got) + 1;
    if (kept + target_size > sizeof path)
      break;
    std::memcpy(path + kept, target, target_size);
  }
  errno = saved_errno;
  return names_driver;
}

void* OpenDriver(const char* file, int mode, const void* caller) {
  const int saved_errno = errno;
  char path[kPathBytes];
  const char* open_path = file;
  bool known = true;
  if (std::strchr(file, '$') != nullptr) {
    known = ExpandOrigin(file, caller, path);
    open_path = path;
  } else if (std::strchr(file, '/') == nullptr && Search(file, caller, path) == Found::kForCaller) {
    open_path = path;
  }
  errno = saved_errno;
  return known ? RealDlopen(open_path, mode) : nullptr;
}

void* OpenDriverFor(const char* library, const void* caller) {
  if (std::strchr(library, '/') == nullptr || std::strchr(library, '$') != nullptr)
    return nullptr;
  const int saved_errno = errno;
  char name[64];
  char path[kPathBytes];
  bool has_search_path = false;
  // If directories are named, only the loader can choose the driver: it is found afterwards.
  const bool known = ElfFile(library).NeedsDriver(name, sizeof name, &has_search_path) &&
                     !has_search_path && Search(name, caller, path) != Found::kForCaller;
  errno = saved_errno;
  return known ? RealDlopen(name, RTLD_NOW | RTLD_LOCAL) : nullptr;
}

bool FindNewDriver(LoadedDriver* driver) {
  FindRequest request{driver, 0, 0, false};
  dl_iterate_phdr(LookAtObject, &request);
  if (!request.is_found)
    g_looked_at.store(request.adds, std::memory_order_relaxed);
  return request.is_found;
}

size_t DriversInOtherNamespaces() {
  size_t count = 0;
  dl_iterate_phdr(CountInOtherNamespaces, &count);
  return count;
}

}  // namespace vramscope::probe::cuda
