// SPDX-License-Identifier: Apache-2.0
#include "pipeline/console.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "output/terminal.h"

namespace vramscope::cli {
namespace {

constexpr int64_t kFirstShownAfterNs = 500'000'000;
constexpr int64_t kShownEveryNs = 100'000'000;

// One write for the whole line, so that lines of several processes do not mix.
void PrintLine(std::string_view message) {
  constexpr std::string_view kName = "vramscope: ";
  const output::Style style = output::DetectStyle(STDERR_FILENO);
  std::string text(message);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  // A reader of the pipe gets a file's name unchanged, whatever the locale.
  text = output::Printable(text, style.utf8 || isatty(STDERR_FILENO) == 0);
  const std::string line =
      fmt::format("{}{}\n", kName, output::Wrapped(text, kName.size(), kName.size(), style));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

int Fail(std::string_view message) {
  PrintLine(message);
  return kExitError;
}

int ExitOf(const util::Status& status) {
  return status.ok() ? kExitOk : Fail(status.message());
}

int ExitOf(const util::Result<int>& status) {
  return status.ok() ? *status : Fail(status.status().message());
}

void Note(std::string_view message) {
  PrintLine(message);
}

Progress::Progress(const std::string& what)
    : what_(output::Printable(what, output::LocaleIsUtf8())),
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
