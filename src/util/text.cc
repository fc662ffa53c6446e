// SPDX-License-Identifier: Apache-2.0

#include "util/text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace vramscope::util {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};
// Marks over the letter before, joiners, and the choice between text and picture.
constexpr Range kWithoutWidth[] = {{0x300, 0x36f},   {0x1ab0, 0x1aff}, {0x200b, 0x200f},
                                   {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};
// The blocks that Unicode's EastAsianWidth.txt has as wide, without the single characters.
constexpr Range kTwoColumns[] = {
    {0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xa960, 0xa97f},
    {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff01, 0xff60},
    {0xffe0, 0xffe6},   {0x17000, 0x18cff}, {0x1b000, 0x1b2ff}, {0x1f300, 0x1f64f},
    {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};

// For a well-formed sequence of two bytes and more.
uint32_t CodePoint(std::string_view sequence) {
  uint32_t point = static_cast<uint8_t>(sequence[0]) & (0xffu >> (sequence.size() + 1));
  for (size_t i = 1; i < sequence.size(); ++i)
    point = point << 6 | (static_cast<uint8_t>(sequence[i]) & 0x3fu);
  return point;
}

size_t ColumnsOf(uint32_t point) {
  for (const Range& range : kWithoutWidth) {
    if (point >= range.first && point <= range.last)
      return 0;
  }
  for (const Range& range : kTwoColumns) {
    if (point >= range.first && point <= range.last)
      return 2;
  }
  return 1;
}

constexpr char kReplacement[] = "\xef\xbf\xbd";  // U+FFFD

// ESC begins what a terminal takes for a command; so do U+0080 to U+009F.
bool IsControl(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1)
    return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<unsigned char>(sequence[1]) < 0xa0;
}

// Letters to insert, drop, replace or swap with their neighbour.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

size_t Utf8SequenceBytes(std::string_view text) {
  if (text.empty())
    return 0;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(0);
  if (lead < 0x80)
    return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length)
    return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80)
      return 0;
  }
  const uint8_t second = at(1);
  if (lead == 0xe0 && second < 0xa0)
    return 0;  // overlong
  if (lead == 0xed && second >= 0xa0)
    return 0;  // surrogates
  if (lead == 0xf0 && second < 0x90)
    return 0;  // overlong
  if (lead == 0xf4 && second >= 0x90)
    return 0;  // above U+10FFFF
  return length;
}

size_t PrintableAsciiBytes(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && text[bytes] >= 0x20 && text[bytes] < 0x7f)
    ++bytes;
  return bytes;
}

std::string ValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t plain = PrintableAsciiBytes(text.substr(i));
    const size_t length = plain != 0 ? plain : Utf8SequenceBytes(text.substr(i));
    if (length == 0) {
      out.append("\xef\xbf\xbd");
      ++i;
    } else {
      out.append(text.substr(i, length));
      i += length;
    }
  }
  return out;
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t plain = PrintableAsciiBytes(text.substr(i));
    width += plain;
    i += plain;
    if (i == text.size())
      break;
    const size_t length = Utf8SequenceBytes(text.substr(i));
    width += length < 2 ? 1 : ColumnsOf(CodePoint(text.substr(i, length)));
    i += length == 0 ? 1 : length;
  }
  return width;
}

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    if (const size_t plain = PrintableAsciiBytes(text); plain != 0) {
      line.append(text.substr(0, plain));
      text.remove_prefix(plain);
      continue;
    }
    const size_t size = std::max<size_t>(Utf8SequenceBytes(text), 1);
    const std::string_view sequence = text.substr(0, size);
    if (sequence == "\t" || sequence == "\n" || sequence == "\r")
      line += ' ';
    else if (Utf8SequenceBytes(text) == 0 || IsControl(sequence))
      line += kReplacement;
    else
      line += sequence;
    text.remove_prefix(size);
  }
  return line;
}

std::string CsvCell(std::string_view text) {
  std::string cell = OneLine(text);
  if (!text.empty() && std::string_view("=+-@\t\r\n").find(text[0]) != std::string_view::npos)
    cell.insert(cell.begin(), '\'');
  // Twice at the speed of memory, where find_first_of looks each character up by a call.
  if (cell.find(',') == std::string::npos && cell.find('"') == std::string::npos)
    return cell;
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"')
      quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string ClosestName(const std::string& word, const std::vector<std::string>& names) {
  std::string closest;
  size_t smallest = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    // A beginning is a good hint however much is missing.
    const bool begins = word.size() > 3 && name.starts_with(word);
    const size_t distance = begins ? 1 : EditDistance(word, name);
    // Any two words of two letters are close.
    if (distance < smallest && distance < name.size() - 1) {
      smallest = distance;
      closest = name;
    }
  }
  return closest;
}

std::string_view PackageOf(std::string_view file) {
  for (const std::string_view marker : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(marker);
    if (at == std::string_view::npos)
      continue;
    const std::string_view rest = file.substr(at + marker.size());
    const std::string_view first = rest.substr(0, rest.find('/'));
    return first.ends_with(".py") ? first.substr(0, first.size() - 3) : first;
  }
  return {};
}

}  // namespace vramscope::util
