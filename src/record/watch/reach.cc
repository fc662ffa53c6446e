// SPDX-License-Identifier: Apache-2.0
#include "record/watch/reach.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>

#include "util/proc.h"

namespace vramscope::cli {
namespace {

// The line's words behind "KEY:", or "".
std::string_view LineOf(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos)
    return "";
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find('\n'));
}

// Whether `directory` has another meaning in the process than here: chroot, a mount namespace.
bool IsElsewhere(pid_t pid, const std::string& directory, const struct stat& here) {
  const int root =
      open(fmt::format("/proc/{}/root", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0)
    return false;
  struct stat there {};
  // What is a symbolic link there leads on from our own root: another file then, too.
  const bool is_found = fstatat(root, directory.c_str() + 1, &there, 0) == 0;
  close(root);
  return !is_found || there.st_dev != here.st_dev || there.st_ino != here.st_ino;
}

}  // namespace

bool ParseFileUser(std::string_view status, FileUser* user) {
  // "Uid:\tREAL\tEFFECTIVE\tSAVED\tFILE SYSTEM"
  const std::string_view users = LineOf(status, "\nUid:");
  const std::string_view last = users.substr(users.rfind('\t') + 1);
  const char* const end = last.data() + last.size();
  if (last.empty() || std::from_chars(last.data(), end, user->user).ptr != end)
    return false;
  constexpr uint64_t kDacOverride = 1 << 1;
  const std::string_view words = LineOf(status, "\nCapEff:\t");
  uint64_t capabilities = 0;
  std::from_chars(words.data(), words.data() + words.size(), capabilities, 16);
  user->may_write_all = (capabilities & kDacOverride) != 0;
  return true;
}

std::string WhyOutOfReach(pid_t pid, const std::string& directory) {
  struct stat here {};
  if (directory.empty() || directory.front() != '/' || stat(directory.c_str(), &here) != 0)
    return "";
  const std::optional<std::string> status = util::ReadProc(pid, "status");
  FileUser user;
  if (!status || !ParseFileUser(*status, &user))
    return "";
  // Whoever started the recording made the directory, whatever owner the file system shows.
  constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;
  if (user.user != geteuid() && user.user != here.st_uid && !user.may_write_all &&
      (here.st_mode & kOthersMayWrite) == 0) {
    return "runs as a user who cannot write the recording";
  }
  if (IsElsewhere(pid, directory, here))
    return "has other file systems, where the recording is not";
  return "";
}

}  // namespace vramscope::cli
