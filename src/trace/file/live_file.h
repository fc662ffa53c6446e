// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/layout.h"
#include "trace/trace.h"
#include "util/file.h"
#include "util/status.h"

namespace vramscope::trace {

// A chunk that was found whole enough to read: its records are file bytes [offset, offset + bytes).
struct ChunkRef {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t stream = 0;
  uint32_t sequence = 0;
  uint32_t tid = 0;
  uint64_t base_ticks = 0;
  int64_t base_ns = 0;
  uint32_t size_bytes = 0;  // of the whole chunk, which begins a header before `offset`
  bool sealed = false;      // nothing more comes
  bool whole = false;       // nothing of it is damaged
  bool in_past = false;     // `offset` is one of the past file (docs/FORMAT.md)
};

// The past file of a live file, in the same directory.
std::string PastPathOf(const std::string& live_path);

// One file of a live directory as it was when it was opened: header, and the chunks of every stream
// in order. The file may still grow; what is committed later is not seen.
class LiveFile {
 public:
  // Finds the chunks and counts what is damaged in `losses`. An error if the header cannot be
  // trusted or has a newer major version. If the writer is still active (`grows`), an unfinished
  // last record is not a loss.
  static util::Result<LiveFile> Open(const std::string& path,
                                     LossCounter* losses,
                                     bool grows = false);
  // The same of a file whose writer is active, and which is followed with Grow().
  static util::Result<LiveFile> OpenGrowing(const std::string& path, LossCounter* losses);
  // Adds what was committed since: streams() has longer last chunks, more chunks and more streams,
  // at the same positions. False if that cannot be: the file is a ring's, or too large.
  bool Grow(LossCounter* losses);
  // The same over bytes in memory, which must outlive the result. Errors contain `name`.
  static util::Result<LiveFile> FromBytes(std::span<const uint8_t> bytes,
                                          const std::string& name,
                                          LossCounter* losses);

  // Whether the file at `path` was just being made: it has one page, without the last of the magic,
  // which comes after the rest of the header.
  static bool WasBeingMade(const std::string& path);

  bool is_launcher() const { return is_launcher_; }
  bool ticks_are_tsc() const { return (flags_ & format::kTicksAreTsc) != 0; }
  bool is_forked() const { return (flags_ & format::kForked) != 0; }
  bool closed_cleanly() const { return (flags_ & format::kClosedCleanly) != 0; }
  uint32_t pid() const { return pid_; }
  uint32_t parent_pid() const { return parent_pid_; }
  uint64_t start_ticks() const { return start_ticks_; }
  int64_t start_ns() const { return start_ns_; }
  int64_t start_wall_ns() const { return start_wall_ns_; }
  uint64_t anchor_ticks() const { return anchor_ticks_; }
  int64_t anchor_ns() const { return anchor_ns_; }  // 0: there is none
  const std::string& command() const { return command_; }
  const std::string& executable() const { return executable_; }
  // Without holes, which a ring's files have.
  uint64_t file_bytes() const { return file_bytes_; }

  // Chunks by stream, in the order in which they were written.
  const std::vector<std::vector<ChunkRef>>& streams() const { return streams_; }
  std::span<const uint8_t> Records(const ChunkRef& chunk) const {
    return (chunk.in_past ? past_->bytes_ : bytes_).subspan(chunk.offset, chunk.bytes);
  }
  // The part of the file that the past file replaces: the number of chunks of each stream, from the
  // first one, and the file ranges that must not be read. Ranges are by their begin and do not
  // touch.
  const std::map<uint32_t, uint32_t>& compacted_chunks() const { return compacted_chunks_; }
  const std::map<uint64_t, uint64_t>& compacted_ranges() const { return compacted_ranges_; }
  // The header's page as it was read.
  std::span<const uint8_t> Header() const { return bytes_.first(sizeof(format::FileHeader)); }
  const std::string& path() const { return path_; }
  // Whether its writer knows no more than we do: then whatever we do not know is damage.
  bool is_known_version() const { return minor_ <= format::kMinorVersion; }
  // Says that a chunk's pages are not needed for now.
  void Forget(const ChunkRef& chunk) const {
    (chunk.in_past ? past_->mapped_ : mapped_).Forget(chunk.offset, chunk.bytes);
  }

 private:
  static util::Result<LiveFile> OpenMapped(const std::string& path,
                                           util::MappedFile mapped,
                                           LossCounter* losses,
                                           bool grows);
  util::Status Read(const std::string& name, LossCounter* losses);
  // The past file beside it, where there is one.
  void OpenPast(LossCounter* losses);
  void ReadPast(LossCounter* losses);
  bool IsCompacted(const ChunkRef& chunk) const;
  util::Status ReadHeader(const std::string& name, LossCounter* losses);
  void ReadLosses(LossCounter* losses) const;
  void FindChunks(LossCounter* losses);
  void TakeChunk(const ChunkRef& chunk);
  // False if `offset` has no credible chunk header. Otherwise `*size` is the chunk's size in the
  // file.
  bool ReadChunk(uint64_t offset, uint64_t* size, ChunkRef* chunk, LossCounter* losses) const;
  // How many of the committed records can be believed.
  uint32_t CheckRecords(const uint8_t* chunk, uint32_t room, LossCounter* losses) const;

  std::string path_;
  util::MappedFile mapped_;
  std::span<const uint8_t> bytes_;
  uint64_t file_bytes_ = 0;
  std::unique_ptr<LiveFile> past_;
  std::map<uint32_t, uint32_t> compacted_chunks_;
  std::map<uint64_t, uint64_t> compacted_ranges_;
  bool is_past_ = false;
  bool is_launcher_ = false;
  bool has_checksums_ = false;  // the version has them
  bool grows_ = false;
  uint16_t minor_ = 0;
  uint32_t flags_ = 0;
  uint32_t pid_ = 0;
  uint32_t parent_pid_ = 0;
  uint64_t header_bytes_ = 0;
  uint64_t start_ticks_ = 0;
  int64_t start_ns_ = 0;
  int64_t start_wall_ns_ = 0;
  uint64_t anchor_ticks_ = 0;
  int64_t anchor_ns_ = 0;
  uint64_t chunk_count_ = 0;
  std::string command_;
  std::string executable_;
  std::vector<std::vector<ChunkRef>> streams_;
  std::map<uint64_t, uint64_t> chunk_ends_;  // by offset, of chunks behind the first gap
  uint64_t first_gap_ = 0;                   // where a chunk may still begin
  std::vector<uint64_t> open_chunks_;        // offsets of those that were not sealed
};

// Stamps further than this from their chunk's first one are damage, not time: half a day at least,
// at any clock rate, and too short for a wrap-around.
inline constexpr uint64_t kMaxTickDistance = uint64_t{1} << 54;
inline bool CredibleTicks(uint64_t ticks, uint64_t base) {
  return ticks - base + kMaxTickDistance <= 2 * kMaxTickDistance;
}

}  // namespace vramscope::trace
