// SPDX-License-Identifier: Apache-2.0
#include "tables/testing/file_model.h"

#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <numeric>

#include "base/coding.h"
#include "tables/column_codec.h"

namespace vramscope::tables::testing {
namespace {

template <class T>
bool ReadAt(std::string_view bytes, uint64_t offset, T* value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof *value)
    return false;
  std::memcpy(value, bytes.data() + offset, sizeof *value);
  return true;
}

template <class T>
void Append(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Nothing that Mutate() has to do with is larger.
constexpr size_t kMaxStreamBytes = size_t{16} << 20;

bool Unpack(std::string_view stored, size_t size, std::string* raw) {
  if (stored.size() == size) {
    *raw = stored;
    return true;
  }
  if (size > kMaxStreamBytes)
    return false;
  raw->resize(size);
  return ZSTD_decompress(raw->data(), size, stored.data(), stored.size()) == size;
}

std::string Pack(std::string_view raw) {
  constexpr size_t kWorthPacking = 64;  // packing is most of what a mutation costs
  if (raw.size() < kWorthPacking)
    return std::string(raw);
  std::string stored(ZSTD_compressBound(raw.size()), '\0');
  stored.resize(ZSTD_compress(stored.data(), stored.size(), raw.data(), raw.size(), 1));
  return stored.size() < raw.size() ? stored : std::string(raw);
}

// How large each stream is, unpacked.
std::vector<size_t> StreamSizes(const ColumnHeader& header) {
  switch (static_cast<Encoding>(header.encoding)) {
    case Encoding::kPlain:
    case Encoding::kDelta:
      return std::vector<size_t>(header.width, header.values);
    case Encoding::kDictionary: {
      std::vector<size_t> sizes(8, header.entries);
      sizes.push_back(size_t{header.values} * header.width);
      return sizes;
    }
    case Encoding::kBytes:
      return {header.values};
  }
  return {};
}

std::string Payload(const FileModel::Column& column) {
  std::string sizes, streams;
  for (const std::string& raw : column.streams) {
    const std::string stored = Pack(raw);
    Append(static_cast<uint32_t>(stored.size()), &sizes);
    streams += stored;
  }
  return sizes + streams;
}

// The block at `offset` in the file; its entry of the index goes to `entry`.
std::string BlockBytes(const FileModel::Block& block, uint64_t offset, IndexEntry* entry) {
  std::string headers, payloads;
  for (const FileModel::Column& column : block.columns) {
    const std::string payload = Payload(column);
    ColumnHeader header = column.header;
    header.bytes = static_cast<uint32_t>(payload.size());
    header.crc = base::Crc32c(payload.data(), payload.size());
    Append(header, &headers);
    payloads += payload;
  }
  BlockHeader header = block.header;
  header.columns = static_cast<uint16_t>(block.columns.size());
  header.bytes = static_cast<uint32_t>(sizeof header + headers.size() + payloads.size());
  header.crc = 0;
  header.crc = base::Crc32c(headers.data(), headers.size(), base::Crc32c(&header, sizeof header));
  *entry = block.entry;
  entry->offset = offset;
  entry->bytes = header.bytes;
  entry->crc = header.crc;
  std::string bytes;
  Append(header, &bytes);
  return bytes + headers + payloads;
}

// A value that code may not have thought of.
uint64_t OddValue(std::mt19937_64* random) {
  constexpr uint64_t kOdd[] = {0,          1,         2,          8,          9,          255,
                               256,        65535,     65536,      65537,      1u << 20,   INT32_MAX,
                               UINT32_MAX, INT64_MAX, 1ull << 63, UINT64_MAX, 1ull << 32, 1000};
  if ((*random)() % 4 == 0)
    return (*random)() >> ((*random)() % 64);
  return kOdd[(*random)() % std::size(kOdd)];
}

template <class T>
void Change(T* field, std::mt19937_64* random) {
  if ((*random)() % 3 == 0)
    *field = static_cast<T>(static_cast<uint64_t>(*field) + (*random)() % 5 - 2);
  else
    *field = static_cast<T>(OddValue(random));
}

void MutateColumn(FileModel::Column* column, std::mt19937_64* random) {
  ColumnHeader& header = column->header;
  switch ((*random)() % 9) {
    case 0:
      return Change(&header.number, random);
    case 1:
      header.encoding = static_cast<uint8_t>((*random)() % 5);
      return;
    case 2:
      header.width = static_cast<uint8_t>((*random)() % 10);
      if ((*random)() % 2 == 0)
        column->streams.resize(header.width, std::string(header.values, '\0'));
      return;
    case 3:
      Change(&header.values, random);
      // Streams of that size, which take only a few bytes in the file.
      if ((*random)() % 2 == 0 && header.values <= (4u << 20)) {
        for (std::string& stream : column->streams)
          stream.resize(header.values);
      }
      return;
    case 4:
      return Change(&header.entries, random);
    case 5:
      return Change(&header.base, random);
    case 6:
      return Change(&header.step, random);
    case 7:
      if (!column->streams.empty() && (*random)() % 2 == 0)
        column->streams.pop_back();
      else
        column->streams.emplace_back((*random)() % 100, '\0');
      return;
    default:
      break;
  }
  if (column->streams.empty())
    return;
  std::string& stream = column->streams[(*random)() % column->streams.size()];
  if (stream.empty() || (*random)() % 4 == 0)
    return stream.resize(OddValue(random) % (1u << 20));
  for (size_t i = (*random)() % 3; i < 3; ++i)
    stream[(*random)() % stream.size()] = static_cast<char>((*random)());
}

// The values of a column; false where it has none, or is damaged.
bool Values(const FileModel::Column& column, std::vector<uint64_t>* values) {
  constexpr uint32_t kMostValues = 1 << 16;
  if (column.header.encoding == static_cast<uint8_t>(Encoding::kBytes) ||
      column.header.values == 0 || column.header.values > kMostValues) {
    return false;
  }
  const std::string payload = Payload(column);
  values->resize(column.header.values);
  return DecodeColumn(column.header,
                      {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()},
                      values->data());
}

void SetValues(const std::vector<uint64_t>& values, FileModel::Column* column) {
  column->header.encoding = static_cast<uint8_t>(Encoding::kPlain);
  column->header.width = sizeof(uint64_t);
  column->header.values = static_cast<uint32_t>(values.size());
  column->header.base = 0;
  column->streams.assign(sizeof(uint64_t), std::string(values.size(), '\0'));
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t plane = 0; plane < sizeof(uint64_t); ++plane)
      column->streams[plane][i] = static_cast<char>(values[i] >> (8 * plane));
  }
}

// Changes values in a few rows of a block of a valid file, to test the code after the reader's
// checks. Ids stay small, so that most of them exist.
void MutateRows(FileModel::Block* block, std::mt19937_64* random) {
  const uint64_t kind = (*random)() % 6;
  const uint64_t a = (*random)(), b = (*random)();
  const size_t only = block->columns.empty() ? 0 : (*random)() % block->columns.size();
  uint32_t rows = block->header.rows;
  for (size_t i = 0; i < block->columns.size(); ++i) {
    std::vector<uint64_t> values;
    if ((kind < 4 && i != only) || !Values(block->columns[i], &values))
      continue;
    const auto row = [&](uint64_t at) {
      return values.begin() + static_cast<ptrdiff_t>(at % values.size());
    };
    switch (kind) {
      case 0:
        Change(&*row(a), random);
        break;
      case 1:
        *row(a) = b % (values.size() + 2);
        break;
      case 2:
        *row(a) = *row(b);
        break;
      case 3:
        *row(a) += b % 2 == 0 ? uint64_t{1} << (b >> 8) % 64 : -(b >> 8) % 100;
        break;
      case 4:
        values.erase(row(a));
        break;
      default:
        values.insert(row(b), 1 + b % 3, uint64_t{*row(a)});
    }
    rows = static_cast<uint32_t>(values.size());
    SetValues(values, &block->columns[i]);
  }
  block->header.rows = block->entry.rows = rows;
}

void MutateBlock(FileModel::Block* block, std::mt19937_64* random) {
  switch ((*random)() % 12) {
    case 0:
      Change(&block->entry.rows, random);
      block->header.rows = block->entry.rows;
      return;
    case 1:
      return Change(&block->header.rows, random);
    case 2:
      Change(&block->entry.table, random);
      block->header.table = block->entry.table;
      return;
    case 3:
      return Change(&block->header.magic, random);
    case 4:
      return Change(&block->entry.min_begin_ns, random);
    case 5:
      return Change(&block->entry.max_begin_ns, random);
    case 6:
      return Change(&block->entry.min_end_ns, random);
    case 7:
      return Change(&block->entry.max_end_ns, random);
    default:
      break;
  }
  if (block->columns.empty())
    return;
  const size_t column = (*random)() % block->columns.size();
  switch ((*random)() % 6) {
    case 0:
      block->columns.erase(block->columns.begin() + static_cast<ptrdiff_t>(column));
      return;
    case 1:
      block->columns.push_back(block->columns[column]);
      return;
    default:
      return MutateColumn(&block->columns[column], random);
  }
}

bool ReadStreams(std::string_view file, uint64_t payload_at, FileModel::Column* column) {
  const std::vector<size_t> sizes = StreamSizes(column->header);
  uint64_t stream_at = payload_at + sizes.size() * sizeof(uint32_t);
  for (size_t s = 0; s < sizes.size(); ++s) {
    uint32_t stored = 0;
    if (!ReadAt(file, payload_at + s * sizeof stored, &stored) || stream_at > file.size() ||
        file.size() - stream_at < stored ||
        !Unpack(file.substr(stream_at, stored), sizes[s], &column->streams.emplace_back())) {
      return false;
    }
    stream_at += stored;
  }
  return true;
}

}  // namespace

std::optional<FileModel> TakeApart(std::string_view file) {
  FileModel model;
  Trailer trailer;
  if (file.size() < sizeof trailer || !ReadAt(file, 0, &model.header) ||
      !ReadAt(file, file.size() - sizeof trailer, &trailer) ||
      trailer.index_entries > file.size() / sizeof(IndexEntry)) {
    return std::nullopt;
  }
  for (size_t i = 0; i < trailer.index_entries; ++i) {
    FileModel::Block& block = model.blocks.emplace_back();
    if (!ReadAt(file, trailer.index_offset + i * sizeof(IndexEntry), &block.entry) ||
        !ReadAt(file, block.entry.offset, &block.header)) {
      return std::nullopt;
    }
    uint64_t header_at = block.entry.offset + sizeof(BlockHeader);
    uint64_t payload_at = header_at + block.header.columns * sizeof(ColumnHeader);
    for (size_t c = 0; c < block.header.columns; ++c, header_at += sizeof(ColumnHeader)) {
      FileModel::Column& column = block.columns.emplace_back();
      if (!ReadAt(file, header_at, &column.header) || !ReadStreams(file, payload_at, &column))
        return std::nullopt;
      payload_at += column.header.bytes;
    }
  }
  model.index.resize(model.blocks.size());
  std::iota(model.index.begin(), model.index.end(), size_t{0});
  return model;
}

std::string PutTogether(const FileModel& model) {
  FileHeader header = model.header;
  header.crc = base::Crc32c(&header, offsetof(FileHeader, crc));
  std::string file;
  Append(header, &file);
  std::vector<IndexEntry> entries(model.blocks.size());
  for (size_t i = 0; i < model.blocks.size(); ++i)
    file += BlockBytes(model.blocks[i], file.size(), &entries[i]);
  std::string index;
  for (const size_t block : model.index)
    Append(entries[block], &index);
  Trailer trailer{};
  trailer.index_offset = file.size();
  trailer.index_entries = static_cast<uint32_t>(model.index.size());
  trailer.index_crc = base::Crc32c(index.data(), index.size());
  trailer.file_bytes = file.size() + index.size() + sizeof trailer;
  trailer.magic = kTrailerMagic;
  trailer.crc = base::Crc32c(&trailer, offsetof(Trailer, crc));
  file += index;
  Append(trailer, &file);
  return file;
}

void Cross(FileModel* model, const FileModel& other, std::mt19937_64* random) {
  if (other.blocks.empty())
    return;
  const FileModel::Block& block = other.blocks[(*random)() % other.blocks.size()];
  const auto same = std::find_if(model->blocks.begin(), model->blocks.end(), [&](const auto& own) {
    return own.entry.table == block.entry.table;
  });
  if (same != model->blocks.end() && (*random)() % 4 != 0) {
    *same = block;
    return;
  }
  model->index.push_back(model->blocks.size());
  model->blocks.push_back(block);
}

void Mutate(FileModel* model, std::mt19937_64* random) {
  for (size_t i = (*random)() % 3; i < 3; ++i) {
    if (model->blocks.empty())
      return;
    const size_t at = (*random)() % model->blocks.size();
    if ((*random)() % 2 == 0) {
      MutateRows(&model->blocks[at], random);
      continue;
    }
    switch ((*random)() % 16) {
      case 0:
        Change(&model->header.minor, random);
        break;
      case 1:
        Change(&model->header.header_bytes, random);
        break;
      case 2:  // the index names a block many times
        model->index.insert(model->index.end(), (*random)() % 1000, at);
        break;
      case 3:  // or the file has the block many times
        for (size_t copies = (*random)() % 50; copies != 0; --copies) {
          model->index.push_back(model->blocks.size());
          model->blocks.push_back(FileModel::Block(model->blocks[at]));
        }
        break;
      case 4:
        model->index.erase(model->index.begin() +
                           static_cast<ptrdiff_t>((*random)() % model->index.size()));
        if (model->index.empty())
          return;
        break;
      case 5:
        std::swap(model->blocks[at], model->blocks[(*random)() % model->blocks.size()]);
        break;
      default:
        MutateBlock(&model->blocks[at], random);
    }
  }
}

}  // namespace vramscope::tables::testing
