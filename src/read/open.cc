// SPDX-License-Identifier: Apache-2.0
#include "read/open.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "tables/reader.h"
#include "util/file.h"
#include "vramscope/read.h"

namespace vramscope::read {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The limit for the program's output; its error is one line at the end of it.
constexpr size_t kMaxSaidBytes = 64 * 1024;

std::string ProgramBeside() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&vramscope_read_version), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  return (fs::path(info.dli_fname).parent_path() / "../bin/vramscope").string();
}

// Not 0, 1 or 2, which the program's own streams are put over.
util::UniqueFd AboveStreams(int fd) {
  const util::UniqueFd low(fd);
  return util::UniqueFd(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

// The caller's, but for what would record the program.
std::vector<char*> Environment() {
  std::vector<char*> kept;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("LD_PRELOAD="))
      kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

class SpawnSettings {
 public:
  SpawnSettings(int tables, int said) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, tables, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, said, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// Reads to the end, which comes when the program ends. False when the time is over before.
bool ReadAll(int fd, std::chrono::milliseconds limit, std::string* text) {
  const Clock::time_point deadline = Clock::now() + limit;
  char buffer[4096];
  for (;;) {
    int wait_ms = -1;
    if (limit.count() != 0) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      wait_ms = static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX));
    }
    pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = poll(&poll_fd, 1, wait_ms);
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready <= 0)
      return false;
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return true;
    text->append(buffer, static_cast<size_t>(got));
    if (text->size() > 2 * kMaxSaidBytes)
      text->erase(0, text->size() - kMaxSaidBytes);
  }
}

// Its error, which is the last line that it said.
std::string ErrorIn(std::string_view said) {
  while (!said.empty() && said.back() == '\n')
    said.remove_suffix(1);
  said = said.substr(said.rfind('\n') + 1);
  constexpr std::string_view kPrefix = "vramscope: ";
  if (said.starts_with(kPrefix))
    said.remove_prefix(kPrefix.size());
  return std::string(said);
}

// Waits for a child that is ending. Also 0 if other code has waited for it: the tables show whether
// they are whole.
int WaitStatus(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR)
      return 0;
  }
  return status;
}

util::Status RunResolve(const std::string& path, const OpenOptions& options, int tables_fd) {
  const std::string program = options.program.empty() ? ProgramBeside() : options.program;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return util::Status::Error(
        fmt::format("{}: cannot create a pipe: {}", path, util::ErrnoText(errno)));
  const util::UniqueFd from = AboveStreams(ends[0]);
  util::UniqueFd to = AboveStreams(ends[1]);
  if (!from.ok() || !to.ok())
    return util::Status::Error(
        fmt::format("{}: cannot create a file descriptor: {}", path, util::ErrnoText(errno)));
  std::vector<std::string> words = {"vramscope", "resolve", path};
  if (!options.native_names)
    words.insert(words.begin() + 2, "--no-native-names");
  std::vector<char*> arguments;
  for (std::string& word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const SpawnSettings settings(tables_fd, to.get());
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), settings.actions(), settings.attributes(),
                                arguments.data(), Environment().data());
  if (error != 0) {
    return util::Status::Error(fmt::format(
        "{}: reading a live directory needs the program '{}', which cannot be started: {}", path,
        program, util::ErrnoText(error)));
  }
  to = util::UniqueFd();
  std::string said;
  if (!ReadAll(from.get(), options.limit, &said)) {
    // Until the child is waited for, its number is not reused.
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == 0) {
      kill(pid, SIGKILL);
      WaitStatus(pid);
    }
    return util::Status::Error(fmt::format("{}: reading it took more than {:.3g} s", path,
                                           static_cast<double>(options.limit.count()) / 1000));
  }
  const int status = WaitStatus(pid);
  if (status == 0)
    return {};
  if (WIFSIGNALED(status)) {
    return util::Status::Error(fmt::format("{}: the program that reads it was ended by signal {}",
                                           path, WTERMSIG(status)));
  }
  const std::string why = ErrorIn(said);
  return util::Status::Error(why.empty()
                                 ? fmt::format("{}: the program that reads it ended with status {}",
                                               path, WEXITSTATUS(status))
                                 : why);
}

util::Result<std::unique_ptr<tables::Recording>> OpenLive(const std::string& path,
                                                          const OpenOptions& options) {
  const util::UniqueFd file = AboveStreams(memfd_create("vramscope", MFD_CLOEXEC));
  if (!file.ok()) {
    return util::Status::Error(
        fmt::format("{}: not enough memory to read it: {}", path, util::ErrnoText(errno)));
  }
  VRAMSCOPE_RETURN_IF_ERROR(RunResolve(path, options, file.get()));
  auto recording = tables::OpenDescriptor(file.get(), path);
  if (recording)
    (*recording)->SetResolvedInPlace((*recording)->tables().session.file_bytes);
  return recording;
}

}  // namespace

util::Result<std::unique_ptr<tables::Recording>> Open(const std::string& path,
                                                      const OpenOptions& options) {
  const std::string live = tables::LiveFormOf(path);
  if (live.empty())
    return tables::Open(path);
  auto recording = OpenLive(path, options);
  if (recording || tables::LiveFormOf(path) == live)
    return recording;
  // It was finished meanwhile: the file is whole.
  return tables::Open(live.substr(0, live.rfind(".d")));
}

util::Result<Head> ReadHead(const std::string& path, const OpenOptions& options) {
  VRAMSCOPE_ASSIGN_OR_RETURN(
      const std::unique_ptr<tables::Recording> recording,
      tables::LiveFormOf(path).empty() ? tables::OpenHead(path) : Open(path, options));
  Head head;
  head.run = recording->tables().session.name;
  int32_t lowest = INT32_MAX;
  for (const tables::ProcessRow& process : recording->tables().processes) {
    if (process.rank >= 0)
      lowest = std::min(lowest, process.rank);
  }
  head.rank = lowest == INT32_MAX ? -1 : lowest;
  return head;
}

}  // namespace vramscope::read
