// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "util/file.h"
#include "util/status.h"

// The input of an importer: an untrusted file, plain or compressed, in any encoding.
namespace vramscope::imports {

using util::ByteStream;

class Input {
 public:
  static constexpr size_t kHeadBytes = size_t{64} << 10;

  // Fails if the file cannot be read or is empty.
  static util::Result<Input> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string name() const;  // the last part of the path
  // Size on disk; the budget of everything made from it.
  uint64_t file_bytes() const { return file_.bytes().size(); }
  bool is_compressed() const { return compression_ != Compression::kNone; }
  // Whether the file itself is the content: not compressed.
  std::span<const uint8_t> bytes() const { return file_.bytes(); }
  const util::MappedFile& file() const { return file_; }

  // The unpacked content of a gzip or zstd file, limited to gzip's largest ratio.
  std::unique_ptr<ByteStream> Content() const;
  // The content as text. UTF-16 (written by PowerShell's `>`) becomes UTF-8; byte order marks are
  // removed.
  std::unique_ptr<ByteStream> Text() const;
  // The begin of both.
  const std::string& head() const { return head_; }
  const std::string& text_head() const { return text_head_; }

 private:
  enum class Compression : uint8_t { kNone, kGzip, kZstd };

  Input(std::string path, util::MappedFile file);
  util::Status ReadHeads();

  std::string path_;
  util::MappedFile file_;
  Compression compression_ = Compression::kNone;
  std::string head_, text_head_;
};

// Reads the lines of a text with any line ends, which are removed. Memory is bounded: lines are cut
// at kMaxLineBytes.
class LineReader {
 public:
  static constexpr size_t kMaxLineBytes = size_t{64} << 10;

  explicit LineReader(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

  // False after the last line, or if the input cannot be read: see status(). The line is valid
  // until the next call.
  bool Next(std::string_view* line);
  // The number of the last line, from 1.
  uint64_t number() const { return number_; }
  // Whether that line was cut.
  bool was_cut() const { return was_cut_; }
  // Whether that line had a line end; the last one may have none.
  bool is_ended() const { return is_ended_; }
  const util::Status& status() const { return status_; }

 private:
  bool Fill();

  std::unique_ptr<ByteStream> stream_;
  std::string buffer_ = std::string(ByteStream::kPieceBytes, '\0');
  size_t at_ = 0, end_ = 0;  // unread part of the buffer
  std::string line_;
  uint64_t number_ = 0;
  bool was_cut_ = false, is_ended_ = false;
  util::Status status_;
};

}  // namespace vramscope::imports
