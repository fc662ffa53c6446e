// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/pjrt/elf_exports.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/raw_file.h"
#include "probe/platform/symbol_table.h"

namespace vramscope::probe::pjrt {
namespace {

constexpr size_t kMaxSegments = 32;
constexpr size_t kMaxEntries = 256;
constexpr size_t kMaxNameBytes = 64;
constexpr uint32_t kMaxChain = 256;

class Library {
 public:
  explicit Library(const char* path) : fd_(base::OpenFile(path, O_RDONLY)) {}
  ~Library() {
    if (fd_ >= 0)
      base::CloseFile(fd_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool Defines(const char* name) {
    uint32_t head[4];  // buckets, first symbol, words of the filter, shift
    if (!ReadTables() || !ReadAt(hash_, head, sizeof head) || head[0] == 0)
      return false;
    const uint32_t hash = GnuHash(name);
    const uint64_t buckets = hash_ + sizeof head + uint64_t{head[2]} * sizeof(ElfW(Addr));
    const uint64_t chains = buckets + uint64_t{head[0]} * sizeof(uint32_t);
    uint32_t index = 0;
    if (!ReadAt(buckets + uint64_t{hash % head[0]} * sizeof index, &index, sizeof index) ||
        index < head[1])
      return false;
    for (uint32_t i = 0; i < kMaxChain; ++i, ++index) {
      uint32_t link = 0;
      if (!ReadAt(chains + uint64_t{index - head[1]} * sizeof link, &link, sizeof link))
        return false;
      if ((link | 1) == (hash | 1) && IsDefined(index, name))
        return true;
      if ((link & 1) != 0)
        return false;
    }
    return false;
  }

 private:
  bool Read(uint64_t offset, void* to, size_t size) const {
    return fd_ >= 0 && base::ReadFileAt(fd_, to, size, offset) == static_cast<ssize_t>(size);
  }
  // By address.
  bool ReadAt(uint64_t address, void* to, size_t size) const {
    for (size_t i = 0; i < count_; ++i) {
      const ElfW(Phdr)& segment = segments_[i];
      if (segment.p_type == PT_LOAD && address - segment.p_vaddr < segment.p_filesz)
        return Read(segment.p_offset + (address - segment.p_vaddr), to, size);
    }
    return false;
  }

  bool ReadTables() {
    ElfW(Ehdr) header{};
    if (!Read(0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof segments_[0] ||
        header.e_phnum > kMaxSegments ||
        !Read(header.e_phoff, segments_, header.e_phnum * sizeof segments_[0]))
      return false;
    count_ = header.e_phnum;
    for (size_t i = 0; i < count_; ++i) {
      if (segments_[i].p_type != PT_DYNAMIC)
        continue;
      ElfW(Dyn) entries[kMaxEntries];
      const size_t size =
          segments_[i].p_filesz < sizeof entries ? segments_[i].p_filesz : sizeof entries;
      if (!Read(segments_[i].p_offset, entries, size))
        return false;
      for (size_t entry = 0; entry < size / sizeof entries[0]; ++entry) {
        if (entries[entry].d_tag == DT_GNU_HASH)
          hash_ = entries[entry].d_un.d_ptr;
        else if (entries[entry].d_tag == DT_SYMTAB)
          symbols_ = entries[entry].d_un.d_ptr;
        else if (entries[entry].d_tag == DT_STRTAB)
          strings_ = entries[entry].d_un.d_ptr;
        else if (entries[entry].d_tag == DT_NULL)
          break;
      }
    }
    return hash_ != 0 && symbols_ != 0 && strings_ != 0;
  }

  bool IsDefined(uint32_t index, const char* name) const {
    ElfW(Sym) symbol{};
    char found[kMaxNameBytes];
    const size_t size = std::strlen(name) + 1;
    return size <= sizeof found &&
           ReadAt(symbols_ + uint64_t{index} * sizeof symbol, &symbol, sizeof symbol) &&
           symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
           ReadAt(strings_ + symbol.st_name, found, size) && std::memcmp(found, name, size) == 0;
  }

  int fd_;
  size_t count_ = 0;
  uint64_t hash_ = 0, symbols_ = 0, strings_ = 0;
  ElfW(Phdr) segments_[kMaxSegments] = {};
};

}  // namespace

bool ExportsFunction(const char* path, const char* name) {
  const int saved_errno = errno;
  const bool exports = Library(path).Defines(name);
  errno = saved_errno;
  return exports;
}

}  // namespace vramscope::probe::pjrt
