// SPDX-License-Identifier: Apache-2.0
#include "query/dimensions/dimensions.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;
using tables::AllocationRow;
using tables::SiteRow;

constexpr char kNone[] = "(none)";
// The value exists, but the recording does not have it.
constexpr char kNotRecorded[] = "(not recorded)";
constexpr char kNoStack[] = "(no stack)";
constexpr char kDriverOwner[] = "driver-owned";

// Bits above the numbers of tables, for values that are not a row of one.
constexpr uint64_t kByPart = uint64_t{1} << 32;  // named by its part
constexpr uint64_t kUnknown = uint64_t{1} << 34;
constexpr uint64_t kDriverOwned = uint64_t{1} << 35;
constexpr uint64_t kByTag = uint64_t{1} << 36;  // a line that is not known, with its tag

// Sizes in steps of 16, from 1 KiB on; 0 is "no size of its own".
constexpr const char* kSizeClasses[] = {
    kNone,
    "below 1 KiB",
    "1 KiB to 16 KiB",
    "16 KiB to 256 KiB",
    "256 KiB to 4 MiB",
    "4 MiB to 64 MiB",
    "64 MiB to 1 GiB",
    "1 GiB and more",
};
uint64_t SizeClass(uint64_t bytes) {
  const auto bits = static_cast<uint64_t>(std::bit_width(bytes));
  return bits <= 10 ? 1 : std::min<uint64_t>(7, 2 + (bits - 11) / 4);
}

constexpr const char* kLifetimes[] = {
    kNone,         "below 1 ms",    "1 ms to 10 ms",  "10 ms to 100 ms", "0.1 s to 1 s",
    "1 s to 10 s", "10 s to 100 s", "100 s and more", "never freed",
};
constexpr uint64_t kNeverFreed = 8;
uint64_t LifetimeClass(int64_t alloc_ns, int64_t end_ns) {
  uint64_t index = 1;
  for (int64_t limit_ns = 1'000'000; index < 7 && end_ns - alloc_ns >= limit_ns; limit_ns *= 10)
    ++index;
  return index;
}

constexpr uint64_t kBeforeIterations = 1;
constexpr uint64_t kAfterIterations = 2;
constexpr uint64_t kFirstIteration = 3;

// Free bytes belong to the allocator that keeps them.
tables::StringId AllocatorOf(const SiteRow& site) {
  return IsFree(site.part) ? site.owner : site.allocator;
}

// The driver's own memory has one owner, in every process and outside of all.
bool IsDriverOwned(const SiteRow& site) {
  return format::PartCategory(site.part) == Category::kDriver;
}

using Values = DimensionValues;

uint64_t HostId(const Values& values, const SiteRow& site, const AllocationRow* /*row*/) {
  // Host 0 has no name, but is one.
  return 1 + uint64_t{RowOf(values.tables().devices, values.AccountOf(site).device).host.value};
}
std::string HostText(const Values& values, uint64_t id) {
  const tables::StringId name = RowOf(values.tables().hosts, id - 1).name;
  return name.value == 0 ? kNotRecorded : values.String(name);
}

uint64_t DeviceId(const Values& values, const SiteRow& site, const AllocationRow* /*row*/) {
  return values.AccountOf(site).device.value;
}
std::string DeviceText(const Values& values, uint64_t id) {
  const tables::DeviceRow& device = RowOf(values.tables().devices, id);
  return device.kind == tables::DeviceKind::kGpu ? "GPU " + std::to_string(device.index)
                                                 : DeviceKindName(device.kind);
}
// --where takes "1" and "gpu1", too.
std::vector<std::string> DeviceNames(const Values& values, uint64_t id) {
  const tables::DeviceRow& device = RowOf(values.tables().devices, id);
  return {std::to_string(device.index), DeviceMark(device.kind, device.index)};
}

uint64_t ProcessId(const Values& values, const SiteRow& site, const AllocationRow* /*row*/) {
  return values.AccountOf(site).process.value;
}
std::string ProcessText(const Values& values, uint64_t id) {
  return std::to_string(RowOf(values.tables().processes, id).pid);
}

uint64_t RankId(const Values& values, const SiteRow& site, const AllocationRow* /*row*/) {
  const tables::ProcessId process = values.AccountOf(site).process;
  const int32_t rank = RowOf(values.tables().processes, process).rank;
  return process.value == 0 || rank < 0 ? 0 : uint64_t{1} + static_cast<uint64_t>(rank);
}
std::string RankText(const Values& /*values*/, uint64_t id) {
  return std::to_string(id - 1);
}

// "main (4711)", or the number of a thread without a name.
std::string ThreadText(const Values& values, uint64_t id) {
  const tables::ThreadRow& thread = RowOf(values.tables().threads, id);
  const std::string tid = std::to_string(thread.tid);
  const std::string name = values.String(thread.name);
  return name.empty() ? tid : name + " (" + tid + ")";
}
std::vector<std::string> ThreadNames(const Values& values, uint64_t id) {
  if (id == 0 || id >= values.tables().threads.size())
    return {};
  const tables::ThreadRow& thread = values.tables().threads[id];
  return {std::to_string(thread.tid), values.String(thread.name)};
}

uint64_t StreamId(const Values& /*values*/, const SiteRow& site, const AllocationRow* /*row*/) {
  // A caching allocator's blocks have streams in imports only.
  return site.stream != 0 || AllocatorOf(site).value == 0 ? site.stream : kUnknown;
}
std::string StreamText(const Values& /*values*/, uint64_t id) {
  return id == kUnknown ? kNotRecorded : util::HexText(id - 1);
}

// Bytes without an owner are named by their part.
uint64_t OwnerId(const Values& /*values*/, const SiteRow& site, const AllocationRow* /*row*/) {
  if (IsDriverOwned(site))
    return kDriverOwned;
  return site.owner.value != 0 && site.part != Part::kSlabSlack
             ? site.owner.value
             : kByPart | tables::ToWord(site.part);
}
std::string OwnerText(const Values& values, uint64_t id) {
  if (id == kDriverOwned)
    return kDriverOwner;
  if ((id & kByPart) == 0)
    return values.String(tables::StringId{static_cast<uint32_t>(id)});
  const auto part = static_cast<Part>(id & ~kByPart);
  // The unused rest of the driver's 2 MiB pages has no user.
  return part == Part::kSlabSlack ? format::CategoryName(Category::kRounding)
                                  : format::PartName(part);
}

uint64_t AllocatorId(const Values& /*values*/, const SiteRow& site, const AllocationRow* /*row*/) {
  return AllocatorOf(site).value;
}

uint64_t ApiId(const Values& /*values*/, const SiteRow& site, const AllocationRow* /*row*/) {
  return IsBlock(site) ? kByPart : site.api.value;
}
std::string ApiText(const Values& values, uint64_t id) {
  return id == kByPart ? "caching allocator"
                       : values.String(tables::StringId{static_cast<uint32_t>(id)});
}

uint64_t CategoryId(const Values& /*values*/, const SiteRow& site, const AllocationRow* /*row*/) {
  return 1 + tables::ToWord(site.category);
}
std::string CategoryText(const Values& /*values*/, uint64_t id) {
  return format::CategoryName(static_cast<Category>(id - 1));
}

uint64_t PhaseId(const Values& /*values*/, const SiteRow& site, const AllocationRow* /*row*/) {
  // Both have one name.
  return tables::ToWord(site.phase == format::Phase::kLoadModel ? format::Phase::kLoad
                                                                : site.phase);
}
std::string PhaseText(const Values& /*values*/, uint64_t id) {
  return format::PhaseName(static_cast<format::Phase>(id));
}

uint64_t IterationId(const Values& values, const SiteRow& site, const AllocationRow* row) {
  const ProcessIterations& iterations = values.IterationsOf(site);
  if (row == nullptr || row->end_ns == 0 || iterations.empty())
    return 0;
  const int64_t number = iterations.NumberAt(row->alloc_ns);
  if (number < 0)
    return kBeforeIterations;
  return number >= iterations.count() ? kAfterIterations
                                      : kFirstIteration + static_cast<uint64_t>(number);
}
std::string IterationText(const Values& /*values*/, uint64_t id) {
  if (id >= kFirstIteration)
    return std::to_string(id - kFirstIteration);
  return id == kBeforeIterations ? "(before the first)" : "(after the last)";
}

uint64_t LineId(const Values& values, const SiteRow& site, const AllocationRow* /*row*/) {
  const tables::FrameId line = values.LineOf(site);
  return line.value == 0 && site.tag.value != 0 ? kByTag | site.tag.value : line.value;
}
std::string LineText(const Values& values, uint64_t id) {
  const auto row = static_cast<uint32_t>(id);
  return (id & kByTag) != 0 ? "(no stack: " + values.String(tables::StringId{row}) + ")"
                            : FormatFrame(values.recording(), tables::FrameId{row});
}

uint64_t PythonId(const Values& /*values*/, const SiteRow& site, const AllocationRow* /*row*/) {
  return site.stack.value != 0 ? site.stack.value : site.forward_stack.value;
}
std::string StackText(const Values& values, uint64_t id) {
  return values.StackText(tables::StackId{static_cast<uint32_t>(id)});
}

uint64_t SizeClassId(const Values& /*values*/, const SiteRow& site, const AllocationRow* row) {
  if (row == nullptr || format::IsSlack(site.part))
    return 0;
  return SizeClass(row->bytes - std::min(row->bytes, row->rounding_bytes));
}
std::string SizeClassText(const Values& /*values*/, uint64_t id) {
  return kSizeClasses[id];
}

uint64_t LifetimeId(const Values& values, const SiteRow& site, const AllocationRow* row) {
  if (row == nullptr || row->end_ns == 0 || format::IsSlack(site.part))
    return 0;
  return values.IsNeverFreed(site, *row) ? kNeverFreed : LifetimeClass(row->alloc_ns, row->end_ns);
}
std::string LifetimeText(const Values& /*values*/, uint64_t id) {
  return kLifetimes[id];
}

// The process that keeps it, and above that the one that made it.
uint64_t HolderId(const Values& values, const SiteRow& site, const AllocationRow* /*row*/) {
  return uint64_t{site.maker.value} << 32 | values.AccountOf(site).process.value;
}
std::string HolderText(const Values& values, uint64_t id) {
  const auto name = [&](uint64_t process) {
    const tables::ProcessRow& row = RowOf(values.tables().processes, process);
    return "pid " + std::to_string(row.pid) + " (" + values.String(row.command) + ")";
  };
  const std::string holder = name(id & UINT32_MAX);
  return id >> 32 == 0 ? holder : holder + " keeps memory of " + name(id >> 32);
}

template <auto Column>
uint64_t ColumnId(const Values& /*values*/, const SiteRow& site, const AllocationRow* /*row*/) {
  return (site.*Column).value;
}
std::string StringText(const Values& values, uint64_t id) {
  return values.String(tables::StringId{static_cast<uint32_t>(id)});
}

using D = Dimension;
using Match = DimensionDef::Match;
constexpr auto kDimensions = std::to_array<DimensionDef>({
    {D::kHost, "host", HostId, HostText},
    {.dimension = D::kDevice,
     .name = "device",
     .id = DeviceId,
     .text = DeviceText,
     .other_names = DeviceNames},
    {D::kProcess, "process", ProcessId, ProcessText},
    {D::kRank, "rank", RankId, RankText},
    {.dimension = D::kThread,
     .name = "thread",
     .id = ColumnId<&SiteRow::thread>,
     .text = ThreadText,
     .is_of_segment = true,
     .other_names = ThreadNames},
    {D::kStream, "stream", StreamId, StreamText},
    {D::kOwner, "owner", OwnerId, OwnerText},
    {D::kAllocator, "allocator", AllocatorId, StringText},
    {.dimension = D::kApi, .name = "api", .id = ApiId, .text = ApiText, .is_of_segment = true},
    {D::kCategory, "category", CategoryId, CategoryText},
    {.dimension = D::kModule,
     .name = "module",
     .id = ColumnId<&SiteRow::module>,
     .text = StringText,
     .match = Match::kBelow},
    {D::kClass, "class", ColumnId<&SiteRow::module_class>, StringText},
    {D::kParameter, "parameter", ColumnId<&SiteRow::parameter>, StringText},
    {D::kPhase, "phase", PhaseId, PhaseText, format::PhaseName(format::Phase::kNone)},
    {.dimension = D::kIteration,
     .name = "iteration",
     .id = IterationId,
     .text = IterationText,
     .of_rows = true},
    {.dimension = D::kLine,
     .name = "line",
     .id = LineId,
     .text = LineText,
     .none = kNoStack,
     .nameless_bits = kByTag,
     .match = Match::kContains,
     .is_of_segment = true},
    {.dimension = D::kPython,
     .name = "python",
     .id = PythonId,
     .text = StackText,
     .none = kNoStack,
     .match = Match::kContains,
     .is_of_segment = true},
    {.dimension = D::kNative,
     .name = "native",
     .id = ColumnId<&SiteRow::native_stack>,
     .text = StackText,
     .none = kNoStack,
     .match = Match::kContains,
     .is_of_segment = true},
    {D::kTag, "tag", ColumnId<&SiteRow::tag>, StringText},
    {D::kCommunicator, "communicator", ColumnId<&SiteRow::communicator>, StringText},
    {.dimension = D::kSizeClass,
     .name = "size_class",
     .id = SizeClassId,
     .text = SizeClassText,
     .of_rows = true},
    {.dimension = D::kLifetime,
     .name = "lifetime",
     .id = LifetimeId,
     .text = LifetimeText,
     .of_rows = true},
    {.dimension = D::kHolder,
     .name = "holder",
     .id = HolderId,
     .text = HolderText,
     .none = "(no recorded process)",
     .match = Match::kContains},
});

constexpr bool IsInOrder() {
  for (size_t i = 0; i < kDimensions.size(); ++i) {
    if (kDimensions[i].dimension != static_cast<Dimension>(i))
      return false;
  }
  return kDimensions.size() == kDimensionCount;
}
static_assert(IsInOrder(), "a row for each Dimension, in the order of the enum");

}  // namespace

const DimensionDef& DefOf(Dimension dimension) {
  return kDimensions[static_cast<size_t>(dimension)];
}

// Allocated bytes of PyTorch are listed by category if it is known.
std::vector<std::string> DimensionValues::TreePath(const SiteRow& site) const {
  std::vector<std::string> levels;
  if (site.part == Part::kSlabSlack)
    return {format::CategoryName(Category::kRounding)};
  if (IsDriverOwned(site))
    levels.emplace_back(kDriverOwner);
  else if (const std::string owner = String(site.owner); !owner.empty())
    levels.push_back(owner);
  if (site.stands_for.value != 0) {
    const tables::DeviceRow& device = tables().devices[site.stands_for.value];
    levels.push_back("in place of " + DeviceMark(device.kind, device.index));
  }
  if (site.backing != 0)
    levels.emplace_back("segment");
  else if (site.part == Part::kAllocated && site.category != Category::kUnknown &&
           IsOfPyTorch(site))
    levels.emplace_back(format::CategoryName(site.category));
  else
    levels.emplace_back(format::PartName(site.part));
  if (site.trigger.value != 0)
    levels.push_back(String(site.trigger));
  return levels;
}

}  // namespace vramscope::query
