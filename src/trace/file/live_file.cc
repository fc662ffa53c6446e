// SPDX-License-Identifier: Apache-2.0
#include "trace/file/live_file.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/coding.h"
#include "format/decoder.h"

namespace vramscope::trace {
namespace {

// Whether `bytes` have the checksum that the file says. Under a fuzzer always: it would never get
// past a checksum, and what lies behind one is what it is to test.
bool ChecksumHolds(const void* bytes, size_t size, uint32_t expected) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  (void)bytes, (void)size, (void)expected;
  return true;
#else
  return base::Crc32c(bytes, size) == expected;
#endif
}

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

// Whether a checksum, or the second copy of a value, confirms it. Under a fuzzer always: see
// ChecksumHolds().
template <class T>
bool IsSame(T expected, T found) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  (void)expected, (void)found;
  return true;
#else
  return expected == found;
#endif
}

constexpr uint16_t kChecksumsSince = 3;
// A file of this many chunks, at a page each, is larger than any disk.
constexpr uint64_t kMostMissing = uint64_t{1} << 40;

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

util::Result<LiveFile> LiveFile::Open(const std::string& path, LossCounter* losses, bool grows) {
  VRAMSCOPE_ASSIGN_OR_RETURN(auto mapped, util::MappedFile::Open(path, util::Links::kRefuse));
  return OpenMapped(path, std::move(mapped), losses, grows);
}

util::Result<LiveFile> LiveFile::OpenGrowing(const std::string& path, LossCounter* losses) {
  VRAMSCOPE_ASSIGN_OR_RETURN(auto mapped,
                             util::MappedFile::OpenGrowing(path, util::Links::kRefuse));
  return OpenMapped(path, std::move(mapped), losses, true);
}

util::Result<LiveFile> LiveFile::OpenMapped(const std::string& path,
                                            util::MappedFile mapped,
                                            LossCounter* losses,
                                            bool grows) {
  LiveFile file;
  file.path_ = path;
  file.grows_ = grows;
  file.mapped_ = std::move(mapped);
  file.bytes_ = file.mapped_.bytes();
  VRAMSCOPE_RETURN_IF_ERROR(file.Read(path, losses));
  return file;
}

std::string PastPathOf(const std::string& live_path) {
  return live_path.substr(0, live_path.rfind('.')) + format::kPastExtension;
}

void LiveFile::OpenPast(LossCounter* losses) {
  const std::string path = PastPathOf(path_);
  std::error_code error;
  if (path_.empty() || is_past_ || !std::filesystem::exists(path, error))
    return;
  auto past = std::make_unique<LiveFile>();
  auto mapped = util::MappedFile::Open(path, util::Links::kRefuse);
  if (!mapped.ok())
    return losses->Add(format::Loss::kDamagedBytes, 1);
  past->is_past_ = true;
  past->mapped_ = std::move(*mapped);
  past->bytes_ = past->mapped_.bytes();
  // A past file of another run belongs to another process.
  if (!past->Read(path, losses).ok() || past->pid_ != pid_ || past->start_ticks_ != start_ticks_)
    return losses->Add(format::Loss::kDamagedBytes, 1, past->bytes_.size());
  past_ = std::move(past);
  ReadPast(losses);
}

// The facts that the past file records about itself.
void LiveFile::ReadPast(LossCounter* losses) {
  const auto read = [&](const ChunkRef& chunk) {
    const auto records = past_->Records(chunk);
    const uint8_t* in = records.data();
    const uint8_t* const end = in + records.size();
    format::DeltaState delta{.time = chunk.base_ticks};
    for (format::RawRecord raw; in != end;) {
      if (!format::NextRecord(&in, end, &raw))
        return losses->Add(format::Loss::kDamagedBytes, 1, static_cast<uint64_t>(end - in));
      format::PastStream stream;
      format::PastRange range;
      if (raw.type == format::PastStream::kType && format::Decode(raw, &delta, &stream))
        compacted_chunks_[static_cast<uint32_t>(stream.stream)] =
            static_cast<uint32_t>(stream.chunks);
      else if (raw.type == format::PastRange::kType && format::Decode(raw, &delta, &range) &&
               range.begin < range.end && range.begin >= header_bytes_ &&
               range.end <= bytes_.size())
        compacted_ranges_[range.begin] = range.end;
    }
  };
  for (const std::vector<ChunkRef>& stream : past_->streams_) {
    if (stream.front().stream == format::kPastStream)
      std::for_each(stream.begin(), stream.end(), read);
  }
}

bool LiveFile::IsCompacted(const ChunkRef& chunk) const {
  const auto found = compacted_chunks_.find(chunk.stream);
  return found != compacted_chunks_.end() && chunk.sequence < found->second;
}

bool LiveFile::WasBeingMade(const std::string& path) {
  const auto mapped = util::MappedFile::Open(path);
  if (!mapped.ok())
    return false;
  const auto bytes = mapped->bytes();
  if (bytes.size() != format::kPageBytes)
    return false;
  const auto magic = bytes.first(sizeof format::kFileMagic);
  return AllZero(magic) ||  // of before anything was written, or of an older vramscope
         (std::memcmp(magic.data(), format::kFileMagic, format::kEarlyMagicBytes) == 0 &&
          AllZero(magic.subspan(format::kEarlyMagicBytes)));
}

util::Result<LiveFile> LiveFile::FromBytes(std::span<const uint8_t> bytes,
                                           const std::string& name,
                                           LossCounter* losses) {
  LiveFile file;
  file.bytes_ = bytes;
  VRAMSCOPE_RETURN_IF_ERROR(file.Read(name, losses));
  return file;
}

util::Status LiveFile::Read(const std::string& name, LossCounter* losses) {
  VRAMSCOPE_RETURN_IF_ERROR(ReadHeader(name, losses));
  ReadLosses(losses);
  OpenPast(losses);
  FindChunks(losses);
  return {};
}

util::Status LiveFile::ReadHeader(const std::string& name, LossCounter* losses) {
  if (bytes_.size() < sizeof(FileHeader) ||
      std::memcmp(bytes_.data(), format::kFileMagic, sizeof format::kFileMagic) != 0) {
    return util::Status::Error(
        name + ": is not a live file of vramscope, or is cut off within its header");
  }
  const uint8_t* at = bytes_.data();
  const auto major = Get<uint16_t>(at, offsetof(FileHeader, major));
  if (major > format::kMajorVersion) {
    return util::Status::Error(name + ": was recorded by a newer vramscope (format " +
                               std::to_string(major) + ", this one reads up to " +
                               std::to_string(format::kMajorVersion) + "): update vramscope");
  }
  header_bytes_ = Get<uint16_t>(at, offsetof(FileHeader, header_bytes));
  if (header_bytes_ < sizeof(FileHeader))
    header_bytes_ = format::kPageBytes;
  // A damaged header still leads to the records, which have checksums of their own: what it says is
  // read, and counted as damaged.
  minor_ = Get<uint16_t>(at, offsetof(FileHeader, minor));
  const auto crc = Get<uint32_t>(at, offsetof(FileHeader, crc32c));
  const auto flags = Get<uint32_t>(at, offsetof(FileHeader, flags));
  has_checksums_ = minor_ >= kChecksumsSince || crc != 0;
  if (has_checksums_ &&
      (!IsSame(format::HeaderChecksum(at), crc) || !IsSame(format::CheckedFlags(flags), flags))) {
    losses->Add(format::Loss::kDamagedBytes, 1, sizeof(FileHeader));
    minor_ = format::kMinorVersion;
    header_bytes_ = format::kPageBytes;
  }
  is_launcher_ = Get<uint16_t>(at, offsetof(FileHeader, writer)) ==
                 static_cast<uint16_t>(format::WriterKind::kLauncher);
  flags_ = flags;
  pid_ = Get<uint32_t>(at, offsetof(FileHeader, pid));
  parent_pid_ = Get<uint32_t>(at, offsetof(FileHeader, parent_pid));
  start_ticks_ = Get<uint64_t>(at, offsetof(FileHeader, start_ticks));
  start_ns_ = Get<int64_t>(at, offsetof(FileHeader, start_ns));
  start_wall_ns_ = Get<int64_t>(at, offsetof(FileHeader, start_wall_ns));
  if (has_checksums_) {
    chunk_count_ = Get<uint64_t>(at, offsetof(FileHeader, chunk_count));
  } else {
    anchor_ns_ = Get<int64_t>(at, offsetof(FileHeader, anchor_ns));
    anchor_ticks_ = Get<uint64_t>(at, offsetof(FileHeader, anchor_ticks));
  }
  command_ = JoinCommand(reinterpret_cast<const char*>(at) + offsetof(FileHeader, command),
                         sizeof(FileHeader::command));
  const char* executable = reinterpret_cast<const char*>(at) + offsetof(FileHeader, executable);
  executable_.assign(executable, strnlen(executable, sizeof(FileHeader::executable)));
  return {};
}

void LiveFile::ReadLosses(LossCounter* losses) const {
  for (size_t i = 0; i < format::kLossSlots; ++i) {
    const auto slot = [&](size_t slots) {
      return Get<uint64_t>(bytes_.data(), slots + i * sizeof(uint64_t));
    };
    uint64_t lost = slot(offsetof(FileHeader, lost));
    if (has_checksums_) {
      // Counted a moment after the other one, by each thread.
      const uint64_t again = slot(offsetof(FileHeader, lost_again));
      constexpr uint64_t kMostUnderWay = 1 << 20;
      if (!IsSame(lost, again) && lost - again > kMostUnderWay)
        losses->Add(format::Loss::kDamagedBytes, 1, sizeof lost);
      lost = std::max(lost, again);
      if (is_launcher_)
        losses->AddRaw(i, slot(offsetof(FileHeader, lost_by_others)), 0);
    }
    losses->AddRaw(i, lost, 0);
  }
}

uint32_t LiveFile::CheckRecords(const uint8_t* at, uint32_t room, LossCounter* losses) const {
  // In this order, since a file that still grows is written in the other one: everything up to a
  // length was stored before it.
  const auto sealed = Get<uint32_t>(at, offsetof(ChunkHeader, sealed));
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto seal = Get<uint64_t>(at, offsetof(ChunkHeader, seal));
  std::atomic_thread_fence(std::memory_order_acquire);
  uint32_t committed = Get<uint32_t>(at, offsetof(ChunkHeader, committed_bytes));
  std::atomic_thread_fence(std::memory_order_acquire);

  uint32_t covered = 0;
  uint32_t crc = 0;
  if (has_checksums_) {
    covered = format::LowHalf(seal);
    crc = format::HighHalf(seal);
    // The seal cannot be ahead, and when nothing more comes it is not behind.
    if (covered > committed || (sealed == 1 && covered != committed)) {
      losses->Add(format::Loss::kDamagedBytes, 1,
                  std::max(covered, committed) - std::min(covered, committed));
      committed = covered;
    }
  } else if (sealed == 1) {
    covered = committed;
    crc = Get<uint32_t>(at, offsetof(ChunkHeader, crc32c));
  }
  const uint64_t offset = static_cast<uint64_t>(at - bytes_.data()) + sizeof(ChunkHeader);
  const uint64_t in_file = std::min<uint64_t>(room, bytes_.size() - offset);
  if (committed > in_file) {
    losses->Add(format::Loss::kDamagedBytes, 1, committed - in_file);
    committed = static_cast<uint32_t>(in_file);
    // Records that a checksum covers are whole, or the checksum is wrong and none can be trusted.
    return covered > committed ? 0 : committed;
  }
  const uint8_t* const records = bytes_.data() + offset;
  if (!ChecksumHolds(records, covered, crc)) {
    losses->Add(format::Loss::kDamagedBytes, 1, committed);
    return 0;
  }
  // Behind the last record there may be part of one.
  const uint8_t* last = records + in_file;
  if (!grows_ && committed < in_file && (has_checksums_ || sealed != 1) &&
      records[committed] != 0) {
    while (last[-1] == 0)
      --last;
    losses->Add(format::Loss::kUnfinishedRecord, 1,
                static_cast<uint64_t>(last - records) - committed);
  }
  return committed;
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
  if (has_checksums_) {
    // The size is stored twice: only this copy changes together with its checksum.
    const auto head = Get<uint64_t>(at, offsetof(ChunkHeader, head));
    *size = format::LowHalf(head);
    if (!IsSame(format::ChunkHead(at, format::LowHalf(head)), head))
      return false;
  }
  if (*size < format::kPageBytes || *size % format::kPageBytes != 0 || *size > kMaxChunkBytes)
    return false;
  chunk->offset = offset + sizeof(ChunkHeader);
  chunk->stream = Get<uint32_t>(at, offsetof(ChunkHeader, stream));
  chunk->sequence = Get<uint32_t>(at, offsetof(ChunkHeader, sequence));
  chunk->tid = Get<uint32_t>(at, offsetof(ChunkHeader, tid));
  chunk->base_ticks = Get<uint64_t>(at, offsetof(ChunkHeader, base_ticks));
  chunk->base_ns = Get<int64_t>(at, offsetof(ChunkHeader, base_ns));
  if (!CredibleTicks(chunk->base_ticks, start_ticks_))
    return false;
  chunk->size_bytes = static_cast<uint32_t>(*size);
  chunk->sealed = Get<uint32_t>(at, offsetof(ChunkHeader, sealed)) == 1;
  if (IsCompacted(*chunk))
    return true;
  const auto committed = Get<uint32_t>(at, offsetof(ChunkHeader, committed_bytes));
  chunk->bytes = CheckRecords(at, static_cast<uint32_t>(*size - sizeof(ChunkHeader)), losses);
  chunk->whole = chunk->bytes >= committed;
  return true;
}

void LiveFile::FindChunks(LossCounter* losses) {
  std::map<uint32_t, std::vector<ChunkRef>> by_stream;
  uint64_t damaged = 0;  // bytes since the last chunk that belong to nothing
  uint64_t found = 0;    // chunks, and what was one
  const auto report_damage = [&] {
    if (damaged != 0) {
      losses->Add(format::Loss::kDamagedBytes, 1, damaged);
      ++found;
    }
    damaged = 0;
  };
  file_bytes_ = bytes_.size();
  for (const auto& [begin, end] : compacted_ranges_)
    file_bytes_ -= std::min(file_bytes_, end - begin);
  for (const auto& [stream, chunks] : compacted_chunks_)
    found += chunks;
  if (past_ != nullptr) {
    file_bytes_ += past_->bytes_.size();
    for (const std::vector<ChunkRef>& stream : past_->streams_) {
      for (ChunkRef chunk : stream) {
        chunk.in_past = true;
        by_stream[chunk.stream].push_back(chunk);
      }
    }
  }
  auto range = compacted_ranges_.begin();
  for (uint64_t offset = header_bytes_; offset < bytes_.size();) {
    for (; range != compacted_ranges_.end() && range->first <= offset; ++range)
      offset = std::max(offset, range->second);
    if (offset >= bytes_.size())
      break;
    ChunkRef chunk;
    uint64_t size = 0;
    if (ReadChunk(offset, &size, &chunk, losses)) {
      report_damage();
      if (grows_)
        chunk_ends_[offset] = offset + size;
      if (!chunk.sealed)
        open_chunks_.push_back(offset);
      if (IsCompacted(chunk)) {
        offset += size;
        continue;
      }
      ++found;
      if (chunk.bytes != 0)
        by_stream[chunk.stream].push_back(chunk);
      Forget(chunk);  // its checksum was compared; a recording may be larger than memory
      offset += size;
      continue;
    }
    // Space that was allocated but never used is zero and no loss; nor is a chunk that was just
    // being begun, whose magic comes last.
    const uint64_t page = std::min<uint64_t>(format::kPageBytes, bytes_.size() - offset);
    const auto bytes = bytes_.subspan(offset, page);
    const size_t begun = has_checksums_ && page == format::kPageBytes &&
                                 Get<uint32_t>(bytes.data(), offsetof(ChunkHeader, magic)) == 0
                             ? sizeof(ChunkHeader)
                             : 0;
    if (!AllZero(bytes.subspan(begun)))
      damaged += page;
    offset += page;
  }
  report_damage();
  if (found < chunk_count_)
    losses->Add(format::Loss::kDamagedBytes, std::min(chunk_count_ - found, kMostMissing));
  for (auto& [stream, chunks] : by_stream) {
    // Chunks of the past file first: they have numbers of their own.
    const auto place = [](const ChunkRef& chunk) {
      return std::pair(!chunk.in_past, chunk.sequence);
    };
    std::stable_sort(chunks.begin(), chunks.end(),
                     [&](const ChunkRef& a, const ChunkRef& b) { return place(a) < place(b); });
    // A writer numbers its chunks: the second of one number is a copy.
    const auto copies =
        std::unique(chunks.begin(), chunks.end(),
                    [&](const ChunkRef& a, const ChunkRef& b) { return place(a) == place(b); });
    if (copies != chunks.end()) {
      losses->Add(format::Loss::kDamagedBytes, static_cast<uint64_t>(chunks.end() - copies));
      chunks.erase(copies, chunks.end());
    }
    streams_.push_back(std::move(chunks));
  }
}

bool LiveFile::Grow(LossCounter* losses) {
  std::error_code error;
  if (past_ != nullptr || std::filesystem::exists(PastPathOf(path_), error) || !mapped_.Grow())
    return false;
  bytes_ = mapped_.bytes();
  ChunkRef chunk;
  uint64_t size = 0;
  // A thread seals its chunk before it begins another one. So the new chunks are looked for first,
  // and the open ones then have all that came before those.
  first_gap_ = std::max(first_gap_, header_bytes_);
  bool has_gap = false;
  for (uint64_t offset = first_gap_; offset < bytes_.size();) {
    auto known = chunk_ends_.find(offset);
    if (known == chunk_ends_.end() && ReadChunk(offset, &size, &chunk, losses)) {
      known = chunk_ends_.emplace(offset, offset + size).first;
      open_chunks_.push_back(offset);
    }
    has_gap = has_gap || known == chunk_ends_.end();
    offset = known != chunk_ends_.end() ? known->second : offset + format::kPageBytes;
    if (!has_gap) {
      first_gap_ = offset;
      chunk_ends_.erase(known);
    }
  }
  std::vector<uint64_t> open;
  for (const uint64_t offset : open_chunks_) {
    chunk = {};
    if (!ReadChunk(offset, &size, &chunk, losses))
      continue;
    if (!chunk.sealed)
      open.push_back(offset);
    if (chunk.bytes != 0)
      TakeChunk(chunk);
  }
  open_chunks_ = std::move(open);
  return true;
}

void LiveFile::TakeChunk(const ChunkRef& chunk) {
  const auto stream = std::find_if(streams_.begin(), streams_.end(), [&](const auto& chunks) {
    return chunks.front().stream == chunk.stream;
  });
  if (stream == streams_.end())
    return streams_.push_back({chunk});
  ChunkRef& last = stream->back();
  if (last.offset == chunk.offset)
    last = chunk.bytes >= last.bytes ? chunk : last;
  else if (chunk.sequence > last.sequence)
    stream->push_back(chunk);
}

}  // namespace vramscope::trace
