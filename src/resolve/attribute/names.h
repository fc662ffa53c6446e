// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "format/enums.h"
#include "resolve/attribute/parts.h"
#include "trace/event.h"

namespace vramscope::resolve {

// One name that the program or PyTorch has for a piece of memory.
struct MemoryName {
  format::NameKind kind = format::NameKind::kTag;
  tables::StringId name;
  tables::StringId detail;  // the optimizer's name for its state
  // The root module or optimizer that `name` is a path in; of a communicator its id, 0: one of
  // several
  uint64_t owner = 0;
  uint64_t requested = 0;  // bytes that the storage asked for; 0: not said
  // The part of the storage that the name is of; 0 bytes: all of it, or not said.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend auto operator<=>(const MemoryName&, const MemoryName&) = default;
};

// All names of one piece of memory, in the order in which they were given.
struct NameSet {
  std::vector<uint32_t> entries;
  uint32_t first = 0;    // the one that says what the memory is for
  uint32_t tag = 0;      // the program's own name; 0: none
  uint32_t whole = 0;    // a parameter that has others as its parts; 0: none
  bool is_flat = false;  // several parameters have parts of the storage, or one has that of `whole`
  uint64_t requested = 0;  // 0: not said
};

// Names and sets of names by number, equal ones once: a training gives the same names to new
// memory in each iteration. Set and name 0 are "none".
class Names {
 public:
  Names() : names_(1), sets_(1) {}

  // The set with that name added; the same set where it has it. A tag takes the place of the tag
  // before it, names of the other kinds stand side by side (tied weights).
  uint32_t Add(uint32_t set, const MemoryName& name);

  // Whether that name takes the place of the set's: the memory was given out again.
  bool TakesTurn(uint32_t set, const MemoryName& name) const {
    return name.kind == format::NameKind::kTag && sets_[set].tag != 0;
  }

  // Memory of a process got its name: how large a parameter is shows where it, or its gradient, has
  // a storage of its own.
  void NoteSize(trace::ProcessId process, const MemoryName& name);
  // Memory of a process has these names: the parts of a flat parameter, such as FSDP1's, are those
  // of its gradient and its state too.
  void NoteParts(trace::ProcessId process, uint32_t set);
  // Of memory that several parameters, their gradients or state have together, such as a flat
  // buffer: a set for each of them and its bytes, by offset. Empty where these are not known, or
  // are more than `bytes`: then they are names of one thing.
  struct Share {
    uint32_t set = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  std::vector<Share> SharesOf(trace::ProcessId process, uint32_t set, uint64_t bytes);

  const NameSet& set(uint32_t set) const { return sets_[set]; }
  const MemoryName& name(uint32_t name) const { return names_[name]; }
  size_t name_count() const { return names_.size(); }

 private:
  uint32_t Intern(const MemoryName& name);
  uint32_t Intern(NameSet set);
  // By the parts of the storage that names are of; by those of a flat parameter; by the sizes of
  // parameters.
  std::vector<Share> SharesByParts(const std::vector<uint32_t>& entries, uint64_t bytes);
  std::vector<Share> SharesByLayout(trace::ProcessId process, MemoryName name, uint64_t bytes);
  std::vector<Share> SharesBySizes(trace::ProcessId process,
                                   const std::vector<uint32_t>& entries,
                                   uint64_t bytes);

  using ParameterKey = std::tuple<int64_t, uint64_t, tables::StringId>;  // process, model, name
  std::vector<MemoryName> names_;
  std::vector<NameSet> sets_;
  std::map<MemoryName, uint32_t> name_ids_;
  std::map<std::vector<uint32_t>, uint32_t> set_ids_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> added_;  // set, name -> set
  // The smallest storage that has a parameter's name, by process, model and name.
  std::map<ParameterKey, uint64_t> sizes_;
  // Sets that have the parts of a flat parameter, by the bytes of its storage: a shard, and where
  // it is gathered all of it.
  std::map<ParameterKey, std::map<uint64_t, uint32_t>> layouts_;
};

// The category that a name says, if it does: a tag says nothing.
std::optional<Category> CategoryOfName(format::NameKind kind);

}  // namespace vramscope::resolve
