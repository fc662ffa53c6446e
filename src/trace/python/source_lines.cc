// SPDX-License-Identifier: Apache-2.0
#include "trace/python/source_lines.h"

#include <utility>

#include "util/file.h"

namespace vramscope::trace {
namespace {

constexpr size_t kMaxSourceBytes = 32u << 20;

}  // namespace

void SourceLines::File::Fill(std::string with) {
  text = std::move(with);
  line_starts.clear();
  for (size_t at = 0; at < text.size();) {
    line_starts.push_back(at);
    const size_t end = text.find('\n', at);
    at = end == std::string::npos ? text.size() : end + 1;
  }
}

void SourceLines::Add(const std::string& path, std::string text) {
  const std::lock_guard lock(mutex_);
  files_[path].Fill(std::move(text));
}

std::string_view SourceLines::Line(const std::string& path, uint32_t line) const {
  if (path.empty() || line == 0)
    return {};
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = files_.try_emplace(path);
  File& file = entry->second;
  // "<string>", "<frozen importlib._bootstrap>": code that no file has.
  if (is_new && is_open_ && path[0] != '<') {
    if (auto text = util::ReadFile(path, kMaxSourceBytes); text.ok())
      file.Fill(std::move(*text));
  }
  if (line > file.line_starts.size())
    return {};
  const size_t begin = file.line_starts[line - 1];
  const size_t end = line < file.line_starts.size() ? file.line_starts[line] : file.text.size();
  std::string_view text(file.text.data() + begin, end - begin);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

}  // namespace vramscope::trace
