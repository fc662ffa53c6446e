// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "format/enums.h"
#include "tables/ids.h"

// The content of a trace: events in time order over tables of names.
namespace vramscope::trace {

// Index 0 of every table means "none" (the empty string, no stack, ...), except for processes and
// devices, which count from 0.
using tables::FrameId;
using tables::StackId;
using tables::StringId;
using tables::ThreadId;
using ProcessId = util::StrongId<struct ProcessTag, uint16_t>;
using DeviceId = util::StrongId<struct DeviceTag, int16_t>;

inline constexpr ProcessId kNoProcess{0xffff};
inline constexpr DeviceId kNoDevice{-1};

// One struct for each event record of format/records.def, with the record's name: BlockAlloc,
// BlockFree, AllocatorTotals and so on. Ids are the trace's; times are in the context.
#define VRAMSCOPE_EVENTS_ONLY
#define VRAMSCOPE_RECORD(Name, id, doc) \
  struct Name {                         \
    static constexpr uint8_t kType = id;
#define VRAMSCOPE_ADDRESS(field) uint64_t field = 0;
#define VRAMSCOPE_UINT(field) uint64_t field = 0;
#define VRAMSCOPE_SINT(field) int64_t field = 0;
#define VRAMSCOPE_BYTES(field) StringId field{};
#define VRAMSCOPE_STRING(field) StringId field{};
#define VRAMSCOPE_PY_STACK(field) StackId field{};
#define VRAMSCOPE_NATIVE_STACK(field) StackId field{};
#define VRAMSCOPE_DEVICE(field) DeviceId field = kNoDevice;
#define VRAMSCOPE_ENUM(Enum, field) format::Enum field{};
#define VRAMSCOPE_SINCE(field)
#define VRAMSCOPE_END \
  }                   \
  ;
#include "format/records.def"

// When, where and in which scope an event happened.
struct EventContext {
  // Its place in the global order: the begin of the call if it frees memory, otherwise the end.
  // CLOCK_MONOTONIC nanoseconds.
  int64_t time_ns = 0;
  // The duration of the call: [begin_ns, end_ns]. Both equal time_ns if it is not a call.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  StringId scope;  // path of the program's own scopes around it, "outer/inner"
  ThreadId thread;
  // The record that it was made of: the stream, counted through all files, and the record's number
  // there.
  uint32_t record = 0;
  uint16_t source = 0;
  ProcessId process = kNoProcess;
  uint8_t type = 0;  // the record's
  // An allocation from the past of a ring: its surroundings are gone, and its PastOrigin record's
  // fields are copied here.
  bool has_origin = false;
  uint8_t origin_phase = 0;
  uint8_t origin_end = 0;
  StackId origin_forward;
};

// A context and what happened there. A reader asks for a type, or has Visit() choose by the type:
//
//   void On(const EventContext& at, const BlockAlloc& e);   for each type that matters to it
//   void Apply(const Event& event) { Visit(event, [&](const auto& e) { On(event, e); }); }
class Event : public EventContext {
 public:
  template <class Record>
  bool Is() const {
    return type == Record::kType;
  }
  template <class Record>
  const Record& As() const {
    return *std::launder(reinterpret_cast<const Record*>(record_));
  }
  template <class Record>
  Record& As() {
    return *std::launder(reinterpret_cast<Record*>(record_));
  }
  template <class Record>
  Record& Become(const Record& said = {}) {
    static_assert(std::is_trivially_copyable_v<Record> && std::is_trivially_destructible_v<Record>);
    type = Record::kType;
    return *std::construct_at(reinterpret_cast<Record*>(record_), said);
  }

 private:
  static constexpr size_t kLargest = std::max({
#define VRAMSCOPE_EVENTS_ONLY
#define VRAMSCOPE_RECORD(Name, id, doc) sizeof(Name),
#include "format/records.def"
  });

  alignas(uint64_t) unsigned char record_[kLargest];
};
static_assert(sizeof(Event) <= 120, "a few million of them a second");

// function(what happened), by its type.
template <class Function>
decltype(auto) Visit(const Event& event, Function&& function) {
  switch (event.type) {
#define VRAMSCOPE_EVENTS_ONLY
#define VRAMSCOPE_RECORD(Name, id, doc) \
  case id:                              \
    return function(event.As<Name>());
#include "format/records.def"
    default:
      std::abort();  // it did not become anything
  }
}

// The autograd node that BlockAlloc::sequence encodes.
struct AutogradNode {
  enum class Kind : uint8_t {
    kNone,
    kForward,   // the node that the thread will make next
    kBackward,  // the node that is being evaluated
  };
  Kind kind = Kind::kNone;
  uint64_t number = 0;

  static constexpr AutogradNode Of(uint64_t sequence) {
    if (sequence == 0)
      return {};
    return {(sequence & 1) != 0 ? Kind::kForward : Kind::kBackward, (sequence - 1) >> 1};
  }
};

}  // namespace vramscope::trace
