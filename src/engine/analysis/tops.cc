// SPDX-License-Identifier: Apache-2.0
#include "engine/analysis/tops.h"

#include <algorithm>
#include <unordered_map>

#include "engine/model/parts.h"

namespace vramscope::engine {
namespace {

// Sums by a 32-bit id, with the largest contributor.
class Sums {
 public:
  void Add(uint32_t key,
           trace::StackId stack,
           trace::FrameId frame,
           uint64_t bytes,
           uint64_t count) {
    Entry& entry = entries_[key];
    entry.holder.bytes += bytes;
    entry.holder.count += count;
    entry.holder.frame = frame;
    if (bytes >= entry.largest) {
      entry.largest = bytes;
      entry.holder.stack = stack;
    }
  }
  void AppendTo(std::vector<Holder>& out, trace::DeviceId device, size_t limit) const {
    std::vector<Holder> sorted;
    sorted.reserve(entries_.size());
    for (const auto& [key, entry] : entries_) {
      sorted.push_back(entry.holder);
      sorted.back().device = device;
    }
    std::sort(sorted.begin(), sorted.end(), [](const Holder& a, const Holder& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.stack < b.stack;
    });
    if (sorted.size() > limit)
      sorted.resize(limit);
    out.insert(out.end(), sorted.begin(), sorted.end());
  }

 private:
  struct Entry {
    Holder holder;
    uint64_t largest = 0;
  };
  std::unordered_map<uint32_t, Entry> entries_;
};

// Each device's come in order; a list of all is cut at its end, wherever that is.
void SortAcrossDevices(std::vector<Holder>& holders) {
  std::stable_sort(holders.begin(), holders.end(),
                   [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
}

}  // namespace

TopHolders FindTopHolders(const Ledger& ledger, Moment moment, UserFrames& frames, size_t limit) {
  TopHolders tops;
  StackFactsTable facts(ledger.trace());
  for (const DeviceState& device : ledger.devices()) {
    Sums stacks;
    ForEachLeaf(ledger, device.id, moment, [&](const Leaf& leaf) {
      const trace::StackId stack = PlaceOf(leaf, facts);
      if (stack.value == 0 || leaf.bytes == 0 || (IsSlack(leaf.part) && !leaf.is_block))
        return;
      stacks.Add(stack.value, stack, trace::FrameId{}, leaf.bytes, leaf.count);
    });
    // Lines from stacks, not from leaves: there are far fewer.
    std::vector<Holder> all;
    stacks.AppendTo(all, device.id, SIZE_MAX);
    Sums lines;
    for (Holder& holder : all) {
      holder.frame = frames.Innermost(holder.stack);
      lines.Add(holder.frame.value, holder.stack, holder.frame, holder.bytes, holder.count);
    }
    all.resize(std::min(all.size(), limit));
    tops.stacks.insert(tops.stacks.end(), all.begin(), all.end());
    lines.AppendTo(tops.lines, device.id, limit);
  }
  SortAcrossDevices(tops.stacks);
  SortAcrossDevices(tops.lines);
  return tops;
}

std::vector<Holder> FindTopChurn(const Ledger& ledger, UserFrames& frames, size_t limit) {
  std::vector<Holder> out;
  for (const DeviceState& device : ledger.devices()) {
    Sums lines;
    for (size_t i = 1; i < device.churn.size(); ++i) {
      if (device.churn[i].count == 0)
        continue;
      const trace::StackId stack{static_cast<uint32_t>(i)};
      const trace::FrameId frame = frames.Innermost(stack);
      lines.Add(frame.value, stack, frame, device.churn[i].bytes, device.churn[i].count);
    }
    lines.AppendTo(out, device.id, limit);
  }
  SortAcrossDevices(out);
  return out;
}

}  // namespace vramscope::engine
