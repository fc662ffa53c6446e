// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "format/decoder.h"
#include "trace/event.h"
#include "trace/live/live_file.h"

namespace vramscope::trace {

// How records become events: the one place that knows both. `Pass` (the first pass over a stream or
// a later one) derives from it and answers what ids and clocks mean:
//
//   int64_t   Ns(uint64_t ticks)
//   StringId  String(uint64_t local_id)           StringId Text(format::Bytes)
//   StackId   Python(uint64_t local_id)           StackId  Native(uint64_t local_id)
//   DeviceId  Device(int64_t local)               ThreadId thread()
//   ProcessId process()                           ProcessId ProcessOf(uint64_t pid, int64_t
//   time_ns)
//   StringId  scope()                             the thread's scope now
//
// and takes the definitions: bool On(const format::String&, Event*) and so on. On() says whether
// the record made an event.
template <class Pass>
class Converter {
  static_assert(std::is_trivially_destructible_v<Event>);

 public:
  bool On(const format::BlockAlloc& r, Event* e) {
    At(e, EventKind::kBlockAlloc, r.time);
    e->address = r.address;
    e->size = r.size;
    e->device = pass().Device(r.device);
    Stacks(e, r);
    if (r.sequence != 0) {
      e->sequence = (r.sequence - 1) >> 1;
      e->subkind =
          static_cast<uint8_t>((r.sequence & 1) != 0 ? Autograd::kForward : Autograd::kBackward);
    }
    return true;
  }
  bool On(const format::PoolBlock& r, Event* e) {
    At(e, EventKind::kBlockAlloc, r.time);
    e->address = r.address;
    e->size = r.size;
    e->value = r.requested;
    e->device = pass().Device(r.device);
    e->name = pass().String(r.name);
    e->flags = kPoolOfProgram;
    Stacks(e, r);
    return true;
  }
  bool On(const format::BlockFree& r, Event* e) {
    At(e, EventKind::kBlockFree, r.time);
    e->address = r.address;
    e->size = r.size;
    e->device = pass().Device(r.device);
    return true;
  }
  bool On(const format::AllocatorTotals& r, Event* e) {
    At(e, EventKind::kAllocatorTotals, r.time);
    e->device = pass().Device(r.device);
    e->size = r.allocated;
    e->value = r.reserved;
    return true;
  }
  bool On(const format::OutOfMemory& r, Event* e) {
    At(e, EventKind::kOutOfMemory, r.time);
    e->device = pass().Device(r.device);
    e->size = r.requested;
    e->value = r.allocated;
    e->value2 = r.reserved;
    e->stack = pass().Python(r.stack);
    return true;
  }
  bool On(const format::Alloc& r, Event* e) {
    Took(e, EventKind::kAlloc, r);
    e->api = pass().String(r.api);
    e->subkind = Narrow(r.kind);
    e->device = pass().Device(r.device);
    e->context = r.context;
    e->address = r.address;
    e->size = r.size;
    e->value = r.actual;
    e->value2 = r.pool;
    e->detail = r.stream;
    e->flags = static_cast<uint32_t>(r.extra);
    Stacks(e, r);
    return true;
  }
  bool On(const format::Free& r, Event* e) {
    GaveBack(e, EventKind::kFree, r);
    e->api = pass().String(r.api);
    e->subkind = Narrow(r.kind);
    e->address = r.address;
    e->detail = r.stream;
    return true;
  }
  bool On(const format::HandleCreate& r, Event* e) {
    Took(e, EventKind::kHandleCreate, r);
    e->api = pass().String(r.api);
    e->device = pass().Device(r.device);
    e->address = r.handle;
    e->size = r.size;
    e->value = r.imported;
    Stacks(e, r);
    return true;
  }
  bool On(const format::HandleRelease& r, Event* e) {
    GaveBack(e, EventKind::kHandleRelease, r);
    e->api = pass().String(r.api);
    e->address = r.handle;
    return true;
  }
  bool On(const format::HandleRetain& r, Event* e) {
    Took(e, EventKind::kHandleRetain, r);
    e->api = pass().String(r.api);
    e->address = r.handle;
    e->value = r.address;
    return true;
  }
  bool On(const format::Map& r, Event* e) {
    Took(e, EventKind::kMap, r);
    e->address = r.address;
    e->size = r.size;
    e->value = r.handle;
    e->value2 = r.offset;
    Stacks(e, r);
    return true;
  }
  bool On(const format::Unmap& r, Event* e) {
    GaveBack(e, EventKind::kUnmap, r);
    e->address = r.address;
    e->size = r.size;
    return true;
  }
  bool On(const format::Reserve& r, Event* e) {
    Took(e, EventKind::kReserve, r);
    e->address = r.address;
    e->size = r.size;
    return true;
  }
  bool On(const format::Unreserve& r, Event* e) {
    GaveBack(e, EventKind::kUnreserve, r);
    e->address = r.address;
    e->size = r.size;
    return true;
  }
  bool On(const format::PoolCreate& r, Event* e) {
    Took(e, EventKind::kPoolCreate, r);
    e->address = r.pool;
    e->device = pass().Device(r.device);
    e->subkind = Narrow(r.kind);
    Stacks(e, r);
    return true;
  }
  bool On(const format::PoolDestroy& r, Event* e) {
    GaveBack(e, EventKind::kPoolDestroy, r);
    e->address = r.pool;
    return true;
  }
  bool On(const format::PoolReading& r, Event* e) {
    At(e, EventKind::kPoolReading, r.time);
    e->begin_ns = pass().Ns(r.time - std::min(r.since, r.time));
    e->address = r.pool;
    e->device = pass().Device(r.device);
    e->size = r.reserved;
    e->value = r.used;
    return true;
  }
  bool On(const format::ContextCreate& r, Event* e) {
    Took(e, EventKind::kContextCreate, r);
    e->api = pass().String(r.api);
    e->address = r.context;
    e->context = r.context;
    e->device = pass().Device(r.device);
    Stacks(e, r);
    return true;
  }
  bool On(const format::ContextDestroy& r, Event* e) {
    GaveBack(e, EventKind::kContextDestroy, r);
    e->api = pass().String(r.api);
    e->address = r.context;
    e->context = r.context;
    e->device = pass().Device(r.device);
    return true;
  }
  bool On(const format::Implicit& r, Event* e) {
    Took(e, EventKind::kImplicit, r);
    e->api = pass().String(r.api);
    e->subkind = Narrow(r.kind);
    e->device = pass().Device(r.device);
    e->context = r.context;
    e->value = r.context;
    e->name = pass().String(r.name);
    e->size = r.detail;
    Stacks(e, r);
    return true;
  }
  bool On(const format::Reading& r, Event* e) {
    Took(e, EventKind::kReading, r);
    e->device = pass().Device(r.device);
    e->size = r.free;
    e->value = r.total;
    return true;
  }
  bool On(const format::Failure& r, Event* e) {
    Took(e, EventKind::kFailure, r);
    e->api = pass().String(r.api);
    e->device = pass().Device(r.device);
    e->size = r.size;
    e->value = r.result;
    Stacks(e, r);
    return true;
  }
  bool On(const format::Name& r, Event* e) {
    At(e, EventKind::kName, r.time);
    e->address = r.address;
    e->size = r.size;
    e->device = pass().Device(r.device);
    e->subkind = Narrow(r.kind);
    e->value = r.owner;
    e->name = pass().String(r.name);
    e->api = pass().String(r.detail);
    e->value2 = r.offset;
    e->detail = r.bytes;
    return true;
  }
  bool On(const format::Module& r, Event* e) {
    At(e, EventKind::kModule, r.time);
    e->address = r.object;
    e->value = r.root;
    e->name = pass().String(r.path);
    e->api = pass().String(r.type);
    return true;
  }
  bool On(const format::ModuleGone& r, Event* e) {
    At(e, EventKind::kModuleGone, r.time);
    e->address = r.object;
    return true;
  }
  bool On(const format::Step& r, Event* e) {
    At(e, EventKind::kStep, r.time);
    e->subkind = Narrow(r.kind);
    e->address = r.optimizer;
    e->name = pass().String(r.name);
    return true;
  }
  bool On(const format::Prior& r, Event* e) {
    At(e, EventKind::kPrior, r.time);
    e->address = r.address;
    e->size = r.size;
    e->device = pass().Device(r.device);
    e->subkind = Narrow(r.kind);
    e->name = pass().String(r.name);
    return true;
  }
  bool On(const format::Share& r, Event* e) {
    Took(e, EventKind::kShare, r);
    e->api = pass().String(r.api);
    e->device = pass().Device(r.device);
    e->subkind = Narrow(r.kind);
    e->address = r.address;
    e->size = r.key;
    e->value = r.handle;
    return true;
  }
  bool On(const format::Checkpoint& r, Event* e) {
    Took(e, EventKind::kCheckpoint, r);
    e->api = pass().String(r.api);
    e->process = pass().ProcessOf(r.pid, e->time_ns);
    e->subkind = Narrow(r.kind);
    e->detail = r.pid;
    return true;
  }
  bool On(const format::Mark& r, Event* e) {
    At(e, EventKind::kMark, r.time);
    e->name = pass().Text(r.name);
    return true;
  }
  bool On(const format::State& r, Event* e) {
    At(e, EventKind::kState, r.time);
    e->size = static_cast<uint64_t>(r.cpu_live);
    e->subkind = Narrow(r.state);
    return true;
  }
  bool On(const format::Teardown& r, Event* e) {
    At(e, EventKind::kTeardown, r.time);
    e->subkind = Narrow(r.kind);
    return true;
  }
  bool On(const format::Communicator& r, Event* e) {
    At(e, EventKind::kCommunicator, r.time);
    e->begin_ns = pass().Ns(r.time - std::min(r.since, r.time));
    e->address = r.communicator;
    e->value = r.ranks;
    e->value2 = static_cast<uint64_t>(r.rank);
    e->device = pass().Device(r.device);
    return true;
  }
  bool On(const format::Past& r, Event* e) {
    At(e, EventKind::kPast, r.time);
    e->size = r.iterations;
    e->value = r.by_marks;
    e->detail = r.knows;
    return true;
  }
  // For whoever opens the file.
  bool On(const format::PastStream&, Event*) { return false; }
  bool On(const format::PastRange&, Event*) { return false; }
  bool On(const format::DeviceSample& r, Event* e) {
    Took(e, EventKind::kDeviceSample, r);
    e->process = kNoProcess;
    e->device = pass().Device(r.device);
    e->size = r.used;
    e->value = r.free;
    e->value2 = r.reserved;
    e->detail = r.total;
    e->flags = static_cast<uint32_t>(std::min<uint64_t>(r.repeats, UINT32_MAX));
    return true;
  }
  bool On(const format::ProcessSample& r, Event* e) {
    Took(e, EventKind::kProcessSample, r);
    e->process = pass().ProcessOf(r.pid, e->time_ns);
    e->device = pass().Device(r.device);
    e->size = r.used;
    e->detail = r.pid;
    return true;
  }

 private:
  Pass& pass() { return static_cast<Pass&>(*this); }

  void Begin(Event* e, EventKind kind) {
    std::construct_at(e);  // in its place: a copy would wait for the original to be stored
    e->kind = kind;
    e->process = pass().process();
    e->thread = pass().thread();
    e->scope = pass().scope();
  }
  void At(Event* e, EventKind kind, uint64_t ticks) {
    Begin(e, kind);
    e->time_ns = e->begin_ns = e->end_ns = pass().Ns(ticks);
  }
  // What takes memory has it when the call ends; what gives back has given when the call begins.
  template <class Record>
  void Took(Event* e, EventKind kind, const Record& record) {
    Begin(e, kind);
    e->begin_ns = pass().Ns(record.begin);
    e->time_ns = e->end_ns = pass().Ns(record.end);
  }
  template <class Record>
  void GaveBack(Event* e, EventKind kind, const Record& record) {
    Begin(e, kind);
    e->time_ns = e->begin_ns = pass().Ns(record.begin);
    e->end_ns = pass().Ns(record.end);
  }
  template <class Record>
  void Stacks(Event* e, const Record& record) {
    e->stack = pass().Python(record.stack);
    e->native_stack = pass().Native(record.native);
  }
  // Enumerations of newer writers that do not fit are "other": no known value is 255.
  static uint8_t Narrow(uint64_t value) { return value < 255 ? static_cast<uint8_t>(value) : 255; }
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
