// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <link.h>

#include <cstring>

#include "probe/session/stream.h"
#include "probe/stack/native/unwind.h"
#include "probe/stack/stacks.h"

// The begin and end of this library, from the linker.
extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace vramscope::probe {
namespace {

// Our wrappers and the shim around main are not part of the program's stack.
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

// From the first to the last byte of code.
void CodeRange(const dl_phdr_info& info, uint64_t* begin, uint64_t* end) {
  *begin = ~uint64_t{0};
  *end = 0;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const auto& header = info.dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0)
      continue;
    const uint64_t at = info.dlpi_addr + header.p_vaddr;
    *begin = at < *begin ? at : *begin;
    *end = at + header.p_memsz > *end ? at + header.p_memsz : *end;
  }
}

int WriteImage(dl_phdr_info* info, size_t, void* data) {
  Stream& stream = *static_cast<Stream*>(data);
  uint64_t begin = 0, end = 0;
  CodeRange(*info, &begin, &end);
  if (end == 0)
    return 0;
  // Once a stream, until something is unloaded: then addresses can have been given out anew.
  const uint64_t identity = HashMix(HashMix(HashMix(3, CodeGeneration()), begin), info->dlpi_addr);
  if (stream.nodes().Find(identity) != 0)
    return 0;
  const char* path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  if (stream.Append(format::Image{.begin = begin,
                                  .end = end,
                                  .bias = info->dlpi_addr,
                                  .path = {path, std::strlen(path)},
                                  .build_id = FindBuildId(*info)})) {
    stream.nodes().Insert(identity, 1);
  }
  return 0;
}

// Without the loader's list, whose lock a forked child may find held for ever. False if it
// cannot be done.
bool DescribeBinariesOf(Stream& stream, const uintptr_t* pcs, size_t depth) {
  uint64_t begin = 1, end = 0;  // of the binary before
  for (size_t i = 0; i < depth; ++i) {
    // If a call that does not return is the last code of a binary, its return address belongs to
    // another binary.
    const uintptr_t pc = pcs[i] - 1;
    if (pc >= begin && pc < end)
      continue;
    dl_phdr_info info;
    if (!DescribeModule(pc, &info))
      return false;
    if (info.dlpi_phnum != 0)
      WriteImage(&info, sizeof info, &stream);
    CodeRange(info, &begin, &end);
  }
  return true;
}

VRAMSCOPE_ALWAYS_INLINE uint64_t AddPcToHash(uint64_t hash, uint64_t pc) {
  return ((hash << 31 | hash >> 33) ^ pc) * 0x9e3779b97f4a7c15u;
}

// After binaries were unloaded, the same addresses can be other functions.
uint64_t FirstHash() {
  return HashMix(2, CodeGeneration());
}

// Defines the new frames of a stack, outermost first, so that stacks share their callers.
VRAMSCOPE_NOINLINE uint32_t DefineStack(Stream& stream,
                                        const uintptr_t* pcs,
                                        size_t depth,
                                        WalkEnd end) {
  uint32_t parent = 0;
  uint64_t hash = FirstHash();
  bool is_new = false;
  for (size_t i = depth; i-- != 0;) {
    hash = HashMix(hash, pcs[i]);
    uint32_t id = stream.nodes().Find(hash);
    if (id == 0) {
      is_new = true;
      id = stream.NewId();
      if (!stream.Append(format::NativeStack{.id = id, .parent = parent, .pc = pcs[i]}))
        return 0;
      if (!stream.nodes().Insert(hash, id)) {
        stream.ResetStackTables();
        stream.nodes().Insert(hash, id);
      }
    }
    parent = id;
  }
  if (is_new && end != WalkEnd::kOutermost)
    CountLoss(format::Loss::kNativeStacks);
  if (is_new && !DescribeBinariesOf(stream, pcs, depth)) {
    if (const uint64_t seen = SeenBinaries(); stream.images_generation != seen) {
      stream.images_generation = seen;
      dl_iterate_phdr(WriteImage, &stream);
    }
  }
  return parent;
}

}  // namespace

namespace {

VRAMSCOPE_NOINLINE uint32_t Capture(Stream& stream, const WalkStart& start) {
  uintptr_t pcs[kMaxNativeDepth];
  const NativeWalk walk = WalkNativeStack(start, pcs, kMaxNativeDepth);
  size_t depth = 0;
  uint64_t hash = FirstHash();
  for (size_t i = 0; i < walk.depth; ++i) {
    if (IsOurs(pcs[i]))
      continue;
    hash = AddPcToHash(hash, pcs[i]);
    pcs[depth++] = pcs[i];
  }
  if (VRAMSCOPE_UNLIKELY(depth == 0))
    return 0;
  hash |= 1;  // not 0
  if (const KnownStack* const known = stream.FindStack(hash); VRAMSCOPE_LIKELY(known != nullptr)) {
    KeepWalk(&stream.known_walks(), start, known->id);
    return known->id;
  }
  const uint32_t id = DefineStack(stream, pcs, depth, walk.end);
  if (id != 0)
    stream.KeepStack(hash, id, 0);
  return id;
}

}  // namespace

uint32_t CaptureNativeStack(Stream& stream) {
  const WalkStart start = WalkFromHere();
  if (const uint32_t known = FindKnownWalk(stream.known_walks(), start);
      VRAMSCOPE_LIKELY(known != 0)) {
    return known;
  }
  return Capture(stream, start);
}

}  // namespace vramscope::probe
