// SPDX-License-Identifier: Apache-2.0
// Changes an import's input by the pieces of its form (import_forms.h), inside of what packs it.
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "import_forms.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace vramscope::fuzz {
namespace {

using Kind = Piece::Kind;
using Random = std::minstd_rand;

// What is unpacked is small, as inputs are.
constexpr size_t kMostUnpackedBytes = size_t{256} << 10;

size_t Below(size_t limit, Random* random) {
  return limit == 0 ? 0 : (*random)() % limit;
}

constexpr uint64_t kNumbers[] = {0,
                                 1,
                                 2,
                                 511,
                                 512,
                                 513,
                                 4096,
                                 (1 << 21),
                                 INT32_MAX,
                                 1ull << 31,
                                 UINT32_MAX,
                                 1ull << 32,
                                 1ull << 49,
                                 (1ull << 50) - 1,
                                 1ull << 50,
                                 (1ull << 50) + 1,
                                 INT64_MAX,
                                 1ull << 63,
                                 UINT64_MAX - 4095,
                                 UINT64_MAX};

class Changes {
 public:
  Changes(const Form& form, std::string_view input, unsigned seed)
      : form_(form), pieces_(form.split(input)), random_(seed) {}

  std::string Make() {
    for (size_t left = 1 + Below(3); left > 0 && !pieces_.empty(); --left)
      Change();
    return form_.join(pieces_);
  }

 private:
  size_t Below(size_t limit) { return fuzz::Below(limit, &random_); }

  // Of a kind; of any where there is none.
  size_t Pick(std::optional<Kind> kind) {
    const size_t start = Below(pieces_.size());
    for (size_t i = 0; kind && i < pieces_.size(); ++i) {
      const size_t at = (start + i) % pieces_.size();
      if (pieces_[at].kind == *kind)
        return at;
    }
    return start;
  }

  // Behind a piece and all that it begins.
  size_t EndOf(size_t at) const {
    size_t depth = 0;
    for (size_t i = at; i < pieces_.size(); ++i) {
      if (pieces_[i].kind == Kind::kOpen)
        ++depth;
      else if (pieces_[i].kind == Kind::kClose && depth > 0)
        --depth;
      if (depth == 0)
        return i + 1;
    }
    return pieces_.size();
  }

  // One or two adjacent pieces: a value, or its name as well.
  std::pair<size_t, size_t> PickRange() {
    const size_t begin = Pick(Below(3) == 0 ? std::optional(Kind::kOpen) : std::nullopt);
    size_t end = EndOf(begin);
    if (Below(2) == 0 && end < pieces_.size())
      end = EndOf(end);
    return {begin, end};
  }

  uint64_t SomeNumber() {
    if (Below(2) == 0)
      return kNumbers[Below(std::size(kNumbers))];
    return Below(2) == 0 ? random_() % 1024 : (uint64_t{random_()} << 32 | random_());
  }

  void ChangeNumber() {
    Piece& piece = pieces_[Pick(Kind::kNumber)];
    // Figures that agree with each other say more than figures that do not.
    const Piece& other = pieces_[Pick(Kind::kNumber)];
    if (Below(3) == 0 && piece.kind == other.kind && piece.kind == Kind::kNumber)
      piece.bytes = std::string(other.bytes);
    else
      piece = {Kind::kNumber, form_.number(piece.bytes, SomeNumber())};
  }

  void ChangeText() {
    Piece& piece = pieces_[Pick(Kind::kText)];
    const Piece& other = pieces_[Pick(Kind::kText)];
    if (Below(3) == 0 && other.kind == Kind::kText)
      piece = Piece(other);
    else
      piece = {Kind::kText, form_.text(piece.bytes, form_.words[Below(form_.words.size())])};
  }

  void ChangeBytes() {
    std::string& bytes = pieces_[Below(pieces_.size())].bytes;
    const size_t size = bytes.size();
    bytes.resize(size + 16);
    bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size, bytes.size()));
  }

  void Delete() {
    const auto [begin, end] = PickRange();
    Erase(begin, end);
  }

  // Copies a piece to another place, or repeats it in place.
  void Copy(bool moves) {
    const auto [begin, end] = PickRange();
    const Pieces range(pieces_.begin() + static_cast<ptrdiff_t>(begin),
                       pieces_.begin() + static_cast<ptrdiff_t>(end));
    size_t to = end;
    size_t times = 1;
    if (moves)
      Erase(begin, end);
    if (moves || Below(2) == 0)
      to = Below(pieces_.size() + 1);
    else
      times += Below(8);
    for (; times > 0; --times)
      pieces_.insert(pieces_.begin() + static_cast<ptrdiff_t>(to), range.begin(), range.end());
  }

  void Erase(size_t begin, size_t end) {
    pieces_.erase(pieces_.begin() + static_cast<ptrdiff_t>(begin),
                  pieces_.begin() + static_cast<ptrdiff_t>(end));
  }

  void Insert() {
    const size_t at = Below(pieces_.size() + 1);
    const bool number = Below(2) == 0;
    Piece piece = {number ? Kind::kNumber : Kind::kText,
                   number ? form_.number("", SomeNumber())
                          : form_.text("", form_.words[Below(form_.words.size())])};
    pieces_.insert(pieces_.begin() + static_cast<ptrdiff_t>(at), std::move(piece));
  }

  void Change() {
    switch (Below(10)) {
      case 0:
      case 1:
      case 2:
        return ChangeNumber();
      case 3:
      case 4:
        return ChangeText();
      case 5:
        return Delete();
      case 6:
        return Copy(false);
      case 7:
        return Copy(true);
      case 8:
        return Insert();
      default:
        return ChangeBytes();
    }
  }

  const Form& form_;
  Pieces pieces_;
  Random random_;
};

// ---- what inputs are packed in

std::optional<std::string> Unzip(std::string_view packed) {
  z_stream state{};
  if (inflateInit2(&state, 15 + 16) != Z_OK)
    return std::nullopt;
  std::string content(kMostUnpackedBytes, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  state.avail_in = static_cast<uInt>(packed.size());
  state.next_out = reinterpret_cast<Bytef*>(content.data());
  state.avail_out = static_cast<uInt>(content.size());
  const int result = inflate(&state, Z_FINISH);
  content.resize(state.total_out);
  inflateEnd(&state);
  return result == Z_STREAM_END ? std::optional(content) : std::nullopt;
}

std::string Zip(std::string_view content) {
  z_stream state{};
  std::string packed(compressBound(content.size()) + 32, '\0');
  if (deflateInit2(&state, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return {};
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  state.avail_in = static_cast<uInt>(content.size());
  state.next_out = reinterpret_cast<Bytef*>(packed.data());
  state.avail_out = static_cast<uInt>(packed.size());
  (void)deflate(&state, Z_FINISH);
  packed.resize(state.total_out);
  deflateEnd(&state);
  return packed;
}

std::optional<std::string> Unzstd(std::string_view packed) {
  std::string content(kMostUnpackedBytes, '\0');
  const size_t size = ZSTD_decompress(content.data(), content.size(), packed.data(), packed.size());
  if (ZSTD_isError(size) != 0)
    return std::nullopt;
  content.resize(size);
  return content;
}

std::string Zstd(std::string_view content) {
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 1));
  return packed;
}

// Of UTF-16 what ASCII has.
std::optional<std::string> Narrowed(std::string_view wide) {
  std::string text;
  for (size_t i = 2; i < wide.size(); i += 2)
    text += wide[i];
  return text;
}

std::string Widened(std::string_view text) {
  std::string wide = "\xff\xfe";
  for (const char c : text)
    wide += {c, '\0'};
  return wide;
}

struct Packing {
  std::string_view magic;
  std::optional<std::string> (*unpack)(std::string_view packed);
  std::string (*pack)(std::string_view content);
};
constexpr Packing kPackings[] = {{"\x1f\x8b", Unzip, Zip},
                                 {"\x28\xb5\x2f\xfd", Unzstd, Zstd},
                                 {"\xff\xfe", Narrowed, Widened}};

std::string Changed(std::string_view input, Random* random, bool may_pack) {
  for (const Packing& packing : kPackings) {
    const std::optional<std::string> content =
        may_pack && input.starts_with(packing.magic) ? packing.unpack(input) : std::nullopt;
    if (content) {
      std::string changed = Changed(*content, random, false);
      return Below(64, random) == 0 ? changed : packing.pack(changed);
    }
  }
  std::string changed = Changes(FormOf(input), input, static_cast<unsigned>((*random)())).Make();
  return may_pack && Below(256, random) == 0
             ? kPackings[Below(std::size(kPackings), random)].pack(changed)
             : changed;
}

}  // namespace
}  // namespace vramscope::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data,
                                          size_t size,
                                          size_t max_size,
                                          unsigned seed) {
  vramscope::fuzz::Random random(seed);
  (void)random();
  if (size == 0 || vramscope::fuzz::Below(16, &random) == 0)
    return LLVMFuzzerMutate(data, size, max_size);
  const std::string changed =
      vramscope::fuzz::Changed({reinterpret_cast<const char*>(data), size}, &random, true);
  if (changed.empty() || changed.size() > max_size)
    return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}
