// SPDX-License-Identifier: Apache-2.0

#include "trace/file/live_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>

#include "format/layout.h"
#include "util/file.h"
#include "util/json.h"
#include "util/owned_file.h"
#include "util/text.h"

namespace vramscope::trace {
namespace {

using Token = util::JsonReader::Token;

// A value of any kind as text: strings as they are, arrays and objects by what is in them, joined
// by spaces. False if the input ends first.
bool ReadAsText(util::JsonReader* json, Token token, std::string* out) {
  if (token == Token::kString || token == Token::kNumber || token == Token::kWord) {
    out->append(json->text());
    return true;
  }
  if (token != Token::kArray && token != Token::kObject)
    return false;
  for (bool is_first = true;; is_first = false) {
    token = json->Next();
    if (token == Token::kArrayEnd || token == Token::kObjectEnd)
      return true;
    if (!is_first)
      out->push_back(' ');
    if (token == Token::kKey) {
      out->append(json->text()).push_back('=');
      token = json->Next();
    }
    if (!ReadAsText(json, token, out))
      return false;
  }
}

}  // namespace

SessionJson ParseSessionJson(std::string_view text) {
  SessionJson session;
  util::JsonReader json(std::make_unique<util::TextStream>(text), "session.json");
  if (json.Next() != Token::kObject)
    return session;
  while (json.Next() == Token::kKey) {
    const std::string key(json.text());
    Token token = json.Next();
    if (key == "command") {
      if (token != Token::kArray)
        return session;
      for (token = json.Next(); token == Token::kString; token = json.Next())
        session.command.emplace_back(json.text());
      if (token != Token::kArrayEnd)
        return session;
      continue;
    }
    std::string value;
    if (!ReadAsText(&json, token, &value))
      return session;
    if (key == "name") {
      session.name = util::ValidUtf8(value);
    } else if (key == "version") {
      session.version = util::ValidUtf8(value);
    } else if (key == "start_wall_ns") {
      std::from_chars(value.data(), value.data() + value.size(), session.start_wall_ns);
    } else if (key == "directory") {
      session.directory = value;
    } else if (key == "xla_dumps") {
      session.xla_dumps = value;
    } else if (!value.empty() && value != "null") {
      if (key == "host")
        session.host = value;
      session.notes.emplace_back(util::ValidUtf8(key), util::ValidUtf8(value));
    }
  }
  return session;
}

std::string WhyNamedFilesAreNotRead(const std::string& directory,
                                    const SessionJson& session,
                                    std::span<const std::string> live_files) {
  const util::Result<util::OwnedDirectory> own = util::OwnedDirectory::Open(directory);
  if (!own)
    return "another user recorded it";
  // A copy has another number and was made at another time, which its sender cannot know.
  if (session.directory.empty() || session.directory != own->Identity())
    return "it was copied, or not recorded by vramscope run";
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0 || session.host != host)
    return "it was recorded on another machine";
  for (const std::string& file : live_files) {
    struct stat info {};
    if (lstat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid())
      return "another user has written into it";
  }
  return "";
}

namespace fs = std::filesystem;

LiveDirectory::LiveDirectory(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  struct stat info {};
  if ((fd_.ok() ? fstat(fd_.get(), &info) : stat(path.c_str(), &info)) == 0) {
    device_ = info.st_dev;
    inode_ = info.st_ino;
  }
  // Each exclusive lock takes moments: one that takes longer is of a process that was stopped.
  constexpr int kTries = 500;
  constexpr std::chrono::milliseconds kStep{10};
  for (int i = 0; fd_.ok() && IsAtItsPath() && i < kTries; ++i) {
    if (flock(fd_.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK)
      break;
    std::this_thread::sleep_for(kStep);
  }
}

bool LiveDirectory::IsAtItsPath() const {
  struct stat named {};
  return stat(path_.c_str(), &named) == 0 && named.st_dev == device_ && named.st_ino == inode_;
}

util::Result<std::vector<std::string>> ListLiveFiles(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".vrl")
      paths.push_back(it->path());
  }
  if (error) {
    return util::Status::Error(directory + ": cannot be read: " + error.message());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::set<std::string> ReadManifest(const std::string& directory) {
  constexpr size_t kMostBytes = 4u << 20;
  constexpr size_t kMostNames = 1u << 16;
  std::set<std::string> names;
  const auto text =
      util::ReadFile(directory + "/" + format::kManifestFile, kMostBytes, util::Links::kRefuse);
  if (!text.ok() || !text->starts_with(format::kManifestStart))
    return names;
  // A line without its end was cut off.
  for (size_t begin = sizeof format::kManifestStart - 1, end = 0;
       names.size() < kMostNames && (end = text->find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const std::string name = text->substr(begin, end - begin);
    if (name.ends_with(".vrl") && name.find('/') == std::string::npos)
      names.insert(name);
  }
  return names;
}

void AddMissing(const std::set<std::string>& missing, SessionJson* session, LossCounter* losses) {
  constexpr size_t kMostNamed = 16;
  losses->Add(format::Loss::kMissingFiles, missing.size());
  size_t named = 0;
  for (const std::string& name : missing) {
    if (++named > kMostNamed)
      break;
    session->notes.emplace_back("missing file", util::ValidUtf8(name));
  }
}

std::optional<uint64_t> SizeOf(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0)
    return std::nullopt;
  return static_cast<uint64_t>(info.st_size);
}

void AddUnrecorded(const std::string& directory, SessionJson* session, LossCounter* losses) {
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != format::kUnrecordedExtension)
      continue;
    std::error_code unreadable;
    const std::string reason = fs::read_symlink(it->path(), unreadable).string();
    const std::string name = it->path().filename().string();
    int number = 0;
    std::from_chars(reason.data(), reason.data() + reason.size(), number);
    losses->Add(format::Loss::kNotRecorded, 1);
    session->notes.emplace_back(
        "process " + name.substr(0, name.find('.')),
        "not recorded: its file could not be made: " + util::ErrnoText(number));
  }
}

}  // namespace vramscope::trace
