// SPDX-License-Identifier: Apache-2.0
#include "top/terminal_screen.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace vramscope::cli {
namespace {

constexpr size_t kUsualRows = 24;
// The other screen, no cursor, no wrapping of long lines; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";

bool WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR)
      return false;
    text.remove_prefix(written > 0 ? static_cast<size_t>(written) : 0);
  }
  return true;
}

}  // namespace

TerminalScreen::TerminalScreen() {
  tcgetattr(STDIN_FILENO, &saved_);
  sigemptyset(&blocked_);
  for (const int number : {SIGWINCH, SIGTSTP, SIGCONT})
    sigaddset(&blocked_, number);
  sigprocmask(SIG_BLOCK, &blocked_, &old_mask_);
  signals_ = util::UniqueFd(signalfd(-1, &blocked_, SFD_CLOEXEC | SFD_NONBLOCK));
  Enter();
}

TerminalScreen::~TerminalScreen() {
  Leave();
  sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
}

void TerminalScreen::Enter() {
  termios raw = saved_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  WriteAll(kEnter);
  drawn_.clear();
}

void TerminalScreen::Leave() {
  WriteAll(kLeave);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_);
}

void TerminalScreen::OnSignals() {
  signalfd_siginfo taken{};
  bool stops = false;
  while (read(signals_.get(), &taken, sizeof taken) > 0)
    stops = stops || taken.ssi_signo == SIGTSTP;
  if (stops) {
    Leave();
    // SIGTSTP is blocked; for a shell the two are the same.
    kill(getpid(), SIGSTOP);
  }
  // A shell changes the terminal while this process is stopped, and a new size needs a new picture.
  Enter();
}

size_t TerminalScreen::rows() const {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : kUsualRows;
}

bool TerminalScreen::Draw(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i >= drawn_.size() || drawn_[i] != lines[i])
      text += fmt::format("\x1b[{};1H\x1b[2K{}", i + 1, lines[i]);
  }
  drawn_ = lines;
  return WriteAll(text);
}

std::string TerminalScreen::ReadKeys() const {
  char typed[64];
  const ssize_t count = read(STDIN_FILENO, typed, sizeof typed);
  return std::string(typed, count > 0 ? static_cast<size_t>(count) : 0);
}

}  // namespace vramscope::cli
