// SPDX-License-Identifier: Apache-2.0
#include "trace/live/alternation.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

namespace vramscope::trace {
namespace {

// The counters of two cores agree within a few hundred nanoseconds; a larger distance is history,
// not skew.
constexpr int64_t kMaxInversionNs = 1000;

// The events that alternate at an address: class 1 to 3, positive for an event that begins one; 0:
// not such an event.
struct Alternation {
  int of = 0;
  uint64_t address = 0;

  uint64_t key() const { return (address << 2) ^ static_cast<uint64_t>(std::abs(of)); }
};

template <class Record>
constexpr int kClassOf = 0;
template <>
constexpr int kClassOf<BlockAlloc> = 1;
template <>
constexpr int kClassOf<PoolBlock> = 1;
template <>
constexpr int kClassOf<XlaBlock> = 1;
template <>
constexpr int kClassOf<BlockFree> = -1;
template <>
constexpr int kClassOf<Alloc> = 2;
template <>
constexpr int kClassOf<Free> = -2;
template <>
constexpr int kClassOf<Map> = 3;
template <>
constexpr int kClassOf<Unmap> = -3;

int ClassOf(const Prior& prior) {
  return prior.kind == format::PriorKind::kBlock     ? kClassOf<BlockAlloc>
         : prior.kind == format::PriorKind::kSegment ? kClassOf<Alloc>
                                                     : 0;
}

Alternation AlternationOf(const Event& event) {
  return Visit(event, []<class Record>(const Record& e) -> Alternation {
    if constexpr (std::is_same_v<Record, Prior>)
      return {ClassOf(e), e.address};
    else if constexpr (kClassOf<Record> != 0)
      return {kClassOf<Record>, e.address};
    return {};
  });
}

}  // namespace

AlternationRepair::AlternationRepair(const Trace::EventSink& sink) : sink_(sink) {
  out_.reserve(kBatch + kLookAhead);
}

void AlternationRepair::Finish() {
  Emit(out_.size());
}

void AlternationRepair::Emit(size_t count) {
  if (count == 0)
    return;
  for (size_t i = 0; i < count; ++i)
    Check(i);
  const auto rest = out_.begin() + static_cast<ptrdiff_t>(count);
  look_ahead_.assign(rest, out_.end());
  out_.erase(rest, out_.end());
  sink_(out_);
  out_.reserve(kBatch + kLookAhead);
  out_.assign(look_ahead_.begin(), look_ahead_.end());
}

size_t AlternationRepair::FindCounterpart(size_t at) const {
  const Event& event = out_[at];
  const auto [of, address] = AlternationOf(event);
  const size_t end = std::min(out_.size(), at + kLookAhead);
  for (size_t i = at + 1; i < end; ++i) {
    const Event& other = out_[i];
    if (other.time_ns - event.time_ns > kMaxInversionNs)
      return 0;
    const Alternation others = AlternationOf(other);
    if (others.address == address && other.process == event.process && others.of == -of)
      return other.thread != event.thread ? i : 0;
  }
  return 0;
}

void AlternationRepair::Check(size_t at) {
  if (out_[at].Is<ProcessExit>() && out_[at].process.value < live_.size()) {
    live_[out_[at].process.value].Clear();
    return;
  }
  const Alternation alternation = AlternationOf(out_[at]);
  if (alternation.of == 0 || out_[at].process == kNoProcess)
    return;
  if (live_.size() <= out_[at].process.value)
    live_.resize(out_[at].process.value + size_t{1});
  AddressSet& live = live_[out_[at].process.value];
  const uint64_t key = alternation.key();
  if (key == 0)
    return;
  if (alternation.of > 0 ? live.Insert(key) : live.Erase(key))
    return;

  const size_t counterpart = FindCounterpart(at);
  if (counterpart == 0)
    return;
  // The counterpart goes before this event and takes its time; this one is then as it should be.
  const int64_t time_ns = out_[at].time_ns;
  const auto first = out_.begin() + static_cast<ptrdiff_t>(at);
  const auto last = out_.begin() + static_cast<ptrdiff_t>(counterpart);
  std::rotate(first, last, last + 1);
  out_[at].time_ns = time_ns;
  // An allocation of a live address: freed just now, allocated again next. A free of a dead one:
  // allocated just now, freed next. Either way the address is in the set once more or no more when
  // the pair is done, so take this event as done and let the next one be judged as usual.
  if (alternation.of > 0) {
    live.Erase(key);
  } else {
    live.Insert(key);
  }
}

}  // namespace vramscope::trace
