// SPDX-License-Identifier: Apache-2.0
#include "query/dimensions/texts.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "tables/row_of.h"
#include "util/number_text.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;

const char kNone[] = "(none)";
// There is one, and the recording does not say which.
const char kNotRecorded[] = "(not recorded)";
// Numbers beside those of tables: rows that are named by their part, and by their owner.
constexpr uint64_t kByPart = uint64_t{1} << 32;
constexpr uint64_t kFreeOf = uint64_t{1} << 33;
constexpr uint64_t kUnknown = uint64_t{1} << 34;
constexpr uint64_t kDriverOwned = uint64_t{1} << 35;
constexpr uint64_t kByTag = uint64_t{1} << 36;
const char kDriverOwner[] = "driver-owned";

// Sizes in steps of 16, from 1 KiB on; 0 is "no size of its own".
const char* const kSizeClasses[] = {
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

const char* const kLifetimes[] = {
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

// Of iterations: 0 none, 1 before the first, 2 after the last, then their numbers.
constexpr uint64_t kFirstIteration = 3;

// What is free in an allocator's segments has no line, stack, thread or call of its own.
bool IsFreeOf(Dimension dimension, const tables::SiteRow& site) {
  switch (dimension) {
    case Dimension::kLine:
    case Dimension::kPython:
    case Dimension::kNative:
    case Dimension::kThread:
    case Dimension::kApi:
      return IsFree(site.part);
    default:
      return false;
  }
}

// Free bytes are those of the allocator that keeps them.
tables::StringId AllocatorOf(const tables::SiteRow& site) {
  return IsFree(site.part) ? site.owner : site.allocator;
}

// The unused rest of the driver's 2 MiB pages is nobody's use: rounding, as its category says.
bool IsSlabSlack(const tables::SiteRow& site) {
  return site.part == Part::kSlabSlack;
}

// The driver's own memory has one owner, be it a process's or of none.
bool IsDriverOwned(const tables::SiteRow& site) {
  return format::PartCategory(site.part) == Category::kDriver;
}

std::string DeviceText(const tables::DeviceRow& device) {
  const auto kind = device.kind;
  return kind == tables::DeviceKind::kGpu ? "GPU " + std::to_string(device.index)
                                          : DeviceKindName(kind);
}

}  // namespace

DimensionTexts::DimensionTexts(const tables::Recording& recording, std::vector<std::string> own)
    : recording_(recording),
      iterations_(recording.tables()),
      user_frames_(recording, std::move(own)),
      stacks_(recording) {}

const tables::AccountRow& DimensionTexts::AccountOf(const tables::SiteRow& site) const {
  return RowOf(recording_.tables().accounts, site.account);
}

bool DimensionTexts::IsNeverFreed(const tables::SiteRow& site,
                                  const tables::AllocationRow& row) const {
  return row.end_ns >= AccountOf(site).end_ns;
}

bool DimensionTexts::IsOfRows(Dimension dimension) {
  return dimension == Dimension::kIteration || dimension == Dimension::kSizeClass ||
         dimension == Dimension::kLifetime;
}

uint64_t DimensionTexts::Number(Dimension dimension,
                                const tables::SiteRow& site,
                                const tables::AllocationRow* row) const {
  if (IsFreeOf(dimension, site))
    return kFreeOf | site.owner.value;
  switch (dimension) {
    case Dimension::kHost:
      return RowOf(recording_.tables().devices, AccountOf(site).device).host.value;
    case Dimension::kDevice:
      return AccountOf(site).device.value;
    case Dimension::kProcess:
    case Dimension::kRank:
      return AccountOf(site).process.value;
    case Dimension::kThread:
      return site.thread.value;
    case Dimension::kStream:
      // Of what a caching allocator cuts up only imports have streams.
      return site.stream != 0 || AllocatorOf(site).value == 0 ? site.stream : kUnknown;
    case Dimension::kOwner:
      if (IsDriverOwned(site))
        return kDriverOwned;
      // Rows without an owner are named by what they are.
      return site.owner.value != 0 && !IsSlabSlack(site) ? site.owner.value
                                                         : kByPart | tables::ToWord(site.part);
    case Dimension::kAllocator:
      return AllocatorOf(site).value;
    case Dimension::kApi:
      return IsBlock(site) ? kByPart : site.api.value;
    case Dimension::kCategory:
      return tables::ToWord(site.category);
    case Dimension::kModule:
      return site.module.value;
    case Dimension::kClass:
      return site.module_class.value;
    case Dimension::kParameter:
      return site.parameter.value;
    case Dimension::kPhase:
      return tables::ToWord(site.phase);
    case Dimension::kLine: {
      const tables::FrameId line = LineOf(site);
      return line.value == 0 && site.tag.value != 0 ? kByTag | site.tag.value : line.value;
    }
    case Dimension::kPython:
      return site.stack.value != 0 ? site.stack.value : site.forward_stack.value;
    case Dimension::kNative:
      return site.native_stack.value;
    case Dimension::kTag:
      return site.tag.value;
    case Dimension::kCommunicator:
      return site.communicator.value;
    case Dimension::kIteration: {
      const ProcessIterations& iterations = iterations_.Of(AccountOf(site).process);
      if (row == nullptr || row->end_ns == 0 || iterations.empty())
        return 0;
      const int64_t number = iterations.NumberAt(row->alloc_ns);
      if (number < 0)
        return 1;
      return number >= iterations.count() ? 2 : kFirstIteration + static_cast<uint64_t>(number);
    }
    case Dimension::kSizeClass:
      if (row == nullptr || format::IsSlack(site.part))
        return 0;
      return SizeClass(row->bytes - std::min(row->bytes, row->rounding_bytes));
    case Dimension::kLifetime:
      if (row == nullptr || row->end_ns == 0 || format::IsSlack(site.part))
        return 0;
      return IsNeverFreed(site, *row) ? kNeverFreed : LifetimeClass(row->alloc_ns, row->end_ns);
  }
  return 0;
}

std::string DimensionTexts::StackText(tables::StackId stack) const {
  // Outermost first, as collapsed stacks are written.
  std::string text;
  for (const std::string& frame : stacks_.Texts(stack))
    text.append(text.empty() ? "" : ";").append(frame);
  return text;
}

std::string DimensionTexts::Of(Dimension dimension,
                               const tables::SiteRow& site,
                               const tables::AllocationRow* row) const {
  const tables::Tables& tables = recording_.tables();
  const uint64_t number = Number(dimension, site, row);
  const auto text_of = [&](tables::StringId id) {
    return id.value == 0 ? std::string(kNone) : std::string(recording_.string(id));
  };
  if (IsFreeOf(dimension, site)) {
    const std::string_view owner = recording_.string(site.owner);
    return owner.empty() ? "(free in segments)" : "(free in " + std::string(owner) + "'s segments)";
  }
  switch (dimension) {
    case Dimension::kHost: {
      const tables::StringId name = RowOf(tables.hosts, number).name;
      return name.value == 0 ? kNotRecorded : std::string(recording_.string(name));
    }
    case Dimension::kDevice:
      return number == 0 ? kNone : DeviceText(RowOf(tables.devices, AccountOf(site).device));
    case Dimension::kProcess:
      return number == 0 ? kNone
                         : std::to_string(RowOf(tables.processes, AccountOf(site).process).pid);
    case Dimension::kRank: {
      const int32_t rank = RowOf(tables.processes, AccountOf(site).process).rank;
      return number == 0 || rank < 0 ? kNone : std::to_string(rank);
    }
    case Dimension::kThread: {
      if (number == 0)
        return kNone;
      const tables::ThreadRow& thread = RowOf(tables.threads, site.thread);
      const std::string tid = std::to_string(thread.tid);
      const std::string name(recording_.string(thread.name));
      return name.empty() ? tid : name + " (" + tid + ")";
    }
    case Dimension::kStream:
      if (number == kUnknown)
        return kNotRecorded;
      return number == 0 ? kNone : util::HexText(number - 1);
    case Dimension::kOwner:
      if (number == kDriverOwned)
        return kDriverOwner;
      if (IsSlabSlack(site))
        return format::CategoryName(Category::kRounding);
      return site.owner.value != 0 ? text_of(site.owner) : format::PartName(site.part);
    case Dimension::kAllocator:
      return text_of(AllocatorOf(site));
    case Dimension::kApi:
      return IsBlock(site) ? "caching allocator" : text_of(site.api);
    case Dimension::kCategory:
      return format::CategoryName(static_cast<Category>(number));
    case Dimension::kModule:
      return text_of(site.module);
    case Dimension::kClass:
      return text_of(site.module_class);
    case Dimension::kParameter:
      return text_of(site.parameter);
    case Dimension::kPhase:
      return format::PhaseName(static_cast<format::Phase>(number));
    case Dimension::kIteration:
      if (number == 0)
        return kNone;
      if (number < kFirstIteration)
        return number == 1 ? "(before the first)" : "(after the last)";
      return std::to_string(number - kFirstIteration);
    case Dimension::kLine:
      if ((number & kByTag) != 0)
        return "(no stack: " + text_of(site.tag) + ")";
      return FormatFrame(recording_, tables::FrameId{static_cast<uint32_t>(number)});
    case Dimension::kPython:
    case Dimension::kNative:
      return number == 0 ? "(no stack)" : StackText(tables::StackId{static_cast<uint32_t>(number)});
    case Dimension::kTag:
      return text_of(site.tag);
    case Dimension::kCommunicator:
      return text_of(site.communicator);
    case Dimension::kSizeClass:
      return kSizeClasses[number];
    case Dimension::kLifetime:
      return kLifetimes[number];
  }
  return kNone;
}

bool DimensionTexts::HasName(Dimension dimension,
                             const tables::SiteRow& site,
                             const tables::AllocationRow* row) const {
  const uint64_t number = Number(dimension, site, row);
  switch (dimension) {
    case Dimension::kHost:
    case Dimension::kOwner:
    case Dimension::kCategory:
      return true;
    case Dimension::kRank:
      return number != 0 && RowOf(recording_.tables().processes, AccountOf(site).process).rank >= 0;
    case Dimension::kLine:
      return number != 0 && (number & kByTag) == 0;
    default:
      return number != 0;
  }
}

std::string DimensionTexts::NameOf(Dimension dimension,
                                   const tables::SiteRow& site,
                                   const tables::AllocationRow* row) const {
  return HasName(dimension, site, row) ? Of(dimension, site, row) : std::string();
}

// What PyTorch gave to the program stands under its category where that is known.
std::vector<std::string> DimensionTexts::TreePath(const tables::SiteRow& site) const {
  std::vector<std::string> levels;
  if (IsSlabSlack(site))
    return {format::CategoryName(Category::kRounding)};
  const std::string_view owner = recording_.string(site.owner);
  const auto part = site.part;
  const auto category = site.category;
  if (IsDriverOwned(site))
    levels.emplace_back(kDriverOwner);
  else if (!owner.empty())
    levels.emplace_back(owner);
  if (site.stands_for.value != 0) {
    const tables::DeviceRow& device = recording_.tables().devices[site.stands_for.value];
    levels.push_back("in place of " + DeviceMark(device.kind, device.index));
  }
  if (site.backing != 0)
    levels.emplace_back("segment");
  else if (owner == "PyTorch" && part == Part::kAllocated && category != Category::kUnknown)
    levels.emplace_back(format::CategoryName(category));
  else
    levels.emplace_back(format::PartName(part));
  if (site.trigger.value != 0)
    levels.emplace_back(recording_.string(site.trigger));
  return levels;
}

}  // namespace vramscope::query
