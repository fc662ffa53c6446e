// SPDX-License-Identifier: Apache-2.0
#include "trace/finished/columns.h"

namespace vramscope::trace::finished {

uint64_t ColumnReader::NextLong() {
  if (!present_)
    return 0;
  uint64_t value = 0;
  const uint8_t* next = base::GetVarint(in_, end_, &value);
  if (next == nullptr) {
    ok_ = false;
    in_ = end_;
    return 0;
  }
  in_ = next;
  return value;
}

std::string_view ColumnReader::NextText(size_t size) {
  if (!present_)
    return {};
  if (size > static_cast<size_t>(end_ - in_)) {
    ok_ = false;
    in_ = end_;
    return {};
  }
  const std::string_view text(reinterpret_cast<const char*>(in_), size);
  in_ += size;
  return text;
}

size_t ColumnSetWriter::size_bytes() const {
  size_t total = 0;
  for (const ColumnWriter& column : columns_)
    total += column.bytes().size();
  return total;
}

void ColumnSetWriter::TakeBytes(std::vector<uint8_t>* out) {
  ColumnWriter head;
  uint64_t used = 0;
  for (const ColumnWriter& column : columns_)
    used += column.bytes().empty() ? 0u : 1u;
  head.Put(used);
  for (size_t id = 0; id < columns_.size(); ++id) {
    if (columns_[id].bytes().empty())
      continue;
    head.Put(id);
    head.Put(columns_[id].bytes().size());
  }
  *out = head.bytes();
  out->reserve(out->size() + size_bytes());
  for (ColumnWriter& column : columns_) {
    out->insert(out->end(), column.bytes().begin(), column.bytes().end());
    column.Clear();
  }
}

bool ColumnSetReader::Parse(std::span<const uint8_t> bytes) {
  columns_ = {};
  ColumnReader head(bytes);
  const uint64_t count = head.Next();
  if (!head.ok() || count > bytes.size())
    return false;
  struct Entry {
    uint64_t id;
    uint64_t size;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t id = head.Next();
    const uint64_t size = head.Next();
    if (!head.ok() || size > bytes.size())
      return false;
    entries.push_back({id, size});
    total += size;
  }
  if (total > bytes.size())
    return false;
  std::span<const uint8_t> rest = bytes.last(bytes.size() - head.Consumed(bytes));
  if (total > rest.size())
    return false;
  for (const Entry& entry : entries) {
    if (entry.id < kMaxColumns)
      columns_[entry.id] = ColumnReader(rest.first(entry.size));
    rest = rest.subspan(entry.size);
  }
  return true;
}

}  // namespace vramscope::trace::finished
