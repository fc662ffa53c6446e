// SPDX-License-Identifier: Apache-2.0
#include "resolve/names.h"

#include <algorithm>

namespace vramscope::resolve {
namespace {

using format::NameKind;

// Memory that is a parameter is that, whatever else it is.
int Rank(NameKind kind) {
  switch (kind) {
    case NameKind::kParameter:
      return 0;
    case NameKind::kGradient:
      return 1;
    case NameKind::kBuffer:
      return 2;
    case NameKind::kOptimizerState:
      return 3;
    case NameKind::kTag:
    case NameKind::kPool:
    case NameKind::kPrivatePool:
    case NameKind::kCommunicator:
      break;
  }
  return 4;
}

}  // namespace

std::optional<Category> CategoryOfName(NameKind kind) {
  switch (kind) {
    case NameKind::kParameter:
      return Category::kParameter;
    case NameKind::kGradient:
      return Category::kGradient;
    case NameKind::kBuffer:
      return Category::kBuffer;
    case NameKind::kOptimizerState:
      return Category::kOptimizerState;
    case NameKind::kTag:
    case NameKind::kPool:
    case NameKind::kPrivatePool:
    case NameKind::kCommunicator:
      break;
  }
  return std::nullopt;
}

uint32_t Names::Intern(const MemoryName& name) {
  const auto [found, added] = name_ids_.try_emplace(name, names_.size());
  if (added)
    names_.push_back(name);
  return found->second;
}

uint32_t Names::Intern(NameSet set) {
  const auto [found, added] = set_ids_.try_emplace(set.entries, sets_.size());
  if (added)
    sets_.push_back(std::move(set));
  return found->second;
}

void Names::NoteSize(trace::ProcessId process, const MemoryName& name) {
  const bool is_of_parameter =
      name.kind == NameKind::kParameter || name.kind == NameKind::kGradient;
  if (!is_of_parameter || name.requested == 0 || name.detail.value != 0)
    return;
  const auto [found, added] =
      sizes_.try_emplace({process.value, name.owner, name.name}, name.requested);
  if (!added)
    found->second = std::min(found->second, name.requested);
}

std::vector<Names::Share> Names::SharesOf(trace::ProcessId process, uint32_t set, uint64_t bytes) {
  const NameSet& names = sets_[set];
  const NameKind kind = names_[names.first].kind;
  if (names.entries.size() < 2 || (kind != NameKind::kParameter && kind != NameKind::kGradient))
    return {};
  std::vector<Share> shares;
  uint64_t sum = 0;
  // Add() below moves the sets.
  for (const uint32_t entry : std::vector<uint32_t>(names.entries)) {
    const MemoryName name = names_[entry];
    if (name.kind != kind)
      continue;
    const auto size = sizes_.find({process.value, name.owner, name.name});
    if (size == sizes_.end() || size->second > bytes - sum)
      return {};
    sum += size->second;
    shares.push_back({Add(0, name), size->second});
  }
  return shares.size() < 2 ? std::vector<Share>() : shares;
}

uint32_t Names::Add(uint32_t set, const MemoryName& name) {
  const uint32_t id = Intern(name);
  if (const auto known = added_.find({set, id}); known != added_.end())
    return known->second;
  // The same name with another size is not an alias: the storage was resized.
  const auto replaced = [&](uint32_t entry) {
    const MemoryName& other = names_[entry];
    if (other.kind != name.kind)
      return false;
    return name.kind == NameKind::kTag || name.kind == NameKind::kPool ||
           name.kind == NameKind::kCommunicator ||
           (other.name == name.name && other.detail == name.detail && other.owner == name.owner);
  };
  NameSet next;
  bool placed = false;
  for (const uint32_t entry : sets_[set].entries) {
    if (!replaced(entry))
      next.entries.push_back(entry);
    else if (!std::exchange(placed, true))
      next.entries.push_back(id);
  }
  if (!placed)
    next.entries.push_back(id);
  next.first = next.entries[0];
  for (const uint32_t entry : next.entries) {
    const MemoryName& one = names_[entry];
    if (Rank(one.kind) < Rank(names_[next.first].kind))
      next.first = entry;
    if (one.kind == NameKind::kTag || one.kind == NameKind::kPool)
      next.tag = entry;
    next.requested = std::max(next.requested, one.requested);
  }
  const uint32_t result = Intern(std::move(next));
  added_[{set, id}] = result;
  return result;
}

}  // namespace vramscope::resolve
