// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstring>

#include "base/coding.h"
#include "format/layout.h"
#include "format/records.h"

namespace vramscope::format {

const char* RecordName(uint8_t type) {
  switch (type) {
#define VRAMSCOPE_RECORD(Name, id, doc) \
  case id:                              \
    return #Name;
#include "format/records.def"
    default:
      return nullptr;
  }
}

const char* LossName(uint64_t loss) {
  switch (static_cast<Loss>(loss)) {
#define VRAMSCOPE_LOSS(Name, id, text, help) \
  case Loss::k##Name:                        \
    return text;
#include "format/losses.def"
  }
  return "unknown loss";
}

uint32_t HeaderChecksum(const uint8_t* header) {
  struct Range {
    size_t begin;
    size_t end;
  };
  // The fields between these ranges change while the file grows.
  static constexpr Range kFixed[] = {
      {offsetof(FileHeader, major), offsetof(FileHeader, flags)},
      {offsetof(FileHeader, pid), offsetof(FileHeader, crc32c)},
      {offsetof(FileHeader, start_ticks), offsetof(FileHeader, anchor_ticks)},
      {offsetof(FileHeader, command), offsetof(FileHeader, lost_again)},
  };
  uint32_t flags;
  std::memcpy(&flags, header + offsetof(FileHeader, flags), sizeof flags);
  flags &= kTicksAreTsc;
  uint32_t crc = base::Crc32c(&flags, sizeof flags);
  for (const Range& range : kFixed)
    crc = base::Crc32c(header + range.begin, range.end - range.begin, crc);
  return crc != 0 ? crc : 1;
}

uint64_t ChunkHead(const uint8_t* chunk, uint32_t size_bytes) {
  constexpr size_t kAfterSize = offsetof(ChunkHeader, stream);
  uint32_t crc = base::Crc32c(&size_bytes, sizeof size_bytes);
  crc = base::Crc32c(chunk + kAfterSize, offsetof(ChunkHeader, committed_bytes) - kAfterSize, crc);
  crc = base::Crc32c(chunk + offsetof(ChunkHeader, tid), sizeof(ChunkHeader::tid), crc);
  return Halves(size_bytes, crc != 0 ? crc : 1);
}

uint64_t ExtendSeal(uint64_t seal, const uint8_t* records, uint32_t bytes) {
  const uint32_t from = LowHalf(seal);
  return Halves(bytes, base::Crc32c(records + from, bytes - from, HighHalf(seal)));
}

}  // namespace vramscope::format
