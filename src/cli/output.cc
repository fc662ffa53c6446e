// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

#include "base/clock.h"
#include "cli/commands.h"

namespace vramscope::cli {
namespace {

constexpr int64_t kFirstShownAfterNs = 500'000'000;
constexpr int64_t kShownEveryNs = 100'000'000;

// One write for the whole line, so that lines of several processes do not mix.
void PrintLine(std::string_view message) {
  std::string line = "vramscope: ";
  for (const char c : message)
    line += c == '\n' || c == '\r' ? ' ' : c;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

int Fail(std::string_view message) {
  PrintLine(message);
  return kExitError;
}

std::string CheckCount(const std::string& text) {
  uint64_t count = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failed == std::errc() && end == text.data() + text.size())
    return "";
  return fmt::format("'{}' is no whole number", text);
}

void Note(std::string_view message) {
  PrintLine(message);
}

Progress::Progress(std::string what)
    : what_(std::move(what)),
      start_ns_(base::MonotonicNs()),
      on_terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shown_)
    std::fputs("\r\x1b[K", stderr);
}

void Progress::Update(double share) {
  if (!on_terminal_)
    return;
  const int64_t now_ns = base::MonotonicNs();
  if (now_ns - start_ns_ < kFirstShownAfterNs || now_ns - shown_ns_ < kShownEveryNs)
    return;
  shown_ns_ = now_ns;
  shown_ = true;
  const double percent = share < 0 ? 0 : share > 1 ? 100 : share * 100;
  fmt::print(stderr, "\rvramscope: {} {:3.0f} %\x1b[K", what_, percent);
}

}  // namespace vramscope::cli
