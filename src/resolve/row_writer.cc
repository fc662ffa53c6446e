// SPDX-License-Identifier: Apache-2.0
#include "resolve/row_writer.h"

#include <bit>
#include <utility>

namespace vramscope::resolve {

size_t RowWriter::Hash::operator()(const SiteKey& key) const noexcept {
  uint64_t hash = 0;
  const auto mix = [&](uint64_t value) {
    hash = (std::rotl(hash, 23) ^ value) * 0x9e3779b97f4a7c15u;
  };
  mix(uint64_t{key.account} << 32 | uint64_t{key.owner.value} << 16 |
      static_cast<uint64_t>(key.part) << 8 | static_cast<uint64_t>(key.category));
  mix(uint64_t{key.names} << 32 | static_cast<uint64_t>(key.phase) << 8 |
      static_cast<uint64_t>(key.backing) << 4 | static_cast<uint64_t>(key.without_phases));
  mix(uint64_t{key.stack.value} << 32 | key.native.value);
  mix(uint64_t{key.forward.value} << 32 | key.thread.value);
  mix(uint64_t{key.scope.value} << 32 | key.api.value);
  mix(key.stream ^ uint64_t{key.module_epoch} << 32 ^ key.pool_names);
  return hash ^ (hash >> 32);
}

tables::SiteId RowWriter::SiteOf(const SiteKey& key, int64_t alloc_ns) {
  const auto [found, added] = ids_.try_emplace(key, sites_.size());
  if (added)
    sites_.push_back({key, {}, alloc_ns, 0, 0});
  return tables::SiteId{found->second};
}

tables::SiteId RowWriter::AddSite(const SiteKey& key, std::string trigger, int64_t alloc_ns) {
  sites_.push_back({key, std::move(trigger), alloc_ns, 0, 0});
  return tables::SiteId{static_cast<uint32_t>(sites_.size() - 1)};
}

}  // namespace vramscope::resolve
