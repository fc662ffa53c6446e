// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The finished file, NAME.vram: one recording as tables, which opens on any machine. All integers
// are little endian.
//
//   offset 0    FileHeader   64 bytes
//               block | block | block | ...          frames of allocations, then the other tables
//               IndexEntry | IndexEntry | ...        one a block, in file order
//   end - 40    Trailer      40 bytes: where the index is, how large the file is
//
//   block:      BlockHeader (24) | ColumnHeader (40) for each column | payload of each column
//   payload:    stored size of each stream (4) | stream | stream | ...
//   stream:     one zstd frame; plain bytes where that is not smaller
//
// Blocks follow each other without gaps, and the index names each one once. Every byte is under
// one checksum: the file header's, a block's (headers), a column's (payload), the index's or the
// trailer's.
namespace vramscope::tables {

inline constexpr char kFileMagic[8] = {'V', 'R', 'A', 'M', 'S', 'C', 'O', 'P'};
inline constexpr uint16_t kMajorVersion = 2;
inline constexpr uint16_t kMinorVersion = 0;
inline constexpr uint32_t kBlockMagic = 0x4b4c4256;            // "VBLK"
inline constexpr uint64_t kTrailerMagic = 0x31444e4542545356;  // "VSTBEND1"

// Rows of a block. No column of a file has more values than this, whatever it says.
inline constexpr uint32_t kMaxBlockRows = 65536;
inline constexpr uint32_t kMaxBlockColumns = 64;
// Text of a block of strings.
inline constexpr size_t kTextBytesPerBlock = size_t{1} << 20;
// Of one text; a longer one is cut, by the writer and by the reader. Names are made of records of
// at most 32 KiB, command lines and source lines can be longer.
inline constexpr size_t kMaxTextBytes = kTextBytesPerBlock;
// The most allocations that a reader accepts: a constant, and more for each byte of the file. The
// time of a question depends on the rows.
inline constexpr uint64_t kBaseAllocations = uint64_t{8} << 20;
inline constexpr uint64_t kAllocationsPerFileByte = 64;

// Blocks other than the tables of tables.def.
enum BlockTable : uint16_t {
  kSessionBlock = 0xff00,  // texts: key, value, key, value, ...
  kStringsBlock = 0xff01,  // texts: the string table from its row 1 on
  // Noise, to be skipped. A reader expands a file only as far as its size allows (util/budget.h),
  // and equal rows compress without limit: the writer pads such a file to the size that the reader
  // requires.
  kPaddingBlock = 0xff02,
};

// Columns of both.
enum TextColumn : uint16_t {
  kTextSizes = 1,
  kTextBytes = 2,
};

struct FileHeader {
  char magic[8];
  uint16_t major;
  uint16_t minor;
  uint32_t header_bytes;  // offset of the first block
  char version[40];       // of the vramscope that recorded it, NUL-padded
  uint32_t reserved;
  uint32_t crc;  // crc32c of this header up to here
};
static_assert(sizeof(FileHeader) == 64);

struct BlockHeader {
  uint32_t magic;
  uint16_t table;    // number in tables.def, or a BlockTable; an unknown one is skipped
  uint16_t columns;  // ColumnHeaders that follow
  uint32_t rows;
  uint32_t bytes;  // of the whole block, this header included
  uint32_t reserved;
  uint32_t crc;  // crc32c of this header, with 0 here, and of its column headers
};
static_assert(sizeof(BlockHeader) == 24);

// How the values of a column become its streams. `planes` are streams of one byte a value, the
// lowest byte first: noise is all in the first of them, and the others compress to little.
enum class Encoding : uint8_t {
  kPlain = 0,       // value[i] = base + planes[i]
  kDelta = 1,       // value[i] = value[i - 1] + step + planes[i]; value[-1] = base - step
  kDictionary = 2,  // 8 planes of `entries` values, then one stream of indices of 1 or 2 bytes
  kBytes = 3,       // one stream of `values` bytes: text
};

struct ColumnHeader {
  uint16_t number;  // in tables.def, or as the kind of block says; an unknown one is skipped
  uint8_t encoding;
  uint8_t width;  // planes, or bytes of an index
  uint32_t values;
  uint32_t entries;  // of a dictionary
  uint32_t bytes;    // of the payload
  uint64_t base;
  uint64_t step;
  uint32_t reserved;
  uint32_t crc;  // crc32c of the payload
};
static_assert(sizeof(ColumnHeader) == 40);

struct IndexEntry {
  uint16_t table;
  uint16_t reserved;
  uint32_t rows;
  uint64_t offset;
  uint32_t bytes;
  uint32_t crc;  // of the BlockHeader
  // Of allocations, else 0.
  int64_t min_begin_ns;
  int64_t max_begin_ns;
  int64_t min_end_ns;
  int64_t max_end_ns;
  uint64_t accounts;  // FrameZone::accounts
};
static_assert(sizeof(IndexEntry) == 64);

struct Trailer {
  uint64_t index_offset;
  uint32_t index_entries;
  uint32_t index_crc;   // crc32c of the entries
  uint64_t file_bytes;  // this trailer included
  uint64_t magic;
  uint32_t reserved;
  uint32_t crc;  // crc32c of this trailer up to here
};
static_assert(sizeof(Trailer) == 40);

}  // namespace vramscope::tables
