// SPDX-License-Identifier: Apache-2.0
// Pickles, and profiles of pprof.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "import_forms.h"

namespace vramscope::fuzz {
namespace {

using Kind = Piece::Kind;

// ---- pickles: pieces are opcodes with their arguments.

constexpr std::string_view kPickleWords[] = {
#define VRAMSCOPE_PICKLE_KEY(Name, text) text,
#include "import/torch/torch_pickle_keys.def"
    "alloc",
    "free",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "user_defined",
    "active_allocated",
    "active_pending_free",
    "inactive",
    "host",
    "cpu",
    "gpu",
    "START",
    "END",
    "a.py"};

bool IsPickle(std::string_view input) {
  return input.size() > 2 && input[0] == '\x80' && input[1] >= 2 && input[1] <= 5;
}

// The end of the argument of the opcode at `at`.
size_t EndOfOpcode(std::string_view input, size_t at) {
  const auto opcode = static_cast<uint8_t>(input[at]);
  const auto is_one_of = [&](std::string_view opcodes) {
    return opcodes.find(static_cast<char>(opcode)) != std::string_view::npos;
  };
  size_t size = 0;
  size_t size_of_size = 0;
  if (is_one_of("Kqh\x80\x82"))
    size = 1;
  else if (is_one_of("M\x83"))
    size = 2;
  else if (is_one_of("Jrj\x84"))
    size = 4;
  else if (is_one_of("G\x95"))
    size = 8;
  else if (is_one_of("\x8cUC\x8a"))
    size_of_size = 1;
  else if (is_one_of("XTB\x8b"))
    size_of_size = 4;
  else if (is_one_of("\x8d\x8e\x96"))
    size_of_size = 8;
  ++at;
  if (size_of_size != 0 && input.size() - at >= size_of_size) {
    uint64_t counted = 0;
    std::memcpy(&counted, input.data() + at, size_of_size);
    at += size_of_size;
    size = std::min<uint64_t>(counted, input.size());
  }
  return std::min(at + size, input.size());
}

Kind KindOfOpcode(char opcode) {
  constexpr std::string_view kTexts = "\x8cUXT\x8d", kNumbers = "KMJ\x8a\x8b", kClosers = "ueltd1";
  return opcode == '('                                     ? Kind::kOpen
         : kClosers.find(opcode) != std::string_view::npos ? Kind::kClose
         : kNumbers.find(opcode) != std::string_view::npos ? Kind::kNumber
         : kTexts.find(opcode) != std::string_view::npos   ? Kind::kText
                                                           : Kind::kOther;
}

// A new dict or list, remembered or not, and the mark of its items are one piece.
size_t MarkBehind(std::string_view input, size_t at) {
  if (input[at] != '}' && input[at] != ']')
    return 0;
  size_t next = at + 1;
  if (next < input.size() && (input[next] == '\x94' || input[next] == 'q' || input[next] == 'r'))
    next = EndOfOpcode(input, next);
  return next < input.size() && input[next] == '(' ? next + 1 : 0;
}

Pieces SplitPickle(std::string_view input) {
  Pieces pieces;
  for (size_t at = 0; at < input.size();) {
    const size_t marked = MarkBehind(input, at);
    const size_t end = marked != 0 ? marked : EndOfOpcode(input, at);
    pieces.push_back({marked != 0 ? Kind::kOpen : KindOfOpcode(input[at]),
                      std::string(input.substr(at, end - at))});
    at = end;
  }
  return pieces;
}

std::string PickleNumber(const std::string&, uint64_t value) {
  if (value < 256)
    return {'K', static_cast<char>(value)};
  std::string bytes("\x8a\x09", 2);
  for (int i = 0; i < 8; ++i, value >>= 8)
    bytes += static_cast<char>(value & 0xff);
  bytes += '\0';
  return bytes;
}

std::string PickleText(const std::string&, std::string_view text) {
  text = text.substr(0, 255);
  return std::string("\x8c") + static_cast<char>(text.size()) + std::string(text);
}

// ---- protobuf: a message with a length is a kOpen with its tag, its fields, a kClose.

enum class Message : uint8_t { kProfile, kValueType, kSample, kLabel, kLocation, kLine, kFunction };

bool TakeVarint(std::string_view* rest, uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < rest->size() && i < 10; ++i) {
    *value |= uint64_t{static_cast<uint8_t>((*rest)[i]) & 0x7fu} << (7 * i);
    if (static_cast<uint8_t>((*rest)[i]) < 0x80) {
      rest->remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7)
    bytes += static_cast<char>(0x80 | (value & 0x7f));
  return bytes + static_cast<char>(value);
}

bool IsProfile(std::string_view input) {
  return input.size() > 4 && input[0] == '\x0a' && static_cast<uint8_t>(input[1]) <= 32 &&
         input.substr(2).starts_with('\x08');
}

// Parses a field; false if it is not a message.
bool MessageOf(Message in, uint64_t field, Message* message) {
  const auto is = [&](Message outer, uint64_t number, Message inner) {
    *message = inner;
    return in == outer && field == number;
  };
  return is(Message::kProfile, 1, Message::kValueType) ||
         is(Message::kProfile, 2, Message::kSample) ||
         is(Message::kProfile, 4, Message::kLocation) ||
         is(Message::kProfile, 5, Message::kFunction) || is(Message::kSample, 3, Message::kLabel) ||
         is(Message::kLocation, 4, Message::kLine);
}

void SplitPacked(std::string_view bytes, Pieces* pieces) {
  uint64_t value = 0;
  while (!bytes.empty()) {
    std::string_view rest = bytes;
    if (!TakeVarint(&rest, &value))
      rest = {};
    pieces->push_back({Kind::kNumber, std::string(bytes.substr(0, bytes.size() - rest.size()))});
    bytes = rest;
  }
}

void SplitMessage(Message message, std::string_view rest, Pieces* pieces) {
  while (!rest.empty()) {
    const std::string_view field = rest;
    uint64_t tag = 0;
    uint64_t value = 0;
    const bool is_whole = TakeVarint(&rest, &tag);
    const std::string_view tag_bytes = field.substr(0, field.size() - rest.size());
    const bool has_value =
        is_whole && ((tag & 7) == 0 || (tag & 7) == 2) && TakeVarint(&rest, &value);
    if (!has_value || ((tag & 7) == 2 && value > rest.size())) {
      pieces->push_back({Kind::kOther, std::string(field)});
      return;
    }
    if ((tag & 7) == 0) {
      pieces->push_back({Kind::kNumber, std::string(field.substr(0, field.size() - rest.size()))});
      continue;
    }
    const std::string_view bytes = rest.substr(0, value);
    rest.remove_prefix(value);
    Message inner{};
    const bool is_packed = message == Message::kSample && tag >> 3 <= 2;
    if (!is_packed && !MessageOf(message, tag >> 3, &inner)) {
      pieces->push_back({Kind::kText, std::string(field.substr(0, field.size() - rest.size()))});
      continue;
    }
    pieces->push_back({Kind::kOpen, std::string(tag_bytes)});
    if (is_packed)
      SplitPacked(bytes, pieces);
    else
      SplitMessage(inner, bytes, pieces);
    pieces->push_back({Kind::kClose, ""});
  }
}

Pieces SplitProfile(std::string_view input) {
  Pieces pieces;
  SplitMessage(Message::kProfile, input, &pieces);
  return pieces;
}

std::string JoinProfile(std::span<const Piece> pieces) {
  // What each open message has so far; what is never closed has no length, and goes as it is.
  std::vector<std::pair<std::string, std::string>> open = {{"", ""}};
  const auto close = [&](bool with_length) {
    auto [tag, bytes] = std::move(open.back());
    open.pop_back();
    open.back().second += tag + (with_length ? Varint(bytes.size()) : "") + bytes;
  };
  for (const Piece& piece : pieces) {
    if (piece.kind == Kind::kOpen)
      open.emplace_back(piece.bytes, "");
    else if (piece.kind != Kind::kClose)
      open.back().second += piece.bytes;
    else if (open.size() > 1)
      close(true);
  }
  while (open.size() > 1)
    close(false);
  return std::move(open.back().second);
}

// A field has its tag before the number; a packed one has only the number.
std::string ProfileNumber(const std::string& old, uint64_t value) {
  std::string_view rest = old;
  uint64_t tag = 0;
  const bool has_tag = TakeVarint(&rest, &tag) && !rest.empty();
  return has_tag ? old.substr(0, old.size() - rest.size()) + Varint(value) : Varint(value);
}

std::string ProfileText(const std::string& old, std::string_view text) {
  std::string_view rest = old;
  uint64_t tag = 0;
  (void)TakeVarint(&rest, &tag);
  return old.substr(0, old.size() - rest.size()) + Varint(text.size()) + std::string(text);
}

constexpr std::string_view kProfileWords[] = {
    "allocations", "count",  "space", "bytes",    "inuse_space", "kind", "device",
    "buffer",      "cuda:1", "cpu:0", "gpu:9999", "executable",  "a.py", "TFRT_CPU_0"};

}  // namespace

const Form kPickleForm = {IsPickle,     SplitPickle, JoinSideBySide,
                          PickleNumber, PickleText,  kPickleWords};
const Form kProtobufForm = {IsProfile,     SplitProfile, JoinProfile,
                            ProfileNumber, ProfileText,  kProfileWords};

}  // namespace vramscope::fuzz
