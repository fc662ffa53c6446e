// SPDX-License-Identifier: Apache-2.0
#include "resolve/naming.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "resolve/attribute/pytree_path.h"

namespace vramscope::resolve {
namespace {

using format::NameKind;

// The most names shown for a storage that many tensors share, such as a flat buffer.
constexpr std::string_view kTied = " = ";  // between two names of one parameter
constexpr size_t kShownNames = 16;

bool IsOfModel(const MemoryName& name) {
  return CategoryOfName(name.kind).has_value();
}

bool IsPathOfXla(const Named& named, std::string_view name) {
  return named.key.owner == Owner::kXla && IsPytreePath(name);
}

}  // namespace

Naming::Naming(const Ledger& ledger)
    : ledger_(ledger), trace_(ledger.trace()), facts_(trace_), texts_(1) {
  // An optimizer names its state by the parameter. The state belongs to the model that has a
  // parameter of that name.
  const Names& names = ledger_.base().names;
  for (uint32_t i = 1; i < names.name_count(); ++i) {
    const MemoryName& name = names.name(i);
    if (name.kind != NameKind::kParameter)
      continue;
    const auto [found, added] = parameter_roots_.try_emplace(name.name, name.owner);
    if (!added && found->second != name.owner)
      found->second = 0;
  }
}

uint32_t Naming::Intern(std::string text) {
  if (text.empty())
    return 0;
  const auto [found, added] = ids_.try_emplace(std::move(text), texts_.size());
  if (added)
    texts_.push_back(found->first);
  return found->second;
}

tables::StackId Naming::Place(const SiteKey& key) {
  // In a backward, the program's innermost line is useful; the line that calls backward() is not.
  if (key.forward.value != 0 && (key.stack.value == 0 || !facts_.Of(key.stack).user_inside))
    return key.forward;
  return key.stack.value != 0 ? key.stack : key.native;
}

Naming::ModuleText Naming::ModuleOfLifetime(uint32_t lifetime) {
  const auto [found, added] = modules_.try_emplace(lifetime);
  if (added) {
    found->second.path = Intern(ledger_.modules().Path(lifetime));
    found->second.type = Intern(std::string(ledger_.modules().Type(lifetime)));
  }
  return found->second;
}

// The innermost named module of the stack.
Naming::ModuleText Naming::ModuleOfStack(trace::ProcessId process,
                                         tables::StackId stack,
                                         int64_t time_ns) {
  // A module that calls an optimizer or a backward does not own their allocations.
  StackFacts facts = facts_.Of(stack);
  if (!facts.module_inside)
    return {};
  size_t left = trace_.dictionaries().stack_count();
  while (facts.module_inside && left-- > 0) {
    const uint64_t object = trace_.dictionaries().object(facts.module);
    const uint32_t lifetime = ledger_.modules().Find(process, object, time_ns);
    if (lifetime != ModuleNames::kNone)
      return ModuleOfLifetime(lifetime);
    facts = facts_.Of(trace_.stack(facts.module).parent);
  }
  return {Intern("(unnamed module)"), 0};
}

uint32_t Naming::RootOf(const MemoryName& name, const Named& named) const {
  const uint32_t root = ledger_.modules().Find(named.process, name.owner, named.alloc_ns);
  if (root != ModuleNames::kNone)
    return root;
  const auto other = parameter_roots_.find(name.name);
  return other == parameter_roots_.end()
             ? ModuleNames::kNone
             : ledger_.modules().Find(named.process, other->second, named.alloc_ns);
}

bool Naming::IsOutOfDate(uint32_t entry, const NameSet& set, const Named& named) const {
  const Names& names = ledger_.base().names;
  const auto whole_of = [&](const MemoryName& name) {
    return ledger_.modules().InWhole(RootOf(name, named), trace_.string(name.name));
  };
  const MemoryName& name = names.name(entry);
  const ModuleNames::Below whole = whole_of(name);
  if (whole.root == ModuleNames::kNone || whole.path == trace_.string(name.name))
    return false;
  return std::any_of(set.entries.begin(), set.entries.end(), [&](uint32_t other) {
    const MemoryName& said = names.name(other);
    if (other == entry || said.kind != name.kind)
      return false;
    const ModuleNames::Below direct = whole_of(said);
    return direct.root == whole.root && direct.path == trace_.string(said.name);
  });
}

// The parameter's module: the name without the last component.
Naming::ModuleText Naming::ModuleOfName(const Named& named) {
  const Names& names = ledger_.base().names;
  const NameSet& set = names.set(named.key.names);
  uint32_t id = set.first;
  for (const uint32_t entry : set.entries) {
    if (names.name(entry).kind == names.name(set.first).kind && !IsOutOfDate(entry, set, named)) {
      id = entry;
      break;
    }
  }
  const MemoryName& name = names.name(id);
  if (!IsOfModel(name))
    return {};
  if (const std::string_view path = trace_.string(name.name); IsPathOfXla(named, path)) {
    const std::string shown = ShowPytreePath(path);
    const size_t slash = shown.rfind('/');
    return slash == std::string::npos ? ModuleText{}
                                      : ModuleText{Intern(shown.substr(0, slash)), 0};
  }
  const uint32_t root = RootOf(name, named);
  const ModuleNames::Below whole = ledger_.modules().InWhole(root, trace_.string(name.name));
  const size_t dot = whole.path.rfind('.');
  if (dot == std::string::npos)
    return whole.root != ModuleNames::kNone ? ModuleOfLifetime(whole.root) : ModuleText{};
  const std::string path = whole.path.substr(0, dot);
  ModuleText module;
  module.path = Intern(ledger_.modules().Prefix(whole.root) + path);
  if (whole.root != ModuleNames::kNone)
    module.type = Intern(ledger_.modules().TypeOfPath(whole.root, path, named.alloc_ns));
  return module;
}

Naming::ModuleText Naming::ModuleOf(const Named& named) {
  if (!named.has_origin())
    return {};
  const SiteKey& key = named.key;
  ModuleText module = ModuleOfName(named);
  if (module.path == 0) {
    const tables::StackId stack = key.forward.value != 0 ? key.forward : key.stack;
    module = ModuleOfStack(named.process, stack, named.alloc_ns);
  }
  if (module.path == 0 && key.scope.value != 0)
    module.path = Intern(std::string(trace_.string(key.scope)));
  return module;
}

uint32_t Naming::Module(const Named& named) {
  return ModuleOf(named).path;
}

uint32_t Naming::ModuleType(const Named& named) {
  return ModuleOf(named).type;
}

uint32_t Naming::Parameter(const Named& named) {
  if (named.key.names == 0)
    return 0;
  const Names& names = ledger_.base().names;
  const NameSet& set = names.set(named.key.names);
  const MemoryName& first = names.name(set.first);
  if (!IsOfModel(first))
    return 0;
  const auto [found, added] = parameters_.try_emplace({named.key.names, RootOf(first, named)});
  if (!added)
    return found->second;
  std::vector<std::string> shown;
  size_t left_out = 0;
  for (const uint32_t entry : set.entries) {
    const MemoryName& name = names.name(entry);
    if (name.kind != first.kind || IsOutOfDate(entry, set, named))
      continue;
    if (shown.size() >= kShownNames) {
      ++left_out;
      continue;
    }
    const ModuleNames::Below whole =
        ledger_.modules().InWhole(RootOf(name, named), trace_.string(name.name));
    std::string one = ledger_.modules().Prefix(whole.root) + whole.path;
    if (const std::string_view path = trace_.string(name.name); IsPathOfXla(named, path))
      one = ShowPytreePath(path);
    // The name was given twice, before and after the model was complete.
    if (std::find(shown.begin(), shown.end(), one) == shown.end())
      shown.push_back(std::move(one));
  }
  if (left_out > 0)
    shown.push_back("(" + std::to_string(left_out) + " more)");
  std::string text;
  for (const std::string& one : shown)
    text.append(text.empty() ? "" : kTied).append(one);
  return found->second = Intern(std::move(text));
}

std::vector<std::string> Naming::NamesOf(std::string_view parameter) {
  std::vector<std::string> names;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + kTied.size()) {
    end = parameter.find(kTied, begin);
    names.emplace_back(parameter.substr(begin, end - begin));
  }
  return names;
}

uint32_t Naming::Tag(const Named& named) {
  const Names& names = ledger_.base().names;
  if (named.has_origin()) {
    const NameSet& set = names.set(named.key.names);
    const MemoryName& first = names.name(set.first);
    if (first.kind == NameKind::kOptimizerState && first.detail.value != 0)
      return Intern(std::string(trace_.string(first.detail)));
    if (names.name(set.tag).name.value != 0) {
      const std::string_view tag = trace_.string(names.name(set.tag).name);
      return Intern(IsPathOfXla(named, tag) ? ShowPytreePath(tag) : std::string(tag));
    }
  }
  if (named.key.pool_names != 0) {
    const MemoryName& pool = names.name(names.set(named.key.pool_names).tag);
    return Intern(std::string(trace_.string(pool.name)));
  }
  // An engine copies what it wants to keep.
  if (named.key.part == Part::kPinned && named.key.phase == format::Phase::kSleep)
    return Intern("backup of sleeping memory");
  std::string asked;
  if (CategoryOfOwner(named.key.owner) == Category::kCommunication)
    asked = AskedOfNccl(named.key.native);
  return Intern(asked.empty() ? std::string(trace_.string(named.key.scope)) : std::move(asked));
}

uint32_t Naming::Communicator(const Named& named) {
  const Names& names = ledger_.base().names;
  for (const uint32_t entry : names.set(named.key.names).entries) {
    const MemoryName& name = names.name(entry);
    if (name.kind != NameKind::kCommunicator)
      continue;
    if (name.owner == 0)
      return Intern("one of several");
    const uint64_t ranks = ledger_.CommunicatorRanks(name.owner);
    std::array<char, 16> digits;
    const auto end = std::to_chars(digits.begin(), digits.end(), name.owner, 16).ptr;
    const std::string id = "0x" + std::string(digits.begin(), end);
    return Intern(ranks == 0 ? id : id + " of " + std::to_string(ranks) + " ranks");
  }
  return 0;
}

// The outermost of NCCL's frames, because inner ones serve it. NCCL's own proxy threads have no
// public function in their stacks.
std::string Naming::AskedOfNccl(tables::StackId native) const {
  std::string_view function, caller;  // the calling image
  bool found = false, is_next = false;
  // A damaged trace may hold a cycle: no chain is longer than the table.
  size_t left = trace_.dictionaries().stack_count();
  for (tables::StackId at = native; at.value != 0 && left > 0; --left) {
    const tables::StackRow& stack = trace_.stack(at);
    const tables::FrameRow& frame = trace_.frame(stack.frame);
    const std::string_view image = trace_.string(frame.image);
    if (is_next)
      caller = image.substr(image.rfind('/') + 1);
    is_next = OwnerOfImage(image) == Owner::kNccl;
    if (is_next) {
      function = trace_.string(frame.function);
      found = true;
    }
    at = stack.parent;
  }
  // Internal functions are C++, so their names have arguments.
  if (found && function.starts_with("nccl") && function.find('(') == std::string_view::npos)
    return std::string(function);
  const bool is_own_thread = caller.starts_with("libc.so") || caller.starts_with("libc-") ||
                             caller.starts_with("libpthread") || caller.starts_with("libstdc++");
  return found && is_own_thread ? "a thread of NCCL's own" : "";
}

}  // namespace vramscope::resolve
