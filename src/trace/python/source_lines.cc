// SPDX-License-Identifier: Apache-2.0

#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "format/layout.h"
#include "trace/python/lines.h"
#include "util/file.h"

namespace vramscope::trace {
namespace {

constexpr size_t kMaxSourceBytes = 32u << 20;

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = 16u << 20;
constexpr uint64_t kMaxAllBytes = 64u << 20;
constexpr size_t kMaxNameBytes = 4096;

// Takes a number and the blank after it.
bool TakeNumber(std::string_view* text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || end == text->data() + text->size() || *end != ' ')
    return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()) + 1);
  return true;
}

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

Cells Cells::Read(const std::string& directory) {
  Cells cells;
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != format::kCellsExtension || bytes > kMaxAllBytes)
      continue;
    if (const auto text = util::ReadFile(it->path(), kMaxFileBytes, util::Links::kRefuse);
        text.ok()) {
      bytes += text->size();
      cells.Parse(*text);
    }
  }
  return cells;
}

void Cells::Parse(std::string_view text) {
  if (!text.starts_with(format::kCellsStart))
    return;
  text.remove_prefix(sizeof format::kCellsStart - 1);
  while (!text.empty()) {
    Cell cell;
    uint64_t size = 0;
    if (!TakeNumber(&text, &cell.number) || !TakeNumber(&text, &size))
      return;
    const size_t line = text.find('\n');
    if (line == std::string_view::npos || line == 0 || line > kMaxNameBytes ||
        size >= text.size() - line - 1 || text[line + 1 + size] != '\n')
      return;
    cell.text = text.substr(line + 1, size);
    cells_[std::string(text.substr(0, line))] = std::move(cell);
    text.remove_prefix(line + 1 + size + 1);
  }
}

const Cells::Cell* Cells::Find(std::string_view file) const {
  const auto found = cells_.find(std::string(file));
  return found == cells_.end() ? nullptr : &found->second;
}

}  // namespace vramscope::trace
