// SPDX-License-Identifier: Apache-2.0
// Processes that begin at the same time make their contexts between the same two readings: the
// device's figure says what all took together, and one row, of the process that called last, gets
// it. NVML's figure of each other process then says what is its own; what remains is the last
// one's. No total changes by that, so the past needs no correction but in the log.
#include <algorithm>

#include "resolve/ledger.h"

namespace vramscope::resolve {

void Ledger::ShareOut(DeviceState& device,
                      const std::vector<OpenCall>& calls,
                      uint32_t holder,
                      const Bracket& bracket) {
  const trace::ProcessId last = slow_items_[holder].process;
  for (auto call = calls.begin(); call != calls.end(); ++call) {
    const trace::ProcessId process = call->process;
    const auto is_of_process = [&](const OpenCall& other) { return other.process == process; };
    const size_t at = process.value * devices_.size() + static_cast<size_t>(device.id.value);
    if (process == last || space_index_[at] == kNoIndex ||
        std::find_if(calls.begin(), call, is_of_process) != call)
      continue;
    std::vector<OpenCall> own;
    std::copy_if(calls.begin(), calls.end(), std::back_inserter(own), is_of_process);
    SlowItem item = slow_items_[holder];
    item.process = process;
    item.space = space_index_[at];
    item.trigger = TriggerText(own);
    item.api = own.back().api;
    item.stack = own.back().stack;
    item.native = own.back().native;
    item.thread = own.back().thread;
    item.context = own.back().context;
    item.bytes = 0;
    spaces_[space_index_[at]].joint_share = {bracket.log_index, slow_log_.size()};
    Bracket share = bracket;
    share.log_index = slow_log_.size();
    share.taken_begin = share.taken_end = 0;
    AddBracket(space_index_[at], share);
    slow_log_.push_back({NewSlowItem(std::move(item)), 0, now_ns_});
  }
}

// What the last reading assigned is taken back: there is nothing to share.
void Ledger::DropShares(const DeviceState& device) {
  for (Space& space : spaces_) {
    if (!space.joint_share || space.device != device.id)
      continue;
    const uint32_t holder = slow_log_[space.joint_share->holder_log_index].item;
    if (std::any_of(device.readings.assigned.begin(), device.readings.assigned.end(),
                    [&](const SlowChange& assigned) { return assigned.item == holder; }))
      space.joint_share.reset();
  }
}

// Whether a row of this process still has bytes that are others'.
bool Ledger::IsHolder(const Space& space) const {
  return std::any_of(spaces_.begin(), spaces_.end(), [&](const Space& other) {
    if (!other.joint_share)
      return false;
    const SlowItem& holder = slow_items_[slow_log_[other.joint_share->holder_log_index].item];
    return holder.process == space.process && holder.device == space.device;
  });
}

// False where the row has not as much: then somebody else gave memory back meanwhile.
bool Ledger::CommitShare(DeviceState& device, Space& space) {
  const JointShare share = *space.joint_share;
  space.joint_share.reset();
  SlowChange& from = slow_log_[share.holder_log_index];
  SlowChange& to = slow_log_[share.log_index];
  SlowItem& holder = slow_items_[from.item];
  SlowItem& own = slow_items_[to.item];
  const int64_t bytes = space.rm_pending_used - space.rm_pending_total;
  if (bytes <= 0 || bytes > std::min(holder.bytes, from.bytes))
    return false;
  space.rm_wanted = false;
  Agree(space, 0);
  from.bytes -= bytes;
  to.bytes += bytes;
  holder.bytes -= bytes;
  own.bytes += bytes;
  Space& holder_space = spaces_[holder.space];
  holder_space.rm_pending_total -= bytes;
  Add(device, &holder_space, holder.part, -bytes);
  Add(device, &space, own.part, bytes);
  for (ProcessSampleRecord& sample : holder_space.samples)
    sample.ledger -= sample.end_ns >= holder.alloc_ns ? bytes : 0;
  for (ProcessSampleRecord& sample : space.samples)
    sample.ledger += sample.end_ns >= own.alloc_ns ? bytes : 0;
  return true;
}

}  // namespace vramscope::resolve
