// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "tables/column_codec.h"
#include "tables/rows.h"

// Rows of any table of tables.def as the columns of a block, and back.
namespace vramscope::tables {

// False if `word` is not a value of the type.
template <class T>
constexpr bool FromWord(uint64_t word, T* value) {
  if constexpr (kIsId<T>)
    *value = T{static_cast<typename T::Value>(word)};
  else
    *value = static_cast<T>(word);
  return ToWord(*value) == word;
}

// `words` is scratch.
template <class Row>
void EncodeRows(std::span<const Row> rows, std::vector<uint64_t>* words, BlockEncoder* encoder) {
  encoder->Begin(TableOf<Row>::kNumber, static_cast<uint32_t>(rows.size()));
  words->resize(rows.size());
  const auto add = [&](const auto& column) {
    for (size_t i = 0; i < rows.size(); ++i)
      (*words)[i] = ToWord(rows[i].*column.field);
    // A column that is not there reads as zeros.
    if (std::any_of(words->begin(), words->end(), [](uint64_t word) { return word != 0; }))
      encoder->AddColumn(static_cast<uint16_t>(column.number), *words);
  };
  TableOf<Row>::VisitColumns(add);
}

// Fills `rows`, as many as the block has. Columns that it does not have stay 0. False where it is
// damaged.
template <class Row>
[[nodiscard]] bool DecodeRows(const BlockHeaders& headers,
                              std::span<const uint8_t> block,
                              std::span<Row> rows,
                              std::vector<uint64_t>* words) {
  bool ok = true;
  const auto read = [&](const auto& column) {
    const BlockHeaders::Column* found = headers.Find(static_cast<uint16_t>(column.number));
    if (found == nullptr)
      return;
    if (found->header.values != rows.size()) {
      ok = false;
      return;
    }
    words->resize(rows.size());
    ok = ok && DecodeColumn(found->header, block.subspan(found->offset, found->header.bytes),
                            words->data());
    for (size_t i = 0; ok && i < rows.size(); ++i)
      ok = FromWord((*words)[i], &(rows[i].*column.field));
  };
  TableOf<Row>::VisitColumns(read);
  return ok;
}

}  // namespace vramscope::tables
