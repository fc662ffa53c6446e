// SPDX-License-Identifier: Apache-2.0
#include "record/live_file_writer.h"

#include <fmt/core.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

int64_t WallNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

util::Result<std::unique_ptr<LiveFileWriter>> LiveFileWriter::Create(
    util::Result<util::UniqueFd> file,
    const std::vector<std::string>& command) {
  if (!file)
    return file.status();
  // Held as long as the launcher lives: see LauncherIsAlive(). On a file system without locks a
  // second launcher is not noticed.
  (void)flock(file->get(), LOCK_EX | LOCK_NB);
  std::unique_ptr<LiveFileWriter> writer(new LiveFileWriter(std::move(*file), command));
  // The page is whole from the start: what is beyond our part of it belongs to others.
  static constexpr uint8_t kZeros[format::kPageBytes] = {};
  if (!writer->WriteAt(kZeros, sizeof kZeros, 0) || !writer->WriteHeader()) {
    return util::Status::Error(
        fmt::format("cannot write {}: {}", format::kLauncherFile, std::strerror(errno)));
  }
  return writer;
}

LiveFileWriter::LiveFileWriter(util::UniqueFd file, const std::vector<std::string>& command)
    : file_(std::move(file)) {
  std::memcpy(header_.magic, format::kFileMagic, sizeof header_.magic);
  header_.major = format::kMajorVersion;
  header_.minor = format::kMinorVersion;
  header_.writer = static_cast<uint16_t>(format::WriterKind::kLauncher);
  header_.header_bytes = format::kPageBytes;
  header_.pid = static_cast<uint32_t>(getpid());
  header_.parent_pid = static_cast<uint32_t>(getppid());
  header_.start_ns = base::MonotonicNs();
  header_.start_ticks = static_cast<uint64_t>(header_.start_ns);
  header_.start_wall_ns = WallNs();
  header_.end_bytes = format::kPageBytes;
  header_.flags = format::CheckedFlags(0);
  size_t at = 0;
  for (const std::string& word : command) {
    if (at + word.size() + 1 > sizeof header_.command)
      break;
    std::memcpy(header_.command + at, word.c_str(), word.size() + 1);
    at += word.size() + 1;
  }
  header_.crc32c = format::HeaderChecksum(reinterpret_cast<const uint8_t*>(&header_));
}

LiveFileWriter::~LiveFileWriter() {
  Close();
}

bool LiveFileWriter::WriteAt(const void* data, size_t size_bytes, uint64_t offset) {
  const char* in = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const ssize_t written = pwrite(file_.get(), in, size_bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    in += written;
    offset += static_cast<uint64_t>(written);
    size_bytes -= static_cast<size_t>(written);
  }
  return true;
}

bool LiveFileWriter::WriteHeader() {
  return WriteAt(&header_, offsetof(format::FileHeader, lost_by_others), 0);
}

bool LiveFileWriter::BeginChunk() {
  const uint64_t offset = header_.end_bytes.load();
  // Blocks are reserved first, so that the records themselves cannot meet a full disk.
  if (const int error = util::ReserveSpace(file_.get(), offset, format::kFirstChunkBytes)) {
    errno = error;
    return false;
  }
  chunk_.assign(format::kFirstChunkBytes, 0);
  auto* const chunk = new (chunk_.data()) format::ChunkHeader{};
  chunk->magic = format::kChunkMagic;
  chunk->size_bytes = static_cast<uint32_t>(chunk_.size());
  chunk->stream = 1;
  chunk->sequence = sequence_++;
  chunk->base_ns = base::MonotonicNs();
  chunk->base_ticks = static_cast<uint64_t>(chunk->base_ns);
  chunk->tid = static_cast<uint32_t>(syscall(SYS_gettid));
  delta_ = {.time = chunk->base_ticks, .address = 0};
  chunk_offset_ = offset;
  used_bytes_ = sizeof *chunk;
  chunk->head = format::ChunkHead(chunk_.data(), chunk->size_bytes);
  if (!WriteAt(chunk_.data(), sizeof *chunk, offset))
    return false;
  header_.end_bytes = offset + chunk_.size();
  ++header_.chunk_count;
  return WriteHeader();
}

void LiveFileWriter::SealChunk() {
  auto* const chunk = reinterpret_cast<format::ChunkHeader*>(chunk_.data());
  chunk->crc32c = format::HighHalf(chunk->seal);
  chunk->sealed = 1;
  if (!WriteAt(chunk_.data(), sizeof *chunk, chunk_offset_))
    failed_ = true;
  chunk_.clear();
}

bool LiveFileWriter::HasRoom(size_t size_bytes) {
  if (failed_ || closed_)
    return false;
  if (!chunk_.empty() && used_bytes_ + size_bytes <= chunk_.size())
    return true;
  if (!chunk_.empty())
    SealChunk();
  if (!failed_)
    failed_ = !BeginChunk();
  return !failed_;
}

void LiveFileWriter::Append(size_t size_bytes) {
  auto* const chunk = reinterpret_cast<format::ChunkHeader*>(chunk_.data());
  // First the record, then the length that makes it count.
  if (!WriteAt(chunk_.data() + used_bytes_, size_bytes, chunk_offset_ + used_bytes_)) {
    failed_ = true;
    AddLoss(format::Loss::kFileFull, 1);
    return;
  }
  used_bytes_ += size_bytes;
  const auto committed = static_cast<uint32_t>(used_bytes_ - sizeof *chunk);
  chunk->committed_bytes = committed;
  chunk->seal = format::ExtendSeal(chunk->seal, chunk_.data() + sizeof *chunk, committed);
  // Both in one write, which no signal comes between.
  constexpr size_t kBegin = offsetof(format::ChunkHeader, committed_bytes);
  if (!WriteAt(chunk_.data() + kBegin, offsetof(format::ChunkHeader, head) - kBegin,
               chunk_offset_ + kBegin)) {
    failed_ = true;
  }
}

void LiveFileWriter::AddLoss(format::Loss loss, uint64_t count) {
  const auto index = static_cast<size_t>(loss);
  header_.lost[index] += count;
  header_.lost_again[index] += count;
  const uint64_t total = header_.lost[index];
  // The header's page exists: these writes need no room.
  for (const size_t slots :
       {offsetof(format::FileHeader, lost), offsetof(format::FileHeader, lost_again)}) {
    (void)WriteAt(&total, sizeof total, slots + index * sizeof total);
  }
}

void LiveFileWriter::Close() {
  if (closed_)
    return;
  if (!chunk_.empty())
    SealChunk();
  closed_ = true;
  header_.flags = format::CheckedFlags(format::kClosedCleanly);
  (void)WriteHeader();
}

}  // namespace vramscope::cli
