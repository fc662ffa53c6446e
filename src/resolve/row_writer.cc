// SPDX-License-Identifier: Apache-2.0
#include "resolve/row_writer.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace vramscope::resolve {
namespace {

constexpr size_t kKeyWords = sizeof(SiteKey) / sizeof(uint64_t);
using KeyWords = std::array<uint64_t, kKeyWords>;

uint64_t HashOf(const SiteKey& key) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  const auto words = std::bit_cast<KeyWords>(key);
  // Two chains, which the processor works on side by side.
  uint64_t even = 0;
  uint64_t odd = 0;
  for (size_t i = 0; i + 1 < kKeyWords; i += 2) {
    even = (std::rotl(even, 23) ^ words[i]) * kMultiplier;
    odd = (std::rotl(odd, 29) ^ words[i + 1]) * kMultiplier;
  }
  if constexpr (kKeyWords % 2 != 0)
    even = (std::rotl(even, 23) ^ words.back()) * kMultiplier;
  const uint64_t hash = (even ^ std::rotl(odd, 32)) * kMultiplier;
  return hash ^ hash >> 32;
}

bool IsSame(const SiteKey& a, const SiteKey& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

tables::SiteId RowWriter::SiteOf(const SiteKey& key, int64_t alloc_ns) {
  const auto next = static_cast<uint32_t>(sites_.size());
  const uint32_t id = ids_.Intern(
      HashOf(key), next, [&](uint32_t known) { return IsSame(sites_[known].key, key); },
      [&](uint32_t known) { return HashOf(sites_[known].key); });
  if (id == next)
    sites_.push_back({key, alloc_ns, 0, 0});
  return tables::SiteId{id};
}

tables::SiteId RowWriter::AddSite(const SiteKey& key, std::string trigger, int64_t alloc_ns) {
  const auto id = static_cast<uint32_t>(sites_.size());
  sites_.push_back({key, alloc_ns, 0, 0});
  if (!trigger.empty())
    triggers_.emplace(id, std::move(trigger));
  return tables::SiteId{id};
}

const std::string& RowWriter::TriggerOf(tables::SiteId site) const {
  static const std::string kNone;
  const auto found = triggers_.find(site.value);
  return found == triggers_.end() ? kNone : found->second;
}

}  // namespace vramscope::resolve
