// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <execinfo.h>
#include <link.h>

#include <cstring>

#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

// Where this library begins and ends, from the linker.
extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace vramscope::probe {
namespace {

constexpr int kMaxNativeDepth = 96;

struct ImageWalk {
  Stream* stream;
  uint64_t generation;
  bool first;
};

// Our wrappers and the shim around main are no part of the program's stack.
bool IsOurs(uintptr_t pc) {
  return pc >= reinterpret_cast<uintptr_t>(__ehdr_start) && pc < reinterpret_cast<uintptr_t>(_end);
}

uint64_t AlignUp4(uint64_t value) {
  return (value + 3) & ~uint64_t{3};
}

format::Bytes FindBuildId(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    if (header.p_type != PT_NOTE)
      continue;
    const char* note = reinterpret_cast<const char*>(info.dlpi_addr + header.p_vaddr);
    const char* const end = note + header.p_memsz;
    while (static_cast<size_t>(end - note) >= sizeof(ElfW(Nhdr))) {
      ElfW(Nhdr) head;
      std::memcpy(&head, note, sizeof head);
      const uint64_t name = AlignUp4(head.n_namesz), text = AlignUp4(head.n_descsz);
      const char* body = note + sizeof head;
      if (name + text > static_cast<size_t>(end - body))
        break;
      if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
          std::memcmp(body, "GNU", 4) == 0) {
        return {body + name, head.n_descsz};
      }
      note = body + name + text;
    }
  }
  return {};
}

int WriteImage(dl_phdr_info* info, size_t size, void* data) {
  auto* walk = static_cast<ImageWalk*>(data);
  if (walk->first) {
    walk->first = false;
    if (size >= offsetof(dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs) {
      walk->generation = info->dlpi_adds + info->dlpi_subs;
    }
    if (walk->generation == walk->stream->images_generation)
      return 1;
    walk->stream->images_generation = walk->generation;
  }
  uint64_t begin = ~uint64_t{0}, end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0)
      continue;
    const uint64_t at = info->dlpi_addr + header.p_vaddr;
    begin = at < begin ? at : begin;
    end = at + header.p_memsz > end ? at + header.p_memsz : end;
  }
  if (end == 0)
    return 0;
  const char* path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  walk->stream->Append(format::Image{.begin = begin,
                                     .end = end,
                                     .bias = info->dlpi_addr,
                                     .path = {path, std::strlen(path)},
                                     .build_id = FindBuildId(*info)});
  return 0;
}

}  // namespace

uint32_t CaptureNativeStack(Stream& stream) {
  void* frames[kMaxNativeDepth];
  const int depth = backtrace(frames, kMaxNativeDepth);
  // Hash from the outermost frame on, so that stacks share their callers.
  uint32_t parent = 0;
  uint64_t hash = 2;
  bool is_new = false;
  for (int i = depth - 1; i >= 0; --i) {
    const auto pc = reinterpret_cast<uintptr_t>(frames[i]);
    if (IsOurs(pc))
      continue;
    hash = HashMix(hash, pc);
    uint32_t id = stream.nodes().Find(hash);
    if (id == 0) {
      is_new = true;
      id = stream.NewId();
      if (!stream.Append(format::NativeStack{.id = id, .parent = parent, .pc = pc}))
        return 0;
      if (!stream.nodes().Insert(hash, id)) {
        stream.ResetStackTables();
        stream.nodes().Insert(hash, id);
      }
    }
    parent = id;
  }
  if (is_new) {
    ImageWalk walk{&stream, 0, true};
    dl_iterate_phdr(WriteImage, &walk);
  }
  return parent;
}

}  // namespace vramscope::probe
