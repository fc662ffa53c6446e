// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/module_names.h"

#include <algorithm>
#include <map>
#include <utility>

namespace vramscope::resolve {

// The current lifetime at the address; a new one if the last has ended.
uint32_t ModuleNames::LifeOf(trace::ProcessId process, uint64_t object) {
  uint32_t& latest = processes_[process.value].latest.FindOrAdd(object);
  if (latest != kNone && lifetimes_[latest].until_ns == INT64_MAX)
    return latest;
  Lifetime lifetime;
  lifetime.process = process;
  lifetime.before = latest;
  latest = static_cast<uint32_t>(lifetimes_.size());
  lifetimes_.push_back(lifetime);
  return latest;
}

void ModuleNames::On(const trace::EventContext& at, const trace::Module& e) {
  if (e.object == 0 || at.process.value >= processes_.size())
    return;
  const bool is_root = e.root == e.object || e.root == 0;
  const uint32_t index = LifeOf(at.process, e.object);
  Lifetime& lifetime = lifetimes_[index];
  const bool moved = lifetime.root != e.root || lifetime.path != e.path;
  if (!is_root && e.path.value != 0 && (moved || lifetime.type != e.type))
    path_types_.push_back({at.process, e.root, e.path, e.type, at.time_ns});
  lifetime.root = is_root ? e.object : e.root;
  lifetime.path = is_root ? tables::StringId{} : e.path;
  lifetime.type = e.type;
  lifetime.is_root = is_root;
  lifetime.last_ns = at.time_ns;
  if (!is_root)
    lifetimes_[LifeOf(at.process, e.root)].has_parts = true;
}

void ModuleNames::On(const trace::EventContext& at, const trace::ModuleGone& e) {
  if (e.object == 0 || at.process.value >= processes_.size())
    return;
  const uint32_t latest = processes_[at.process.value].latest.Find(e.object);
  if (latest != kNone && lifetimes_[latest].until_ns == INT64_MAX)
    lifetimes_[latest].until_ns = at.time_ns;
}

void ModuleNames::OnParameter(trace::ProcessId process, uint64_t root) {
  if (root == 0 || process.value >= processes_.size())
    return;
  const uint32_t latest = processes_[process.value].latest.Find(root);
  if (latest != kNone && lifetimes_[latest].until_ns == INT64_MAX)
    lifetimes_[latest].has_parts = true;
}

// Numbers models of one class in the order of their first event.
void ModuleNames::Finish() {
  std::map<std::pair<trace::ProcessId, tables::StringId>, uint32_t> of_class;
  for (ProcessModules& modules : processes_)
    modules.models = 0;
  for (Lifetime& lifetime : lifetimes_) {
    if (!lifetime.is_root || !lifetime.has_parts)
      continue;
    ++processes_[lifetime.process.value].models;
    lifetime.number = ++of_class[{lifetime.process, lifetime.type}];
  }
  for (uint32_t i = 0; i < path_types_.size(); ++i) {
    const PathType& said = path_types_[i];
    const uint32_t root = Find(said.process, said.root, said.time_ns);
    std::vector<uint32_t>& types = paths_[{root, trace_.string(said.path)}];
    if (types.empty() || path_types_[types.back()].type != said.type)
      types.push_back(i);
  }
}

uint32_t ModuleNames::Find(trace::ProcessId process, uint64_t object, int64_t time_ns) const {
  if (object == 0 || process.value >= processes_.size())
    return kNone;
  uint32_t found = processes_[process.value].latest.Find(object);
  if (found == kNone || lifetimes_[found].until_ns < time_ns)
    return kNone;
  while (lifetimes_[found].before != kNone &&
         lifetimes_[lifetimes_[found].before].until_ns >= time_ns)
    found = lifetimes_[found].before;
  return lifetimes_[found].type.value == 0 && lifetimes_[found].path.value == 0 ? kNone : found;
}

std::string ModuleNames::RootName(const Lifetime& root) const {
  std::string name(trace_.string(root.type));
  if (root.number > 1)
    name += "#" + std::to_string(root.number);
  return name;
}

std::string ModuleNames::Prefix(uint32_t root) const {
  if (root == kNone)
    return {};
  const Lifetime& lifetime = lifetimes_[root];
  return processes_[lifetime.process.value].models > 1 ? RootName(lifetime) + "." : "";
}

uint32_t ModuleNames::Compiled(uint32_t number) const {
  const Lifetime& lifetime = lifetimes_[number];
  if (lifetime.is_root || lifetime.path.value != 0 ||
      trace_.string(lifetime.type) != "OptimizedModule")
    return number;
  const uint32_t root = Find(lifetime.process, lifetime.root, lifetime.last_ns);
  return root != kNone ? root : number;
}

std::string ModuleNames::Path(uint32_t number) const {
  const Lifetime& lifetime = lifetimes_[Compiled(number)];
  const std::string_view path = trace_.string(lifetime.path);
  const uint32_t root =
      lifetime.is_root ? Compiled(number) : Find(lifetime.process, lifetime.root, lifetime.last_ns);
  if (!path.empty())
    return Prefix(root) + std::string(path);
  // The root, a wrapper around it, or a copy of it (DataParallel's).
  const bool is_copy = root != kNone && lifetimes_[root].type == lifetime.type;
  return RootName(is_copy ? lifetimes_[root] : lifetime);
}

ModuleNames::Below ModuleNames::InWhole(uint32_t root, std::string_view name) const {
  if (root == kNone || lifetimes_[root].is_root)
    return {root, std::string(name)};
  const Lifetime& part = lifetimes_[root];
  std::string path(trace_.string(part.path));
  if (!path.empty())
    path += '.';
  return {Find(part.process, part.root, part.last_ns), path + std::string(name)};
}

std::string ModuleNames::TypeOfPath(uint32_t root, const std::string& path, int64_t time_ns) const {
  const auto found = paths_.find({root, path});
  if (found == paths_.end())
    return {};
  const std::vector<uint32_t>& types = found->second;
  auto later = std::upper_bound(
      types.begin(), types.end(), time_ns,
      [&](int64_t time, uint32_t said) { return time < path_types_[said].time_ns; });
  if (later != types.begin())
    --later;
  return std::string(trace_.string(path_types_[*later].type));
}

std::string_view ModuleNames::Type(uint32_t lifetime) const {
  return trace_.string(lifetimes_[Compiled(lifetime)].type);
}

}  // namespace vramscope::resolve
