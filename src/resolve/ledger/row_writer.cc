// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/row_writer.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace vramscope::resolve {
namespace {

// Reads each field separately, as it was just stored: a wider load would stall until the stores
// retire. The products are independent. High bits mix better.
uint64_t HashOf(const SiteKey& key) {
  const auto byte = [](auto value) { return static_cast<uint64_t>(value); };
  const uint64_t kinds = byte(key.part) | byte(key.category) << 8 | byte(key.without_phases) << 16 |
                         byte(key.phase) << 24 | byte(key.estimated) << 32 |
                         byte(key.holding) << 40 | byte(key.unbacked) << 48;
  const uint64_t sum =
      kinds * 0x9e3779b97f4a7c15u + key.account * 0xbf58476d1ce4e5b9u +
      static_cast<uint64_t>(key.owner) * 0x94d049bb133111ebu + key.names * 0xff51afd7ed558ccdu +
      key.pool_names * 0xc4ceb9fe1a85ec53u + key.module_epoch * 0x87c37b91114253d5u +
      key.api.value * 0x4cf5ad432745937fu + key.scope.value * 0x52dce729da3ed7f5u +
      key.thread.value * 0x38495ab5a5c9e2bbu + key.stack.value * 0xd6e8feb86659fd93u +
      key.native.value * 0xa0761d6478bd642fu + key.forward.value * 0xe7037ed1a0b428dbu +
      key.stream * 0x8ebc6af09c88c6e3u + key.maker * 0x589965cc75374cc3u;
  return std::rotl(sum, 32);
}

}  // namespace

tables::SiteId RowWriter::SiteOf(const SiteKey& key, int64_t alloc_ns) {
  if (key.stack.value >= latest_.size()) [[unlikely]]
    latest_.resize(std::max<size_t>(key.stack.value + size_t{1}, 2 * latest_.size()));
  uint32_t& latest = latest_[key.stack.value];
  if (latest != 0 && sites_[latest].key == key) [[likely]]
    return tables::SiteId{latest};
  const auto next = static_cast<uint32_t>(sites_.size());
  const uint32_t id = ids_.Intern(
      HashOf(key), next, [&](uint32_t known) { return sites_[known].key == key; },
      [&](uint32_t known) { return HashOf(sites_[known].key); });
  if (id == next)
    sites_.push_back({key, alloc_ns, 0, 0});
  latest = id;
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
