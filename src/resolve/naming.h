// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "resolve/attribute/stack_facts.h"
#include "resolve/ledger/ledger.h"

namespace vramscope::resolve {

// The input of a name.
struct Named {
  trace::ProcessId process = trace::kNoProcess;
  int64_t alloc_ns = 0;
  const SiteKey& key;
  bool has_origin() const { return key.phase != format::Phase::kNone; }
};

// Makes the names of memory as text, from a finished ledger. Each text has a number; 0 is "".
// docs/NAMES.md has the rules.
class Naming {
 public:
  explicit Naming(const Ledger& ledger);

  // "layer.0.fc", a scope's path, or none.
  uint32_t Module(const Named& named);
  // The class of the module, or "" for a scope.
  uint32_t ModuleType(const Named& named);
  // The parameter whose value, gradient or state it is, or a buffer's name.
  uint32_t Parameter(const Named& named);
  // Splits the names of a tied parameter: "wte.weight = head.weight".
  static std::vector<std::string> NamesOf(std::string_view parameter);
  // The optimizer's name for its state, the program's own name, the NCCL function that requested
  // it, or the scope's path.
  uint32_t Tag(const Named& named);
  // The communicator of NCCL's memory: "0x1f2e3d4c5b6a7988 of 8 ranks".
  uint32_t Communicator(const Named& named);
  const std::string& text(uint32_t id) const { return texts_[id]; }
  const std::vector<std::string>& texts() const { return texts_; }
  // The stack to show as the call site. For memory that autograd allocated for an operator of the
  // forward, the operator's stack.
  tables::StackId Place(const SiteKey& key);

 private:
  struct ModuleText {
    uint32_t path = 0;
    uint32_t type = 0;
  };

  uint32_t Intern(std::string text);
  // The NCCL function that the program called, "ncclAllReduce"; "" if NCCL did not request the
  // memory.
  std::string AskedOfNccl(tables::StackId native) const;
  ModuleText ModuleOf(const Named& named);
  ModuleText ModuleOfStack(trace::ProcessId process, tables::StackId stack, int64_t time_ns);
  ModuleText ModuleOfName(const Named& named);
  // Whether the name was given before its module became part of a model and got a new name.
  bool IsOutOfDate(uint32_t entry, const NameSet& set, const Named& named) const;
  ModuleText ModuleOfLifetime(uint32_t lifetime);
  // The lifetime of the root of a name's path, or ModuleNames::kNone.
  uint32_t RootOf(const MemoryName& name, const Named& named) const;

  const Ledger& ledger_;
  const trace::Trace& trace_;
  StackFactsTable facts_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::unordered_map<uint32_t, ModuleText> modules_;                // by lifetime of a module
  std::unordered_map<tables::StringId, uint64_t> parameter_roots_;  // by name; 0: several have it
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> parameters_;    // by set and root
};

}  // namespace vramscope::resolve
