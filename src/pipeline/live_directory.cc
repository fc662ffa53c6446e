// SPDX-License-Identifier: Apache-2.0
#include "pipeline/live_directory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "format/layout.h"
#include "util/json.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kLiveExtension[] = ".vrl";
constexpr char kSessionStart[] = "{\n  \"version\"";
constexpr std::chrono::milliseconds kLockStep{5};
// The patience of a caller that only checks whether the lock is taken.
constexpr std::chrono::milliseconds kLook{100};
// The patience with a reader: the directory can be renamed meanwhile, but keeps its space.
constexpr std::chrono::milliseconds kReading{1000};

bool BeginsWith(std::span<const uint8_t> start, std::string_view text) {
  return start.size() >= text.size() && std::memcmp(start.data(), text.data(), text.size()) == 0;
}

// A file whose first page was never written holds nothing: a full disk, or a kill. A process that
// was killed while it wrote that page leaves the beginning of the magic.
bool HoldsNothing(std::span<const uint8_t> start, uint64_t size_bytes) {
  return size_bytes <= format::kPageBytes && size_bytes == start.size() &&
         std::all_of(start.begin(), start.end(), [](uint8_t byte) { return byte == 0; });
}

constexpr util::Content kLiveContent = {
    "a live file of vramscope", [](std::span<const uint8_t> start, uint64_t size_bytes) {
      return BeginsWith(start, {format::kFileMagic, sizeof format::kFileMagic}) ||
             (size_bytes == format::kPageBytes &&
              BeginsWith(start, {format::kFileMagic, format::kEarlyMagicBytes})) ||
             HoldsNothing(start, size_bytes);
    }};
constexpr util::Content kSessionContent = {
    "a session file of vramscope", [](std::span<const uint8_t> start, uint64_t size_bytes) {
      return size_bytes == 0 || BeginsWith(start, kSessionStart);
    }};
constexpr util::Content kCellsContent = {
    "cells of a notebook", [](std::span<const uint8_t> start, uint64_t size_bytes) {
      return size_bytes == 0 || BeginsWith(start, format::kCellsStart);
    }};
constexpr util::Content kManifestContent = {
    "a manifest of vramscope", [](std::span<const uint8_t> start, uint64_t size_bytes) {
      return size_bytes == 0 || BeginsWith(start, format::kManifestStart);
    }};
// A temporary file that a killed process left: any content.
constexpr util::Content kUnfinishedContent = {
    "of vramscope", [](std::span<const uint8_t> start, uint64_t size_bytes) {
      return kSessionContent.holds(start, size_bytes) || kLiveContent.holds(start, size_bytes) ||
             kManifestContent.holds(start, size_bytes);
    }};
constexpr util::Content kEmptyContent = {
    "empty", [](std::span<const uint8_t>, uint64_t size_bytes) { return size_bytes == 0; }};

// The content that identifies the file of this name as the recording's; nullptr for a name that no
// recording has.
const util::Content* ContentOf(const std::string& name) {
  if (name.ends_with(kLiveExtension) || name.ends_with(format::kPastExtension))
    return &kLiveContent;
  if (name.ends_with(format::kCellsExtension))
    return &kCellsContent;
  if (name == format::kSessionFile)
    return &kSessionContent;
  if (name == format::kManifestFile)
    return &kManifestContent;
  if (util::AtomicFile::IsTemporaryName(name))
    return &kUnfinishedContent;
  return name == kStopFile || name.ends_with(format::kSessionExtension) ? &kEmptyContent : nullptr;
}

// XLA names its dumps after the module, and makes folders of that name for a module's inputs.
constexpr char kDumpPrefix[] = "module_";

// The first entry of the folder for XLA's dumps that is no dump of this user, and why; otherwise
// "".
std::string ForeignDump(const util::OwnedDirectory& folder, const std::string& shown, bool is_top) {
  for (const std::string& name : folder.Names()) {
    const std::string path = shown + "/" + name;
    if (is_top && !name.starts_with(kDumpPrefix))
      return path + " is not part of a recording";
    const auto file = folder.Open(name, nullptr);
    if (file || !folder.Has(name))
      continue;
    const auto below = is_top ? folder.OpenBelow(name) : file.status();
    if (!below.ok())
      return path + file.status().message().substr(folder.path().size() + 1 + name.size());
    if (const std::string why = ForeignDump(*below, path, false); !why.empty())
      return why;
  }
  return "";
}

// Leaves what ForeignDump() names.
void RemoveDumps(const util::OwnedDirectory& directory, const std::string& name, bool is_top) {
  const auto folder = directory.OpenBelow(name);
  if (!folder)
    return;
  for (const std::string& entry : folder->Names()) {
    if (is_top && !entry.starts_with(kDumpPrefix))
      continue;
    if (const auto file = folder->Open(entry, nullptr); file)
      (void)folder->Remove(entry, *file);
    else if (is_top)
      RemoveDumps(*folder, entry, false);
  }
  (void)directory.RemoveEmpty(name);
}

// False if another process keeps it for longer than that, or if locks are not supported.
bool LockWithin(int fd, std::chrono::milliseconds patience, bool* is_busy) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    *is_busy = errno == EWOULDBLOCK;
    if (!*is_busy || std::chrono::steady_clock::now() >= deadline)
      return false;
    std::this_thread::sleep_for(kLockStep);
  }
  *is_busy = false;
  return true;
}

// The file that shows missing files is removed last.
void RemoveEntries(const util::OwnedDirectory& directory, bool gives_space_back) {
  std::vector<std::string> names = directory.Names();
  std::stable_partition(names.begin(), names.end(), [](const std::string& name) {
    return name != format::kManifestFile && name != format::kSessionFile;
  });
  for (const std::string& name : names) {
    if (name.ends_with(format::kUnrecordedExtension) && directory.RemoveLink(name))
      continue;
    if (name == trace::kXlaDumpFolder)
      RemoveDumps(directory, name, true);
    const util::Content* const content = ContentOf(name);
    if (content == nullptr)
      continue;
    const auto file = directory.Open(name, content);
    if (!file)
      continue;
    // A process that outlives its recording may keep parts of the file mapped until it ends. Unlike
    // a file cut short, one with a hole can still be written there.
    if (gives_space_back && content == &kLiveContent)
      util::GiveSpaceBack(*file);
    (void)directory.Remove(name, *file);
  }
}

// Renames an unfinished recording, so that another can take its name.
util::Status KeepOlder(const std::string& live, std::optional<util::OwnedDirectory>* older) {
  util::Result<util::OwnedDirectory> old = util::OwnedDirectory::Open(live);
  const FinishLock lock = TryFinishLock(live);
  if (lock.is_busy)
    return util::Status::Error(
        fmt::format("{} is being finished: choose another name with -o", live));
  // Another launcher may have been faster.
  if (!old || !old->IsAtItsPath())
    return {};
  if (old->Names().empty()) {
    (void)old->RemoveSelf();
    return {};
  }
  // Of two unfinished recordings the later one is kept.
  VRAMSCOPE_RETURN_IF_ERROR(RemoveOlder(live));
  const int error = old->MoveTo(OlderOf(live));
  if (error == 0)
    *older = std::move(*old);
  if (error == 0 || error == ENOENT)
    return {};
  return util::Status::Error(
      fmt::format("{} cannot be renamed to {}: {}: choose another name with -o", live,
                  OlderOf(live), util::ErrnoText(error)));
}

}  // namespace

std::string ForeignEntry(const util::OwnedDirectory& directory) {
  for (const std::string& name : directory.Names()) {
    if (name.ends_with(format::kUnrecordedExtension) && directory.HasLink(name))
      continue;
    if (name == trace::kXlaDumpFolder) {
      const auto folder = directory.OpenBelow(name);
      if (!folder && directory.Has(name))
        return folder.status().message().substr(directory.path().size() + 1);
      const std::string why = folder ? ForeignDump(*folder, name, true) : "";
      if (!why.empty())
        return why;
      continue;
    }
    const util::Content* const content = ContentOf(name);
    if (content == nullptr)
      return name + " is not part of a recording";
    if (const auto file = directory.Open(name, content); !file && directory.Has(name))
      return file.status().message().substr(directory.path().size() + 1);
  }
  return "";
}

const util::Content* LiveFileContent() {
  return &kLiveContent;
}

util::Status RemoveUnfinishedFiles(const util::OwnedDirectory& directory) {
  for (const std::string& name : directory.Names()) {
    if (!util::AtomicFile::IsTemporaryName(name))
      continue;
    const auto file = directory.Open(name, &kUnfinishedContent);
    if (file && !directory.Remove(name, *file))
      return util::Status::Error(
          fmt::format("{}/{} cannot be removed: check its permissions", directory.path(), name));
  }
  return {};
}

util::Status WriteSessionRecord(const util::OwnedDirectory& directory,
                                const SessionRecord& record) {
  uint64_t number = 0;
  if (SessionsOf(directory.path()).empty() &&
      getrandom(&number, sizeof number, 0) == sizeof number) {
    (void)directory.CreateFile(fmt::format("{:016x}{}", number, format::kSessionExtension));
  }
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  std::error_code error;
  std::string text;
  util::JsonWriter json(&text, 2);
  json.BeginObject();
  json.Field("version", VRAMSCOPE_VERSION);
  json.Field("name", record.name);
  if (!record.command.empty()) {
    json.Key("command");
    json.BeginArray();
    for (const std::string& word : record.command)
      json.String(word);
    json.EndArray();
  }
  json.Field("start_wall_ns", int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec);
  json.Field("working_directory", fs::current_path(error).string());
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0)
    json.Field("host", host);
  if (!record.options.empty())
    json.Field("options", record.options);
  if (!record.xla_dumps.empty())
    json.Field("xla_dumps", record.xla_dumps);
  json.Field("directory", directory.Identity());
  json.EndObject();
  json.Finish();
  util::Result<util::AtomicFile> file =
      util::AtomicFile::Create(directory, format::kSessionFile, &kSessionContent);
  if (!file)
    return file.status();
  VRAMSCOPE_RETURN_IF_ERROR(file->Write(text));
  return file->Commit();
}

std::vector<std::string> SessionsOf(const std::string& live_directory) {
  std::vector<std::string> ids;
  std::error_code error;
  for (fs::directory_iterator it(live_directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == format::kSessionExtension)
      ids.push_back(it->path().stem().string());
  }
  return ids;
}

util::Status WriteManifest(const util::OwnedDirectory& directory) {
  if (directory.Has(format::kManifestFile))
    return {};
  util::Result<util::AtomicFile> file =
      util::AtomicFile::Create(directory, format::kManifestFile, &kManifestContent);
  if (!file)
    return file.status();
  std::string text = format::kManifestStart;
  for (const std::string& name : directory.Names()) {
    if (name.ends_with(kLiveExtension))
      text += name + "\n";
  }
  VRAMSCOPE_RETURN_IF_ERROR(file->Write(text));
  const util::Status status = file->Commit();
  // Another rank's.
  return directory.Has(format::kManifestFile) ? util::Status() : status;
}

FinishLock TryFinishLock(const std::string& live_directory) {
  FinishLock lock;
  auto file =
      util::OpenRegular(live_directory + "/" + format::kSessionFile, util::Links::kRefuse, nullptr);
  if (file && LockWithin(file->get(), kLook, &lock.is_busy))
    lock.file = std::move(*file);
  return lock;
}

util::Status PlaceLiveDirectory(util::OwnedDirectory* directory,
                                const std::string& live,
                                std::optional<util::OwnedDirectory>* older) {
  constexpr int kTries = 16;
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    error = directory->MoveTo(live);
    if (error == 0)
      return {};
    if (error != EEXIST)
      break;
    VRAMSCOPE_RETURN_IF_ERROR(CheckLiveDirectory(live));
    VRAMSCOPE_RETURN_IF_ERROR(KeepOlder(live, older));
  }
  return util::Status::Error(fmt::format("{} cannot be created: {}: choose another place with -o",
                                         live, util::ErrnoText(error)));
}

void RemoveLeftAside(const std::string& path) {
  constexpr int kMostEntries = 10'000;
  const fs::path parent = fs::path(path).parent_path();
  std::error_code error;
  int entries = 0;
  for (fs::directory_iterator it(parent.empty() ? fs::path(".") : parent, error), end;
       !error && it != end && ++entries < kMostEntries; it.increment(error)) {
    if (!util::OwnedDirectory::IsAsideName(it->path().filename().string()))
      continue;
    util::Result<util::OwnedDirectory> left = util::OwnedDirectory::Open(it->path().string());
    bool is_busy = false;
    if (!left || (!LockWithin(left->fd(), {}, &is_busy) && is_busy))
      continue;
    RemoveEntries(*left, false);
    (void)left->RemoveSelf();
  }
}

std::string OlderOf(const std::string& live_directory) {
  return live_directory + ".older";
}

util::Status RemoveOlder(const std::string& live_directory) {
  util::Result<util::OwnedDirectory> older = util::OwnedDirectory::Open(OlderOf(live_directory));
  return older ? RemoveLiveDirectory(*older) : util::Status();
}

util::Status RemoveLiveDirectory(util::OwnedDirectory& directory) {
  const std::string path = directory.path();
  if (const std::string why = ForeignEntry(directory); !why.empty()) {
    return util::Status::Error(fmt::format(
        "{} was not removed: {}: check it, and remove the directory yourself", path, why));
  }
  bool is_busy = false;
  const bool is_alone = LockWithin(directory.fd(), kReading, &is_busy);
  switch (const int error = directory.MoveAside(); error) {
    case 0:
      break;
    case ENOENT:  // removed or renamed by another
      return {};
    case ENOSPC:  // a full disk may have no room for another name
    case EDQUOT:
      break;
    default:
      return util::Status::Error(
          fmt::format("{} cannot be removed: {}", path, util::ErrnoText(error)));
  }
  RemoveEntries(directory, is_alone);
  VRAMSCOPE_RETURN_IF_ERROR(directory.RemoveSelf());
  RemoveLeftAside(path);
  return {};
}

}  // namespace vramscope::cli
