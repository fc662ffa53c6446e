// SPDX-License-Identifier: Apache-2.0
#include "resolve/module_names.h"

#include <map>
#include <utility>

namespace vramscope::resolve {

// The life under way at the address; a new one where the last has ended.
uint32_t ModuleNames::LifeOf(trace::ProcessId process, uint64_t object) {
  uint32_t& latest = processes_[process.value].latest.FindOrAdd(object);
  if (latest != kNone && lives_[latest].until_ns == INT64_MAX)
    return latest;
  Life life;
  life.process = process;
  life.before = latest;
  latest = static_cast<uint32_t>(lives_.size());
  lives_.push_back(life);
  return latest;
}

void ModuleNames::OnModule(const trace::Event& event) {
  if (event.address == 0 || event.process.value >= processes_.size())
    return;
  const bool is_root = event.value == event.address || event.value == 0;
  const uint32_t index = LifeOf(event.process, event.address);
  Life& life = lives_[index];
  life.root = is_root ? event.address : event.value;
  life.path = is_root ? trace::StringId{} : event.name;
  life.type = event.api;
  life.is_root = is_root;
  life.last_ns = event.time_ns;
  if (!is_root)
    lives_[LifeOf(event.process, event.value)].has_parts = true;
}

void ModuleNames::OnGone(const trace::Event& event) {
  if (event.address == 0 || event.process.value >= processes_.size())
    return;
  const uint32_t latest = processes_[event.process.value].latest.Find(event.address);
  if (latest != kNone && lives_[latest].until_ns == INT64_MAX)
    lives_[latest].until_ns = event.time_ns;
}

void ModuleNames::OnParameter(const trace::Event& event) {
  if (event.value == 0 || event.process.value >= processes_.size())
    return;
  const uint32_t latest = processes_[event.process.value].latest.Find(event.value);
  if (latest != kNone && lives_[latest].until_ns == INT64_MAX)
    lives_[latest].has_parts = true;
}

// Models of one class are numbered in the order in which they were first seen.
void ModuleNames::Finish() {
  std::map<std::pair<trace::ProcessId, trace::StringId>, uint32_t> of_class;
  for (ProcessModules& modules : processes_)
    modules.models = 0;
  for (Life& life : lives_) {
    if (!life.is_root || !life.has_parts)
      continue;
    ++processes_[life.process.value].models;
    life.number = ++of_class[{life.process, life.type}];
  }
  for (uint32_t i = 0; i < lives_.size(); ++i) {
    const Life& life = lives_[i];
    if (!life.is_root && life.path.value != 0)
      paths_[{Find(life.process, life.root, life.last_ns), trace_.string(life.path)}] = i;
  }
}

uint32_t ModuleNames::Find(trace::ProcessId process, uint64_t object, int64_t time_ns) const {
  if (object == 0 || process.value >= processes_.size())
    return kNone;
  uint32_t found = processes_[process.value].latest.Find(object);
  if (found == kNone || lives_[found].until_ns < time_ns)
    return kNone;
  while (lives_[found].before != kNone && lives_[lives_[found].before].until_ns >= time_ns)
    found = lives_[found].before;
  return lives_[found].type.value == 0 && lives_[found].path.value == 0 ? kNone : found;
}

std::string ModuleNames::RootName(const Life& root) const {
  std::string name(trace_.string(root.type));
  if (root.number > 1)
    name += "#" + std::to_string(root.number);
  return name;
}

std::string ModuleNames::Prefix(uint32_t root_life) const {
  if (root_life == kNone)
    return {};
  const Life& root = lives_[root_life];
  return processes_[root.process.value].models > 1 ? RootName(root) + "." : "";
}

std::string ModuleNames::Path(uint32_t life_index) const {
  const Life& life = lives_[life_index];
  const std::string_view path = trace_.string(life.path);
  if (path.empty())
    return RootName(life);
  return Prefix(Find(life.process, life.root, life.last_ns)) + std::string(path);
}

std::string ModuleNames::TypeOfPath(uint32_t root_life, const std::string& path) const {
  const auto found = paths_.find({root_life, path});
  return found == paths_.end() ? std::string() : std::string(Type(found->second));
}

std::string_view ModuleNames::Type(uint32_t life) const {
  return trace_.string(lives_[life].type);
}

}  // namespace vramscope::resolve
