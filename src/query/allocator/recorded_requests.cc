// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/recorded_requests.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
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

// Where rows of a site go.
enum class Use : uint8_t { kNone, kBlock, kBacking, kOther };

struct AccountRows {
  tables::AccountId account;
  std::vector<RecordedBlock> blocks;
  std::vector<tables::AllocationRow> later;  // what a block is after something about it changed
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
  struct SiteUse {
    Use use = Use::kNone;
    uint32_t account = 0;  // of accounts_
  };

  void FindUses();
  void AddRow(const tables::AllocationRow& row);
  void AddCounters();
  RecordedRequests Make(AccountRows* rows) const;
  void AddReserved(const AccountRows& rows,
                   int64_t end_ns,
                   RecordedRequests* out,
                   std::vector<RecordedStep>* steps) const;

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  std::vector<AccountRows> accounts_;  // by AccountId
  std::vector<SiteUse> sites_;
};

RecordedBlock BlockOf(const tables::AllocationRow& row) {
  const uint64_t rounding = std::min(row.rounding_bytes, row.bytes);
  return {
      row.alloc_ns, row.end_ns, row.address, row.bytes, std::max<uint64_t>(row.bytes - rounding, 1),
      row.segment,  row.site};
}

// A block's last row says when it was freed. Rows whose first one is missing are blocks themselves.
void JoinLater(AccountRows* rows) {
  if (rows->later.empty())
    return;
  using Key = std::pair<uint64_t, int64_t>;
  const auto hash = [](const Key& key) {
    return key.first ^ static_cast<uint64_t>(key.second) * 0x9e3779b97f4a7c15;
  };
  std::unordered_map<Key, const tables::AllocationRow*, decltype(hash)> last(rows->later.size(),
                                                                             hash);
  for (const tables::AllocationRow& row : rows->later) {
    const tables::AllocationRow*& of = last[{row.address, row.alloc_ns}];
    if (of == nullptr || of->end_ns < row.end_ns)
      of = &row;
  }
  for (RecordedBlock& block : rows->blocks) {
    const auto found = last.find({block.address, block.alloc_ns});
    if (found == last.end())
      continue;
    block.free_ns = found->second->end_ns;
    last.erase(found);
  }
  for (const tables::AllocationRow& row : rows->later) {
    const auto found = last.find({row.address, row.alloc_ns});
    if (found == last.end() || found->second != &row)
      continue;
    rows->blocks.push_back(BlockOf(row));
  }
}

// Of one instant by address, for the same answers each time.
void SortByTime(const std::vector<RecordedBlock>& blocks, std::vector<RecordedStep>* steps) {
  std::sort(steps->begin(), steps->end(), [&](const RecordedStep& a, const RecordedStep& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns
                                  : blocks[a.block].address < blocks[b.block].address;
  });
}

std::vector<RecordedStep> AllocationsOf(const std::vector<RecordedBlock>& blocks) {
  std::vector<RecordedStep> steps;
  steps.reserve(blocks.size());
  for (uint32_t i = 0; i < blocks.size(); ++i)
    steps.push_back({blocks[i].alloc_ns, RecordedStep::Kind::kAllocate, i, 0});
  SortByTime(blocks, &steps);
  return steps;
}

// What ends with the process was not freed.
std::vector<RecordedStep> FreesOf(const std::vector<RecordedBlock>& blocks, int64_t end_ns) {
  std::vector<RecordedStep> steps;
  steps.reserve(blocks.size());
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].free_ns < end_ns)
      steps.push_back({blocks[i].free_ns, RecordedStep::Kind::kFree, i, 0});
  }
  SortByTime(blocks, &steps);
  return steps;
}

// Of one instant, `a` comes first.
std::vector<RecordedStep> Merged(const std::vector<RecordedStep>& a,
                                 const std::vector<RecordedStep>& b) {
  std::vector<RecordedStep> all(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), all.begin(),
             [](const RecordedStep& x, const RecordedStep& y) { return x.time_ns < y.time_ns; });
  return all;
}

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

void RequestReader::FindUses() {
  std::map<tables::AccountId, uint32_t> numbers;
  for (const tables::SiteRow& site : tables_.sites) {
    SiteUse& of = sites_.emplace_back();
    const tables::AccountRow& account = tables::RowOf(tables_.accounts, site.account);
    if (account.process.value == 0 ||
        tables::RowOf(tables_.devices, account.device).kind != tables::DeviceKind::kGpu)
      continue;
    numbers.emplace(site.account, 0);
    if (site.unbacked != 0)
      continue;
    of.use = site.backing != 0                               ? Use::kBacking
             : recording_.string(site.allocator) == kPyTorch ? Use::kBlock
             : site.allocator.value == 0                     ? Use::kOther
                                                             : Use::kNone;
  }
  for (auto& [account, number] : numbers) {
    number = static_cast<uint32_t>(accounts_.size());
    accounts_.emplace_back().account = account;
  }
  for (size_t i = 0; i < sites_.size(); ++i) {
    if (sites_[i].use != Use::kNone)
      sites_[i].account = numbers[tables_.sites[i].account];
  }
}

void RequestReader::AddRow(const tables::AllocationRow& row) {
  if (row.site.value >= sites_.size())
    return;
  const SiteUse& site = sites_[row.site.value];
  if (site.use == Use::kNone)
    return;
  AccountRows& rows = accounts_[site.account];
  const HeldBytes held = {row.begin_ns, row.end_ns, static_cast<int64_t>(row.bytes)};
  if (site.use == Use::kBacking)
    rows.backing.emplace_back(row.segment, held);
  else if (site.use == Use::kOther)
    rows.others.emplace_back(row.segment, held);
  else if (row.segment.value == 0 || row.bytes == 0 || row.bytes > kLargestBlockBytes)
    return;
  else if (row.begin_ns != row.alloc_ns)
    rows.later.push_back(row);
  else
    rows.blocks.push_back(BlockOf(row));
}

void RequestReader::AddCounters() {
  for (const tables::StepRow& step : tables_.steps) {
    const tables::CounterRow& counter = tables::RowOf(tables_.counters, step.counter);
    const tables::SiteRow& site = tables::RowOf(tables_.sites, counter.site);
    const auto found = std::lower_bound(
        accounts_.begin(), accounts_.end(), site.account,
        [](const AccountRows& rows, tables::AccountId account) { return rows.account < account; });
    if (counter.segment.value == 0 && found != accounts_.end() && found->account == site.account)
      found->others.emplace_back(tables::SegmentId(),
                                 HeldBytes{step.time_ns, INT64_MAX, step.bytes});
  }
}

void RequestReader::AddReserved(const AccountRows& rows,
                                int64_t end_ns,
                                RecordedRequests* out,
                                std::vector<RecordedStep>* steps) const {
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
    steps->push_back({time_ns, RecordedStep::Kind::kReserved, 0, reserved});
    if (bytes < 0)
      steps->push_back({time_ns, RecordedStep::Kind::kEmpty, 0, reserved});
  }
}

RecordedRequests RequestReader::Make(AccountRows* rows) const {
  RecordedRequests out;
  out.account = rows->account;
  out.segments.resize(tables_.segments.size());
  const tables::AccountRow& row = tables::RowOf(tables_.accounts, rows->account);
  const tables::ProcessRow& process = tables::RowOf(tables_.processes, row.process);
  const int64_t end_ns =
      process.exit_ns != 0 ? process.exit_ns : std::max(row.end_ns, process.end_ns);
  JoinLater(rows);
  out.blocks = std::move(rows->blocks);
  for (RecordedBlock& block : out.blocks) {
    if (block.segment.value >= tables_.segments.size())
      block.segment = {};
    const tables::SegmentRow& segment = tables_.segments[block.segment.value];
    out.segments[block.segment.value] = {segment.address, segment.size_bytes, false};
  }
  std::vector<RecordedStep> reserved;
  AddReserved(*rows, end_ns, &out, &reserved);
  // Of one instant, what the driver gave comes before the block that it was given for.
  out.steps = Merged(Merged(FreesOf(out.blocks, end_ns), reserved), AllocationsOf(out.blocks));
  std::vector<HeldBytes> others;
  for (const auto& [segment, held] : rows->others) {
    // Before its first block, a segment is memory like any other.
    if (segment.value >= out.segments.size() || out.segments[segment.value].bytes == 0)
      others.push_back(held);
  }
  out.other_bytes = HighestOf(ChangesOf(others), end_ns);
  std::erase_if(out.steps, [&](const RecordedStep& step) { return step.time_ns >= end_ns; });
  return out;
}

util::Result<std::vector<RecordedRequests>> RequestReader::Read() {
  FindUses();
  tables::AllocationFrame frame;
  for (size_t i = 0; i < recording_.frame_count(); ++i) {
    VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(i, tables::kAllColumns, &frame));
    for (size_t row = 0; row < frame.rows; ++row)
      AddRow(tables::RowOf(frame, row));
  }
  AddCounters();
  std::vector<RecordedRequests> all;
  for (AccountRows& rows : accounts_) {
    if (!rows.blocks.empty() || !rows.later.empty())
      all.push_back(Make(&rows));
  }
  return all;
}

}  // namespace

util::Result<std::vector<RecordedRequests>> ReadRequests(const tables::Recording& recording) {
  return RequestReader(recording).Read();
}

}  // namespace vramscope::query
