// SPDX-License-Identifier: Apache-2.0
#include "trace/finished/event_codec.h"

#include <algorithm>

#include "trace/finished/layout.h"

namespace vramscope::trace::finished {
namespace {

// Columns of a frame of events. Numbers are part of the format.
enum Column : size_t {
  kShapeCount = 0,
  kShapes = 1,  // rows of nine values
  kShapeOf = 2,
  kTime = 3,          // difference to the event before
  kBegin = 4,         // time - begin, signed
  kEnd = 5,           // end - time, signed
  kPlace = 6,         // distance back to the allocation or free at the same address; 0: literal
  kPlaceLiteral = 7,  // address, as difference to the literal before
  kGauge = 8,         // four columns: differences to the event of the same shape before
  kDictionary = 12,   // eight columns: number of the value, 0: new
  kLiteral = 20,      // eight columns: new values, as differences to the new value before
  kSequence = 28,     // difference to the sequence before
  kScopeNumber = 29,  // as kDictionary and kLiteral, of the ninth field
  kScopeLiteral = 30,
};

// Fields that are numbered by first appearance, in the order of their columns.
enum Field : size_t {
  kAddress = 0,  // of events without a place: handles, pools
  kSize = 1,
  kValue = 2,
  kValue2 = 3,
  kDetail = 4,
  kStack = 5,
  kNativeStack = 6,
  kName = 7,
  kScope = 8,
};

constexpr size_t NumberColumn(size_t field) {
  return field == kScope ? size_t{kScopeNumber} : kDictionary + field;
}
constexpr size_t LiteralColumn(size_t field) {
  return field == kScope ? size_t{kScopeLiteral} : kLiteral + field;
}

// Which fields an event of a shape has.
enum Mask : uint32_t {
  kHasBegin = 1u << 0,
  kHasEnd = 1u << 1,
  kSizeOfAlloc = 1u << 2,  // a free whose size is its allocation's
  kHasSequence = 1u << 3,
  kHasField = 1u << 8,  // shifted by Field
};

constexpr uint32_t Has(Field field) {
  return kHasField << field;
}

// Allocations and frees at one address alternate: 1 takes it, -1 gives it back, 0 has no place.
int8_t Alternation(EventKind kind) {
  switch (kind) {
    case EventKind::kBlockAlloc:
    case EventKind::kAlloc:
    case EventKind::kMap:
    case EventKind::kReserve:
      return 1;
    case EventKind::kBlockFree:
    case EventKind::kFree:
    case EventKind::kUnmap:
    case EventKind::kUnreserve:
      return -1;
    default:
      return 0;
  }
}

// Readings of something that changes little from one to the next.
bool IsGauge(EventKind kind) {
  switch (kind) {
    case EventKind::kAllocatorTotals:
    case EventKind::kPoolReading:
    case EventKind::kReading:
    case EventKind::kState:
    case EventKind::kDeviceSample:
    case EventKind::kProcessSample:
      return true;
    default:
      return false;
  }
}

uint64_t HashShape(const Event& fixed, uint32_t mask) {
  uint64_t hash = util::Mix64((uint64_t{mask} << 32) | (static_cast<uint64_t>(fixed.kind) << 8) |
                              fixed.subkind);
  hash = util::Mix64(hash ^ ((uint64_t{fixed.process.value} << 48) |
                             (uint64_t{static_cast<uint16_t>(fixed.device.value)} << 32) |
                             fixed.thread.value));
  hash = util::Mix64(hash ^ ((uint64_t{fixed.api.value} << 32) | fixed.flags));
  return util::Mix64(hash ^ fixed.context);
}

bool SameShape(const Event& a, const Event& b) {
  return a.kind == b.kind && a.subkind == b.subkind && a.process == b.process &&
         a.device == b.device && a.thread == b.thread && a.api == b.api && a.flags == b.flags &&
         a.context == b.context;
}

Event FixedPart(const Event& event) {
  Event fixed;
  fixed.kind = event.kind;
  fixed.subkind = event.subkind;
  fixed.process = event.process;
  fixed.device = event.device;
  fixed.thread = event.thread;
  fixed.api = event.api;
  fixed.flags = event.flags;
  fixed.context = event.context;
  return fixed;
}

}  // namespace

uint32_t EventEncoder::Dictionary::Find(uint64_t value) {
  const auto fresh = static_cast<uint32_t>(values_.size());
  const uint32_t id = table_.Intern(
      util::Mix64(value), fresh, [&](uint32_t other) { return values_[other] == value; },
      [&](uint32_t other) { return util::Mix64(values_[other]); });
  if (id != fresh)
    return id + 1;
  values_.push_back(value);
  return 0;
}

void EventEncoder::Dictionary::Clear() {
  table_ = {};
  values_.clear();
}

void EventEncoder::Reset() {
  shapes_.clear();
  shape_ids_ = {};
  for (Dictionary& dictionary : dictionaries_)
    dictionary.Clear();
  last_literal_ = {};
  places_.clear();
  allocs_ = frees_ = 0;
  last_address_ = 0;
}

EventEncoder::PlaceKey EventEncoder::KeyOf(const Event& event) {
  const bool is_block = event.kind == EventKind::kBlockAlloc || event.kind == EventKind::kBlockFree;
  return {event.address, (uint32_t{event.process.value} << 1) | (is_block ? 1u : 0u)};
}

uint32_t EventEncoder::MaskOf(const Event& event) const {
  uint32_t mask = 0;
  if (event.begin_ns != event.time_ns)
    mask |= kHasBegin;
  if (event.end_ns != event.time_ns)
    mask |= kHasEnd;
  if (event.address != 0)
    mask |= Has(kAddress);
  if (event.size != 0)
    mask |= Has(kSize);
  if (event.value != 0)
    mask |= Has(kValue);
  if (event.value2 != 0)
    mask |= Has(kValue2);
  if (event.detail != 0)
    mask |= Has(kDetail);
  if (event.stack.value != 0)
    mask |= Has(kStack);
  if (event.native_stack.value != 0)
    mask |= Has(kNativeStack);
  if (event.name.value != 0)
    mask |= Has(kName);
  if (event.scope.value != 0)
    mask |= Has(kScope);
  if (event.sequence != 0)
    mask |= kHasSequence;
  // A gauge that reads 0 now and then must not split into shapes: it would lose its predecessor.
  if (IsGauge(event.kind))
    mask |= Has(kSize) | Has(kValue) | Has(kValue2) | Has(kDetail);
  if (Alternation(event.kind) < 0 && event.size != 0) {
    const auto place = places_.find(KeyOf(event));
    if (place != places_.end() && place->second.alloc != 0 && place->second.size == event.size) {
      mask = (mask & ~Has(kSize)) | kSizeOfAlloc;
    }
  }
  return mask;
}

uint32_t EventEncoder::FindShape(const Event& event, uint32_t mask) {
  const auto fresh = static_cast<uint32_t>(shapes_.size());
  const uint32_t id = shape_ids_.Intern(
      HashShape(event, mask), fresh,
      [&](uint32_t other) {
        return shapes_[other].mask == mask && SameShape(shapes_[other].fixed, event);
      },
      [&](uint32_t other) { return HashShape(shapes_[other].fixed, shapes_[other].mask); });
  if (id == fresh)
    shapes_.push_back({FixedPart(event), mask, {}});
  return id;
}

void EventEncoder::PutDictionary(size_t field, uint64_t value, ColumnSetWriter* columns) {
  const uint32_t number = dictionaries_[field].Find(value);
  (*columns)[NumberColumn(field)].Put(number);
  if (number != 0)
    return;
  (*columns)[LiteralColumn(field)].PutSigned(static_cast<int64_t>(value - last_literal_[field]));
  last_literal_[field] = value;
}

void EventEncoder::PutAddress(const Event& event, ColumnSetWriter* columns) {
  Place& place = places_[KeyOf(event)];
  uint32_t distance = 0;
  if (Alternation(event.kind) > 0) {
    if (place.free != 0)
      distance = frees_ - place.free + 1;
    place.alloc = ++allocs_;
    place.size = event.size;
  } else {
    if (place.alloc != 0)
      distance = allocs_ - place.alloc + 1;
    place.free = ++frees_;
  }
  (*columns)[kPlace].Put(distance);
  if (distance != 0)
    return;
  (*columns)[kPlaceLiteral].PutSigned(static_cast<int64_t>(event.address - last_address_));
  last_address_ = event.address;
}

void EventEncoder::Encode(std::span<const Event> events, ColumnSetWriter* columns) {
  Reset();
  ColumnSetWriter& out = *columns;
  int64_t last_time = events.empty() ? 0 : events.front().time_ns;
  uint64_t last_sequence = 0;
  for (const Event& event : events) {
    const uint32_t mask = MaskOf(event);
    const uint32_t shape = FindShape(event, mask);
    out[kShapeOf].Put(shape);
    out[kTime].Put(static_cast<uint64_t>(event.time_ns - last_time));
    last_time = event.time_ns;
    if (mask & kHasBegin)
      out[kBegin].PutSigned(event.time_ns - event.begin_ns);
    if (mask & kHasEnd)
      out[kEnd].PutSigned(event.end_ns - event.time_ns);
    if (Alternation(event.kind) != 0) {
      PutAddress(event, columns);
    } else if (mask & Has(kAddress)) {
      PutDictionary(kAddress, event.address, columns);
    }
    const std::array<uint64_t, 4> values = {event.size, event.value, event.value2, event.detail};
    if (IsGauge(event.kind)) {
      std::array<uint64_t, 4>& before = shapes_[shape].gauge;
      for (size_t i = 0; i < values.size(); ++i) {
        out[kGauge + i].PutSigned(static_cast<int64_t>(values[i] - before[i]));
      }
      before = values;
    } else {
      for (size_t i = 0; i < values.size(); ++i) {
        if (mask & Has(static_cast<Field>(kSize + i)))
          PutDictionary(kSize + i, values[i], columns);
      }
    }
    if (mask & Has(kStack))
      PutDictionary(kStack, event.stack.value, columns);
    if (mask & Has(kNativeStack))
      PutDictionary(kNativeStack, event.native_stack.value, columns);
    if (mask & Has(kName))
      PutDictionary(kName, event.name.value, columns);
    if (mask & Has(kScope))
      PutDictionary(kScope, event.scope.value, columns);
    if (mask & kHasSequence) {
      out[kSequence].PutSigned(static_cast<int64_t>(event.sequence - last_sequence));
      last_sequence = event.sequence;
    }
  }
  out[kShapeCount].Put(shapes_.size());
  for (const Shape& shape : shapes_) {
    ColumnWriter& row = out[kShapes];
    row.Put(static_cast<uint64_t>(shape.fixed.kind));
    row.Put(shape.fixed.subkind);
    row.Put(shape.fixed.process == kNoProcess ? 0 : shape.fixed.process.value + uint64_t{1});
    row.Put(static_cast<uint64_t>(shape.fixed.device.value + 1));
    row.Put(shape.fixed.thread.value);
    row.Put(shape.fixed.api.value);
    row.Put(shape.fixed.flags);
    row.Put(shape.fixed.context);
    row.Put(shape.mask);
  }
}

bool EventDecoder::ReadShapes(const ColumnSetReader& columns) {
  shapes_.clear();
  const uint64_t count = columns.Column(kShapeCount).Next();
  if (count > kMaxRows)
    return false;
  ColumnReader row = columns.Column(kShapes);
  for (uint64_t i = 0; i < count; ++i) {
    Shape shape;
    const uint64_t kind = row.Next();
    if (kind > UINT8_MAX)
      return false;
    shape.fixed.kind = static_cast<EventKind>(kind);
    shape.fixed.subkind = static_cast<uint8_t>(row.Next());
    const uint64_t process = row.Next();
    if (process != 0 && process <= sizes_.processes) {
      shape.fixed.process = ProcessId{static_cast<uint16_t>(process - 1)};
    }
    const uint64_t device = row.Next();
    if (device != 0 && device <= sizes_.devices) {
      shape.fixed.device = DeviceId{static_cast<int16_t>(device - 1)};
    }
    const uint64_t thread = row.Next();
    if (thread < sizes_.threads)
      shape.fixed.thread = ThreadId{static_cast<uint32_t>(thread)};
    const uint64_t api = row.Next();
    if (api < sizes_.strings)
      shape.fixed.api = StringId{static_cast<uint32_t>(api)};
    shape.fixed.flags = static_cast<uint32_t>(row.Next());
    shape.fixed.context = row.Next();
    shape.mask = static_cast<uint32_t>(row.Next());
    shape.alternation = Alternation(shape.fixed.kind);
    shape.is_gauge = IsGauge(shape.fixed.kind);
    if (!row.ok())
      return false;
    shapes_.push_back(shape);
  }
  return !shapes_.empty();
}

bool EventDecoder::Decode(const ColumnSetReader& columns,
                          uint32_t rows,
                          int64_t first_time_ns,
                          std::vector<Event>* events) {
  events->clear();
  if (rows > kMaxRows)
    return false;
  if (rows != 0 && !ReadShapes(columns))
    return false;
  allocs_.clear();
  frees_.clear();
  for (auto& dictionary : dictionaries_)
    dictionary.clear();
  std::array<uint64_t, 9> last_literal{};
  // Ids that lead out of their table become "none".
  std::array<uint64_t, 9> limit;
  limit.fill(UINT64_MAX);
  limit[kStack] = limit[kNativeStack] = sizes_.stacks;
  limit[kName] = limit[kScope] = sizes_.strings;

  ColumnReader shape_of = columns.Column(kShapeOf);
  ColumnReader time = columns.Column(kTime);
  ColumnReader begin = columns.Column(kBegin);
  ColumnReader end = columns.Column(kEnd);
  ColumnReader place = columns.Column(kPlace);
  ColumnReader place_literal = columns.Column(kPlaceLiteral);
  std::array<ColumnReader, 4> gauge;
  for (size_t i = 0; i < gauge.size(); ++i)
    gauge[i] = columns.Column(kGauge + i);
  ColumnReader sequence = columns.Column(kSequence);
  std::array<ColumnReader, 9> number;
  std::array<ColumnReader, 9> literal;
  for (size_t i = 0; i < number.size(); ++i) {
    number[i] = columns.Column(NumberColumn(i));
    literal[i] = columns.Column(LiteralColumn(i));
  }
  bool ok = true;
  const auto look_up = [&](size_t field) -> uint64_t {
    const uint64_t k = number[field].Next();
    std::vector<uint64_t>& known = dictionaries_[field];
    if (k != 0) {
      if (k <= known.size())
        return known[k - 1];
      ok = false;
      return 0;
    }
    last_literal[field] += static_cast<uint64_t>(literal[field].NextSigned());
    const uint64_t value = last_literal[field];
    known.push_back(value < limit[field] ? value : 0);
    return known.back();
  };

  // Every row has at least a byte in this column: a frame cannot promise more rows than it has.
  if (shape_of.BytesLeft() < rows)
    return false;
  events->resize(rows);
  uint64_t address = 0;
  uint64_t last_sequence = 0;
  int64_t now = first_time_ns;
  for (uint32_t i = 0; i < rows; ++i) {
    const uint64_t shape_id = shape_of.Next();
    if (shape_id >= shapes_.size())
      ok = false;
    if (!ok) {
      events->resize(i);
      return false;
    }
    Shape& shape = shapes_[shape_id];
    Event& event = (*events)[i];
    event = shape.fixed;
    // Unsigned, so that damage cannot overflow.
    now = static_cast<int64_t>(static_cast<uint64_t>(now) + time.Next());
    event.time_ns = event.begin_ns = event.end_ns = now;
    if (shape.mask & kHasBegin) {
      event.begin_ns = static_cast<int64_t>(static_cast<uint64_t>(now) -
                                            static_cast<uint64_t>(begin.NextSigned()));
    }
    if (shape.mask & kHasEnd) {
      event.end_ns = static_cast<int64_t>(static_cast<uint64_t>(now) +
                                          static_cast<uint64_t>(end.NextSigned()));
    }
    uint64_t alloc_size = 0;
    if (shape.alternation != 0) {
      const uint64_t distance = place.Next();
      const std::vector<Place>& others = shape.alternation > 0 ? frees_ : allocs_;
      if (distance == 0) {
        address += static_cast<uint64_t>(place_literal.NextSigned());
        event.address = address;
      } else if (distance <= others.size()) {
        const Place& other = others[others.size() - distance];
        event.address = other.address;
        alloc_size = other.size;
      } else {
        ok = false;
      }
    } else if (shape.mask & Has(kAddress)) {
      event.address = look_up(kAddress);
    }
    if (shape.is_gauge) {
      for (size_t k = 0; k < gauge.size(); ++k) {
        shape.gauge[k] += static_cast<uint64_t>(gauge[k].NextSigned());
      }
      event.size = shape.gauge[0];
      event.value = shape.gauge[1];
      event.value2 = shape.gauge[2];
      event.detail = shape.gauge[3];
    } else {
      if (shape.mask & Has(kSize))
        event.size = look_up(kSize);
      if (shape.mask & kSizeOfAlloc)
        event.size = alloc_size;
      if (shape.mask & Has(kValue))
        event.value = look_up(kValue);
      if (shape.mask & Has(kValue2))
        event.value2 = look_up(kValue2);
      if (shape.mask & Has(kDetail))
        event.detail = look_up(kDetail);
    }
    if (shape.mask & Has(kStack))
      event.stack = StackId{static_cast<uint32_t>(look_up(kStack))};
    if (shape.mask & Has(kNativeStack)) {
      event.native_stack = StackId{static_cast<uint32_t>(look_up(kNativeStack))};
    }
    if (shape.mask & Has(kName))
      event.name = StringId{static_cast<uint32_t>(look_up(kName))};
    if (shape.mask & Has(kScope))
      event.scope = StringId{static_cast<uint32_t>(look_up(kScope))};
    if (shape.mask & kHasSequence) {
      last_sequence += static_cast<uint64_t>(sequence.NextSigned());
      event.sequence = last_sequence;
    }
    if (shape.alternation > 0) {
      allocs_.push_back({event.address, event.size});
    } else if (shape.alternation < 0) {
      frees_.push_back({event.address, event.size});
    }
  }
  bool columns_ok = shape_of.ok() && time.ok() && begin.ok() && end.ok() && place.ok() &&
                    place_literal.ok() && sequence.ok() && ok;
  for (const ColumnReader& column : gauge)
    columns_ok = columns_ok && column.ok();
  for (const ColumnReader& column : number)
    columns_ok = columns_ok && column.ok();
  for (const ColumnReader& column : literal)
    columns_ok = columns_ok && column.ok();
  // Which row a short column ran out at is not known, so none of them can be trusted.
  if (!columns_ok)
    events->clear();
  // Of kinds that a newer minor version has: read, because columns are shared, and left out.
  std::erase_if(*events, [](const Event& event) { return event.kind > kLastEventKind; });
  return columns_ok;
}

}  // namespace vramscope::trace::finished
