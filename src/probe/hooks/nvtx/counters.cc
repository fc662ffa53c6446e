// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "format/enums.h"
#include "format/records.h"
#include "probe/hooks/nvtx/nvtx.h"
#include "probe/session/scopes.h"
#include "probe/session/session.h"
#include "probe/session/source.h"
#include "probe/session/stream.h"
#include "probe/session/tables.h"

namespace vramscope::probe::nvtx {
namespace {

// A scope or a counter, by its id in its domain. Kept until the process ends.
struct Registration {
  std::atomic<uint64_t> key;            // 0: free
  std::atomic<const Registered*> path;  // null until the rest is complete
  int32_t device;                       // CUDA ordinal of its scope, or format::kNoDevice
};

// Registrations by key, in a fixed amount of memory that is untouched until used. Lock-free.
struct Registrations {
  static constexpr uint32_t kCapacity = 1 << 13;
  static constexpr uint32_t kMost = kCapacity / 4 * 3;

  // The place of a key, a new one if there is none; kCapacity if the table is full.
  uint32_t Add(uint64_t key) {
    for (uint32_t at = Slot(key);; at = (at + 1) % kCapacity) {
      uint64_t found = places[at].key.load(std::memory_order_relaxed);
      if (found == 0) {
        if (size.load(std::memory_order_relaxed) >= kMost)
          return kCapacity;
        if (places[at].key.compare_exchange_strong(found, key, std::memory_order_relaxed)) {
          size.fetch_add(1, std::memory_order_relaxed);
          return at;
        }
      }
      if (found == key)
        return at;
    }
  }
  // kCapacity if there is none, or not yet.
  uint32_t Find(uint64_t key) const {
    for (uint32_t at = Slot(key);; at = (at + 1) % kCapacity) {
      const uint64_t found = places[at].key.load(std::memory_order_relaxed);
      if (found == key)
        return places[at].path.load(std::memory_order_acquire) != nullptr ? at : kCapacity;
      if (found == 0)
        return kCapacity;
    }
  }
  static uint32_t Slot(uint64_t key) { return static_cast<uint32_t>(key >> 32) % kCapacity; }

  std::atomic<uint32_t> size;
  Registration places[kCapacity];
};

struct Counter {
  uint64_t numerator, denominator;  // bytes of a unit
  bool is_delta;
  std::atomic<int64_t> bytes;
  std::atomic<bool> is_written;  // some value is in the file
  std::atomic<bool> waits;       // `bytes` is not yet
  std::atomic<uint64_t> due;     // ticks
};

// Each value has its turn, and there are a thousand in advance. So a counter that changes without
// end makes about a thousand records a second, and only such a counter leaves values out.
constexpr uint64_t kTurnTicks = uint64_t{1} << 21;
constexpr uint64_t kTurnsInAdvance = 1000;

constinit Registrations g_scopes{};
constinit Registrations g_counters{};
constinit Counter g_values[Registrations::kCapacity]{};
constinit std::atomic<uint64_t> g_next_id{kFirstDynamicId};

uint64_t KeyOf(const void* domain, uint64_t id) {
  const uint64_t key = HashMix(HashMix(1, reinterpret_cast<uintptr_t>(domain)), id);
  return key != 0 ? key : 1;
}

// Static ids are the program's; what is registered again under one stays as it was.
uint64_t IdFor(uint64_t wanted) {
  return wanted != kNoId ? wanted : g_next_id.fetch_add(1, std::memory_order_relaxed);
}

// The path of a registered scope, or the domain's name; null for the default domain.
const Registered* EnclosingPath(const void* domain, const Registration* scope) {
  if (scope != nullptr)
    return scope->path.load(std::memory_order_relaxed);
  return FromHandle(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(domain) & ~1ull));
}

const Registration* FindScope(const void* domain, uint64_t id) {
  const uint32_t at = g_scopes.Find(KeyOf(domain, id));
  return at != Registrations::kCapacity ? &g_scopes.places[at] : nullptr;
}

// Null if there is no room. A path that is too long loses its middle.
const Registered* Join(const Registered* outer, const char* name) {
  char path[kMaxScopeNameBytes];
  const size_t name_bytes = CutText(name, sizeof path - 1);
  size_t end = 0;
  if (outer != nullptr && outer->size_bytes != 0) {
    end = CutText(outer->text, sizeof path - 1 - name_bytes);
    std::memcpy(path, outer->text, end);
    if (name_bytes != 0)
      path[end++] = '/';
  }
  std::memcpy(path + end, name, name_bytes);
  return Register(path, end + name_bytes);
}

// Of a scope "...GPU[CUDAID:1]...".
int32_t DeviceIn(const char* path, const Registration* outer) {
  constexpr char kDevice[] = "GPU[CUDAID:";
  constexpr int kMostDevices = 1024;
  if (const char* const at = std::strstr(path, kDevice)) {
    int32_t device = 0;
    const char* digit = at + sizeof kDevice - 1;
    for (; *digit >= '0' && *digit <= '9' && device < kMostDevices; ++digit)
      device = device * 10 + (*digit - '0');
    if (digit != at + sizeof kDevice - 1 && *digit == ']' && device < kMostDevices)
      return device;
  }
  return outer != nullptr ? outer->device : format::kNoDevice;
}

bool EqualsIgnoringCase(const char* text, const char* lower_case) {
  for (; *text != '\0' && *lower_case != '\0'; ++text, ++lower_case) {
    if ((*text >= 'A' && *text <= 'Z' ? *text + ('a' - 'A') : *text) != *lower_case)
      return false;
  }
  return *text == *lower_case;
}

// Bytes of a unit; 0: it is something else.
uint64_t UnitBytes(const char* unit) {
  struct Unit {
    const char* name;
    uint64_t bytes;
  };
  constexpr Unit kUnits[] = {
      {"bytes", 1},     {"byte", 1},         {"b", 1},         {"kb", 1000},
      {"kib", 1 << 10}, {"mb", 1000 * 1000}, {"mib", 1 << 20}, {"gb", 1000 * 1000 * 1000},
      {"gib", 1 << 30}};
  for (const Unit& known : kUnits) {
    if (EqualsIgnoringCase(unit, known.name))
      return known.bytes;
  }
  return 0;
}

// Without a unit, a name that says "bytes", and not how many a second.
bool SaysBytes(const char* name) {
  return (std::strstr(name, "bytes") != nullptr || std::strstr(name, "Bytes") != nullptr) &&
         std::strstr(name, "/s") == nullptr && std::strstr(name, "per") == nullptr;
}

const CounterSemantics* SemanticsOf(const CounterAttributes& attributes) {
  constexpr int kMostExtensions = 8;
  const SemanticsHeader* header = attributes.semantics;
  for (int i = 0; i < kMostExtensions && header != nullptr; ++i, header = header->next) {
    if (header->id == kCounterSemanticsId && header->version == kCounterSemanticsVersion &&
        header->size >= sizeof(CounterSemantics))
      return reinterpret_cast<const CounterSemantics*>(header);
  }
  return nullptr;
}

// What its values mean; false if they are not bytes. Velox-cuDF says the unit "bytes".
bool ReadMeaning(const CounterAttributes& attributes, Counter* counter) {
  uint64_t bytes = 1;
  counter->denominator = 1;
  counter->is_delta = false;
  const CounterSemantics* const semantics = SemanticsOf(attributes);
  const bool has_unit =
      semantics != nullptr && semantics->unit != nullptr && *semantics->unit != '\0';
  if (semantics != nullptr) {
    if ((semantics->flags & kNormalize) != 0 ||
        (semantics->flags & kValueType) == kDeltaSinceStart) {
      return false;
    }
    counter->is_delta = (semantics->flags & kValueType) == kDelta;
    counter->denominator = std::max<uint64_t>(semantics->scale_denominator, 1);
    if (has_unit)
      bytes = UnitBytes(semantics->unit);
    if (__builtin_mul_overflow(bytes, std::max<uint64_t>(semantics->scale_numerator, 1), &bytes))
      return false;
  }
  counter->numerator = bytes;
  return has_unit ? bytes != 0 : SaysBytes(attributes.name);
}

// Ticks are of the recording's clock, so there must be one.
bool TakeTurn(Counter* counter, uint64_t now) {
  const uint64_t due = counter->due.load(std::memory_order_relaxed);
  if (due > now && due - now > kTurnsInAdvance * kTurnTicks)
    return false;
  counter->due.store(std::max(due, now) + kTurnTicks, std::memory_order_relaxed);
  return true;
}

void WriteValue(uint32_t at, bool is_last = false) {
  Counter& counter = g_values[at];
  const Registration& place = g_counters.places[at];
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  const uint64_t now = Now();
  const bool has_turn = is_last || TakeTurn(&counter, now);
  counter.waits.store(!has_turn, std::memory_order_relaxed);
  counter.is_written.store(true, std::memory_order_relaxed);
  if (!has_turn)
    return;
  const uint32_t name = scope->InternLiteral(place.path.load(std::memory_order_relaxed)->text);
  scope->Append(format::NvtxCounter{.time = now,
                                    .counter = at,
                                    .device = place.device,
                                    .name = name,
                                    .bytes = counter.bytes.load(std::memory_order_relaxed)});
}

void TakeBytes(uint32_t at, int64_t bytes) {
  Counter& counter = g_values[at];
  if (counter.is_delta) {
    counter.bytes.fetch_add(bytes, std::memory_order_relaxed);
  } else if (counter.bytes.exchange(bytes, std::memory_order_relaxed) == bytes &&
             counter.is_written.load(std::memory_order_relaxed) &&
             !counter.waits.load(std::memory_order_relaxed)) {
    return;
  }
  WriteValue(at);
}

// The last values of counters that changed too often.
void WriteWaiting() {
  if (g_counters.size.load(std::memory_order_relaxed) == 0)
    return;
  for (uint32_t at = 0; at < Registrations::kCapacity; ++at) {
    if (g_values[at].waits.load(std::memory_order_relaxed))
      WriteValue(at, true);
  }
}

// Another file has none of the values.
void ForgetWritten() {
  if (g_counters.size.load(std::memory_order_relaxed) == 0)
    return;
  for (Counter& counter : g_values) {
    if (counter.is_written.load(std::memory_order_relaxed)) {
      counter.is_written.store(false, std::memory_order_relaxed);
      counter.waits.store(false, std::memory_order_relaxed);
    }
  }
}

}  // namespace

uint64_t RegisterScope(const void* domain, const ScopeAttributes* scope) {
  if (scope == nullptr || scope->size < sizeof(ScopeAttributes))
    return kNoId;
  const Registration* const parent = FindScope(domain, scope->parent);
  const char* path = scope->path != nullptr ? scope->path : "";
  while (*path == '/')
    ++path;
  const Registered* const joined = Join(EnclosingPath(domain, parent), path);
  const uint64_t id = IdFor(scope->id);
  const uint32_t at =
      joined != nullptr ? g_scopes.Add(KeyOf(domain, id)) : Registrations::kCapacity;
  if (at == Registrations::kCapacity) {
    CountLoss(format::Loss::kNvtxCounters);
    return kNoId;
  }
  Registration& place = g_scopes.places[at];
  if (place.path.load(std::memory_order_relaxed) == nullptr) {
    place.device = DeviceIn(path, parent);
    place.path.store(joined, std::memory_order_release);
  }
  return id;
}

uint64_t RegisterCounter(const void* domain, const CounterAttributes* attributes) {
  Counter meaning{};
  if (attributes == nullptr || attributes->size < sizeof(CounterAttributes) ||
      attributes->name == nullptr || *attributes->name == '\0' ||
      !ReadMeaning(*attributes, &meaning)) {
    return kNoId;
  }
  const Registration* const scope = FindScope(domain, attributes->scope_id);
  const Registered* const path = Join(EnclosingPath(domain, scope), attributes->name);
  const uint64_t id = IdFor(attributes->id);
  const uint32_t at =
      path != nullptr ? g_counters.Add(KeyOf(domain, id)) : Registrations::kCapacity;
  if (at == Registrations::kCapacity) {
    CountLoss(format::Loss::kNvtxCounters);
    return kNoId;
  }
  Registration& place = g_counters.places[at];
  if (place.path.load(std::memory_order_relaxed) == nullptr) {
    Counter& counter = g_values[at];
    counter.numerator = meaning.numerator;
    counter.denominator = meaning.denominator;
    counter.is_delta = meaning.is_delta;
    place.device = scope != nullptr ? scope->device : format::kNoDevice;
    place.path.store(path, std::memory_order_release);
  }
  return id;
}

void SampleInt64(const void* domain, uint64_t id, int64_t value) {
  const uint32_t at = g_counters.Find(KeyOf(domain, id));
  if (at == Registrations::kCapacity)
    return;
  const Counter& counter = g_values[at];
  if (counter.numerator != counter.denominator) {
    SampleFloat64(domain, id, static_cast<double>(value));
    return;
  }
  TakeBytes(at, value);
}

void SampleFloat64(const void* domain, uint64_t id, double value) {
  constexpr double kMostBytes = 9.2e18;
  const uint32_t at = g_counters.Find(KeyOf(domain, id));
  if (at == Registrations::kCapacity)
    return;
  const Counter& counter = g_values[at];
  const double bytes =
      value * static_cast<double>(counter.numerator) / static_cast<double>(counter.denominator);
  if (bytes > -kMostBytes && bytes < kMostBytes)  // and not NaN
    TakeBytes(at, static_cast<int64_t>(bytes + (bytes < 0 ? -0.5 : 0.5)));
}

// A sample that is unchanged or could not be taken is none.
void SampleNoValue(const void* domain, uint64_t id, uint8_t reason) {
  const uint32_t at = g_counters.Find(KeyOf(domain, id));
  if (at != Registrations::kCapacity && reason == kSampleZero && !g_values[at].is_delta)
    TakeBytes(at, 0);
}

}  // namespace vramscope::probe::nvtx

namespace vramscope::probe {

using nvtx::ForgetWritten;
using nvtx::WriteWaiting;

const Source kNvtxSource = {.forget = ForgetWritten, .forked = ForgetWritten, .end = WriteWaiting};

}  // namespace vramscope::probe
