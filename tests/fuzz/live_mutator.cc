// SPDX-License-Identifier: Apache-2.0
#include "live_mutator.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "format/decoder.h"
#include "format/encoder.h"

namespace vramscope::fuzz {
namespace {

using format::ChunkHeader;
using format::FileHeader;

template <class T>
T Get(const std::string& bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

template <class T>
void Put(std::string* bytes, size_t offset, const T& value) {
  std::memcpy(bytes->data() + offset, &value, sizeof value);
}

const uint8_t* Bytes(const std::string& bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

// Times and addresses are differences in the file, and stay such: both sides begin at 0.
template <class Record>
std::string Encoded(const Record& record) {
  std::string out(format::EncodedBound(record), '\0');
  format::DeltaState delta;
  auto* const begin = reinterpret_cast<uint8_t*>(out.data());
  out.resize(static_cast<size_t>(format::Encode(record, begin, &delta) - begin));
  return out;
}

// Gives a record's fields to a function, as numbers that it may change, or texts.
template <class Number, class Text>
struct FieldVisitor {
  const Number& number;
  const Text& text;
  void Time(const char*, uint64_t& value) { number(&value); }
  void Address(const char*, uint64_t& value) { number(&value); }
  void Uint(const char*, uint64_t& value) { number(&value); }
  void Sint(const char*, int64_t& value) {
    auto bits = static_cast<uint64_t>(value);
    number(&bits);
    value = static_cast<int64_t>(bits);
  }
  void Blob(const char*, format::Bytes& value) { text(&value); }
};

// The record with its fields as the functions leave them; empty where it is none that we know.
template <class Number, class Text>
std::string WithFields(const std::string& record, const Number& number, const Text& text) {
  format::RawRecord raw;
  const uint8_t* at = Bytes(record);
  if (!format::NextRecord(&at, at + record.size(), &raw))
    return "";
  FieldVisitor<Number, Text> visitor{number, text};
  switch (raw.type) {
#define VRAMSCOPE_RECORD(Name, id, doc)        \
  case id: {                                   \
    format::Name fields;                       \
    format::DeltaState delta;                  \
    if (!format::Decode(raw, &delta, &fields)) \
      return "";                               \
    VisitFields(visitor, fields);              \
    return Encoded(fields);                    \
  }
#include "format/records.def"
    default:
      return "";
  }
}

// An empty record of the n-th type that there is.
std::string EmptyRecord(uint64_t number) {
  static const std::vector<std::string> kAll = {
#define VRAMSCOPE_RECORD(Name, id, doc) Encoded(format::Name{}),
#include "format/records.def"
  };
  return kAll[number % kAll.size()];
}

}  // namespace

LiveMutator::Image LiveMutator::Parse(const std::string& file) {
  Image image{file.substr(0, format::kPageBytes), {}};
  for (size_t at = format::kPageBytes; at + sizeof(ChunkHeader) <= file.size();) {
    Chunk chunk{file.substr(at, sizeof(ChunkHeader)), {}};
    const auto size = Get<uint32_t>(chunk.header, offsetof(ChunkHeader, size_bytes));
    if (Get<uint32_t>(chunk.header, offsetof(ChunkHeader, magic)) != format::kChunkMagic ||
        size < format::kPageBytes) {
      at += format::kPageBytes;
      continue;
    }
    const uint8_t* record = Bytes(file) + at + sizeof(ChunkHeader);
    const uint8_t* const end =
        record + Get<uint32_t>(chunk.header, offsetof(ChunkHeader, committed_bytes));
    format::RawRecord raw;
    for (const uint8_t* begin = record; format::NextRecord(&record, end, &raw); begin = record)
      chunk.records.emplace_back(begin, record);
    image.chunks.push_back(std::move(chunk));
    at += size;
  }
  return image;
}

std::string LiveMutator::Assemble(const Image& image) {
  std::string out = image.header;
  for (const Chunk& chunk : image.chunks) {
    std::string bytes = chunk.header;
    for (const std::string& record : chunk.records)
      bytes += record;
    const auto committed = static_cast<uint32_t>(bytes.size() - sizeof(ChunkHeader));
    const size_t pages = (bytes.size() + format::kPageBytes - 1) / format::kPageBytes;
    bytes.resize(pages * format::kPageBytes);
    const auto size = static_cast<uint32_t>(bytes.size());
    const uint64_t seal = format::ExtendSeal(0, Bytes(bytes) + sizeof(ChunkHeader), committed);
    Put(&bytes, offsetof(ChunkHeader, size_bytes), size);
    Put(&bytes, offsetof(ChunkHeader, committed_bytes), committed);
    Put(&bytes, offsetof(ChunkHeader, seal), seal);
    Put(&bytes, offsetof(ChunkHeader, crc32c), format::HighHalf(seal));
    Put(&bytes, offsetof(ChunkHeader, head), format::ChunkHead(Bytes(bytes), size));
    out += bytes;
  }
  Put(&out, offsetof(FileHeader, end_bytes), static_cast<uint64_t>(out.size()));
  Put(&out, offsetof(FileHeader, chunk_count), static_cast<uint64_t>(image.chunks.size()));
  const auto flags = Get<uint32_t>(out, offsetof(FileHeader, flags));
  Put(&out, offsetof(FileHeader, flags), format::CheckedFlags(flags));
  Put(&out, offsetof(FileHeader, crc32c), format::HeaderChecksum(Bytes(out)));
  return out;
}

uint64_t LiveMutator::Interesting() {
  switch (Below(8)) {
    case 0:
      return 0;
    case 1:
      return Below(4);
    case 2:
      return ~uint64_t{0} - Below(3);
    case 3:
      return uint64_t{1} << Below(64);
    case 4:
      return (uint64_t{1} << Below(64)) - 1;
    case 5:
      return Below(1000);
    case 6:
      return 0x7000 + 4096 * Below(16);  // an address that others have too
    default:
      return rng_() >> Below(64);
  }
}

std::string LiveMutator::SomeText() {
  static constexpr std::string_view kTexts[] = {
      "",     "a",    "/",  "../../etc/passwd", "\xff\xfe",
      "=1+1", "rank", "-1", "2147483648",       "x\n\x1b[31my"};
  if (Below(8) == 0)
    return std::string(Below(4000), static_cast<char>('a' + Below(26)));
  return std::string(kTexts[Below(std::size(kTexts))]);
}

void LiveMutator::ChangeField(std::string* record) {
  int left = static_cast<int>(Below(8));
  const std::string text = SomeText();
  std::string changed = WithFields(
      *record,
      [&](uint64_t* value) {
        if (left-- == 0)
          *value = Below(3) == 0 ? *value + Below(5) - 2 : Interesting();
      },
      [&](format::Bytes* value) {
        if (left-- == 0)
          *value = {text.data(), text.size()};
      });
  if (!changed.empty())
    *record = std::move(changed);
}

std::string LiveMutator::SomeRecord() {
  const std::string text = SomeText();
  return WithFields(
      EmptyRecord(rng_()),
      [&](uint64_t* value) { *value = Below(2) == 0 ? Below(6) : Interesting(); },
      [&](format::Bytes* value) {
        *value = {text.data(), text.size()};
      });
}

void LiveMutator::ChangeRecords(Chunk* chunk) {
  auto& records = chunk->records;
  const size_t at = Below(records.size());
  const auto where = records.begin() + static_cast<ptrdiff_t>(at);
  switch (records.empty() ? 0 : Below(8)) {
    case 0:
      records.insert(where, SomeRecord());
      break;
    case 1:
      records.erase(where);
      break;
    case 2:
      records.insert(where, Below(Below(8) == 0 ? 2000 : 5), std::string(*where));
      break;
    case 3:
      std::swap(*where, records[Below(records.size())]);
      break;
    case 4:  // another type, or a newer one
      (*where)[0] = static_cast<char>(Interesting());
      break;
    case 5:  // fields that are too many, or half of one
      if (records[at].size() > 2 && static_cast<uint8_t>(records[at][1]) < 0xf0) {
        records[at] += static_cast<char>(Interesting());
        ++records[at][1];
      }
      break;
    default:
      ChangeField(&*where);
  }
}

void LiveMutator::ChangeChunks(Image* image) {
  if (image->chunks.empty())
    return;
  Chunk& chunk = image->chunks[Below(image->chunks.size())];
  switch (Below(6)) {
    case 0:
      Put(&chunk.header, offsetof(ChunkHeader, stream), static_cast<uint32_t>(Interesting()));
      break;
    case 1:
      Put(&chunk.header, offsetof(ChunkHeader, sequence), static_cast<uint32_t>(Interesting()));
      break;
    case 2:
      Put(&chunk.header, offsetof(ChunkHeader, tid), static_cast<uint32_t>(Interesting()));
      break;
    case 3: {
      const size_t field =
          Below(2) == 0 ? offsetof(ChunkHeader, base_ticks) : offsetof(ChunkHeader, base_ns);
      Put(&chunk.header, field, Get<uint64_t>(chunk.header, field) + Interesting());
      break;
    }
    case 4: {
      Chunk copy = chunk;
      Put(&copy.header, offsetof(ChunkHeader, sequence),
          static_cast<uint32_t>(image->chunks.size()));
      image->chunks.push_back(std::move(copy));
      break;
    }
    default:
      image->chunks.erase(image->chunks.begin() + (&chunk - image->chunks.data()));
  }
}

void LiveMutator::ChangeHeader(std::string* header) {
  static constexpr size_t kNumbers[] = {offsetof(FileHeader, start_ticks),
                                        offsetof(FileHeader, start_ns),
                                        offsetof(FileHeader, start_wall_ns)};
  switch (Below(5)) {
    case 0:
      Put(header, offsetof(FileHeader, flags), static_cast<uint32_t>(Below(4)));
      break;
    case 1:
      Put(header, offsetof(FileHeader, pid), static_cast<uint32_t>(Interesting()));
      break;
    case 2: {
      const size_t slot = Below(format::kLossSlots) * sizeof(uint64_t);
      const uint64_t count = Interesting();
      Put(header, offsetof(FileHeader, lost) + slot, count);
      Put(header, offsetof(FileHeader, lost_again) + slot, count);
      break;
    }
    case 3:
      Put(header, offsetof(FileHeader, minor), static_cast<uint16_t>(Interesting()));
      break;
    default: {
      const size_t field = kNumbers[Below(std::size(kNumbers))];
      Put(header, field, Get<uint64_t>(*header, field) + Interesting());
    }
  }
}

void LiveMutator::AddBomb(Image* image) {
  if (image->chunks.empty())
    return;
  auto& records = image->chunks[Below(image->chunks.size())].records;
  const uint64_t kind = Below(12);
  const std::string text = kind < 6 ? std::string(Below(2) == 0 ? 8 : 1024, 'n') : SomeText();
  // Up to 16384, and half a MiB of text.
  const uint64_t count =
      std::min<uint64_t>(uint64_t{1} << (4 + Below(11)), (1 << 19) / (text.size() + 32));
  const format::Bytes bytes{text.data(), text.size()};
  const uint64_t base = 1'000'000 + Below(1000);
  if (kind <= 1)
    records.push_back(Encoded(format::String{.id = base - 1, .text = bytes}));
  for (uint64_t i = 0; i < count; ++i) {
    switch (kind) {
      case 0:
        records.push_back(Encoded(
            format::Scope{.id = base + i, .parent = i == 0 ? 0 : base + i - 1, .name = base - 1}));
        records.push_back(Encoded(format::ScopeIs{.scope = base + i}));
        break;
      case 1:
        if (i == 0)
          records.push_back(Encoded(format::PyCode{.id = base,
                                                   .file = base - 1,
                                                   .name = base - 1,
                                                   .table_kind = 2,
                                                   .line_table = bytes}));
        records.push_back(Encoded(format::PyStack{
            .id = base + i, .parent = base + i - 1, .code = base, .instruction = i, .object = i}));
        records.push_back(Encoded(
            format::BlockAlloc{.time = 1, .address = i * 64, .size = 1, .stack = base + i}));
        break;
      case 2:
        records.push_back(
            Encoded(format::NativeStack{.id = base + i, .parent = base + i - 1, .pc = i * 16 + 1}));
        records.push_back(Encoded(format::Alloc{
            .begin = 1, .end = 1, .address = i * 4096, .size = 4096, .native = base + i}));
        break;
      case 3:
        records.push_back(Encoded(format::Image{
            .begin = i % 7, .end = ~uint64_t{0} - i, .bias = i, .path = bytes, .build_id = {}}));
        records.push_back(Encoded(format::NativeStack{.id = base + i, .parent = 0, .pc = i * 16}));
        break;
      case 4:
        records.push_back(Encoded(format::Runtime{.key = bytes, .value = bytes}));
        break;
      case 5:
        records.push_back(Encoded(
            format::Thread{.tid = base + i, .name = {text.data(), std::min<size_t>(i, 8)}}));
        break;
      case 6:
        records.push_back(Encoded(format::BlockAlloc{.time = 1,
                                                     .address = i,
                                                     .size = uint64_t{1} << (i % 64),
                                                     .device = static_cast<int64_t>(i)}));
        break;
      case 7:
        records.push_back(
            Encoded(format::ProcessSample{.begin = 1, .end = 1, .device = 0, .pid = i, .used = i}));
        records.push_back(Encoded(format::ProcessExit{.time = 1, .pid = 100, .status = 0}));
        break;
      case 8:
        records.push_back(Encoded(format::Mark{.time = 1, .name = bytes}));
        break;
      case 9:
        records.push_back(Encoded(format::Map{
            .begin = 1, .end = 1, .address = 4096 - i, .size = 1 << 20, .handle = i % 3}));
        records.push_back(
            Encoded(format::HandleCreate{.begin = 1, .end = 1, .handle = i % 3, .size = 1 << 20}));
        break;
      case 10:
        records.push_back(Encoded(format::PoolCreate{.begin = 1, .end = 1, .pool = i}));
        records.push_back(
            Encoded(format::PoolReading{.time = 1, .pool = i, .reserved = i << 20, .used = i}));
        break;
      default:
        records.push_back(Encoded(format::Alloc{
            .begin = 1, .end = 1, .kind = i % 9, .context = i, .address = 64, .size = 1 << 20}));
        records.push_back(Encoded(format::Module{
            .time = 1, .object = i, .root = i + 1, .path = base - 1, .type = base - 1}));
    }
  }
}

std::string LiveMutator::Damage(std::string file) {
  const auto page_of = [&] {
    const size_t pages = file.size() / format::kPageBytes;
    return file.begin() + static_cast<ptrdiff_t>(Below(pages) * format::kPageBytes);
  };
  // Most of a page is often zero; nonzero bytes matter more.
  const auto somewhere = [&] {
    size_t at = Below(file.size());
    for (int i = 0; i < 8 && file[at] == 0; ++i)
      at = Below(file.size());
    return at;
  };
  const uint64_t kind = Below(10);
  switch (file.size() < 2 * format::kPageBytes ? 0 : kind) {
    case 5: {
      const auto sector = page_of() + static_cast<ptrdiff_t>(512 * Below(8));
      std::fill(sector, sector + 512, '\0');
      break;
    }
    case 6:
      std::copy_n(page_of(), format::kPageBytes, page_of());
      break;
    case 7: {
      const auto page = page_of();
      std::swap_ranges(page, page + format::kPageBytes, page_of());
      break;
    }
    case 8:
      file.resize(Below(2) == 0 ? Below(file.size())
                                : format::kPageBytes * Below(file.size() / format::kPageBytes));
      break;
    case 9:
      for (uint64_t left = 1 + Below(16); left != 0; --left)
        file[somewhere()] = static_cast<char>(Interesting());
      break;
    default:
      for (uint64_t left = 1 + Below(3); left != 0; --left) {
        const size_t at = somewhere();
        file[at] = static_cast<char>(file[at] ^ 1 << Below(8));
      }
  }
  return file;
}

std::string LiveMutator::Forge(const std::string& file) {
  Image image = Parse(file);
  for (uint64_t left = 1 + Below(6); left != 0; --left) {
    const uint64_t kind = Below(20);
    if (kind == 0)
      ChangeHeader(&image.header);
    else if (kind <= 3)
      ChangeChunks(&image);
    else if (kind == 4)
      AddBomb(&image);
    else if (!image.chunks.empty())
      ChangeRecords(&image.chunks[Below(image.chunks.size())]);
  }
  return Assemble(image);
}

std::string LiveMutator::Cross(const std::string& file, const std::string& other) {
  Image image = Parse(file);
  const Image from = Parse(other);
  if (image.chunks.empty() || from.chunks.empty())
    return Assemble(image);
  const Chunk& source = from.chunks[Below(from.chunks.size())];
  if (Below(4) == 0) {
    image.chunks.insert(
        image.chunks.begin() + static_cast<ptrdiff_t>(Below(image.chunks.size() + 1)), source);
    return Assemble(image);
  }
  // Some records in a row, put between or in place of some.
  auto& records = image.chunks[Below(image.chunks.size())].records;
  const size_t begin = Below(source.records.size());
  const size_t count = Below(source.records.size() - begin + 1);
  const size_t at = Below(records.size() + 1);
  const size_t gone = Below(2) == 0 ? 0 : Below(records.size() - at + 1);
  const auto where = records.begin() + static_cast<ptrdiff_t>(at);
  const auto first = source.records.begin() + static_cast<ptrdiff_t>(begin);
  records.insert(records.erase(where, where + static_cast<ptrdiff_t>(gone)), first,
                 first + static_cast<ptrdiff_t>(count));
  return Assemble(image);
}

std::string LiveMutator::ForgeJson(std::string text) {
  for (uint64_t left = Below(4); left != 0; --left) {
    static constexpr std::string_view kPieces[] = {
        "[[[[[[[[[[[[[[[[[[", "\\ud800", "\"", "{\"", "\\", ",", "null", "1e999", "\xff"};
    const std::string_view piece = kPieces[Below(std::size(kPieces))];
    const size_t at = Below(text.size() + 1);
    if (Below(2) == 0)
      text.insert(at, piece);
    else
      text.erase(at, Below(16));
  }
  if (Below(50) == 0)
    text.append(Below(1 << 20), '[');
  return text;
}

}  // namespace vramscope::fuzz
