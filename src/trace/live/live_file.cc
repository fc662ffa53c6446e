// SPDX-License-Identifier: Apache-2.0
#include "trace/live/live_file.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "trace/checksum.h"

namespace vramscope::trace {
namespace {

using format::ChunkHeader;
using format::FileHeader;

// Reads a header field. Through memcpy: the bytes may be anybody's and anywhere, and the file may
// be written to as we read.
template <class T>
T Get(const uint8_t* at, size_t field_offset) {
  T value;
  std::memcpy(&value, at + field_offset, sizeof value);
  return value;
}

// Largest chunk that a writer of this major version can make; a larger size is damage.
constexpr uint32_t kMaxChunkBytes = 64u << 20;

bool AllZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

// argv as the kernel keeps it, NUL-separated, as people read it.
std::string JoinCommand(const char* data, size_t size) {
  std::string text(data, size);
  text.resize(text.find_last_not_of('\0') + 1);
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

}  // namespace

util::Result<LiveFile> LiveFile::Open(const std::string& path, LossCounter* losses) {
  auto mapped = util::MappedFile::Open(path);
  if (!mapped.ok())
    return mapped.status();
  auto file = FromBytes(mapped->bytes(), path, losses);
  if (file.ok())
    file->mapped_ = std::move(*mapped);
  return file;
}

util::Result<LiveFile> LiveFile::FromBytes(std::span<const uint8_t> bytes,
                                           const std::string& name,
                                           LossCounter* losses) {
  LiveFile file;
  file.bytes_ = bytes;
  VRAMSCOPE_RETURN_IF_ERROR(file.ReadHeader(name));
  for (size_t loss = 0; loss < std::size(file.lost_); ++loss) {
    losses->AddRaw(loss, file.lost_[loss], 0);
  }
  file.FindChunks(losses);
  return file;
}

util::Status LiveFile::ReadHeader(const std::string& name) {
  if (bytes_.size() < sizeof(FileHeader) ||
      std::memcmp(bytes_.data(), format::kFileMagic, sizeof format::kFileMagic) != 0) {
    return util::Status::Error(name +
                               ": is not a live file of vramscope, or its header was cut off");
  }
  const uint8_t* at = bytes_.data();
  const auto major = Get<uint16_t>(at, offsetof(FileHeader, major));
  if (major > format::kMajorVersion) {
    return util::Status::Error(name + ": was recorded by a newer vramscope (format " +
                               std::to_string(major) + ", this one reads up to " +
                               std::to_string(format::kMajorVersion) + "): update vramscope");
  }
  is_launcher_ = Get<uint16_t>(at, offsetof(FileHeader, writer)) ==
                 static_cast<uint16_t>(format::WriterKind::kLauncher);
  header_bytes_ = Get<uint16_t>(at, offsetof(FileHeader, header_bytes));
  if (header_bytes_ < sizeof(FileHeader))
    header_bytes_ = format::kPageBytes;
  flags_ = Get<uint32_t>(at, offsetof(FileHeader, flags));
  pid_ = Get<uint32_t>(at, offsetof(FileHeader, pid));
  parent_pid_ = Get<uint32_t>(at, offsetof(FileHeader, parent_pid));
  start_ticks_ = Get<uint64_t>(at, offsetof(FileHeader, start_ticks));
  start_ns_ = Get<int64_t>(at, offsetof(FileHeader, start_ns));
  start_wall_ns_ = Get<int64_t>(at, offsetof(FileHeader, start_wall_ns));
  anchor_ns_ = Get<int64_t>(at, offsetof(FileHeader, anchor_ns));
  anchor_ticks_ = Get<uint64_t>(at, offsetof(FileHeader, anchor_ticks));
  std::memcpy(lost_, at + offsetof(FileHeader, lost), sizeof lost_);
  command_ = JoinCommand(reinterpret_cast<const char*>(at) + offsetof(FileHeader, command),
                         sizeof(FileHeader::command));
  const char* executable = reinterpret_cast<const char*>(at) + offsetof(FileHeader, executable);
  executable_.assign(executable, strnlen(executable, sizeof(FileHeader::executable)));
  return {};
}

bool LiveFile::ReadChunk(uint64_t offset,
                         uint64_t* size,
                         ChunkRef* chunk,
                         LossCounter* losses) const {
  const uint8_t* at = bytes_.data() + offset;
  if (bytes_.size() - offset < sizeof(ChunkHeader))
    return false;
  if (Get<uint32_t>(at, offsetof(ChunkHeader, magic)) != format::kChunkMagic)
    return false;
  *size = Get<uint32_t>(at, offsetof(ChunkHeader, size_bytes));
  const auto committed = Get<uint32_t>(at, offsetof(ChunkHeader, committed_bytes));
  // Everything up to `committed` was stored before it.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (*size < format::kPageBytes || *size % format::kPageBytes != 0 || *size > kMaxChunkBytes ||
      committed > *size - sizeof(ChunkHeader)) {
    return false;
  }
  chunk->offset = offset + sizeof(ChunkHeader);
  chunk->stream = Get<uint32_t>(at, offsetof(ChunkHeader, stream));
  chunk->sequence = Get<uint32_t>(at, offsetof(ChunkHeader, sequence));
  chunk->tid = Get<uint32_t>(at, offsetof(ChunkHeader, tid));
  chunk->base_ticks = Get<uint64_t>(at, offsetof(ChunkHeader, base_ticks));
  chunk->base_ns = Get<int64_t>(at, offsetof(ChunkHeader, base_ns));
  if (!CredibleTicks(chunk->base_ticks, start_ticks_))
    return false;

  const uint64_t present = std::min<uint64_t>(committed, bytes_.size() - chunk->offset);
  chunk->bytes = static_cast<uint32_t>(present);
  if (present < committed) {
    losses->Add(format::Loss::kDamagedBytes, 1, committed - present);
  } else if (Get<uint32_t>(at, offsetof(ChunkHeader, sealed)) == 1) {
    const auto crc = Get<uint32_t>(at, offsetof(ChunkHeader, crc32c));
    if (!ChecksumHolds(bytes_.data() + chunk->offset, committed, crc)) {
      losses->Add(format::Loss::kDamagedBytes, 1, committed);
      chunk->bytes = 0;
    }
  } else if (committed < *size - sizeof(ChunkHeader) && bytes_.size() > chunk->offset + committed &&
             bytes_[chunk->offset + committed] != 0) {
    losses->Add(format::Loss::kUnfinishedRecord, 1);
  }
  return true;
}

void LiveFile::FindChunks(LossCounter* losses) {
  std::map<uint32_t, std::vector<ChunkRef>> by_stream;
  uint64_t damaged = 0;  // bytes since the last chunk that belong to nothing
  const auto report_damage = [&] {
    if (damaged != 0)
      losses->Add(format::Loss::kDamagedBytes, 1, damaged);
    damaged = 0;
  };
  for (uint64_t offset = header_bytes_; offset < bytes_.size();) {
    ChunkRef chunk;
    uint64_t size = 0;
    if (ReadChunk(offset, &size, &chunk, losses)) {
      report_damage();
      if (chunk.bytes != 0)
        by_stream[chunk.stream].push_back(chunk);
      offset += size;
      continue;
    }
    // Space that was allocated but never used is zero and no loss.
    const uint64_t page = std::min<uint64_t>(format::kPageBytes, bytes_.size() - offset);
    if (!AllZero(bytes_.subspan(offset, page)))
      damaged += page;
    offset += page;
  }
  report_damage();
  for (auto& [stream, chunks] : by_stream) {
    std::stable_sort(chunks.begin(), chunks.end(),
                     [](const ChunkRef& a, const ChunkRef& b) { return a.sequence < b.sequence; });
    streams_.push_back(std::move(chunks));
  }
}

}  // namespace vramscope::trace
