// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/records.h"
#include "tables/dictionaries.h"
#include "trace/event.h"
#include "trace/python/line_table.h"

// A live file defines its strings, stacks and threads as it goes, numbered within each stream. The
// reader goes over every stream twice: the first pass enters all definitions into the tables of the
// Trace and notes, in order, which table entry each became; later passes, which stream events, take
// the entries off that log. So ids that a writer uses anew resolve rightly, and the tables are
// complete before the first event is seen.
namespace vramscope::trace {

// The definitions of one stream, by local id.
class LocalIds {
 public:
  // What an id stands for that was never defined.
  static constexpr uint32_t kUndefined = 0xffffffff;

  void Set(uint64_t local, uint32_t global);
  // The table entry; 0 for local id 0. Each event asks twice: no std::optional, which is stored in
  // parts and read as a whole, while the processor waits.
  uint32_t Find(uint64_t local) const {
    return local < dense_.size() ? dense_[local] : FindSparse(local);
  }
  // The same with 0, none, for what was never defined.
  uint32_t FindOrNone(uint64_t local) const {
    const uint32_t found = Find(local);
    return found == kUndefined ? 0 : found;
  }

 private:
  uint32_t FindSparse(uint64_t local) const;

  // Ids are small and dense, but all kinds may share one counter and the file may lie: a table
  // grows only in proportion to what is in it, and ids beyond go to a map.
  std::vector<uint32_t> dense_ = std::vector<uint32_t>(1);
  std::unordered_map<uint64_t, uint32_t> sparse_;
  size_t count_ = 0;
};

struct StreamIds {
  LocalIds strings;
  LocalIds python_stacks;
  LocalIds native_stacks;
  LocalIds scopes;
};

// What the first pass noted for one stream, in order of the definitions.
using DefinitionLog = std::vector<uint32_t>;

// Python stacks of one stream, as far as only the first pass needs them.
class PythonStacks {
 public:
  explicit PythonStacks(tables::Dictionaries* dictionaries) : dictionaries_(dictionaries) {}

  void AddCode(const format::PyCode& code, const LocalIds& strings);
  // The table entry of that stack, whose caller's is `parent`. A frame whose code is not
  // known (it was defined in a damaged part) is left out of the stack.
  StackId AddStack(StackId parent, const format::PyStack& stack);

 private:
  struct Code {
    StringId file;
    StringId name;
    PythonLineTable lines;
  };
  tables::Dictionaries* dictionaries_;
  LocalIds code_ids_;
  std::vector<Code> codes_ = std::vector<Code>(1);
};

}  // namespace vramscope::trace
