// SPDX-License-Identifier: Apache-2.0
#include "read/detail_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "tables/row_of.h"
#include "util/containers/intern_table.h"

namespace vramscope::read {
namespace {

using tables::AllocationFrame;

// The memory stays.
void Clear(AllocationFrame* frame) {
  frame->rows = 0;
  frame->begin_ns.clear();
  frame->end_ns.clear();
  frame->alloc_ns.clear();
  frame->address.clear();
  frame->bytes.clear();
  frame->rounding_bytes.clear();
  frame->site.clear();
  frame->segment.clear();
}

// Adds `values` in this order.
template <class Value>
uint64_t* AddOrdered(const std::vector<Value>& values,
                     const std::vector<uint32_t>& order,
                     Column* column) {
  uint64_t* const cells = column->Numbers(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    cells[i] = static_cast<uint64_t>(values[order[i]]);
  return cells;
}

void Ordered(const std::vector<uint32_t>& values,
             const std::vector<uint32_t>& order,
             std::vector<uint32_t>* out) {
  out->resize(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    (*out)[i] = values[order[i]];
}

// Sorts by the bits from `shift` on, which are numbers up to `range`; equal ones keep their order.
void SortByDigits(unsigned shift,
                  uint64_t range,
                  std::vector<uint64_t>* keys,
                  std::vector<uint64_t>* sorted) {
  constexpr unsigned kBits = 11;
  sorted->resize(keys->size());
  for (; range != 0; range >>= kBits, shift += kBits) {
    const auto digit = [shift](uint64_t key) { return key >> shift & ((1U << kBits) - 1); };
    std::array<uint32_t, (1U << kBits) + 1> at{};
    for (const uint64_t key : *keys)
      ++at[digit(key) + 1];
    std::partial_sum(at.begin(), at.end(), at.begin());
    for (const uint64_t key : *keys)
      (*sorted)[at[digit(key)]++] = key;
    keys->swap(*sorted);
  }
}

}  // namespace

DetailRows::DetailRows(std::shared_ptr<const tables::Recording> recording,
                       size_t group_rows,
                       WrittenStacks* written,
                       DetailTables* out,
                       DetailScratch* scratch)
    : recording_(std::move(recording)),
      tables_(recording_->tables()),
      group_rows_(group_rows),
      written_(written),
      out_(*out),
      memory_(*scratch),
      pending_(memory_.pending),
      stacks_(*recording_),
      columns_(*recording_),
      first_segment_(FirstSegment()),
      allocations_before_(out->allocations.rows()) {
  Clear(&pending_);
}

uint64_t DetailRows::FirstSegment() const {
  uint64_t hash = HashText(tables_.session.name);
  const auto add = [&](uint64_t number) { hash = util::Mix64(hash * 3 + number); };
  add(static_cast<uint64_t>(tables_.session.begin_ns));
  add(static_cast<uint64_t>(tables_.session.begin_wall_ns));
  for (const tables::HostRow& host : tables_.hosts)
    add(HashText(recording_->string(host.name)));
  for (const tables::ProcessRow& process : tables_.processes) {
    add(process.pid);
    add(static_cast<uint64_t>(process.rank));
  }
  // Half of the range, so that the sum stays positive.
  return (hash & kIdMask) >> 1;
}

util::Status DetailRows::Check() const {
  AllocationFrame frame;
  for (size_t i = 0; i < recording_->frame_count(); ++i)
    VRAMSCOPE_RETURN_IF_ERROR(recording_->Read(i, tables::kAllColumns, &frame));
  return {};
}

util::Result<bool> DetailRows::AddAllocations() {
  AllocationFrame& frame = memory_.frame;
  for (; next_ < recording_->frame_count(); ++next_) {
    if (pending_.rows >= group_rows_) {
      Flush();
      return false;
    }
    const util::Status read = recording_->Read(next_, tables::kAllColumns, &frame);
    if (!read.ok()) {
      out_.allocations.Truncate(allocations_before_);
      return read;
    }
    Append(frame);
  }
  Flush();
  return true;
}

void DetailRows::Append(const AllocationFrame& frame) {
  const auto append = [](const auto& from, auto* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(frame.begin_ns, &pending_.begin_ns);
  append(frame.end_ns, &pending_.end_ns);
  append(frame.alloc_ns, &pending_.alloc_ns);
  append(frame.address, &pending_.address);
  append(frame.bytes, &pending_.bytes);
  append(frame.rounding_bytes, &pending_.rounding_bytes);
  append(frame.segment, &pending_.segment);
  for (const uint32_t site : frame.site)
    pending_.site.push_back(site < tables_.sites.size() ? site : 0);
  pending_.rows += frame.rows;
}

void DetailRows::SortByTime() {
  const std::vector<int64_t>& times = pending_.begin_ns;
  std::vector<uint32_t>& order = memory_.order;
  order.resize(times.size());
  std::iota(order.begin(), order.end(), 0);
  if (std::is_sorted(times.begin(), times.end()))
    return;
  const auto [first, last] = std::minmax_element(times.begin(), times.end());
  const uint64_t lowest = static_cast<uint64_t>(*first);
  const uint64_t range = static_cast<uint64_t>(*last) - lowest;
  // A key is a time and its row.
  const auto row_bits = static_cast<unsigned>(std::bit_width(times.size()));
  if (static_cast<unsigned>(std::bit_width(range)) + row_bits > 64) {
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return times[a] < times[b]; });
    return;
  }
  std::vector<uint64_t>& keys = memory_.keys;
  keys.resize(times.size());
  for (size_t row = 0; row < times.size(); ++row)
    keys[row] = (static_cast<uint64_t>(times[row]) - lowest) << row_bits | row;
  SortByDigits(row_bits, range, &keys, &memory_.sorted_keys);
  for (size_t i = 0; i < keys.size(); ++i)
    order[i] = static_cast<uint32_t>(keys[i] & ((uint64_t{1} << row_bits) - 1));
}

void DetailRows::SortPending() {
  SortByTime();
  const std::vector<int32_t>& ranks = columns_.ranks();
  const auto before = [&](uint32_t a, uint32_t b) {
    return ranks[pending_.site[a]] < ranks[pending_.site[b]];
  };
  std::vector<uint32_t>& order = memory_.order;
  if (!std::is_sorted(order.begin(), order.end(), before))
    std::stable_sort(order.begin(), order.end(), before);
}

void DetailRows::Flush() {
  if (pending_.rows == 0)
    return;
  SortPending();
  const std::vector<uint32_t>& order = memory_.order;
  GrowingTable& table = out_.allocations;
  Ordered(pending_.site, order, &memory_.sites);
  size_t at = 0;
  columns_.AddToAllocations(stacks_, memory_.sites, &table, &at);
  AddStacks();
  AddOrdered(pending_.begin_ns, order, &table.Int(at++, "begin_ns"));
  AddOrdered(pending_.alloc_ns, order, &table.Int(at++, "alloc_ns"));
  AddOrdered(pending_.address, order, &table.Int(at++, "address"));
  AddOrdered(pending_.bytes, order, &table.Int(at++, "bytes"));
  AddOrdered(pending_.rounding_bytes, order, &table.Int(at++, "rounding_bytes"));
  Column& end = table.Int(at++, "end_ns");
  const uint64_t* const ends = AddOrdered(pending_.end_ns, order, &end);
  uint8_t* const nulls = end.Nulls(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    nulls[i] = ends[i] == static_cast<uint64_t>(tables::kNever) ? 1 : 0;
  Ordered(pending_.segment, order, &memory_.segments);
  AddSegments(memory_.segments, &table.Int(at++, "segment_id"));
  Clear(&pending_);
}

void DetailRows::AddSegments(const std::vector<uint32_t>& segments, Column* column) const {
  uint64_t* const cells = column->Numbers(segments.size());
  uint8_t* const nulls = column->Nulls(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    cells[i] = first_segment_ + segments[i];
    nulls[i] = segments[i] == 0 ? 1 : 0;
  }
}

void DetailRows::AddStacks() {
  std::vector<bool> seen(tables_.stacks.size());
  for (const tables::SiteRow& site : tables_.sites) {
    const tables::StackId stack = SiteColumns::StackOf(site);
    if (stack.value == 0 || stack.value >= seen.size() || seen[stack.value])
      continue;
    seen[stack.value] = true;
    const uint64_t id = stacks_.IdOf(stack);
    if (!written_->Add(id))
      continue;
    out_.stacks.Int(0, "stack_id").Number(id);
    out_.stacks.Text(1, "stack").Text(stacks_.TextOf(stack));
  }
}

void DetailRows::AddDeltas() {
  if (tables_.steps.empty())
    return;
  std::vector<uint32_t> sites;
  std::vector<uint32_t> segments;
  for (const tables::StepRow& step : tables_.steps) {
    const tables::CounterRow& counter = RowOf(tables_.counters, step.counter);
    sites.push_back(counter.site.value < tables_.sites.size() ? counter.site.value : 0);
    segments.push_back(counter.segment.value);
  }
  size_t at = 0;
  columns_.AddToDeltas(sites, &out_.deltas, &at);
  Column& time = out_.deltas.Int(at++, "time_ns");
  Column& bytes = out_.deltas.Int(at++, "bytes");
  for (const tables::StepRow& step : tables_.steps) {
    time.Number(step.time_ns);
    bytes.Number(step.bytes);
  }
  AddSegments(segments, &out_.deltas.Int(at++, "segment_id"));
}

void DetailRows::AddSamples() {
  Column& host = out_.samples.Text(0, "host");
  Column& device = out_.samples.Int(1, "device");
  Column& uuid = out_.samples.Text(2, "device_uuid");
  Column& time = out_.samples.Int(3, "time_ns");
  Column& used = out_.samples.Int(4, "used_bytes");
  Column& ledger = out_.samples.Int(5, "ledger_bytes");
  for (const tables::SampleRow& sample : tables_.samples) {
    const tables::DeviceRow& of = RowOf(tables_.devices, sample.device);
    host.TextOrNull(recording_->string(RowOf(tables_.hosts, of.host).name));
    device.Number(int64_t{of.index});
    uuid.TextOrNull(recording_->string(of.uuid));
    time.Number(sample.time_ns);
    used.Number(sample.used_bytes);
    ledger.Number(sample.ledger_bytes);
  }
}

}  // namespace vramscope::read
