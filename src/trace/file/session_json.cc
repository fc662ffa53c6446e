// SPDX-License-Identifier: Apache-2.0
#include "trace/file/session_json.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>

#include "util/owned_file.h"
#include "util/utf8.h"

namespace vramscope::trace {
namespace {

constexpr int kMaxDepth = 16;

// A reader for the little JSON that the launcher writes (RFC 8259). Each function returns false
// where the text is not what it should be; the rest is then not read.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  bool Consume(char c) {
    SkipSpace();
    if (text_.empty() || text_[0] != c)
      return false;
    text_.remove_prefix(1);
    return true;
  }
  bool String(std::string* out);
  // A value of any kind as text: strings as they are, arrays by their elements joined by spaces,
  // everything else as it is written.
  bool Value(std::string* out, int depth = 0);
  bool StringArray(std::vector<std::string>* out);

 private:
  void SkipSpace() {
    const size_t at = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(at == std::string_view::npos ? text_.size() : at);
  }
  bool Hex4(uint32_t* out);

  std::string_view text_;
};

bool JsonReader::Hex4(uint32_t* out) {
  if (text_.size() < 4)
    return false;
  const auto end = std::from_chars(text_.data(), text_.data() + 4, *out, 16);
  if (end.ptr != text_.data() + 4)
    return false;
  text_.remove_prefix(4);
  return true;
}

void AppendCodePoint(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out->push_back(static_cast<char>(0xc0 | code >> 6));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    out->push_back(static_cast<char>(0xe0 | code >> 12));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out->push_back(static_cast<char>(0xf0 | code >> 18));
    out->push_back(static_cast<char>(0x80 | (code >> 12 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (code >> 6 & 0x3f)));
    out->push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

bool JsonReader::String(std::string* out) {
  if (!Consume('"'))
    return false;
  while (!text_.empty()) {
    const char c = text_[0];
    text_.remove_prefix(1);
    if (c == '"')
      return true;
    if (c != '\\') {
      out->push_back(c);
      continue;
    }
    if (text_.empty())
      return false;
    const char escape = text_[0];
    text_.remove_prefix(1);
    static constexpr std::string_view kEscapes = "\"\\/bfnrt";
    static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (const size_t known = kEscapes.find(escape); known != std::string_view::npos) {
      out->push_back(kMeanings[known]);
      continue;
    }
    uint32_t code = 0;
    if (escape != 'u' || !Hex4(&code))
      return false;
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(0, 2) == "\\u") {
      uint32_t low = 0;
      text_.remove_prefix(2);
      if (!Hex4(&low))
        return false;
      if (low >= 0xdc00 && low < 0xe000)
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    AppendCodePoint(code, out);
  }
  return false;
}

bool JsonReader::Value(std::string* out, int depth) {
  SkipSpace();
  if (text_.empty() || depth > kMaxDepth)
    return false;
  if (text_[0] == '"')
    return String(out);
  const bool is_array = text_[0] == '[';
  if (is_array || text_[0] == '{') {
    const char close = is_array ? ']' : '}';
    text_.remove_prefix(1);
    if (Consume(close))
      return true;
    for (bool first = true;; first = false) {
      if (!first)
        out->push_back(' ');
      if (!is_array) {
        if (!String(out) || !Consume(':'))
          return false;
        out->push_back('=');
      }
      if (!Value(out, depth + 1))
        return false;
      if (Consume(close))
        return true;
      if (!Consume(','))
        return false;
    }
  }
  const size_t end = text_.find_first_of(",]} \t\r\n");
  const std::string_view word = text_.substr(0, end);
  out->append(word);
  text_.remove_prefix(word.size());
  return !word.empty();
}

bool JsonReader::StringArray(std::vector<std::string>* out) {
  if (!Consume('['))
    return false;
  if (Consume(']'))
    return true;
  do {
    if (!String(&out->emplace_back()))
      return false;
  } while (Consume(','));
  return Consume(']');
}

}  // namespace

SessionJson ParseSessionJson(std::string_view text) {
  SessionJson session;
  JsonReader reader(text);
  if (!reader.Consume('{'))
    return session;
  do {
    std::string key;
    if (!reader.String(&key) || !reader.Consume(':'))
      return session;
    if (key == "command") {
      if (!reader.StringArray(&session.command))
        return session;
      continue;
    }
    std::string value;
    if (!reader.Value(&value))
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
  } while (reader.Consume(','));
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
