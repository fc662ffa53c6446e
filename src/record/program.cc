// SPDX-License-Identifier: Apache-2.0
#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "record/environment.h"

namespace vramscope::cli {
namespace {

#if defined(__x86_64__)
constexpr auto kOurMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr auto kOurMachine = EM_AARCH64;
#else
#error "vramscope runs on x86-64 and aarch64"
#endif

// The kernel follows at most this many `#!` lines.
constexpr int kMaxInterpreters = 4;
constexpr size_t kStartBytes = 4096;

std::string ReadStart(const std::string& path, size_t limit_bytes) {
  std::string text(limit_bytes, '\0');
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return "";
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  close(fd);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

bool IsDirectory(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool IsExecutableFile(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

constexpr char kMusl[] = "is linked with musl";
constexpr char k32Bit[] = "is a 32-bit program";
constexpr char kForeign[] = "is a program for another processor";

// glibc's loader, which loads what its arguments name, LD_PRELOAD included.
bool IsLoader(const std::string& path) {
  std::error_code error;
  const std::string name = std::filesystem::canonical(path, error).filename().string();
  return name.starts_with("ld-linux") || name.starts_with("ld-2.");
}

// Why the loader would not take LD_PRELOAD for this ELF file, or "".
std::string WhyNotPreloaded(const std::string& path, const std::string& text) {
  if (text.size() < EI_NIDENT || std::memcmp(text.data(), ELFMAG, SELFMAG) != 0)
    return "";
  if (text[EI_CLASS] != ELFCLASS64)
    return k32Bit;
  Elf64_Ehdr header{};
  if (text.size() < sizeof header)
    return "";
  std::memcpy(&header, text.data(), sizeof header);
  if (header.e_machine != kOurMachine)
    return kForeign;
  bool has_interpreter = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    const uint64_t at = header.e_phoff + uint64_t{i} * sizeof segment;
    if (header.e_phentsize != sizeof segment || at > text.size() - sizeof segment)
      break;
    std::memcpy(&segment, text.data() + at, sizeof segment);
    if (segment.p_type != PT_INTERP)
      continue;
    has_interpreter = true;
    if (segment.p_offset < text.size() &&
        std::string_view(text).substr(segment.p_offset, segment.p_filesz).find("/ld-musl-") !=
            std::string_view::npos) {
      return kMusl;
    }
  }
  if (!has_interpreter)
    return IsLoader(path) ? "" : "is statically linked";
  struct stat info {};
  if (stat(path.c_str(), &info) != 0)
    return "";
  if ((info.st_mode & S_ISUID) != 0 && info.st_uid != geteuid())
    return "is a setuid program";
  if ((info.st_mode & S_ISGID) != 0 && info.st_gid != getegid())
    return "is a setgid program";
  if (geteuid() != 0 && getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) {
    return "has file capabilities";
  }
  return "";
}

Program CannotStart(int exit_status, std::string error) {
  Program program;
  program.exit_status = exit_status;
  program.error = std::move(error);
  return program;
}

Program Inspect(const std::string& path) {
  Program program;
  program.path = path;
  std::string file = path;
  for (int depth = 0; depth < kMaxInterpreters; ++depth) {
    const std::string text = ReadStart(file, kStartBytes);
    const std::string interpreter = InterpreterOf(text);
    if (interpreter.empty()) {
      const std::string why = WhyNotPreloaded(file, text);
      program.not_recordable = why;
      program.refuses_preload = why == kMusl || why == k32Bit || why == kForeign;
      return program;
    }
    if (!IsExecutableFile(interpreter)) {
      return CannotStart(
          kExitNotExecutable,
          fmt::format(
              "{} cannot be executed: its interpreter {} {}", path, interpreter,
              access(interpreter.c_str(), F_OK) == 0 ? "is not executable" : "does not exist"));
    }
    file = interpreter;
  }
  return program;
}

bool IsInterpreter(const std::string& name) {
  static constexpr std::array<std::string_view, 5> kShells = {"sh", "bash", "dash", "zsh", "ksh"};
  return name.starts_with("python") || name.starts_with("pypy") ||
         std::find(kShells.begin(), kShells.end(), name) != kShells.end();
}

}  // namespace

std::string WhyNotRecordable(const std::string& path) {
  return WhyNotPreloaded(path, ReadStart(path, kStartBytes));
}

std::string InterpreterOf(const std::string& text) {
  if (!text.starts_with("#!"))
    return "";
  const size_t begin = text.find_first_not_of(" \t", 2);
  if (begin == std::string::npos)
    return "";
  return text.substr(begin, text.find_first_of(" \t\r\n", begin) - begin);
}

Program FindProgram(const std::string& command) {
  if (command.find('/') != std::string::npos) {
    if (IsDirectory(command)) {
      return CannotStart(kExitNotExecutable,
                         fmt::format("{} is a directory: use a program in it", command));
    }
    if (access(command.c_str(), F_OK) != 0) {
      const bool missing = errno == ENOENT || errno == ENOTDIR;
      return CannotStart(missing ? kExitNotFound : kExitNotExecutable,
                         fmt::format("cannot start {}: {}", command, std::strerror(errno)));
    }
    if (!IsExecutableFile(command)) {
      return CannotStart(
          kExitNotExecutable,
          fmt::format("{} is not executable: chmod +x it, or run it with its interpreter",
                      command));
    }
    return Inspect(command);
  }
  const char* const variable = getenv("PATH");
  std::string_view rest = variable != nullptr ? variable : "/bin:/usr/bin";
  std::string not_executable;
  while (!command.empty()) {
    const size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    const std::string path = fmt::format("{}/{}", folder.empty() ? "." : folder, command);
    if (IsExecutableFile(path))
      return Inspect(path);
    if (not_executable.empty() && access(path.c_str(), F_OK) == 0 && !IsDirectory(path)) {
      not_executable = path;
    }
    if (colon == std::string_view::npos)
      break;
    rest.remove_prefix(colon + 1);
  }
  if (!not_executable.empty()) {
    return CannotStart(kExitNotExecutable,
                       fmt::format("{} is not executable: chmod +x it", not_executable));
  }
  if (!command.empty() && access(command.c_str(), F_OK) == 0) {
    return CannotStart(
        kExitNotFound,
        fmt::format("{0} is not in PATH: use ./{0} for the file in this directory", command));
  }
  return CannotStart(
      kExitNotFound,
      fmt::format("command not found: '{}': check the spelling, or use its path", command));
}

std::string NameOfCommand(const std::vector<std::string>& command) {
  const auto stem = [](const std::string& path) {
    return std::filesystem::path(path).stem().string();
  };
  std::string name = stem(command.front());
  // "python3.11" has no extension; its stem is "python3", which serves as well.
  if (IsInterpreter(name)) {
    for (size_t i = 1; i < command.size(); ++i) {
      const std::string& word = command[i];
      if (word == "-c")
        break;
      if (word == "-m") {
        if (i + 1 < command.size())
          name = command[i + 1];
        break;
      }
      if (word == "-X" || word == "-W" || word == "-o") {  // the options that take a word
        ++i;
        continue;
      }
      if (word.starts_with("-"))
        continue;
      name = stem(word);
      break;
    }
  }
  std::replace(name.begin(), name.end(), '/', '_');
  return name.empty() || name == "." || name == ".." ? "program" : name;
}

}  // namespace vramscope::cli
