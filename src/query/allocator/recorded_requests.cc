// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/recorded_requests.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "tables/row_of.h"

namespace vramscope::query {
namespace {

constexpr std::string_view kPyTorch = "PyTorch";
constexpr uint64_t kLargestBlockBytes = uint64_t{1} << 50;  // of a damaged file, they may be larger

// A stretch of time in which an account had some bytes.
struct HeldBytes {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t bytes = 0;
};

struct AccountRows {
  std::vector<tables::AllocationRow> blocks;
  std::vector<std::pair<tables::SegmentId, HeldBytes>> backing;
  // Neither blocks nor free bytes of segments.
  std::vector<std::pair<tables::SegmentId, HeldBytes>> others;
};

class RequestReader {
 public:
  explicit RequestReader(const tables::Recording& recording)
      : recording_(recording), tables_(recording.tables()) {}

  util::Result<std::vector<RecordedRequests>> Read();

 private:
  void AddRow(const tables::AllocationRow& row);
  void AddCounters();
  RecordedRequests Make(tables::AccountId account, AccountRows* rows) const;
  void AddBlocks(AccountRows* rows, int64_t end_ns, RecordedRequests* out) const;
  void AddReserved(const AccountRows& rows, int64_t end_ns, RecordedRequests* out) const;

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  std::map<tables::AccountId, AccountRows> accounts_;
};

using BytesByTime = std::map<int64_t, int64_t>;

BytesByTime ChangesOf(const std::vector<HeldBytes>& rows) {
  BytesByTime changes;
  for (const HeldBytes& row : rows) {
    changes[row.begin_ns] += row.bytes;
    changes[row.end_ns] -= row.bytes;
  }
  return changes;
}

uint64_t HighestOf(const BytesByTime& changes, int64_t end_ns) {
  int64_t sum = 0;
  int64_t highest = 0;
  for (const auto& [time_ns, bytes] : changes) {
    if (time_ns >= end_ns)
      break;
    sum += bytes;
    highest = std::max(highest, sum);
  }
  return static_cast<uint64_t>(highest);
}

void RequestReader::AddRow(const tables::AllocationRow& row) {
  const tables::SiteRow& site = tables::RowOf(tables_.sites, row.site);
  const tables::AccountRow& account = tables::RowOf(tables_.accounts, site.account);
  if (account.process.value == 0 ||
      tables::RowOf(tables_.devices, account.device).kind != tables::DeviceKind::kGpu ||
      site.unbacked != 0)
    return;
  AccountRows& rows = accounts_[site.account];
  const HeldBytes held = {row.begin_ns, row.end_ns, static_cast<int64_t>(row.bytes)};
  if (site.backing != 0)
    rows.backing.emplace_back(row.segment, held);
  else if (recording_.string(site.allocator) == kPyTorch && row.segment.value != 0 &&
           row.bytes > 0 && row.bytes <= kLargestBlockBytes)
    rows.blocks.push_back(row);
  else if (site.allocator.value == 0)
    rows.others.emplace_back(row.segment, held);
}

void RequestReader::AddCounters() {
  for (const tables::StepRow& step : tables_.steps) {
    const tables::CounterRow& counter = tables::RowOf(tables_.counters, step.counter);
    const tables::SiteRow& site = tables::RowOf(tables_.sites, counter.site);
    const auto found = accounts_.find(site.account);
    if (counter.segment.value == 0 && found != accounts_.end())
      found->second.others.emplace_back(tables::SegmentId(),
                                        HeldBytes{step.time_ns, INT64_MAX, step.bytes});
  }
}

// Rows of one block follow each other where something about it changed.
void RequestReader::AddBlocks(AccountRows* rows, int64_t end_ns, RecordedRequests* out) const {
  std::sort(rows->blocks.begin(), rows->blocks.end(), [](const auto& a, const auto& b) {
    return std::tie(a.address, a.alloc_ns, a.begin_ns) <
           std::tie(b.address, b.alloc_ns, b.begin_ns);
  });
  const tables::AllocationRow* before = nullptr;
  for (const tables::AllocationRow& row : rows->blocks) {
    if (before != nullptr && before->address == row.address && before->alloc_ns == row.alloc_ns) {
      out->blocks.back().free_ns = row.end_ns;
    } else {
      const uint64_t rounding = std::min(row.rounding_bytes, row.bytes);
      out->blocks.push_back({row.alloc_ns, row.end_ns, row.address, row.bytes,
                             std::max<uint64_t>(row.bytes - rounding, 1), row.segment, row.site});
    }
    before = &row;
  }
  for (uint32_t i = 0; i < out->blocks.size(); ++i) {
    RecordedBlock& block = out->blocks[i];
    out->steps.push_back({block.alloc_ns, RecordedStep::Kind::kAllocate, i, 0});
    // What ends with the process was not freed.
    if (block.free_ns < end_ns)
      out->steps.push_back({block.free_ns, RecordedStep::Kind::kFree, i, 0});
    tables::SegmentId segment = block.segment;
    if (segment.value >= tables_.segments.size())
      segment = {};
    const tables::SegmentRow& row = tables_.segments[segment.value];
    out->segments[segment.value] = {row.address, row.size_bytes, false};
    block.segment = segment;
  }
}

void RequestReader::AddReserved(const AccountRows& rows,
                                int64_t end_ns,
                                RecordedRequests* out) const {
  std::vector<HeldBytes> backing;
  for (const auto& [segment, held] : rows.backing) {
    if (segment.value >= out->segments.size() || out->segments[segment.value].bytes == 0)
      continue;
    RecordedSegment& of = out->segments[segment.value];
    of.expandable |= static_cast<uint64_t>(held.bytes) != of.bytes;
    backing.push_back(held);
  }
  int64_t sum = 0;
  for (const auto& [time_ns, bytes] : ChangesOf(backing)) {
    if (time_ns >= end_ns || bytes == 0)
      continue;
    sum += bytes;
    const auto reserved = static_cast<uint64_t>(sum);
    out->reserved_peak_bytes = std::max(out->reserved_peak_bytes, reserved);
    out->steps.push_back({time_ns, RecordedStep::Kind::kReserved, 0, reserved});
    if (bytes < 0)
      out->steps.push_back({time_ns, RecordedStep::Kind::kEmpty, 0, reserved});
  }
}

RecordedRequests RequestReader::Make(tables::AccountId account, AccountRows* rows) const {
  RecordedRequests out;
  out.account = account;
  out.segments.resize(tables_.segments.size());
  const tables::AccountRow& row = tables::RowOf(tables_.accounts, account);
  const tables::ProcessRow& process = tables::RowOf(tables_.processes, row.process);
  const int64_t end_ns =
      process.exit_ns != 0 ? process.exit_ns : std::max(row.end_ns, process.end_ns);
  AddBlocks(rows, end_ns, &out);
  AddReserved(*rows, end_ns, &out);
  std::vector<HeldBytes> others;
  for (const auto& [segment, held] : rows->others) {
    // Before its first block, a segment is memory like any other.
    if (segment.value >= out.segments.size() || out.segments[segment.value].bytes == 0)
      others.push_back(held);
  }
  out.other_bytes = HighestOf(ChangesOf(others), end_ns);
  std::erase_if(out.steps, [&](const RecordedStep& step) { return step.time_ns >= end_ns; });
  // Of one instant, what the driver gave comes before the block that it was given for.
  std::stable_sort(out.steps.begin(), out.steps.end(),
                   [](const RecordedStep& a, const RecordedStep& b) {
                     const auto rank = [](const RecordedStep& step) {
                       return step.kind == RecordedStep::Kind::kAllocate ? 1 : 0;
                     };
                     return std::pair(a.time_ns, rank(a)) < std::pair(b.time_ns, rank(b));
                   });
  return out;
}

util::Result<std::vector<RecordedRequests>> RequestReader::Read() {
  tables::AllocationFrame frame;
  for (size_t i = 0; i < recording_.frame_count(); ++i) {
    VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(i, tables::kAllColumns, &frame));
    for (size_t row = 0; row < frame.rows; ++row)
      AddRow(tables::RowOf(frame, row));
  }
  AddCounters();
  std::vector<RecordedRequests> all;
  for (auto& [account, rows] : accounts_) {
    if (!rows.blocks.empty())
      all.push_back(Make(account, &rows));
  }
  return all;
}

}  // namespace

util::Result<std::vector<RecordedRequests>> ReadRequests(const tables::Recording& recording) {
  return RequestReader(recording).Read();
}

}  // namespace vramscope::query
