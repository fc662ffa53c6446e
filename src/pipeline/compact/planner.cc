// SPDX-License-Identifier: Apache-2.0
#include "pipeline/compact/planner.h"

#include <algorithm>

#include "util/containers/intern_table.h"

namespace vramscope::compact {
namespace {

// As in resolve/ledger/ledger.cc.
constexpr int64_t kLatestNs = int64_t{1} << 61;

bool HasOne(const std::set<int64_t>& instants, int64_t begin_ns, int64_t end_ns) {
  const auto found = instants.lower_bound(begin_ns);
  return found != instants.end() && *found < end_ns;
}

}  // namespace

CompactionPlanner::CompactionPlanner(const trace::LiveTrace& trace,
                                     std::vector<std::vector<int64_t>> instants,
                                     std::vector<CompactionPlan>* plans)
    : trace_(trace),
      plans_(*plans),
      file_of_(trace.processes().size()),
      is_cut_(plans->size()),
      instants_(trace.devices().size()),
      phases_(trace),
      iterations_(trace) {
  for (size_t file = 0; file < trace.files().size(); ++file) {
    for (size_t stream = 0; stream < trace.files()[file].streams().size(); ++stream)
      streams_.emplace_back(file, stream);
    const trace::ProcessId process = trace.context(file).process;
    if (process != trace::kNoProcess)
      file_of_[process.value] = file;
  }
  for (size_t i = 0; i < std::min(instants.size(), instants_.size()); ++i)
    instants_[i].insert(instants[i].begin(), instants[i].end());
}

void CompactionPlanner::Keep(const Place& place) {
  if (!place.is_old)
    return;
  const auto& [file, stream] = streams_[place.source];
  plans_[file].streams[stream].keep[place.record] = true;
}

CompactionPlanner::OpenOf& CompactionPlanner::Of(trace::ProcessId process, trace::DeviceId device) {
  const std::pair<uint16_t, int16_t> key{process.value, device.value};
  if (last_ == nullptr || key != last_key_) {
    last_key_ = key;
    last_ = &open_[key];
    last_->process = process;
    last_->device = device;
  }
  return *last_;
}

bool CompactionPlanner::HasInstant(const OpenOf& of, int64_t begin_ns, int64_t end_ns) const {
  if (of.device.value < 0)
    return true;
  const auto device = static_cast<size_t>(of.device.value);
  return HasOne(instants_[device], begin_ns, end_ns);
}

void CompactionPlanner::Apply(std::span<const trace::Event> events) {
  for (const trace::Event& said : events) {
    if (said.time_ns > kLatestNs || said.time_ns < -kLatestNs)
      continue;
    // The ledger's time: each event has a time of its own.
    now_ns_ = any_ && said.time_ns <= now_ns_ ? now_ns_ + 1 : said.time_ns;
    any_ = true;
    if (said.Is<trace::ProcessExit>()) {
      EndProcess(said.process);
      continue;
    }
    const auto& [file, stream] = streams_[said.source];
    const CompactionPlan& plan = plans_[file];
    Place place{said.source, said.record, said.record < plan.streams[stream].records};
    if (said.time_ns > plan.cut_ns) {
      if (!is_cut_[file])
        Cut(file);
      Keep(place);
      continue;
    }
    trace::Visit(said, [&](const auto& e) { On(said, e, place); });
  }
}

void CompactionPlanner::Finish() {
  for (size_t file = 0; file < plans_.size(); ++file) {
    if (!is_cut_[file])
      Cut(file);
  }
}

void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::Mark& e,
                           const Place& place) {
  if (at.process == trace::kNoProcess)
    return;
  phases_.On(at, e);
  if (iterations_.OnMark(at, e))
    phases_.OnIteration(at);
  if (phase_marks_[at.process.value].Keeps(trace_.string(e.name), place))
    Keep(place);
}

void CompactionPlanner::On(const trace::EventContext& at, const trace::Past& e, const Place&) {
  if (at.process != trace::kNoProcess)
    phases_.On(at, e);
}

// ---- what the driver gives

void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::Alloc& e,
                           const Place& place) {
  AddRange(at.process, e.address, e.size);
  AddOther(at, e.address, e.stack, e.native, place);
}

void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::HandleCreate& e,
                           const Place& place) {
  AddOther(at, e.handle, e.stack, e.native, place);
}

void CompactionPlanner::On(const trace::EventContext& at, const trace::Map& e, const Place& place) {
  AddRange(at.process, e.address, e.size);
  AddOther(at, e.address, e.stack, e.native, place);
}

void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::Free& e,
                           const Place& place) {
  ranges_.erase({at.process.value, e.address});
  Keep(place);
}

void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::Unmap& e,
                           const Place& place) {
  ranges_.erase({at.process.value, e.address});
  Keep(place);
}

void CompactionPlanner::AddRange(trace::ProcessId process, uint64_t address, uint64_t size) {
  if (process != trace::kNoProcess && address <= UINT64_MAX - size)
    ranges_[{process.value, address}] = {address + size};
}

void CompactionPlanner::AddOther(const trace::EventContext& at,
                                 uint64_t number,
                                 tables::StackId stack,
                                 tables::StackId native,
                                 const Place& place) {
  Keep(place);
  if (at.process == trace::kNoProcess)
    return;
  // Names of an earlier allocation there are not its own.
  for (const format::NameKind kind :
       {format::NameKind::kTag, format::NameKind::kParameter, format::NameKind::kGradient,
        format::NameKind::kBuffer, format::NameKind::kOptimizerState})
    other_names_.erase({at.process.value, number, static_cast<uint8_t>(kind)});
  resolve::Origin origin;
  phases_.OnAllocated(at, stack, native, 0, &origin);
  if (place.is_old)
    others_.emplace_back(place, at.process, at.scope, origin);
}

// ---- blocks

template <class Block>
void CompactionPlanner::Add(const trace::EventContext& at,
                            const Block& e,
                            uint64_t sequence,
                            const Place& place) {
  if (at.process == trace::kNoProcess || e.device.value < 0 || e.address == 0)
    return Keep(place);
  OpenOf& of = Of(at.process, e.device);
  bool must_keep = false;
  if (const uint32_t old = of.numbers.Erase(e.address); old != util::FlatMap::kNone) {
    must_keep = !of.slab[old].place.is_old || HasInstant(of, of.slab[old].time_ns, now_ns_);
    Close(of, old, nullptr);
  }
  const uint32_t index = of.slab.Add();
  of.numbers.FindOrAdd(e.address) = index;
  Open& open = of.slab[index];
  open.used = true;
  open.must_keep = IsWitness(at.process, e.address) || must_keep;
  open.has_origin = true;
  open.place = place;
  open.time_ns = now_ns_;
  open.address = e.address;
  open.bytes = e.size;
  open.scope = at.scope;
  tables::StackId native;
  if constexpr (requires { e.native; })
    native = e.native;
  phases_.OnAllocated(at, e.stack, native, sequence, &open.origin);
}

bool CompactionPlanner::IsWitness(trace::ProcessId process, uint64_t address) {
  auto range = ranges_.upper_bound({process.value, address});
  if (range == ranges_.begin())
    return false;
  --range;
  if (range->first.first != process.value || address >= range->second.end)
    return false;
  return !std::exchange(range->second.has_witness, true);
}

void CompactionPlanner::Free(const trace::EventContext& at,
                             trace::DeviceId device,
                             uint64_t address,
                             const Place& place) {
  if (at.process == trace::kNoProcess || device.value < 0 || address == 0)
    return Keep(place);
  OpenOf& of = Of(at.process, device);
  const uint32_t index = of.numbers.Erase(address);
  return index != util::FlatMap::kNone ? Close(of, index, &place) : Keep(place);
}

bool CompactionPlanner::HasSplitName(const Open& open) {
  return std::any_of(open.names.begin(), open.names.end(),
                     [](const NamePlace& name) { return !name.place.is_old; });
}

void CompactionPlanner::Close(OpenOf& of, uint32_t index, const Place* end) {
  Open& open = of.slab[index];
  const bool is_seen = HasInstant(of, open.time_ns, now_ns_);
  const bool is_split = !open.place.is_old || (end != nullptr && !end->is_old) || open.must_keep ||
                        HasSplitName(open);
  if (is_seen || is_split) {
    KeepOpen(open, phases_.Outlived(of.process, open.origin) ? format::OriginEnd::kOutlived
                                                             : format::OriginEnd::kWithin);
    if (end != nullptr)
      Keep(*end);
  } else {
    plans_[file_of_[of.process.value]].compacted.Add(1, open.bytes);
  }
  of.slab.Remove(index);
}

void CompactionPlanner::KeepOpen(const Open& open, format::OriginEnd end) {
  Keep(open.place);
  for (const NamePlace& name : open.names)
    Keep(name.place);
  if (!open.place.is_old || !open.has_origin)
    return;
  SetOrigin(open.place, open.origin, open.scope, end);
}

void CompactionPlanner::SetOrigin(const Place& place,
                                  const resolve::Origin& origin,
                                  tables::StringId scope,
                                  format::OriginEnd end) {
  const auto& [file, stream] = streams_[place.source];
  plans_[file].streams[stream].origins[place.record] = {
      .phase = static_cast<uint8_t>(origin.shown_phase()),
      .end = static_cast<uint8_t>(end),
      .forward = origin.forward,
      .scope = origin.scope == scope ? tables::StringId{} : origin.scope};
}

void CompactionPlanner::EndProcess(trace::ProcessId process) {
  if (is_cut_[file_of_[process.value]])
    return;
  for (auto& [key, open_of] : open_) {
    if (key.first != process.value)
      continue;
    auto& of = open_of;  // Clang before 16 captures no structured binding
    of.slab.ForEach([&](uint32_t index, const Open& open) {
      of.numbers.Erase(open.address);
      Close(of, index, nullptr);
    });
  }
}

// A name belongs to the allocation at its address.
void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::Name& e,
                           const Place& place) {
  using format::NameKind;
  if (at.process == trace::kNoProcess)
    return Keep(place);
  const auto kind = static_cast<uint8_t>(e.kind);
  uint64_t hash = util::Mix64((uint64_t{e.name.value} << 32) | e.detail.value);
  hash = util::Mix64(hash ^ e.owner) ^ util::Mix64(e.size + kind);
  const auto keep_if_new = [&] {
    uint64_t& known = other_names_[{at.process.value, e.address, kind}];
    if (std::exchange(known, hash) != hash)
      Keep(place);
  };
  if (e.kind == NameKind::kPool || e.kind == NameKind::kPrivatePool)
    return keep_if_new();
  const auto give = [&](OpenOf& of) {
    const uint32_t index = of.numbers.Find(e.address);
    if (index == util::FlatMap::kNone)
      return false;
    Open& open = of.slab[index];
    const bool is_tag = e.kind == NameKind::kTag;
    if (!is_tag && std::any_of(open.names.begin(), open.names.end(),
                               [&](const NamePlace& name) { return name.hash == hash; }))
      return true;
    // A tag takes the place of the tag before it.
    if (is_tag && !open.names.empty() && open.names.back().is_tag &&
        !HasInstant(of, open.names.back().time_ns, now_ns_))
      open.names.pop_back();
    open.names.push_back({place, hash, now_ns_, is_tag});
    return true;
  };
  if (e.device.value >= 0) {
    if (!give(Of(at.process, e.device)))
      keep_if_new();
    return;
  }
  for (auto& [key, of] : open_) {
    if (key.first == at.process.value && give(of))
      return;
  }
  keep_if_new();
}

void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::Step& e,
                           const Place& place) {
  if (at.process == trace::kNoProcess)
    return;
  phases_.On(at, e);
  const std::pair<uint16_t, uint64_t> key{at.process.value, e.optimizer};
  if (e.kind == format::StepKind::kBegin)
    steps_[key] = place;
  else
    steps_.erase(key);
}

// A figure is valid until the next one: between two instants that are kept, only the last figure is
// needed. Samples are compared with the ledger just then: on both sides of such an instant.
void CompactionPlanner::OnFigure(const trace::EventContext& at,
                                 trace::DeviceId device,
                                 bool is_sample,
                                 uint64_t key,
                                 const Place& place) {
  const uint16_t process = is_sample ? 0 : at.process.value;
  Series& series = series_[{process, device.value, at.type, key}];
  if (device.value >= 0) {
    std::set<int64_t>& instants = instants_[static_cast<size_t>(device.value)];
    if (!series.seen && !is_sample)
      instants.insert(now_ns_);
    if (series.waits && HasOne(instants, series.time_ns, now_ns_ + 1)) {
      Keep(series.last);
      if (is_sample)
        Keep(place);
    }
  }
  if (!series.seen)
    Keep(place);
  series = {true, true, place, now_ns_};
}

void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::AllocatorTotals& e,
                           const Place& place) {
  OnFigure(at, e.device, false, 0, place);
}

// Kept are the values at the chosen instants of all devices, and new peaks, by a sixteenth.
void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::NvtxCounter& e,
                           const Place& place) {
  Series& series = series_[{at.process.value, trace::kNoDevice.value, at.type, e.counter}];
  const bool has_instant =
      std::any_of(instants_.begin(), instants_.end(), [&](const std::set<int64_t>& instants) {
        return HasOne(instants, series.time_ns, now_ns_ + 1);
      });
  if (series.waits && has_instant)
    Keep(series.last);
  const bool is_peak = e.bytes > series.most_bytes + series.most_bytes / 16;
  if (!series.seen || is_peak)
    Keep(place);
  series = {true, true, place, now_ns_, is_peak ? e.bytes : series.most_bytes};
}

void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::DeviceSample& e,
                           const Place& place) {
  OnFigure(at, e.device, true, 0, place);
}

void CompactionPlanner::On(const trace::EventContext& at,
                           const trace::ProcessSample& e,
                           const Place& place) {
  OnFigure(at, e.device, true, e.pid, place);
}

void CompactionPlanner::Cut(size_t file) {
  is_cut_[file] = true;
  const trace::ProcessId process = trace_.context(file).process;
  for (const auto& [key, series] : series_) {
    if (series.waits && streams_[series.last.source].first == file)
      Keep(series.last);
  }
  if (process == trace::kNoProcess)
    return;
  const auto end_of = [&](const resolve::Origin& origin) {
    return phases_.Outlived(process, origin) ? format::OriginEnd::kOutlived
                                             : format::OriginEnd::kOpen;
  };
  for (auto& [key, of] : open_) {
    if (key.first == process.value)
      of.slab.ForEach([&](uint32_t, const Open& open) { KeepOpen(open, end_of(open.origin)); });
  }
  for (const auto& [place, of, scope, origin] : others_) {
    if (of != process)
      continue;
    SetOrigin(place, origin, scope, end_of(origin));
  }
  for (const auto& [key, place] : steps_) {
    if (key.first == process.value)
      Keep(place);
  }
  if (const auto& last = phase_marks_[process.value].last())
    Keep(*last);
  CompactionPlan& plan = plans_[file];
  plan.knows_phases = phases_.Knows(process);
  plan.has_python = phases_.HasPython(process);
}

}  // namespace vramscope::compact
