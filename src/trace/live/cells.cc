// SPDX-License-Identifier: Apache-2.0
#include "trace/live/cells.h"

#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "format/layout.h"
#include "util/file.h"

namespace vramscope::trace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = 16u << 20;
constexpr uint64_t kMaxAllBytes = 64u << 20;
constexpr size_t kMaxNameBytes = 4096;

// Takes a number and the blank behind it.
bool TakeNumber(std::string_view* text, uint64_t* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc() || end == text->data() + text->size() || *end != ' ')
    return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()) + 1);
  return true;
}

}  // namespace

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
