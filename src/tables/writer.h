// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tables/file_layout.h"
#include "tables/frame_codec.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::tables {

// Writes a finished file (file_layout.h): Add() each allocation, then Finish(). A thread of
// its own packs the frames, so that who resolves need not wait; what waits for it is bounded.
class Writer : public AllocationSink {
 public:
  struct Options {
    // An instant reads about one frame for each class of lifetimes.
    size_t rows_per_frame = 32768;
    // Frames that wait to be packed; Add() waits where there are more.
    size_t frames_waiting = 4;
    // Adds blocks without meaning where readers would refuse the file as too small for its rows.
    bool pads_for_readers = true;
  };

  // Writes to `fd`, which is empty, open for writing, and the caller's to close (or to name: see
  // util/owned_file.h). `path` is for errors.
  Writer(int fd, std::string path);
  Writer(int fd, std::string path, Options options);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() override;

  // An error is the first one of anything written so far, and stays.
  util::Status Add(const AllocationRow& row) override;
  // The other tables, the index and the trailer. session.path, .finished, .file_bytes and
  // .allocation_count are not written: they are what the file itself shows. May be called again,
  // with tables that know more (what is a question to the file): they take the place of those
  // before.
  util::Status Finish(const Tables& tables);

  // Of the whole file, after Finish().
  uint64_t file_bytes() const { return offset_; }

 private:
  // By how long they lived, in steps of 4: 0 is below 1024 ns; the last one was never freed.
  static constexpr size_t kClasses = 20;
  static size_t ClassOf(const AllocationRow& row);

  struct Frame {
    IndexEntry entry{};
    std::vector<uint32_t> sites;  // distinct; empty: too many to be kept
  };

  void Hand(std::vector<AllocationRow>* rows);
  void PackFrames();
  void PackFrame(std::vector<AllocationRow>* rows);
  void JoinThread();
  void WriteBytes(std::span<const uint8_t> bytes);
  void WriteHeader(const std::string& version);
  void WriteBlock(BlockEncoder* encoder, uint16_t table, uint32_t rows);
  template <class Row>
  void WriteTable(const std::vector<Row>& rows, BlockEncoder* encoder);
  void WriteStrings(uint16_t table, const std::vector<std::string_view>& texts, BlockEncoder*);
  void WritePadding(const Tables& tables, BlockEncoder* encoder);
  void WriteIndex(const Tables& tables);
  void Fail(util::Status status);
  util::Status status();

  const int fd_;
  const std::string path_;
  const Options options_;

  std::array<std::vector<AllocationRow>, kClasses> open_;  // rows of frames that are not full

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<AllocationRow>> waiting_;    // under mutex_
  std::vector<std::vector<AllocationRow>> reusable_;  // under mutex_: empty, with their memory
  bool no_more_ = false;                              // under mutex_
  util::Status status_;                               // under mutex_: the first error

  // Of the packing thread while it runs.
  FrameEncoder frame_encoder_;
  std::vector<Frame> frames_;
  uint64_t offset_ = 0;
  std::optional<uint64_t> frames_end_;  // from the first Finish() on
  std::vector<IndexEntry> table_blocks_;
};

}  // namespace vramscope::tables
