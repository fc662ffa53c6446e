// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trace/finished/columns.h"
#include "trace/finished/layout.h"
#include "util/owned_file.h"
#include "util/status.h"

typedef struct ZSTD_CCtx_s ZSTD_CCtx;
typedef struct ZSTD_DCtx_s ZSTD_DCtx;

namespace vramscope::trace::finished {

// Where a frame is, as its header and the index say.
struct FrameRef {
  FrameType type{};
  uint64_t offset = 0;  // of its header in the file
  uint32_t stored_bytes = 0;
  uint32_t raw_bytes = 0;
  uint32_t rows = 0;
  uint32_t payload_crc = 0;
  int64_t first = 0;
  int64_t last = 0;
};

// Writes header, frames, index and trailer, in that order.
class FrameWriter {
 public:
  static util::Result<FrameWriter> Create(const std::string& path);

  // One frame of what stands in `columns`, which are empty afterwards.
  util::Status Write(FrameType type,
                     uint32_t rows,
                     int64_t first,
                     int64_t last,
                     ColumnSetWriter* columns);
  // The index and the trailer; the file then appears under its name.
  util::Status Finish();

 private:
  struct FreeContext {
    void operator()(ZSTD_CCtx* context) const;
  };

  explicit FrameWriter(util::AtomicFile file) : file_(std::move(file)) {}

  util::AtomicFile file_;
  std::unique_ptr<ZSTD_CCtx, FreeContext> context_;
  std::vector<uint8_t> raw_;
  std::vector<uint8_t> stored_;
  std::vector<FrameRef> frames_;
};

// Finds and unpacks the frames of a finished file. The bytes must outlive it.
class FrameReader {
 public:
  // An error where this is no finished file of a version known here. `name` stands in errors.
  util::Status Open(std::span<const uint8_t> file, const std::string& name);

  // All frames that are there, in file order, less the index itself.
  const std::vector<FrameRef>& frames() const { return frames_; }
  // Bytes that belong to no whole frame, and in how many places (the missing end of a cut file is
  // one): 0 in an undamaged file.
  uint64_t damaged_bytes() const { return damaged_bytes_; }
  uint64_t damaged_places() const { return damaged_places_; }

  // Unpacks a frame. False when it is damaged. `columns` is valid until the next call.
  [[nodiscard]] bool Read(const FrameRef& frame, ColumnSetReader* columns);

 private:
  struct FreeContext {
    void operator()(ZSTD_DCtx* context) const;
  };

  bool ReadHeaderAt(uint64_t offset, FrameRef* frame) const;
  bool ReadIndex(uint64_t header_bytes);
  void ScanForFrames(uint64_t header_bytes);

  std::span<const uint8_t> file_;
  std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
  std::vector<FrameRef> frames_;
  std::vector<uint8_t> raw_;
  uint64_t damaged_bytes_ = 0;
  uint64_t damaged_places_ = 0;
};

}  // namespace vramscope::trace::finished
