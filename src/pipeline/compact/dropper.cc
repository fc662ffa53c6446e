// SPDX-License-Identifier: Apache-2.0
#include "pipeline/compact/dropper.h"

#include <algorithm>
#include <queue>
#include <string_view>
#include <type_traits>
#include <utility>

#include "format/decoder.h"
#include "format/enums.h"
#include "format/layout.h"
#include "format/records.h"
#include "pipeline/compact/past_chunks.h"

namespace vramscope::compact {
namespace {

// The ledger gives events of one instant instants of their own.
constexpr int64_t kLedgerSkewNs = 1000;

template <class Record>
constexpr bool kIsPaired =
    std::is_same_v<Record, format::BlockAlloc> || std::is_same_v<Record, format::BlockFree> ||
    std::is_same_v<Record, format::PoolBlock> || std::is_same_v<Record, format::XlaBlock> ||
    std::is_same_v<Record, format::GraphTensor> || std::is_same_v<Record, format::Name>;

}  // namespace

// Reads the records of one stream's chosen chunks, and later records up to the cut: threads free
// each other's blocks. Decides about all records that do not form pairs.
class Dropper::Cursor {
 public:
  Cursor(Dropper* dropper, size_t stream)
      : dropper_(*dropper),
        chunks_(dropper->file_.streams()[stream]),
        chosen_(dropper->plan_.streams[stream].chunks) {
    item_.place.stream = stream;
    Next();
  }

  bool done() const { return done_; }
  const Item& item() const { return item_; }
  // Finds the next item.
  void Next() {
    while (ReadRecord()) {
      if (std::exchange(found_, false))
        return;
    }
    done_ = true;
  }

 private:
  bool ReadRecord() {
    while (in_ == end_) {
      if (chunk_ == chunks_.size())
        return false;
      is_old_ = chunk_ < chosen_;
      if (!is_old_ && (chunks_[chunk_].stream == format::kPastStream ||
                       chunks_[chunk_].base_ns > dropper_.plan_.cut_ns))
        return false;
      const auto records = dropper_.file_.Records(chunks_[chunk_]);
      in_ = records.data();
      end_ = in_ + records.size();
      delta_ = {.time = chunks_[chunk_].base_ticks, .address = 0};
      in_past_ = chunks_[chunk_].in_past;
      ++chunk_;
    }
    format::RawRecord raw;
    if (!format::NextRecord(&in_, end_, &raw)) {
      in_ = end_;
      return true;
    }
    item_.place.record = record_++;
    item_.place.is_old = is_old_;
    switch (raw.type) {
#define VRAMSCOPE_RECORD(Name, id, doc)          \
  case id: {                                     \
    format::Name record;                         \
    if (format::Decode(raw, &delta_, &record)) { \
      item_.ticks = delta_.time;                 \
      if (is_old_ || kIsPaired<format::Name>)    \
        On(record);                              \
    }                                            \
    break;                                       \
  }
#include "format/records.def"
      default:
        break;
    }
    // Later records do not matter yet.
    if (found_ && !is_old_ && dropper_.clock_.ToNs(item_.ticks) > dropper_.plan_.cut_ns)
      return found_ = false;
    return true;
  }

  void Find(What what, uint64_t address, int64_t device, uint64_t bytes) {
    found_ = true;
    item_.what = what;
    item_.address = address;
    item_.device = device;
    item_.bytes = bytes;
  }
  void On(const format::BlockAlloc& r) {
    Find(What::kAlloc, r.address, r.device, r.size);
  }
  void On(const format::PoolBlock& r) {
    Find(What::kAlloc, r.address, r.device, r.size);
  }
  void On(const format::XlaBlock& r) {
    Find(What::kAlloc, r.address, r.device, r.size);
  }
  void On(const format::GraphTensor& r) {
    Find(r.size != 0 ? What::kAlloc : What::kFree, r.address, r.device, r.size);
  }
  void On(const format::BlockFree& r) {
    Find(What::kFree, r.address, r.device, 0);
  }
  void On(const format::Name& r) {
    Find(What::kName, r.address, r.device, 0);
    item_.name_kind = r.kind;
  }
  void On(const format::Mark& r) {
    const std::string_view name(r.name.data, r.name.size);
    if (name == "iteration" || name.starts_with("iteration "))
      ++dropper_.marks_;
    if (dropper_.phase_marks_.Keeps(name, item_.place))
      dropper_.Keep(item_.place);
  }
  void On(const format::Step& r) {
    if (dropper_.first_optimizer_ == 0)
      dropper_.first_optimizer_ = r.optimizer;
    if (r.kind == static_cast<uint64_t>(format::StepKind::kBegin)) {
      dropper_.steps_[r.optimizer] = item_.place;
      return;
    }
    dropper_.steps_.erase(r.optimizer);
    dropper_.rounds_ += r.optimizer == dropper_.first_optimizer_ ? 1 : 0;
  }
  void On(const format::AllocatorTotals& r) {
    if (in_past_)
      return dropper_.Keep(item_.place);
    Last& last = dropper_.totals_[r.device];
    if (last.ticks <= item_.ticks)
      last = {item_.ticks, item_.place};
  }
  // Calls of the driver and the like: prices rest on them. Definitions go by what needs them.
  template <class Record>
  void On(const Record&) {
    dropper_.Keep(item_.place);
  }
  void On(const format::String&) {}
  void On(const format::PyCode&) {}
  void On(const format::PyStack&) {
    dropper_.plan_.has_python = true;
  }
  void On(const format::NativeStack&) {}
  void On(const format::Scope&) {}
  void On(const format::ScopeIs&) {}
  void On(const format::Anchor&) {}
  void On(const format::PastOrigin&) {}

  Dropper& dropper_;
  const std::vector<trace::ChunkRef>& chunks_;
  const size_t chosen_;
  size_t chunk_ = 0;  // the next one
  const uint8_t* in_ = nullptr;
  const uint8_t* end_ = nullptr;
  format::DeltaState delta_;
  uint32_t record_ = 0;  // the next one
  bool is_old_ = false;
  bool in_past_ = false;
  bool found_ = false;
  bool done_ = false;
  Item item_;
};

Dropper::Dropper(const trace::LiveFile& file,
                 const trace::TickClock& clock,
                 const Instants& instants,
                 CompactionPlan* plan)
    : file_(file), clock_(clock), instants_(instants), plan_(*plan) {}

void Dropper::Run() {
  plan_.carries_origins = true;
  std::vector<Cursor> cursors;
  cursors.reserve(plan_.streams.size());
  for (size_t i = 0; i < plan_.streams.size(); ++i)
    cursors.emplace_back(this, i);
  // The earliest first.
  const auto is_later = [&](size_t a, size_t b) {
    const uint64_t a_ticks = cursors[a].item().ticks, b_ticks = cursors[b].item().ticks;
    return a_ticks != b_ticks ? a_ticks > b_ticks : a > b;
  };
  std::priority_queue<size_t, std::vector<size_t>, decltype(is_later)> heads(is_later);
  for (size_t i = 0; i < cursors.size(); ++i) {
    if (!cursors[i].done())
      heads.push(i);
  }
  while (!heads.empty()) {
    const size_t first = heads.top();
    heads.pop();
    Cursor& cursor = cursors[first];
    // Items of one thread come in runs.
    do {
      Apply(cursor.item());
      cursor.Next();
    } while (!cursor.done() && (heads.empty() || !is_later(first, heads.top())));
    if (!cursor.done())
      heads.push(first);
  }
  open_.ForEach([&](uint32_t, const Open& open) { KeepOpen(open); });
  for (const auto& [device, sum] : sums_) {
    for (const auto& [ended, end] : sum.ended) {
      KeepOpen(ended);
      Keep(end);
    }
  }
  for (const auto& [address, place] : other_names_)
    Keep(place);
  for (const auto& [device, last] : totals_)
    Keep(last.place);
  for (const auto& [optimizer, place] : steps_)
    Keep(place);
  if (const auto& last = phase_marks_.last())
    Keep(*last);
  plan_.knows_phases = first_optimizer_ != 0;
  plan_.by_marks = marks_ != 0;
  // The facts that the existing past records about itself.
  ForEachOfPast<format::Past>(file_, [&](const format::Past& past) {
    plan_.iterations = past.iterations;
    plan_.by_marks = plan_.by_marks || past.by_marks != 0;
    plan_.knows_phases = plan_.knows_phases || (past.knows & 1) != 0;
    plan_.has_python = plan_.has_python || (past.knows & 2) != 0;
  });
  plan_.iterations += plan_.by_marks ? marks_ : rounds_;
}

void Dropper::Apply(const Item& item) {
  const uint64_t key = KeyOf(item.address, item.device);
  switch (item.what) {
    case What::kAlloc: {
      if (const uint32_t old = numbers_.Erase(key); old != util::FlatMap::kNone)
        Close(old, item.ticks, nullptr);
      const uint32_t index = open_.Add();
      numbers_.FindOrAdd(key) = index;
      Open& open = open_[index];
      open.used = true;
      open.place = item.place;
      open.ticks = item.ticks;
      open.bytes = item.bytes;
      open.device = item.device;
      Sum& sum = sums_[item.device];
      sum.bytes += item.bytes;
      if (sum.bytes > sum.most_bytes) {
        sum.most_bytes = sum.bytes;
        sum.most_ticks = item.ticks;
        for (const auto& [ended, end] : sum.ended)
          plan_.dropped.Add(1, ended.bytes);
        sum.ended.clear();
      }
      return;
    }
    case What::kFree:
      // A free without its allocation here may belong to an allocation in a chunk that stays.
      if (const uint32_t index = numbers_.Erase(key); index != util::FlatMap::kNone)
        Close(index, item.ticks, &item.place);
      else
        Keep(item.place);
      return;
    case What::kName:
      return Name(item);
  }
}

// A name belongs to the allocation at its address.
void Dropper::Name(const Item& item) {
  for (const auto& [device, sum] : sums_) {
    const uint32_t index = numbers_.Find(KeyOf(item.address, device));
    if (index == util::FlatMap::kNone)
      continue;
    auto& names = open_[index].names;
    const auto same = std::find_if(names.begin(), names.end(),
                                   [&](const auto& name) { return name.first == item.name_kind; });
    if (same != names.end())
      same->second = item.place;
    else
      names.emplace_back(item.name_kind, item.place);
    return;
  }
  other_names_[{item.address, item.name_kind}] = item.place;
}

bool Dropper::HasInstant(int64_t device, uint64_t begin_ticks, uint64_t end_ticks) const {
  const auto of_device = instants_.find(device);
  if (of_device == instants_.end())
    return false;
  const auto found = of_device->second.lower_bound(clock_.ToNs(begin_ticks));
  return found != of_device->second.end() && *found <= clock_.ToNs(end_ticks) + kLedgerSkewNs;
}

void Dropper::Close(uint32_t index, uint64_t end_ticks, const Place* end) {
  const Open& open = open_[index];
  const bool is_split = !open.place.is_old || (end != nullptr && !end->is_old) ||
                        std::any_of(open.names.begin(), open.names.end(),
                                    [](const auto& name) { return !name.second.is_old; });
  Sum& sum = sums_[open.device];
  sum.bytes -= std::min(sum.bytes, open.bytes);
  if (is_split || HasInstant(open.device, open.ticks, end_ticks)) {
    KeepOpen(open);
    if (end != nullptr)
      Keep(*end);
  } else if (open.ticks <= sum.most_ticks) {
    sum.ended.emplace_back(open, end != nullptr ? *end : Place{});
  } else {
    plan_.dropped.Add(1, open.bytes);
  }
  open_.Remove(index);
}

void Dropper::KeepOpen(const Open& open) {
  Keep(open.place);
  for (const auto& [kind, place] : open.names)
    Keep(place);
}

}  // namespace vramscope::compact
