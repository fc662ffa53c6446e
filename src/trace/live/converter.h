// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "format/decoder.h"
#include "trace/event.h"
#include "trace/file/live_file.h"

namespace vramscope::trace {

// Memory that a call gives back is free when the call begins.
template <class Record>
inline constexpr bool kGivesBack =
    std::is_same_v<Record, Free> || std::is_same_v<Record, HandleRelease> ||
    std::is_same_v<Record, Unmap> || std::is_same_v<Record, Unreserve> ||
    std::is_same_v<Record, PoolDestroy> || std::is_same_v<Record, ContextDestroy>;

// How records become events: the one place that knows both. `Pass` (the first pass over a stream or
// a later one) derives from it and answers what ids and clocks mean:
//
//   int64_t   Ns(uint64_t ticks)
//   StringId  String(uint64_t local_id)           StringId Text(format::Bytes)
//   StackId   Python(uint64_t local_id)           StackId  Native(uint64_t local_id)
//   DeviceId  Device(int64_t local)               ThreadId thread()
//   ProcessId process()                           ProcessId ProcessOf(uint64_t pid, int64_t ns)
//   StringId  scope()                             the thread's scope now
//
// and takes the definitions: bool On(const format::String&, Event*) and so on. On() says whether
// the record made an event.
template <class Pass>
class Converter {
 public:
#define VRAMSCOPE_EVENTS_ONLY
#define VRAMSCOPE_RECORD(Name, id, doc)      \
  bool On(const format::Name& r, Event* e) { \
    Name& to = Begin<Name>(r, e);
#define VRAMSCOPE_ADDRESS(field) to.field = r.field;
#define VRAMSCOPE_UINT(field) to.field = r.field;
#define VRAMSCOPE_SINT(field) to.field = r.field;
#define VRAMSCOPE_BYTES(field) to.field = pass().Text(r.field);
#define VRAMSCOPE_STRING(field) to.field = pass().String(r.field);
#define VRAMSCOPE_PY_STACK(field) to.field = pass().Python(r.field);
#define VRAMSCOPE_NATIVE_STACK(field) to.field = pass().Native(r.field);
#define VRAMSCOPE_DEVICE(field) to.field = pass().Device(r.field);
#define VRAMSCOPE_PROCESS(field) \
  to.field = r.field;            \
  e->process = pass().ProcessOf(r.field, e->time_ns);
#define VRAMSCOPE_ENUM(Enum, field) to.field = static_cast<format::Enum>(Narrow(r.field));
#define VRAMSCOPE_SINCE(field) e->begin_ns = pass().Ns(r.time - std::min(r.field, r.time));
#define VRAMSCOPE_END \
  return true;        \
  }
#include "format/records.def"

  // For the code that opens the file.
  bool On(const format::PastStream&, Event*) {
    return false;
  }
  bool On(const format::PastRange&, Event*) {
    return false;
  }

 private:
  Pass& pass() {
    return static_cast<Pass&>(*this);
  }

  template <class To, class Record>
  To& Begin(const Record& r, Event* e) {
    To& to = e->Become<To>();  // in its place: a copy would wait for the original to be stored
    e->scope = pass().scope();
    e->thread = pass().thread();
    e->process = std::is_same_v<To, DeviceSample> ? kNoProcess : pass().process();
    e->has_origin = false;
    if constexpr (requires { r.time; }) {
      e->time_ns = e->begin_ns = e->end_ns = pass().Ns(r.time);
    } else {
      e->begin_ns = pass().Ns(r.begin);
      e->end_ns = pass().Ns(r.end);
      e->time_ns = kGivesBack<To> ? e->begin_ns : e->end_ns;
    }
    return to;
  }
  // Enumerations of newer writers that do not fit are "other": no known value is 255.
  static uint8_t Narrow(uint64_t value) {
    return value < 255 ? static_cast<uint8_t>(value) : 255;
  }
};

// Walks the records of one chunk.
class ChunkCursor {
 public:
  enum class Step { kEvent, kOther, kUnknown, kEnd, kDamaged };

  ChunkCursor() = default;
  ChunkCursor(const LiveFile& file, const ChunkRef& chunk)
      : ChunkCursor(file.Records(chunk), chunk.base_ticks, file.is_known_version()) {}
  // `knows_all`: no record can have fields that we do not know.
  ChunkCursor(std::span<const uint8_t> records, uint64_t base_ticks, bool knows_all)
      : in_(records.data()),
        end_(records.data() + records.size()),
        base_ticks_(base_ticks),
        knows_all_(knows_all),
        delta_{.time = base_ticks, .address = 0} {}

  // Hands the next record to `pass`. After kDamaged the rest of the chunk cannot be trusted.
  template <class Pass>
  Step Next(Pass& pass, Event* event) {
    if (in_ == end_)
      return Step::kEnd;
    format::RawRecord raw;
    if (!format::NextRecord(&in_, end_, &raw))
      return Step::kDamaged;
    switch (raw.type) {
#define VRAMSCOPE_RECORD(Name, id, doc)                          \
  case id: {                                                     \
    format::Name record;                                         \
    if (!format::Decode(raw, &delta_, &record, knows_all_))      \
      return Step::kDamaged;                                     \
    if (!CredibleTicks(delta_.time, base_ticks_))                \
      return Step::kDamaged;                                     \
    return pass.On(record, event) ? Step::kEvent : Step::kOther; \
  }
#include "format/records.def"
      default:
        return Step::kUnknown;
    }
  }

  // The chunk has so many bytes more. Not after damage.
  void Extend(size_t bytes) {
    end_ += in_ != nullptr ? bytes : 0;
  }
  size_t bytes_left() const {
    return static_cast<size_t>(end_ - in_);
  }

 private:
  const uint8_t* in_ = nullptr;
  const uint8_t* end_ = nullptr;
  uint64_t base_ticks_ = 0;
  bool knows_all_ = false;
  format::DeltaState delta_;
};

}  // namespace vramscope::trace
