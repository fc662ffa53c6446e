// SPDX-License-Identifier: Apache-2.0
#include "trace/file/session_json.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <memory>

#include "util/file.h"
#include "util/json_reader.h"
#include "util/owned_file.h"
#include "util/utf8.h"

namespace vramscope::trace {
namespace {

using Token = util::JsonReader::Token;

// A value of any kind as text: strings as they are, arrays and objects by what is in them, joined
// by spaces. False where the input ends first.
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

}  // namespace vramscope::trace
