// SPDX-License-Identifier: Apache-2.0
#include "trace/finished/frame_io.h"

#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/crc32c.h"
#include "trace/checksum.h"
#include "trace/finished_content.h"

namespace vramscope::trace::finished {
namespace {

// Level 3 packs an event into a sixth less than level 1; level 9 takes four times as long for a
// tenth more.
constexpr int kCompressionLevel = 3;

template <class T>
std::span<const uint8_t> BytesOf(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof value};
}

// Columns of the index frame.
enum IndexColumn : size_t {
  kType = 0,
  kOffset = 1,  // difference to the frame before
  kStored = 2,
  kRaw = 3,
  kRows = 4,
  kCrc = 5,
  kFirst = 6,  // signed difference to the frame before
  kLast = 7,   // difference to the frame's own first
};

}  // namespace

void FrameWriter::FreeContext::operator()(ZSTD_CCtx* context) const {
  ZSTD_freeCCtx(context);
}
void FrameReader::FreeContext::operator()(ZSTD_DCtx* context) const {
  ZSTD_freeDCtx(context);
}

util::Result<FrameWriter> FrameWriter::Create(const std::string& path) {
  auto file = util::AtomicFile::Create(path, &kFinishedContent);
  if (!file.ok())
    return file.status();
  FrameWriter writer(std::move(*file));
  writer.context_.reset(ZSTD_createCCtx());
  if (writer.context_ == nullptr)
    return util::Status::Error(path + ": out of memory");
  FileHeader header{};
  std::memcpy(header.magic, kFinishedMagic, sizeof header.magic);
  header.major = kMajorVersion;
  header.minor = kMinorVersion;
  header.header_bytes = sizeof header;
  VRAMSCOPE_RETURN_IF_ERROR(writer.file_.Write(BytesOf(header)));
  return writer;
}

util::Status FrameWriter::Write(FrameType type,
                                uint32_t rows,
                                int64_t first,
                                int64_t last,
                                ColumnSetWriter* columns) {
  columns->TakeBytes(&raw_);
  stored_.resize(ZSTD_compressBound(raw_.size()));
  const size_t stored = ZSTD_compressCCtx(context_.get(), stored_.data(), stored_.size(),
                                          raw_.data(), raw_.size(), kCompressionLevel);
  if (ZSTD_isError(stored) || raw_.size() > kMaxRawBytes || stored > kMaxStoredBytes) {
    return util::Status::Error("a trace frame of " + std::to_string(raw_.size()) +
                               " bytes cannot be compressed");
  }
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.type = static_cast<uint16_t>(type);
  header.stored_bytes = static_cast<uint32_t>(stored);
  header.raw_bytes = static_cast<uint32_t>(raw_.size());
  header.rows = rows;
  header.first = first;
  header.last = last;
  header.payload_crc = base::Crc32c(stored_.data(), stored);
  header.header_crc = base::Crc32c(&header, offsetof(FrameHeader, header_crc));
  frames_.push_back({type, file_.offset(), header.stored_bytes, header.raw_bytes, rows,
                     header.payload_crc, first, last});
  VRAMSCOPE_RETURN_IF_ERROR(file_.Write(BytesOf(header)));
  return file_.Write(std::span<const uint8_t>(stored_.data(), stored));
}

util::Status FrameWriter::Finish() {
  ColumnSetWriter columns;
  FrameRef before;
  for (const FrameRef& frame : frames_) {
    columns[kType].Put(static_cast<uint64_t>(frame.type));
    columns[kOffset].Put(frame.offset - before.offset);
    columns[kStored].Put(frame.stored_bytes);
    columns[kRaw].Put(frame.raw_bytes);
    columns[kRows].Put(frame.rows);
    columns[kCrc].Put(frame.payload_crc);
    columns[kFirst].PutSigned(static_cast<int64_t>(static_cast<uint64_t>(frame.first) -
                                                   static_cast<uint64_t>(before.first)));
    columns[kLast].Put(static_cast<uint64_t>(frame.last) - static_cast<uint64_t>(frame.first));
    before = frame;
  }
  Trailer trailer{};
  trailer.index_offset = file_.offset();
  trailer.magic = kTrailerMagic;
  trailer.crc = base::Crc32c(&trailer, offsetof(Trailer, crc));
  const auto rows = static_cast<uint32_t>(frames_.size());
  VRAMSCOPE_RETURN_IF_ERROR(Write(FrameType::kIndex, rows, 0, rows, &columns));
  VRAMSCOPE_RETURN_IF_ERROR(file_.Write(BytesOf(trailer)));
  return file_.Commit();
}

util::Status FrameReader::Open(std::span<const uint8_t> file, const std::string& name) {
  file_ = file;
  frames_.clear();
  damaged_bytes_ = damaged_places_ = 0;
  if (file.empty())
    return util::Status::Error(name + ": is empty");
  if (file.size() < sizeof kFinishedMagic ||
      std::memcmp(file.data(), kFinishedMagic, sizeof kFinishedMagic) != 0) {
    return util::Status::Error(name + ": is not a vramscope trace");
  }
  if (file.size() < sizeof(FileHeader)) {
    return util::Status::Error(name + ": was cut off after " + std::to_string(file.size()) +
                               " bytes: nothing of it can be read");
  }
  FileHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  if (header.major > kMajorVersion) {
    return util::Status::Error(name + ": was written by a newer vramscope (format " +
                               std::to_string(header.major) + ", this one reads up to " +
                               std::to_string(kMajorVersion) + "): update vramscope");
  }
  context_.reset(ZSTD_createDCtx());
  if (context_ == nullptr)
    return util::Status::Error(name + ": out of memory");
  const uint64_t header_bytes = std::max<uint64_t>(header.header_bytes, sizeof header);
  if (!ReadIndex(header_bytes)) {
    ScanForFrames(header_bytes);
    // A file cut between two frames has no damaged byte, but something of it is missing.
    damaged_places_ = std::max<uint64_t>(damaged_places_, 1);
  }
  return {};
}

bool FrameReader::ReadHeaderAt(uint64_t offset, FrameRef* frame) const {
  if (offset > file_.size() || file_.size() - offset < sizeof(FrameHeader))
    return false;
  FrameHeader header;
  std::memcpy(&header, file_.data() + offset, sizeof header);
  if (header.magic != kFrameMagic ||
      !ChecksumHolds(&header, offsetof(FrameHeader, header_crc), header.header_crc) ||
      header.stored_bytes > kMaxStoredBytes || header.raw_bytes > kMaxRawBytes ||
      header.rows > kMaxRows) {
    return false;
  }
  *frame = {static_cast<FrameType>(header.type),
            offset,
            header.stored_bytes,
            header.raw_bytes,
            header.rows,
            header.payload_crc,
            header.first,
            header.last};
  return true;
}

bool FrameReader::ReadIndex(uint64_t header_bytes) {
  if (file_.size() < header_bytes + sizeof(Trailer))
    return false;
  Trailer trailer;
  std::memcpy(&trailer, file_.data() + file_.size() - sizeof trailer, sizeof trailer);
  FrameRef index;
  ColumnSetReader columns;
  if (trailer.magic != kTrailerMagic ||
      !ChecksumHolds(&trailer, offsetof(Trailer, crc), trailer.crc) ||
      !ReadHeaderAt(trailer.index_offset, &index) || index.type != FrameType::kIndex ||
      !Read(index, &columns)) {
    return false;
  }
  std::vector<ColumnReader> column;
  for (size_t i = kType; i <= kLast; ++i)
    column.push_back(columns.Column(i));
  uint64_t offset = 0;
  uint64_t first = 0;
  for (uint32_t row = 0; row < index.rows; ++row) {
    offset += column[kOffset].Next();
    FrameRef frame;
    frame.type = static_cast<FrameType>(column[kType].Next());
    frame.offset = offset;
    frame.stored_bytes = static_cast<uint32_t>(column[kStored].Next());
    frame.raw_bytes = static_cast<uint32_t>(column[kRaw].Next());
    frame.rows = static_cast<uint32_t>(column[kRows].Next());
    frame.payload_crc = static_cast<uint32_t>(column[kCrc].Next());
    first += static_cast<uint64_t>(column[kFirst].NextSigned());
    frame.first = static_cast<int64_t>(first);
    frame.last = static_cast<int64_t>(first + column[kLast].Next());
    if (frame.raw_bytes > kMaxRawBytes || frame.rows > kMaxRows)
      break;
    frames_.push_back(frame);
  }
  bool ok = frames_.size() == index.rows;
  for (const ColumnReader& reader : column)
    ok = ok && reader.ok();
  if (!ok)
    frames_.clear();
  return ok;
}

void FrameReader::ScanForFrames(uint64_t header_bytes) {
  uint64_t damage_begin = header_bytes;
  const auto end_damage = [&](uint64_t offset) {
    if (offset <= damage_begin)
      return;
    damaged_bytes_ += offset - damage_begin;
    ++damaged_places_;
  };
  uint8_t magic[sizeof kFrameMagic];
  std::memcpy(magic, &kFrameMagic, sizeof magic);
  uint64_t offset = std::min<uint64_t>(header_bytes, file_.size());
  while (offset < file_.size()) {
    FrameRef frame;
    const bool whole = ReadHeaderAt(offset, &frame) &&
                       frame.stored_bytes <= file_.size() - offset - sizeof(FrameHeader);
    if (whole) {
      end_damage(offset);
      if (frame.type != FrameType::kIndex)
        frames_.push_back(frame);
      offset += sizeof(FrameHeader) + frame.stored_bytes;
      damage_begin = offset;
      continue;
    }
    const auto next = std::search(file_.begin() + static_cast<ptrdiff_t>(offset) + 1, file_.end(),
                                  magic, magic + sizeof magic);
    offset = static_cast<uint64_t>(next - file_.begin());
  }
  end_damage(file_.size());
}

bool FrameReader::Read(const FrameRef& frame, ColumnSetReader* columns) {
  const uint64_t begin = frame.offset + sizeof(FrameHeader);
  if (begin > file_.size() || frame.stored_bytes > file_.size() - begin)
    return false;
  const uint8_t* stored = file_.data() + begin;
  if (!ChecksumHolds(stored, frame.stored_bytes, frame.payload_crc))
    return false;
  raw_.resize(frame.raw_bytes);
  const size_t raw =
      ZSTD_decompressDCtx(context_.get(), raw_.data(), raw_.size(), stored, frame.stored_bytes);
  if (ZSTD_isError(raw) || raw != frame.raw_bytes)
    return false;
  return columns->Parse(raw_);
}

}  // namespace vramscope::trace::finished
