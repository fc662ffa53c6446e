// SPDX-License-Identifier: Apache-2.0
#include "trace/live/definitions.h"

#include <algorithm>
#include <span>

namespace vramscope::trace {

void LocalIds::Set(uint64_t local, uint32_t global) {
  if (local == 0)
    return;
  ++count_;
  if (local >= dense_.size()) {
    const uint64_t limit = 4096 + 16 * static_cast<uint64_t>(count_);
    if (local > limit) {
      sparse_[local] = global;
      return;
    }
    // Doubling keeps growth cheap.
    dense_.resize(std::min<uint64_t>(limit, 2 * local) + 1, kUndefined);
    for (auto it = sparse_.begin(); it != sparse_.end();) {
      if (it->first < dense_.size()) {
        dense_[it->first] = it->second;
        it = sparse_.erase(it);
      } else {
        ++it;
      }
    }
  }
  dense_[local] = global;
}

uint32_t LocalIds::FindSparse(uint64_t local) const {
  const auto it = sparse_.find(local);
  return it != sparse_.end() ? it->second : kUndefined;
}

void PythonStacks::AddCode(const format::PyCode& code, const LocalIds& strings) {
  const auto first_line = static_cast<uint32_t>(code.first_line);
  const auto kind = static_cast<format::LineTableKind>(code.table_kind);
  const std::span table(reinterpret_cast<const uint8_t*>(code.line_table.data),
                        code.line_table.size);
  code_ids_.Set(code.id, static_cast<uint32_t>(codes_.size()));
  codes_.push_back({StringId{strings.FindOrNone(code.file)},
                    StringId{strings.FindOrNone(code.name)},
                    PythonLineTable(kind, first_line, table)});
}

StackId PythonStacks::AddStack(StackId parent, const format::PyStack& stack) {
  const uint32_t index = code_ids_.FindOrNone(stack.code);
  if (index == 0)
    return parent;
  const Code& known = codes_[index];
  const FrameId frame = dictionaries_->AddFrame({.kind = tables::FrameKind::kPython,
                                                 .function = known.name,
                                                 .file = known.file,
                                                 .line = known.lines.LineAt(stack.instruction)});
  return dictionaries_->AddStack(parent, frame, stack.object);
}

}  // namespace vramscope::trace
