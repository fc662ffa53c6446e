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
  std::string bytes;  // as it stands in the input
};
using Pieces = std::vector<Piece>;

struct Form {
  bool (*matches)(std::string_view input);
  // Whatever the input is: what is no piece of the form is kOther.
  Pieces (*split)(std::string_view input);
  std::string (*join)(std::span<const Piece> pieces);
  // What stands for a number or a text where `old` stood.
  std::string (*number)(const std::string& old, uint64_t value);
  std::string (*text)(const std::string& old, std::string_view text);
  std::span<const std::string_view> words;  // that importers know
};

// Of the forms that match, the first; the last matches everything.
const Form& FormOf(std::string_view input);

extern const Form kPickleForm;
extern const Form kProtobufForm;

// Of pieces that stand side by side.
std::string JoinSideBySide(std::span<const Piece> pieces);

}  // namespace vramscope::fuzz
