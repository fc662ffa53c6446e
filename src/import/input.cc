// SPDX-License-Identifier: Apache-2.0
#include "import/input.h"

#include <fmt/core.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "util/size_text.h"

namespace vramscope::imports {
namespace {

// Deflate's largest ratio; zstd's is far larger.
constexpr uint64_t kMostRatio = 1032;
constexpr uint64_t kMostBaseBytes = uint64_t{16} << 20;

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(const util::MappedFile& file) : file_(file) {}
  util::Result<size_t> Read(std::span<char> out) override {
    const size_t bytes = std::min(out.size(), file_.bytes().size() - at_);
    if (bytes > 0)
      std::memcpy(out.data(), file_.bytes().data() + at_, bytes);
    at_ += bytes;
    return bytes;
  }

 private:
  const util::MappedFile& file_;
  size_t at_ = 0;
};

util::Status Damaged(const std::string& path, const char* kind) {
  return util::Status::Error(
      fmt::format("{}: the {} data is damaged or cut off: copy the file again", path, kind));
}

// A file may have several consecutive members.
class GzipStream : public ByteStream {
 public:
  GzipStream(const util::MappedFile& file, std::string path) : file_(file), path_(std::move(path)) {
    ok_ = inflateInit2(&state_, 15 + 16) == Z_OK;
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;
  ~GzipStream() override { inflateEnd(&state_); }

  util::Result<size_t> Read(std::span<char> out) override {
    if (out.empty() || over_)
      return size_t{0};
    const std::span<const uint8_t> bytes = file_.bytes();
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), 1u << 30));
    const uInt room = state_.avail_out;
    while (ok_ && state_.avail_out == room) {
      if (ended_) {
        // Bytes after the last member are padding, as for gzip(1).
        if (bytes.size() - at_ < 2 || bytes[at_] != 0x1f || bytes[at_ + 1] != 0x8b) {
          over_ = true;
          return size_t{0};
        }
        ended_ = false;
        ok_ = inflateReset(&state_) == Z_OK;
      }
      const size_t given = std::min<size_t>(bytes.size() - at_, 1u << 30);
      state_.next_in = const_cast<Bytef*>(bytes.data() + at_);
      state_.avail_in = static_cast<uInt>(given);
      const int result = inflate(&state_, Z_NO_FLUSH);
      const size_t taken = given - state_.avail_in;
      at_ += taken;
      ended_ = result == Z_STREAM_END;
      const bool stuck = taken == 0 && state_.avail_out == room && !ended_;
      ok_ = (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) && !stuck;
    }
    if (!ok_)
      return Damaged(path_, "gzip");
    return static_cast<size_t>(room - state_.avail_out);
  }

 private:
  const util::MappedFile& file_;
  std::string path_;
  z_stream state_{};
  size_t at_ = 0;
  bool ok_ = false;
  bool ended_ = false;  // a member
  bool over_ = false;
};

class ZstdStream : public ByteStream {
 public:
  ZstdStream(const util::MappedFile& file, std::string path)
      : file_(file), path_(std::move(path)), state_(ZSTD_createDStream()) {
    // A window of 128 MiB, zstd(1)'s limit without --long.
    if (state_ != nullptr)
      (void)ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, 27);
  }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;
  ~ZstdStream() override { ZSTD_freeDStream(state_); }

  util::Result<size_t> Read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (state_ != nullptr && to.pos == 0 && to.size > 0) {
      ZSTD_inBuffer from{file_.bytes().data(), file_.bytes().size(), at_};
      if (at_ == from.size && whole_)
        return size_t{0};
      const size_t left = ZSTD_decompressStream(state_, &to, &from);
      const bool stuck = from.pos == at_ && to.pos == 0;
      at_ = from.pos;
      if (ZSTD_isError(left) != 0 || stuck)
        return Damaged(path_, "zstd");
      whole_ = left == 0;
    }
    if (state_ == nullptr)
      return util::Status::Error(path_ + ": not enough memory to unpack it");
    return to.pos;
  }

 private:
  const util::MappedFile& file_;
  std::string path_;
  ZSTD_DStream* state_;
  size_t at_ = 0;
  bool whole_ = true;  // a frame ended just there
};

// Fails beyond a number of bytes.
class BoundedStream : public ByteStream {
 public:
  BoundedStream(std::unique_ptr<ByteStream> stream, std::string path, uint64_t limit_bytes)
      : stream_(std::move(stream)), path_(std::move(path)), limit_bytes_(limit_bytes) {}
  util::Result<size_t> Read(std::span<char> out) override {
    util::Result<size_t> bytes = stream_->Read(out);
    if (bytes && (read_bytes_ += *bytes) > limit_bytes_) {
      return util::Status::Error(
          fmt::format("{}: it unpacks to more than {}: the file is damaged or malicious", path_,
                      util::FormatBytes(limit_bytes_)));
    }
    return bytes;
  }

 private:
  std::unique_ptr<ByteStream> stream_;
  std::string path_;
  uint64_t limit_bytes_;
  uint64_t read_bytes_ = 0;
};

void AppendUtf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

// Removes byte order marks, and converts UTF-16 to UTF-8 if they announce it.
class TextStream : public ByteStream {
 public:
  explicit TextStream(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {}

  util::Result<size_t> Read(std::span<char> out) override {
    while (at_ == text_.size()) {
      text_.clear();
      at_ = 0;
      util::Result<size_t> bytes = stream_->Read(std::span(raw_).subspan(raw_bytes_));
      if (!bytes)
        return bytes;
      if (*bytes == 0 && raw_bytes_ == 0 && high_ == 0)
        return size_t{0};
      raw_bytes_ += *bytes;
      Decode(*bytes == 0);
    }
    const size_t count = std::min(out.size(), text_.size() - at_);
    std::memcpy(out.data(), text_.data() + at_, count);
    at_ += count;
    return count;
  }

 private:
  enum class Encoding : uint8_t { kUnknown, kBytes, kLittle, kBig };

  // Converts complete characters of raw_ and moves the rest to its begin. At the end nothing
  // remains.
  void Decode(bool at_end) {
    size_t used = 0;
    if (encoding_ == Encoding::kUnknown) {
      if (raw_bytes_ < 3 && !at_end)
        return;
      const std::string_view start(raw_.data(), std::min<size_t>(raw_bytes_, 3));
      encoding_ = Encoding::kBytes;
      if (start == "\xef\xbb\xbf") {
        used = 3;
      } else if (start.starts_with("\xff\xfe") || start.starts_with("\xfe\xff")) {
        encoding_ = start[0] == '\xff' ? Encoding::kLittle : Encoding::kBig;
        used = 2;
      }
    }
    if (encoding_ == Encoding::kBytes) {
      text_.assign(raw_.data() + used, raw_bytes_ - used);
      used = raw_bytes_;
    }
    for (; used + 2 <= raw_bytes_; used += 2)
      AddUnit(used);
    if (at_end) {
      used = raw_bytes_;
      if (high_ != 0)
        AppendUtf8(0xfffd, &text_);
      high_ = 0;
    }
    std::memmove(raw_.data(), raw_.data() + used, raw_bytes_ - used);
    raw_bytes_ -= used;
  }

  void AddUnit(size_t at) {
    const auto first = static_cast<uint8_t>(raw_[at]), second = static_cast<uint8_t>(raw_[at + 1]);
    const uint32_t unit = encoding_ == Encoding::kLittle
                              ? static_cast<uint32_t>(second) << 8 | first
                              : static_cast<uint32_t>(first) << 8 | second;
    const bool is_low = unit >= 0xdc00 && unit < 0xe000;
    if (high_ != 0 && is_low) {
      AppendUtf8(0x10000 + ((high_ - 0xd800) << 10) + (unit - 0xdc00), &text_);
      high_ = 0;
      return;
    }
    if (high_ != 0)
      AppendUtf8(0xfffd, &text_);
    high_ = unit >= 0xd800 && unit < 0xdc00 ? unit : 0;
    if (high_ == 0)
      AppendUtf8(is_low ? 0xfffd : unit, &text_);
  }

  std::unique_ptr<ByteStream> stream_;
  std::vector<char> raw_ = std::vector<char>(kPieceBytes);
  size_t raw_bytes_ = 0;
  std::string text_;
  size_t at_ = 0;  // bytes of text_ that were returned
  Encoding encoding_ = Encoding::kUnknown;
  uint32_t high_ = 0;  // half of a surrogate pair
};

// The first kHeadBytes.
util::Result<std::string> HeadOf(ByteStream& stream) {
  std::string head(Input::kHeadBytes, '\0');
  size_t size = 0;
  while (size < head.size()) {
    const util::Result<size_t> bytes = stream.Read(std::span(head).subspan(size));
    if (!bytes)
      return bytes.status();
    if (*bytes == 0)
      break;
    size += *bytes;
  }
  head.resize(size);
  return head;
}

}  // namespace

Input::Input(std::string path, util::MappedFile file)
    : path_(std::move(path)), file_(std::move(file)) {
  const std::span<const uint8_t> bytes = file_.bytes();
  if (bytes.size() >= 3 && bytes[0] == 0x1f && bytes[1] == 0x8b && bytes[2] == 8)
    compression_ = Compression::kGzip;
  else if (bytes.size() >= 4 && std::memcmp(bytes.data(), "\x28\xb5\x2f\xfd", 4) == 0)
    compression_ = Compression::kZstd;
}

util::Result<Input> Input::Open(const std::string& path) {
  util::Result<util::MappedFile> file = util::MappedFile::Open(path);
  if (!file)
    return file.status();
  Input input(path, std::move(*file));
  if (input.bytes().empty())
    return util::Status::Error(path + " is empty: nothing to import");
  VRAMSCOPE_RETURN_IF_ERROR(input.ReadHeads());
  return input;
}

util::Status Input::ReadHeads() {
  for (const auto& [head, stream] :
       {std::pair(&head_, Content()), std::pair(&text_head_, Text())}) {
    util::Result<std::string> start = HeadOf(*stream);
    if (!start)
      return start.status();
    *head = std::move(*start);
  }
  return {};
}

std::string Input::name() const {
  return std::filesystem::path(path_).filename().string();
}

std::unique_ptr<ByteStream> Input::Content() const {
  if (compression_ == Compression::kNone)
    return std::make_unique<PlainStream>(file_);
  std::unique_ptr<ByteStream> unpacked;
  if (compression_ == Compression::kGzip)
    unpacked = std::make_unique<GzipStream>(file_, path_);
  else
    unpacked = std::make_unique<ZstdStream>(file_, path_);
  return std::make_unique<BoundedStream>(std::move(unpacked), path_,
                                         kMostBaseBytes + kMostRatio * file_bytes());
}

std::unique_ptr<ByteStream> Input::Text() const {
  return std::make_unique<TextStream>(Content());
}

bool LineReader::Fill() {
  if (at_ < end_)
    return true;
  if (!status_.ok())
    return false;
  const util::Result<size_t> bytes = stream_->Read(buffer_);
  if (!bytes)
    status_ = bytes.status();
  at_ = 0;
  end_ = bytes ? *bytes : 0;
  return end_ > 0;
}

bool LineReader::Next(std::string_view* line) {
  line_.clear();
  was_cut_ = is_ended_ = false;
  bool any = false;
  while (Fill()) {
    any = true;
    const std::string_view rest(buffer_.data() + at_, end_ - at_);
    // Every byte of a log passes here; find_first_of() would be ten times slower.
    const auto found =
        std::find_if(rest.begin(), rest.end(), [](char c) { return c == '\n' || c == '\r'; });
    const auto end = static_cast<size_t>(found - rest.begin());
    const std::string_view part = rest.substr(0, end);
    const size_t room = kMaxLineBytes - line_.size();
    was_cut_ = was_cut_ || part.size() > room;
    line_.append(part.substr(0, room));
    at_ += part.size();
    if (end == rest.size())
      continue;
    // A carriage return (of a progress bar) ends a line too; "\r\n" is one line end.
    const bool is_return = rest[end] == '\r';
    is_ended_ = true;
    ++at_;
    if (is_return && Fill() && buffer_[at_] == '\n')
      ++at_;
    break;
  }
  if (!status_.ok() || !any)
    return false;
  ++number_;
  *line = line_;
  return true;
}

}  // namespace vramscope::imports
