// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/compiler.h"
#include "format/records.h"
#include "probe/hooks/nvtx/nvtx.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"

namespace vramscope::probe::nvtx {
namespace {

// The fields of a payload, by NCCL's names for them.
enum Field : size_t { kId, kRanks, kRank, kDevice, kFields };
constexpr const char* kFieldNames[kFields] = {"NCCL communicator ID", "No. of ranks", "Rank",
                                              "CUDA device"};
constexpr uint64_t kFieldTypes[kFields] = {kEntryUint64, kEntryInt, kEntryInt, kEntryInt};
constexpr size_t kFieldSizes[kFields] = {sizeof(uint64_t), sizeof(int), sizeof(int), sizeof(int)};

// A shape is the offset of each field plus 1, 0 if there is none, in one word: it is known whole
// or not at all.
constexpr unsigned kOffsetBits = 16;
constexpr uint64_t kLargestOffset = 4000;
constexpr size_t kLargestPayload = 4096;  // a size that is not said is the largest there is
static_assert(kFields * kOffsetBits <= 64);

constexpr size_t kSchemas = 64;
constexpr size_t kMostEntries = 16;
constexpr size_t kMostPayloads = 4;
constinit std::atomic<uint64_t> g_shapes[kSchemas]{};
constinit std::atomic<const void*> g_domain{nullptr};

struct Said {
  uint64_t id = 0;
  int32_t ranks = 0;
  int32_t rank = -1;
  int32_t device = -1;
};

// The thread's ranges that are open. Deeper ones are counted alone.
constexpr uint32_t kMostLevels = 4;
struct Level {
  uint64_t begin;
  uint64_t id;
  uint32_t memory_count;
};
struct Ranges {
  Level levels[kMostLevels];
  uint32_t depth;
  // ncclGroupEnd does the work that was requested since ncclGroupStart, and names nothing itself.
  uint32_t group_depth;
  uint64_t group_id;
  bool group_is_mixed;
};
constinit VRAMSCOPE_TLS Ranges t_ranges{};

bool Is(const char* name, size_t size_bytes, const char* text) {
  return size_bytes == std::strlen(text) && std::memcmp(name, text, size_bytes) == 0;
}

Said Read(const PayloadData* payloads, size_t count) {
  Said said;
  if (payloads == nullptr)
    return said;
  for (size_t i = 0; i < count && i < kMostPayloads; ++i) {
    const PayloadData& payload = payloads[i];
    const uint64_t index = payload.schema_id - kFirstStaticSchema;
    if (index >= kSchemas || payload.data == nullptr || payload.size > kLargestPayload)
      continue;
    const uint64_t shape = g_shapes[index].load(std::memory_order_acquire);
    const auto read = [&](Field field, void* to) {
      const uint64_t offset = (shape >> (field * kOffsetBits)) & ((1u << kOffsetBits) - 1);
      if (offset != 0 && offset - 1 <= payload.size &&
          payload.size - (offset - 1) >= kFieldSizes[field]) {
        std::memcpy(to, static_cast<const char*>(payload.data) + (offset - 1), kFieldSizes[field]);
      }
    };
    read(kId, &said.id);
    if (said.id == 0)
      continue;
    read(kRanks, &said.ranks);
    read(kRank, &said.rank);
    read(kDevice, &said.device);
    break;
  }
  return said;
}

Said Read(const EventAttributes* attributes) {
  if (attributes == nullptr || attributes->size < sizeof(EventAttributes) ||
      attributes->payload_type != kExtendedPayload || attributes->payload_count <= 0) {
    return {};
  }
  return Read(reinterpret_cast<const PayloadData*>(attributes->payload),
              static_cast<size_t>(attributes->payload_count));
}

// The communicator of a range that does not name one.
uint64_t OfGroup(Ranges& ranges, const char* name, size_t size_bytes) {
  if (Is(name, size_bytes, "ncclGroupStart")) {
    if (ranges.group_depth++ == 0) {
      ranges.group_id = 0;
      ranges.group_is_mixed = false;
    }
  } else if (Is(name, size_bytes, "ncclGroupEnd") && ranges.group_depth != 0) {
    --ranges.group_depth;
    return ranges.group_is_mixed ? 0 : ranges.group_id;
  }
  return 0;
}

}  // namespace

void NoteDomain(const void* domain, const char* name, size_t size_bytes) {
  if (domain == nullptr || !Is(name, size_bytes, "NCCL"))
    return;
  g_domain.store(domain, std::memory_order_relaxed);
  g_counts_driver_memory.store(true, std::memory_order_relaxed);
}

bool IsNccl(const void* domain) {
  return domain != nullptr && domain == g_domain.load(std::memory_order_relaxed);
}

void NoteSchema(const SchemaAttributes* schema) {
  if (schema == nullptr || (schema->field_mask & kSchemaNeeds) != kSchemaNeeds ||
      schema->schema_id - kFirstStaticSchema >= kSchemas || schema->entries == nullptr) {
    return;
  }
  uint64_t shape = 0;
  for (size_t i = 0; i < schema->entry_count && i < kMostEntries; ++i) {
    const SchemaEntry& entry = schema->entries[i];
    if (entry.name == nullptr || entry.flags != 0 || entry.offset > kLargestOffset ||
        (i != 0 && entry.offset == 0)) {
      continue;  // an offset that is not said is the first one's, or a matter of rules
    }
    for (size_t field = 0; field < kFields; ++field) {
      if (entry.type == kFieldTypes[field] && std::strcmp(entry.name, kFieldNames[field]) == 0)
        shape |= (entry.offset + 1) << (field * kOffsetBits);
    }
  }
  g_shapes[schema->schema_id - kFirstStaticSchema].store(shape, std::memory_order_release);
}

void BeginRange(const EventAttributes* attributes, const char* name, size_t size_bytes) {
  Ranges& ranges = t_ranges;
  const uint32_t depth = ranges.depth++;
  uint64_t id = Read(attributes).id;
  if (id == 0) {
    id = OfGroup(ranges, name, size_bytes);
  } else if (ranges.group_depth != 0) {
    ranges.group_is_mixed |= ranges.group_id != 0 && ranges.group_id != id;
    ranges.group_id = id;
  }
  if (depth < kMostLevels)
    ranges.levels[depth] = {Now(), id, g_driver_memory_count.load(std::memory_order_relaxed)};
}

void EndRange(const PayloadData* payloads, size_t count) {
  Ranges& ranges = t_ranges;
  if (ranges.depth == 0)
    return;
  const uint32_t depth = --ranges.depth;
  if (depth >= kMostLevels)
    return;
  const Level level = ranges.levels[depth];
  if (VRAMSCOPE_LIKELY(g_driver_memory_count.load(std::memory_order_relaxed) == level.memory_count))
    return;
  Said said = Read(payloads, count);
  if (said.id == 0)
    said.id = level.id;
  if (said.id == 0)
    return;
  if (RecordScope scope(Want::kAlways); scope) {
    const uint64_t time = Now();
    scope->Append(
        format::Communicator{.time = time,
                             .since = time - level.begin,
                             .communicator = said.id,
                             .ranks = static_cast<uint64_t>(said.ranks > 0 ? said.ranks : 0),
                             .rank = said.rank,
                             .device = said.device});
  }
}

}  // namespace vramscope::probe::nvtx
