// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <array>
#include <limits>
#include <new>
#include <utility>

#include "output/page/page_data.h"

namespace vramscope::output {
namespace {

// A <script> ends at the first "</script", even inside a string. JSON has '<' in strings only,
// where it may be escaped.
std::string ScriptSafe(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (size_t from = 0;;) {
    const size_t at = json.find('<', from);
    out += json.substr(from, at - from);
    if (at == std::string_view::npos)
      return out;
    out += "\\u003c";
    from = at + 1;
  }
}

constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

// DEFLATE, then base64, in pieces.
class PageScriptData::Packer {
 public:
  explicit Packer(const std::function<void(std::string_view)>& write) : write_(write) {
    // Raw: what a browser's DecompressionStream calls "deflate-raw". It fails for want of memory
    // only.
    constexpr int kRawWindow = -15;
    constexpr int kMemory = 9;
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kRawWindow, kMemory,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  ~Packer() { deflateEnd(&stream_); }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  void Write(std::string_view text, bool last) {
    constexpr size_t kMost = std::numeric_limits<uInt>::max() / 2;
    do {
      const std::string_view part = text.substr(0, kMost);
      text.remove_prefix(part.size());
      Deflate(part, last && text.empty());
    } while (!text.empty());
  }

 private:
  void Deflate(std::string_view part, bool last) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream_.avail_in = static_cast<uInt>(part.size());
    do {
      stream_.next_out = out_.data();
      stream_.avail_out = static_cast<uInt>(out_.size());
      deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);
      Encode(std::string_view(reinterpret_cast<const char*>(out_.data()),
                              out_.size() - stream_.avail_out));
    } while (stream_.avail_out == 0);
    if (last)
      EncodeEnd();
  }

  void Encode(std::string_view bytes) {
    std::string text;
    rest_ += bytes;
    size_t at = 0;
    for (; at + 3 <= rest_.size(); at += 3)
      AppendGroup(at, 4, &text);
    rest_.erase(0, at);
    write_(text);
  }

  void EncodeEnd() {
    std::string text;
    if (!rest_.empty()) {
      const size_t digits = rest_.size() + 1;
      rest_.resize(3, '\0');
      AppendGroup(0, digits, &text);
      text.append(4 - digits, '=');
    }
    write_(text);
  }

  void AppendGroup(size_t at, size_t digits, std::string* text) const {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(rest_[at + i]); };
    const unsigned bits = (unsigned{byte(0)} << 16) | (unsigned{byte(1)} << 8) | byte(2);
    for (size_t i = 0; i < digits; ++i)
      *text += kBase64[(bits >> (18 - 6 * i)) & 63];
  }

  const std::function<void(std::string_view)>& write_;
  z_stream stream_{};
  std::array<Bytef, 1 << 16> out_;
  std::string rest_;  // deflated, but not encoded yet
};

PageScriptData::PageScriptData(std::function<void(std::string_view)> write, size_t most_plain_bytes)
    : write_(std::move(write)), most_plain_bytes_(most_plain_bytes) {}

PageScriptData::~PageScriptData() = default;

void PageScriptData::Write(std::string_view json) {
  if (!packer_) {
    plain_ += json;
    if (plain_.size() <= most_plain_bytes_)
      return;
    packer_ = std::make_unique<Packer>(write_);
    write_(kPackedMark);
    packer_->Write(std::exchange(plain_, {}), false);
    return;
  }
  packer_->Write(json, false);
}

void PageScriptData::Finish() {
  if (packer_)
    packer_->Write({}, true);
  else
    write_(ScriptSafe(plain_));
}

}  // namespace vramscope::output
