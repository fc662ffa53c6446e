// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "base/units.h"
#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/sweep.h"
#include "query/dimensions/cells.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"

namespace vramscope::query {
namespace {

using format::Category;

constexpr size_t kMostNamesEach = 8;
// Cards by the name of their size, and what of it a program can have.
struct Card {
  uint32_t gb;
  uint32_t usable_gib;
};
constexpr Card kCards[] = {{8, 7},     {12, 11},   {16, 15},  {24, 23}, {32, 31},
                           {40, 39},   {48, 47},   {80, 79},  {96, 94}, {141, 139},
                           {180, 178}, {192, 191}, {288, 267}};

// The instant at which most is in use of what each GPU would hold.
class Highest {
 public:
  Highest(const tables::Tables& tables, const Cells& cells) : devices_(tables.devices.size()) {
    for (const Cell& cell : cells.all()) {
      Facts& facts = cells_.emplace_back();
      facts.in_host = cell.stands_for.value != 0;
      if (tables.accounts[cell.account.value].process.value != 0 && cell.unbacked_of.value == 0)
        facts.device = facts.in_host ? cell.stands_for.value : cell.device.value;
      facts.in_use = IsUse(cell.part);
    }
  }

  struct Device {
    int64_t used = 0;
    int64_t held = 0;
    int64_t host = 0;
    int64_t most_used = 0;
    int64_t most_held = 0;  // then
    int64_t most_host = 0;
    int64_t time_ns = 0;
  };

  void OnMove(uint32_t cell, int64_t bytes) {
    const Facts& facts = cells_[cell];
    Device& device = devices_[facts.device];
    device.held += bytes;
    device.used += facts.in_use ? bytes : 0;
    device.host += facts.in_host ? bytes : 0;
  }
  void OnState(int64_t first_ns, int64_t) {
    for (Device& device : devices_) {
      device.most_host = std::max(device.most_host, device.host);
      // Before PyTorch's first block nothing of its segments is in use.
      if (device.used < device.most_used ||
          (device.used == device.most_used && device.held <= device.most_held))
        continue;
      device.most_used = device.used;
      device.most_held = device.held;
      device.time_ns = first_ns;
    }
  }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  struct Facts {
    uint32_t device = 0;  // 0: of no recorded process
    bool in_use = false;
    bool in_host = false;
  };
  std::vector<Facts> cells_;
  std::vector<Device> devices_;
};

using Sums = std::map<std::string, uint64_t>;

BytesByName Sorted(const Sums& sums, size_t most) {
  BytesByName sorted;
  for (const auto& [name, bytes] : sums) {
    if (bytes != 0)
      sorted.emplace_back(name, bytes);
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  sorted.resize(std::min(sorted.size(), most));
  return sorted;
}

bool DependsOnBatch(Category category) {
  return category == Category::kActivation || category == Category::kRetained ||
         category == Category::kTemporary || category == Category::kInput;
}

class Describer {
 public:
  explicit Describer(const tables::Recording& recording)
      : recording_(recording), texts_(recording) {}

  util::Status Describe(Overflow* out) {
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto live,
                               ReadLiveSet(recording_, AllAt(recording_.tables(), out->time_ns)));
    Sums all, categories, layers, lines;
    uint64_t of_batch = 0;
    uint64_t of_others = 0;
    ForEachLeaf(recording_, live, [&](const Leaf& leaf) {
      const bool in_host = leaf.site.stands_for == out->device;
      if (!in_host && leaf.device != out->device)
        return;
      if (leaf.process.value == 0) {
        of_others += leaf.bytes;
        return;
      }
      const auto part = leaf.site.part;
      const auto category = leaf.site.category;
      const std::string name = format::CategoryName(category);
      out->held_bytes += leaf.bytes;
      all[name] += leaf.bytes;
      if (IsUse(part))
        out->used_bytes += leaf.bytes;
      if (IsUse(part) && DependsOnBatch(category))
        of_batch += leaf.bytes;
      if (!in_host)
        return;
      out->host_bytes += leaf.bytes;
      categories[name] += leaf.bytes;
      if (leaf.site.module.value != 0)
        layers[texts_.Of(Dimension::kModule, leaf.site, leaf.row)] += leaf.bytes;
      lines[texts_.Of(Dimension::kLine, leaf.site, leaf.row)] += leaf.bytes;
    });
    out->all_categories = Sorted(all, all.size());
    out->categories = Sorted(categories, categories.size());
    out->layers = Sorted(layers, kMostNamesEach);
    out->lines = Sorted(lines, kMostNamesEach);
    for (const Card& card : kCards) {
      if (card.usable_gib * kGiB >= out->held_bytes) {
        out->card_gb = card.gb;
        break;
      }
    }
    if (of_batch != 0 && out->device_bytes > of_others) {
      const uint64_t room = out->device_bytes - of_others;
      const uint64_t rest = out->used_bytes - of_batch;
      out->batch_percent =
          room <= rest
              ? 0
              : static_cast<uint32_t>(std::min<uint64_t>((room - rest) * 100 / of_batch, 100));
    }
    return {};
  }

 private:
  const tables::Recording& recording_;
  DimensionValues texts_;
};

}  // namespace

util::Result<std::vector<Overflow>> FindOverflow(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  std::vector<Overflow> found;
  if (std::none_of(tables.sites.begin(), tables.sites.end(),
                   [](const tables::SiteRow& site) { return site.stands_for.value != 0; }))
    return found;
  const Cells cells(recording);
  Highest highest(tables, cells);
  VRAMSCOPE_RETURN_IF_ERROR(Sweep(recording, cells, TimeSpan{}, &highest));
  Describer describer(recording);
  for (uint32_t i = 1; i < tables.devices.size(); ++i) {
    const Highest::Device& device = highest.devices()[i];
    if (device.most_host <= 0)
      continue;
    Overflow& overflow = found.emplace_back();
    overflow.device = tables::DeviceId{i};
    overflow.device_bytes = tables.devices[i].total_bytes;
    overflow.time_ns = device.time_ns;
    overflow.most_host_bytes = static_cast<uint64_t>(device.most_host);
    VRAMSCOPE_RETURN_IF_ERROR(describer.Describe(&overflow));
  }
  return found;
}

}  // namespace vramscope::query
