// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "format/encoder.h"
#include "format/layout.h"
#include "util/file.h"
#include "util/status.h"

// The launcher's own live file, launcher.vrl. Same format as the probe's files (format/layout.h),
// but written with pwrite(2): a few hundred records a second at most, and a full disk is then an
// error code and not a SIGBUS. Written records survive SIGKILL of the launcher.
namespace vramscope::cli {

//   launcher.vrl   header | chunk header | record | record | ...      one chunk after the other
//   Write()        1. the record's bytes, 2. committed_bytes and seal in one pwrite(2)
//
// A reader that comes between the two does not see the record yet. Thread-safe, except for Close().
class LiveFileWriter {
 public:
  // `file` was made for it just now, in a directory that is open: see util/owned_file.h.
  static util::Result<std::unique_ptr<LiveFileWriter>> Create(
      util::Result<util::UniqueFd> file,
      const std::vector<std::string>& command);
  ~LiveFileWriter();
  LiveFileWriter(const LiveFileWriter&) = delete;
  LiveFileWriter& operator=(const LiveFileWriter&) = delete;

  // Ticks are CLOCK_MONOTONIC nanoseconds. Dropped and counted once the disk is full.
  template <class Record>
  void Write(const Record& record) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t bound = format::EncodedBound(record);
    if (bound > kMaxRecordBytes) {
      AddLoss(format::Loss::kRecordTooLarge, 1);
      return;
    }
    if (!HasRoom(bound)) {
      AddLoss(format::Loss::kFileFull, 1);
      return;
    }
    uint8_t* const begin = chunk_.data() + used_bytes_;
    Append(static_cast<size_t>(format::Encode(record, begin, &delta_) - begin));
  }

  void CountLoss(format::Loss loss, uint64_t count = 1) {
    const std::lock_guard<std::mutex> lock(mutex_);
    AddLoss(loss, count);
  }

  // Seals the last chunk and flags the file as closed. Nothing may be written after it.
  void Close();

 private:
  static constexpr size_t kMaxRecordBytes = format::kFirstChunkBytes - sizeof(format::ChunkHeader);

  LiveFileWriter(util::UniqueFd file, const std::vector<std::string>& command);
  bool WriteAt(const void* data, size_t size_bytes, uint64_t offset);
  bool WriteHeader();
  bool HasRoom(size_t size_bytes);
  bool BeginChunk();
  void SealChunk();
  void Append(size_t size_bytes);
  void AddLoss(format::Loss loss, uint64_t count);

  std::mutex mutex_;
  const util::UniqueFd file_;
  format::FileHeader header_{};
  std::vector<uint8_t> chunk_;  // the whole chunk under way, its header included
  uint64_t chunk_offset_ = 0;
  size_t used_bytes_ = 0;
  uint32_t sequence_ = 0;
  bool failed_ = false;
  bool closed_ = false;
  format::DeltaState delta_;
};

}  // namespace vramscope::cli
