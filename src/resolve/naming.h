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

// What names are made from.
struct Named {
  trace::ProcessId process = trace::kNoProcess;
  int64_t alloc_ns = 0;
  const SiteKey& key;
  bool has_origin() const { return key.phase != format::Phase::kNone; }
};

// The names of memory in words, each text once and by a number; 0 is "", for none. Of a ledger that
// is finished. docs/NAMES.md has the rules.
class Naming {
 public:
  explicit Naming(const Ledger& ledger);

  // "layer.0.fc", a scope's path, or none.
  uint32_t Module(const Named& named);
  // The class of the module, or "" for a scope.
  uint32_t ModuleType(const Named& named);
  // The parameter that it is, or whose gradient or state; a buffer's name.
  uint32_t Parameter(const Named& named);
  // The names of one parameter, which has several where it is tied: "wte.weight = head.weight".
  static std::vector<std::string> NamesOf(std::string_view parameter);
  // The optimizer's name for its state, the program's own name, what of NCCL asked for it, or the
  // scope's path.
  uint32_t Tag(const Named& named);
  // "0x1f2e3d4c5b6a7988 of 8 ranks", whose memory of NCCL it is.
  uint32_t Communicator(const Named& named);
  const std::string& text(uint32_t id) const { return texts_[id]; }
  const std::vector<std::string>& texts() const { return texts_; }
  // The stack that people mean by "where it comes from": of memory that autograd allocated for an
  // operator of the forward, that operator's.
  tables::StackId Place(const SiteKey& key);

 private:
  struct ModuleText {
    uint32_t path = 0;
    uint32_t type = 0;
  };

  uint32_t Intern(std::string text);
  // "ncclAllReduce", the function that the program called; "" where the memory is none of NCCL's.
  std::string AskedOfNccl(tables::StackId native) const;
  ModuleText ModuleOf(const Named& named);
  ModuleText ModuleOfStack(trace::ProcessId process, tables::StackId stack, int64_t time_ns);
  ModuleText ModuleOfName(const Named& named);
  // Whether a name was given before its module became a part of a model, which has another one.
  bool IsOutOfDate(uint32_t entry, const NameSet& set, const Named& named) const;
  ModuleText ModuleOfLifetime(uint32_t lifetime);
  // The lifetime of the root that a name is a path in, or ModuleNames::kNone.
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
