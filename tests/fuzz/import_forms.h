// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Inputs of importers as pieces that can be changed one by one and put together again, so that what
// comes of it still looks like the format and gets behind an importer's first look.
namespace vramscope::fuzz {

struct Piece {
  enum class Kind : uint8_t {
    kOpen,  // begins what its kClose ends
    kClose,
    kNumber,
    kText,
    kOther,
  };
  Kind kind = Kind::kOther;
  std::string bytes;  // the text of the input
};
using Pieces = std::vector<Piece>;

struct Form {
  bool (*matches)(std::string_view input);
  // Accepts any input: text that is not a piece of the form is kOther.
  Pieces (*split)(std::string_view input);
  std::string (*join)(std::span<const Piece> pieces);
  // The replacement for a number or a text at `old`.
  std::string (*number)(const std::string& old, uint64_t value);
  std::string (*text)(const std::string& old, std::string_view text);
  std::span<const std::string_view> words;  // that importers know
};

// Of the forms that match, the first; the last matches everything.
const Form& FormOf(std::string_view input);

extern const Form kPickleForm;
extern const Form kProtobufForm;

// Adjacent pieces.
std::string JoinSideBySide(std::span<const Piece> pieces);

}  // namespace vramscope::fuzz
