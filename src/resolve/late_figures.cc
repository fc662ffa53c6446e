// SPDX-License-Identifier: Apache-2.0
// Figures that are learnt after the rows which they concern: the constant difference of NVML's
// figure of a device to the driver's, and the kernel module's part of a context. The past is
// corrected.
#include <algorithm>

#include "resolve/ledger.h"

namespace vramscope::resolve {

// NVML's figure and the driver's agree to the byte as a rule, and then it is settled at once.
// Another difference is settled only when the next event proves that nothing was under way.
void Ledger::ProposeOffset(DeviceState& device, int64_t offset, int64_t until_ns) {
  ReadingSeries& series = device.readings;
  if (series.offset_reading_ns != series.last_begin_ns) {
    series.offset_reading_ns = series.last_begin_ns;
    series.offset_before = series.pending_offset;
  }
  series.offset_seen_twice = offset == series.offset_before;
  series.pending_offset = offset;
  series.pending_offset_until_ns = until_ns;
  series.offset_pending = offset != 0;
  if (offset == 0)
    CommitOffset(device);
}

void Ledger::CommitPending(DeviceState& device, int64_t begin_ns) {
  ReadingSeries& series = device.readings;
  if (series.offset_pending) {
    series.offset_pending = false;
    // Beside others it may be memory of theirs, unless another reading says the same.
    if (begin_ns > series.pending_offset_until_ns &&
        (series.offset_seen_twice || !IsShared(device, INT64_MIN)))
      CommitOffset(device);
  }
  if (!device.rm_pending)
    return;
  device.rm_pending = false;
  for (uint32_t i = 0; i < spaces_.size(); ++i) {
    if (spaces_[i].device != device.id || !spaces_[i].rm_pending)
      continue;
    spaces_[i].rm_pending = false;
    if (begin_ns <= spaces_[i].rm_pending_until_ns)
      continue;
    Space& space = spaces_[i];
    if ((space.joint_share && CommitShare(device, space)) || IsHolder(space) ||
        CommitFigure(device, space))
      continue;
    if (space.rm_pending_wanted && space.context_item != kNoIndex)
      CommitRmInternal(device, space);
  }
}

// NVML's figure of the device has more than its figure of the process: memory that the kernel
// module allocated for the context. It came with the context, so the past is corrected.
void Ledger::CommitRmInternal(DeviceState& device, Space& space) {
  int64_t bytes = space.rm_pending_total - space.rm_pending_used;
  if (!space.rm_pending_had_offset)
    bytes -= device.readings.offset;
  SlowItem& context = slow_items_[space.context_item];
  SlowItem& rm = slow_items_[space.rm_item];
  SlowChange& entry = slow_log_[space.context_log_index];
  if (bytes <= 0 || bytes > std::min(context.bytes, entry.bytes))
    return;
  space.rm_wanted = false;
  space.figure_gap = std::min<int64_t>(0, space.figure_gap + bytes);
  entry.bytes -= bytes;
  slow_log_[space.context_log_index + 1].bytes += bytes;
  context.bytes -= bytes;
  rm.bytes += bytes;
  Add(device, &space, context.part, -bytes);
  Add(device, &space, rm.part, bytes);
  for (ProcessSampleRecord& sample : space.samples)
    sample.ledger -= sample.end_ns >= context.alloc_ns ? bytes : 0;
}

// The first assignment was made from a sample and a reading whose constant difference was not known
// yet: what it called context holds that difference. The past is corrected with it.
void Ledger::CommitOffset(DeviceState& device) {
  ReadingSeries& series = device.readings;
  series.has_offset = true;
  series.offset = series.pending_offset;
  if (series.offset == 0 || !series.first_assigned_from_sample)
    return;
  series.base_gap += series.offset;
  for (PastReading& past : series.past)
    past.base_gap += series.offset;
  series.last_gap += series.offset;
  if (series.first_assigned_ns == 0 || series.first_log_index >= slow_log_.size())
    return;
  const SlowChange& entry = slow_log_[series.first_log_index];
  const int64_t has = std::min(entry.bytes, slow_items_[entry.item].bytes);
  CorrectEntry(device, series.first_log_index, -std::min(series.offset, has),
               series.first_assigned_ns);
}

}  // namespace vramscope::resolve
