// SPDX-License-Identifier: Apache-2.0
// The text forms: JSON, and lines with cells, whatever tool they are of.
#include "import_forms.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace vramscope::fuzz {
namespace {

using Kind = Piece::Kind;

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}
// Pieces keep the text after them, up to the next piece.
bool IsBetween(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' || c == ':';
}

constexpr std::string_view kJsonWords[] = {"traceEvents",
                                           "deviceProperties",
                                           "distributedInfo",
                                           "rank",
                                           "id",
                                           "name",
                                           "totalGlobalMem",
                                           "ph",
                                           "X",
                                           "i",
                                           "cat",
                                           "cpu_op",
                                           "user_annotation",
                                           "python_function",
                                           "Operator",
                                           "ts",
                                           "dur",
                                           "pid",
                                           "tid",
                                           "args",
                                           "[memory]",
                                           "Bytes",
                                           "Addr",
                                           "Device Id",
                                           "Device Type",
                                           "Total Allocated",
                                           "Total Reserved",
                                           "a.py(3): f",
                                           "<built-in>(x): "};

bool IsJson(std::string_view input) {
  const size_t first = input.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (input[first] == '{' || input[first] == '[') &&
         input.find('"') != std::string_view::npos;
}

size_t EndOfString(std::string_view input, size_t at) {
  for (++at; at < input.size() && input[at] != '"'; ++at)
    at += input[at] == '\\' ? 1u : 0u;
  return std::min(at + 1, input.size());
}

Pieces SplitJson(std::string_view input) {
  Pieces pieces;
  for (size_t at = 0; at < input.size();) {
    const char c = input[at];
    Kind kind = Kind::kOther;
    size_t end = at + 1;
    if (c == '{' || c == '[') {
      kind = Kind::kOpen;
    } else if (c == '}' || c == ']') {
      kind = Kind::kClose;
    } else if (c == '"') {
      kind = Kind::kText;
      end = EndOfString(input, at);
    } else if (IsDigit(c) || c == '-') {
      kind = Kind::kNumber;
      while (end < input.size() && (IsWord(input[end]) || input[end] == '.' || input[end] == '-'))
        ++end;
    } else {
      while (end < input.size() && IsWord(input[end]))
        ++end;
    }
    while (end < input.size() && IsBetween(input[end]))
      ++end;
    pieces.push_back({kind, std::string(input.substr(at, end - at))});
    at = end;
  }
  return pieces;
}

// The text after the old piece follows the new one.
std::string_view BehindJson(const std::string& old) {
  size_t at = old.size();
  while (at > 0 && IsBetween(old[at - 1]))
    --at;
  return std::string_view(old).substr(at);
}

std::string JsonNumber(const std::string& old, uint64_t value) {
  return std::to_string(static_cast<int64_t>(value)) + std::string(BehindJson(old));
}

std::string JsonText(const std::string& old, std::string_view text) {
  return '"' + std::string(text) + '"' + std::string(BehindJson(old));
}

constexpr std::string_view kLineWords[] = {
    // nvidia-smi
    "timestamp", "index", "uuid", "gpu_bus_id", "name", "memory.used [MiB]", "used_memory",
    "memory.total", "pid", "process_name", " MiB", " KiB", " GiB", "[N/A]", "[Not Supported]",
    "2024/05/01 10:00:00.123",
    // MXNet's and TBD's tools
    "in_arg:", "arg_grad:", "aux_state:", "optimizer_state:mean:", "grad of ", "workspace",
    "nvml_amend", "\"Attribute Name\",\"Requested Size\",\"Device\",\"Actual Size\",\"Reuse?\"",
    "[mem] ", "Allocate ", " bytes", " MB", " GPU memory (", ").",
    " MB GPU global memory free, total ", "[mem] Release GPU memory.",
    // RMM
    "Thread,Time,Action,Pointer,Size,Stream", "allocate", "free", "allocate failure", "0x",
    "23:59:59.999999", "00:00:00:000001",
    // Of any
    "\"", "\"\"", ",", "\r", "1e300", "nan", "0.00390625", "-1", "\xef\xbb\xbf", "\xff"};

bool IsAnything(std::string_view) {
  return true;
}

// A line is what a kOpen without bytes begins and its line end closes.
Pieces SplitLines(std::string_view input) {
  Pieces pieces;
  bool in_line = false;
  for (size_t at = 0; at < input.size();) {
    if (!in_line)
      pieces.push_back({Kind::kOpen, ""});
    in_line = true;
    const char c = input[at];
    Kind kind = Kind::kOther;
    size_t end = at + 1;
    if (c == '\n' || c == '\r') {
      kind = Kind::kClose;
      end += c == '\r' && end < input.size() && input[end] == '\n' ? 1u : 0u;
      in_line = false;
    } else if (IsDigit(c)) {
      kind = Kind::kNumber;
      while (end < input.size() &&
             (std::isxdigit(static_cast<unsigned char>(input[end])) != 0 || input[end] == 'x'))
        ++end;
    } else if (IsWord(c)) {
      kind = Kind::kText;
      while (end < input.size() && (IsWord(input[end]) || input[end] == ' ' || input[end] == '.'))
        ++end;
    }
    pieces.push_back({kind, std::string(input.substr(at, end - at))});
    at = end;
  }
  if (in_line)
    pieces.push_back({Kind::kClose, ""});
  return pieces;
}

std::string LineNumber(const std::string& old, uint64_t value) {
  if (old.find('x') == std::string::npos)
    return std::to_string(value);
  std::string digits;
  for (; value != 0 || digits.empty(); value >>= 4)
    digits.insert(digits.begin(), "0123456789abcdef"[value & 15]);
  return "0x" + digits;
}

std::string LineText(const std::string&, std::string_view text) {
  return std::string(text);
}

constexpr Form kJsonForm = {IsJson, SplitJson, JoinSideBySide, JsonNumber, JsonText, kJsonWords};
constexpr Form kLineForm = {IsAnything, SplitLines, JoinSideBySide,
                            LineNumber, LineText,   kLineWords};

}  // namespace

std::string JoinSideBySide(std::span<const Piece> pieces) {
  std::string input;
  for (const Piece& piece : pieces)
    input += piece.bytes;
  return input;
}

const Form& FormOf(std::string_view input) {
  for (const Form* const form : {&kPickleForm, &kProtobufForm, &kJsonForm}) {
    if (form->matches(input))
      return *form;
  }
  return kLineForm;
}

}  // namespace vramscope::fuzz
