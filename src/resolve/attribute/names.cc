// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/names.h"

#include <algorithm>

namespace vramscope::resolve {
namespace {

using format::NameKind;

// A parameter's name takes precedence over names of other kinds.
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
    case NameKind::kPath:
    case NameKind::kRegion:
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
    case NameKind::kPath:
    case NameKind::kRegion:
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
  if (!is_of_parameter || name.requested == 0 || name.bytes != 0 || name.detail.value != 0)
    return;
  const auto [found, added] =
      sizes_.try_emplace({process.value, name.owner, name.name}, name.requested);
  if (!added)
    found->second = std::min(found->second, name.requested);
}

void Names::NoteParts(trace::ProcessId process, uint32_t set) {
  const NameSet& names = sets_[set];
  if (names.whole == 0 || names.requested == 0)
    return;
  const MemoryName& whole = names_[names.whole];
  layouts_[{process.value, whole.owner, whole.name}][names.requested] = set;
}

std::vector<Names::Share> Names::SharesOf(trace::ProcessId process, uint32_t set, uint64_t bytes) {
  // Add() moves the sets.
  const NameSet names = sets_[set];
  const MemoryName first = names_[names.first];
  if (!CategoryOfName(first.kind) || bytes == 0)
    return {};
  std::vector<uint32_t> entries;
  for (const uint32_t entry : names.entries) {
    if (names_[entry].kind == first.kind)
      entries.push_back(entry);
  }
  std::vector<Share> shares = SharesByParts(entries, bytes);
  // A single part leaves padding, unless another name is of the whole.
  if (shares.size() == 1 && std::all_of(entries.begin(), entries.end(),
                                        [&](uint32_t entry) { return names_[entry].bytes != 0; }))
    return {};
  if (shares.empty() && first.kind != NameKind::kParameter)
    shares = SharesByLayout(process, first, bytes);
  if (shares.empty() && (first.kind == NameKind::kParameter || first.kind == NameKind::kGradient))
    shares = SharesBySizes(process, entries, bytes);
  return shares;
}

std::vector<Names::Share> Names::SharesByParts(const std::vector<uint32_t>& entries,
                                               uint64_t bytes) {
  std::vector<MemoryName> parts;
  for (const uint32_t entry : entries) {
    if (names_[entry].bytes != 0)
      parts.push_back(names_[entry]);
  }
  std::stable_sort(parts.begin(), parts.end(), [](const MemoryName& a, const MemoryName& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  std::vector<Share> shares;
  for (const MemoryName& part : parts) {
    const uint64_t from = shares.empty() ? 0 : shares.back().offset + shares.back().bytes;
    // Tied parameters have one part with several names.
    const bool is_same =
        !shares.empty() && shares.back().offset == part.offset && shares.back().bytes == part.bytes;
    if (!is_same && (part.offset < from || part.offset + part.bytes > bytes))
      return {};
    // Its size in a storage of its own.
    const MemoryName name{part.kind, part.name, part.detail, part.owner, 0, 0, 0};
    if (is_same)
      shares.back().set = Add(shares.back().set, name);
    else
      shares.push_back({Add(0, name), part.offset, part.bytes});
  }
  return shares;
}

std::vector<Names::Share> Names::SharesByLayout(trace::ProcessId process,
                                                MemoryName name,
                                                uint64_t bytes) {
  const auto found = layouts_.find({process.value, name.owner, name.name});
  if (found == layouts_.end())
    return {};
  auto layout = found->second.find(bytes);
  if (layout == found->second.end())
    layout = found->second.begin();
  // Elements of gradient and state may have another width than the parameter's.
  const uint64_t flat = layout->first;
  constexpr uint64_t kWidest = 8;
  const bool is_wider = bytes % flat == 0 && bytes / flat <= kWidest;
  if (!is_wider && (flat % bytes != 0 || flat / bytes > kWidest))
    return {};
  const NameSet parts = sets_[layout->second];
  std::vector<uint32_t> entries;
  for (const uint32_t entry : parts.entries) {
    MemoryName part = names_[entry];
    if (part.kind != NameKind::kParameter)
      continue;
    part.kind = name.kind;
    part.detail = name.detail;
    for (uint64_t* const value : {&part.offset, &part.bytes})
      *value = is_wider ? *value * (bytes / flat) : *value / (flat / bytes);
    entries.push_back(Intern(part));
  }
  return SharesByParts(entries, bytes);
}

std::vector<Names::Share> Names::SharesBySizes(trace::ProcessId process,
                                               const std::vector<uint32_t>& entries,
                                               uint64_t bytes) {
  if (entries.size() < 2)
    return {};
  std::vector<Share> shares;
  uint64_t sum = 0;
  for (const uint32_t entry : entries) {
    const MemoryName name = names_[entry];
    const auto size = sizes_.find({process.value, name.owner, name.name});
    if (size == sizes_.end() || size->second > bytes - sum)
      return {};
    shares.push_back({Add(0, name), sum, size->second});
    sum += size->second;
  }
  return shares;
}

uint32_t Names::Add(uint32_t set, const MemoryName& name) {
  const uint32_t id = Intern(name);
  if (const auto known = added_.find({set, id}); known != added_.end())
    return known->second;
  // The same name with another size means that the storage was resized.
  const auto replaced = [&](uint32_t entry) {
    const MemoryName& other = names_[entry];
    if (other.kind != name.kind)
      return false;
    return name.kind == NameKind::kTag || name.kind == NameKind::kPool ||
           name.kind == NameKind::kCommunicator || name.kind == NameKind::kRegion ||
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
  const MemoryName* part = nullptr;
  for (const uint32_t entry : next.entries) {
    const MemoryName& one = names_[entry];
    if (Rank(one.kind) < Rank(names_[next.first].kind))
      next.first = entry;
    const bool is_region = one.kind == NameKind::kRegion;
    if (one.kind == NameKind::kTag || one.kind == NameKind::kPool || (is_region && next.tag == 0))
      next.tag = entry;
    next.requested = std::max(next.requested, one.requested);
    if (one.kind == NameKind::kParameter) {
      if (one.bytes == 0)
        next.whole = entry;
      else if (part == nullptr)
        part = &one;
      else if (one.offset != part->offset)
        next.is_flat = true;
    }
  }
  if (part == nullptr)
    next.whole = 0;
  next.is_flat = next.is_flat || next.whole != 0;
  const uint32_t result = Intern(std::move(next));
  added_[{set, id}] = result;
  return result;
}

}  // namespace vramscope::resolve
