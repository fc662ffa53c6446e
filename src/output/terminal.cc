// SPDX-License-Identifier: Apache-2.0
#include "output/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

// Below this, tables would lose their names.
constexpr int kNarrowest = 72;

// The value of the well-formed sequence of `length` bytes at the start of `text`.
uint32_t CodePoint(std::string_view text, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (length == 1)
    return byte(0);
  uint32_t value = byte(0) & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i)
    value = (value << 6) | (byte(i) & 0x3fu);
  return value;
}

// C0, DEL and C1 drive the terminal; the bidirectional overrides reorder what people read.
bool IsControl(uint32_t value) {
  return value < 0x20 || (value >= 0x7f && value < 0xa0) || value == 0x2028 || value == 0x2029 ||
         (value >= 0x202a && value <= 0x202e) || (value >= 0x2066 && value <= 0x2069);
}

}  // namespace

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0')
      continue;
    std::string lower(value);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

Style DetectStyle(int fd) {
  Style style;
  style.utf8 = LocaleIsUtf8();
  if (isatty(fd) == 0)
    return style;
  style.wraps = true;
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.columns = std::max(static_cast<int>(size.ws_col), kNarrowest);
  }
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  style.colour = (no_colour == nullptr || *no_colour == '\0') && term != nullptr &&
                 std::string_view(term) != "dumb";
  return style;
}

std::string Printable(std::string_view text, bool utf8) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t plain = util::PrintableAsciiBytes(text);
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty())
      break;
    const size_t length = util::Utf8SequenceBytes(text);
    const uint32_t value = length == 0 ? 0 : CodePoint(text, length);
    if (value == '\t') {
      out += ' ';
    } else if (IsControl(value) || (!utf8 && value >= 0x80)) {
      out += '?';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string Wrapped(std::string_view text, size_t first, size_t indent, const Style& style) {
  if (!style.wraps)
    return std::string(text);
  std::string out;
  size_t column = first;
  for (size_t at = 0; at < text.size();) {
    const size_t word = std::min(text.find_first_not_of(' ', at), text.size());
    const size_t end = std::min(text.find(' ', word), text.size());
    std::string_view piece = text.substr(at, end - at);  // with the blanks before it
    if (at != 0 && word != end &&
        column + util::DisplayWidth(piece) > static_cast<size_t>(style.columns)) {
      out.append("\n").append(indent, ' ');
      column = indent;
      piece.remove_prefix(word - at);
    }
    out += piece;
    column += util::DisplayWidth(piece);
    at = end;
  }
  return out;
}

namespace {

// `text` if it fits; otherwise what cut(room, ellipsis) makes of it.
template <class Cut>
std::string CutToFit(std::string_view text, size_t columns, const Style& style, const Cut& cut) {
  if (util::DisplayWidth(text) <= columns)
    return std::string(text);
  const std::string_view ellipsis = style.utf8 ? "…" : "..";
  const size_t mark = util::DisplayWidth(ellipsis);
  if (columns < mark)
    return std::string(columns, '.');
  return cut(columns - mark, ellipsis);
}

}  // namespace

std::string CutEnd(std::string_view text, size_t columns, const Style& style) {
  return CutToFit(text, columns, style, [&](size_t room, std::string_view ellipsis) {
    size_t kept = 0;
    for (size_t width = 0; kept < text.size();) {
      const size_t next = std::max<size_t>(util::Utf8SequenceBytes(text.substr(kept)), 1);
      width += util::DisplayWidth(text.substr(kept, next));
      if (width > room)
        break;
      kept += next;
    }
    return std::string(text.substr(0, kept)).append(ellipsis);
  });
}

std::string CutStart(std::string_view text, size_t columns, const Style& style) {
  return CutToFit(text, columns, style, [&](size_t room, std::string_view ellipsis) {
    // From the end, since a name may be much longer than its visible part.
    size_t first = text.size();
    for (size_t width = 0; first > 0;) {
      size_t next = first - 1;
      while (next > 0 && (static_cast<uint8_t>(text[next]) & 0xc0) == 0x80)
        --next;
      width += util::DisplayWidth(text.substr(next, first - next));
      if (width > room)
        break;
      first = next;
    }
    return std::string(ellipsis).append(text.substr(first));
  });
}

std::string CutMiddle(std::string_view text, size_t columns, const Style& style) {
  if (util::DisplayWidth(text) <= columns)
    return std::string(text);
  const size_t mark = style.utf8 ? 1 : 2;
  const size_t end_columns = columns / 3;
  std::string end = CutStart(text, end_columns + mark, style);
  end.erase(0, style.utf8 ? std::string_view("…").size() : mark);
  return CutEnd(text, columns - util::DisplayWidth(end), style) + end;
}

std::string PadRight(std::string text, size_t columns) {
  const size_t width = util::DisplayWidth(text);
  if (width < columns)
    text.append(columns - width, ' ');
  return text;
}

std::string PadLeft(std::string text, size_t columns) {
  const size_t width = util::DisplayWidth(text);
  if (width < columns)
    text.insert(0, columns - width, ' ');
  return text;
}

void AppendLine(std::string_view line, std::string* text) {
  const size_t end = line.find_last_not_of(' ');
  text->append(line.substr(0, end == std::string_view::npos ? 0 : end + 1));
  *text += '\n';
}

std::string Bar(double share, size_t columns, const Style& style) {
  constexpr std::array<const char*, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  share = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  std::string bar;
  if (style.utf8) {
    const auto eighths = static_cast<size_t>(std::lround(share * static_cast<double>(columns) * 8));
    for (size_t i = 0; i < eighths / 8; ++i)
      bar += "█";
    bar += kEighths[eighths % 8];
  } else {
    bar.assign(static_cast<size_t>(std::lround(share * static_cast<double>(columns))), '#');
  }
  return PadRight(std::move(bar), columns);
}

std::string Paint(std::string_view text, Ink ink, const Style& style) {
  if (!style.colour || text.empty())
    return std::string(text);
  // In the order of Ink. Only the 16 colours of the terminal's own palette: they suit its
  // background.
  constexpr std::array<const char*, 6> kCodes = {"1", "2", "36", "32", "33", "1;31"};
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<size_t>(ink)], text);
}

std::string InUnit(uint64_t bytes, uint64_t unit_bytes) {
  if (unit_bytes == 1)
    return util::FormatCount(bytes);
  // Tenths by integers: a figure of 2^60 bytes is as exact as one of 1 KiB.
  uint64_t whole = bytes / unit_bytes;
  uint64_t tenths = ((bytes % unit_bytes) * 10 + unit_bytes / 2) / unit_bytes;
  if (tenths == 10) {
    ++whole;
    tenths = 0;
  }
  return fmt::format("{}.{}", util::FormatCount(whole), tenths);
}

std::string Percent(double share) {
  if (!std::isfinite(share))
    return "-";
  const double percent = share * 100;
  if (percent != 0 && std::fabs(percent) < 0.05)
    return percent < 0 ? ">-0.1 %" : "<0.1 %";
  return fmt::format("{:.1f} %", percent);
}

std::string ExactPercent(int64_t part, uint64_t whole) {
  if (whole == 0)
    return "-";
  return fmt::format("{:.2f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string ExactSeconds(int64_t time_ns) {
  const auto ns = static_cast<uint64_t>(std::max<int64_t>(time_ns, 0));
  std::string text = fmt::format("{}.{:09}", ns / 1'000'000'000, ns % 1'000'000'000);
  while (text.ends_with('0') && !text.ends_with(".0"))
    text.pop_back();
  return text;
}

Unit TableUnit(uint64_t largest_bytes) {
  if (largest_bytes >= (4ull << 20))
    return {1ull << 20, "MiB"};
  if (largest_bytes >= (1ull << 10))
    return {1ull << 10, "KiB"};
  return {1, "B"};
}

}  // namespace vramscope::output
