// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "format/enums.h"
#include "resolve/attribute/owners.h"
#include "trace/event.h"

namespace vramscope::resolve {

// A name that the program or PyTorch gave to a piece of memory.
struct MemoryName {
  format::NameKind kind = format::NameKind::kTag;
  tables::StringId name;
  tables::StringId detail;  // the optimizer's name for its state
  // The root module or optimizer that `name` is a path in. For a communicator its id; 0: one of
  // several.
  uint64_t owner = 0;
  uint64_t requested = 0;  // bytes requested for the storage; 0: unknown
  // The named part of the storage. 0 bytes: all of it, or unknown.
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend auto operator<=>(const MemoryName&, const MemoryName&) = default;
};

// All names of one piece of memory, in the order in which they were given.
struct NameSet {
  std::vector<uint32_t> entries;
  uint32_t first = 0;      // the name that decides the category
  uint32_t tag = 0;        // the program's own name, else its region's; 0: none
  uint32_t whole = 0;      // a parameter that has others as its parts; 0: none
  bool is_flat = false;    // several parameters share the storage, or one has a part of `whole`
  uint64_t requested = 0;  // 0: unknown
};

// Interns names and sets of names, because a training gives the same names to new memory in each
// iteration. Set 0 and name 0 mean "none".
class Names {
 public:
  Names() : names_(1), sets_(1) {}

  // The set with that name added. A tag replaces the previous tag. Other names are kept side by
  // side (tied weights).
  uint32_t Add(uint32_t set, const MemoryName& name);

  // Whether that name replaces the set's names because the memory was reused.
  bool TakesTurn(uint32_t set, const MemoryName& name) const {
    return name.kind == format::NameKind::kTag && sets_[set].tag != 0 &&
           names_[sets_[set].tag].kind != format::NameKind::kRegion;
  }

  // Memory of a process got its name. Learns a parameter's size from storages that have only that
  // parameter or its gradient.
  void NoteSize(trace::ProcessId process, const MemoryName& name);
  // Memory of a process has these names. The gradient and state of a flat parameter, such as
  // FSDP1's, have the same parts as the parameter.
  void NoteParts(trace::ProcessId process, uint32_t set);
  // For memory that several parameters, gradients or states share, such as a flat buffer: a set and
  // its bytes for each, by offset. Empty if the parts are unknown or exceed `bytes`; then all names
  // are of the same memory.
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
  // Three ways to split a storage: by its named parts, by a flat parameter's parts, by parameter
  // sizes.
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
  // The smallest storage with a parameter's name, by process, model and name.
  std::map<ParameterKey, uint64_t> sizes_;
  // Sets with the parts of a flat parameter, by the storage's bytes: a shard, or the gathered
  // whole.
  std::map<ParameterKey, std::map<uint64_t, uint32_t>> layouts_;
};

// The category that a name implies. A tag implies none.
std::optional<Category> CategoryOfName(format::NameKind kind);

}  // namespace vramscope::resolve
