// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/state_file.h"

#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>

#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

constexpr size_t kMaxStateBytes = 64 * 1024;
constexpr std::string_view kFirstLine = "vramscope yield 1";
constexpr std::string_view kLastLine = "end";

template <class T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return failed == std::errc() && end == text.data() + text.size();
}

constexpr std::string_view kDirectoryPrefix = "vramscope-yield-";
constexpr int kAttempts = 20;
constexpr int kLongestWaitUs = 20'000;

struct Locked {
  util::UniqueFd file;   // not open where it is not ours to have
  bool is_busy = false;  // another process holds the lock
  bool is_missing = false;
  std::string why;
};

// The directories of this user that other users cannot enter.
std::vector<util::OwnedDirectory> FindDirectories(const std::vector<std::string>& shared) {
  std::vector<util::OwnedDirectory> found;
  for (const std::string& folder : shared) {
    std::error_code error;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
      if (!it->path().filename().string().starts_with(kDirectoryPrefix))
        continue;
      util::Result<util::OwnedDirectory> directory =
          util::OwnedDirectory::Open(it->path().string());
      if (directory && directory->IsPrivate())
        found.push_back(std::move(*directory));
    }
  }
  return found;
}

util::Result<util::OwnedDirectory> MakeDirectory(const std::vector<std::string>& shared) {
  util::Result<util::OwnedDirectory> made = util::Status::Error("no directory for it");
  for (const std::string& folder : shared) {
    made = util::OwnedDirectory::CreateTemporary(fmt::format("{}/{}", folder, kDirectoryPrefix));
    if (made)
      break;
  }
  return made;
}

Locked OpenLocked(const util::OwnedDirectory& directory, const std::string& name, bool create) {
  for (;;) {
    Locked locked;
    const bool exists = directory.Has(name);
    if (!exists && !create) {
      locked.is_missing = true;
      return locked;
    }
    util::Result<util::UniqueFd> file =
        exists ? directory.Open(name, nullptr) : directory.CreateFile(name);
    if (!file && directory.Has(name) != exists)
      continue;  // another was faster
    if (!file) {
      locked.why = file.status().message();
      return locked;
    }
    if (flock(file->get(), LOCK_EX | LOCK_NB) != 0) {
      locked.is_busy = errno == EWOULDBLOCK;
      locked.why = directory.path() + "/" + name + ": " + util::ErrnoText(errno);
      return locked;
    }
    // The other process may have removed it meanwhile.
    if (directory.StandsFor(name, *file)) {
      locked.file = std::move(*file);
      return locked;
    }
  }
}

}  // namespace

std::string FormatYieldState(const YieldState& state) {
  std::string text =
      fmt::format("{}\nstart {}\nyielded {}\ntime {}\nbytes {}\n", kFirstLine, state.start_ticks,
                  state.yielded ? 1 : 0, state.wall_seconds, state.bytes);
  // A name with a line feed cannot be kept.
  if (!state.live_directory.empty() && state.live_directory.find('\n') == std::string::npos)
    text += "recording " + state.live_directory + "\n";
  for (const YieldedDevice& device : state.devices)
    text += fmt::format("device {} {}\n", device.bytes, device.uuid);
  text += kLastLine;
  text += '\n';
  return text;
}

std::optional<YieldState> ParseYieldState(const std::string& text) {
  YieldState state;
  bool first = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (std::exchange(first, false)) {
      if (line != kFirstLine)
        return std::nullopt;
      continue;
    }
    if (line == kLastLine)
      return state;
    const size_t space = line.find(' ');
    if (space == line.npos)
      return std::nullopt;
    const std::string_view key = line.substr(0, space);
    const std::string_view value = line.substr(space + 1);
    bool good = true;
    if (key == "start") {
      good = ParseNumber(value, &state.start_ticks);
    } else if (key == "yielded") {
      state.yielded = value == "1";
    } else if (key == "time") {
      good = ParseNumber(value, &state.wall_seconds);
    } else if (key == "bytes") {
      good = ParseNumber(value, &state.bytes);
    } else if (key == "recording") {
      state.live_directory = value;
    } else if (key == "device") {
      YieldedDevice device;
      const size_t next = value.find(' ');
      good = next != value.npos && ParseNumber(value.substr(0, next), &device.bytes);
      if (good)
        device.uuid = value.substr(next + 1);
      state.devices.push_back(std::move(device));
    }
    if (!good)
      return std::nullopt;
  }
  return std::nullopt;  // it was being written when its writer died
}

util::Result<std::unique_ptr<StateFile>> StateFile::Open(pid_t pid,
                                                         const std::vector<std::string>& shared) {
  const std::string name = fmt::format("yield-{}", pid);
  const auto kept_nowhere = [](const std::string& why) {
    return util::Status::Error("the state for `resume` cannot be saved: " + why);
  };
  std::minstd_rand random(static_cast<unsigned>(getpid()));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::vector<util::OwnedDirectory> directories = FindDirectories(shared);
    // First where it is, then where it can be.
    for (util::OwnedDirectory& directory : directories) {
      Locked locked = OpenLocked(directory, name, false);
      if (locked.is_missing)
        continue;
      if (locked.is_busy) {
        return util::Status::Error(
            fmt::format("another vramscope is working on process {}: try again later", pid));
      }
      if (!locked.file.ok())
        return kept_nowhere(locked.why);
      return std::unique_ptr<StateFile>(
          new StateFile(std::move(directory), std::move(locked.file), name));
    }
    util::Result<util::OwnedDirectory> place =
        directories.empty() ? MakeDirectory(shared) : std::move(directories.front());
    if (!place)
      return kept_nowhere(place.status().message());
    Locked locked = OpenLocked(*place, name, true);
    if (!locked.file.ok() && place->IsAtItsPath() && !locked.is_busy)
      return kept_nowhere(locked.why);
    if (locked.file.ok()) {
      std::unique_ptr<StateFile> file(
          new StateFile(std::move(*place), std::move(locked.file), name));
      // Another vramscope may have made one too, in a directory of its own. At least one of the two
      // sees both, and gives way: its file is empty and is removed.
      size_t count = 0;
      for (const util::OwnedDirectory& directory : FindDirectories(shared))
        count += directory.Has(name) ? 1U : 0U;
      if (count == 1)
        return file;
    }
    usleep(static_cast<useconds_t>(random() % kLongestWaitUs));
  }
  return kept_nowhere("other processes keep creating and removing it");
}

StateFile::~StateFile() {
  struct stat info {};
  if (fstat(file_.get(), &info) == 0 && info.st_size == 0)
    Remove();
}

std::optional<YieldState> StateFile::Read(uint64_t start_ticks) const {
  std::string text(kMaxStateBytes, '\0');
  const ssize_t got = pread(file_.get(), text.data(), text.size(), 0);
  if (got <= 0)
    return std::nullopt;
  text.resize(static_cast<size_t>(got));
  std::optional<YieldState> state = ParseYieldState(text);
  if (state && state->start_ticks != start_ticks)
    return std::nullopt;
  return state;
}

util::Status StateFile::Save(const YieldState& state) {
  if (const util::Status status = util::ReplaceContents(file_, FormatYieldState(state));
      !status.ok())
    return util::Status::Error("the state for `resume` cannot be saved: " + status.message());
  return {};
}

void StateFile::Remove() {
  (void)directory_.Remove(name_, file_);
  if (directory_.Names().empty())
    (void)directory_.RemoveSelf();
}

}  // namespace vramscope::cli
