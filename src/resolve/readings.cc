// SPDX-License-Identifier: Apache-2.0
// Driver memory that no call names: contexts, code, local memory, streams.
//
// The driver's free-memory figure is read around the calls that may move it. Per device these
// readings form one series over all threads and processes:
//
//   base sample        reading 1          reading 2        reading 3
//      |---- calls A ------|---- calls B -----|---- none -------|
//
// The gap of a reading is its figure less the ledger. What the gap grew between two readings, the
// explicit events between them being in the ledger already, belongs to the calls between them,
// jointly if several; it becomes rows, which closes the gap again. Where no call was there the gap
// stays open: that is residual, not somebody's memory.
//
// A reading taken while another thread was inside the driver proves nothing at its instant. That
// turns up only later, when that call's event arrives with a begin before the reading, and several
// readings may have been taken meanwhile; then what the first of them and those after it assigned
// is taken back, and the interval goes on to the next reading.
#include <algorithm>
#include <iterator>
#include <optional>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

constexpr size_t kMaxUnexplained = 256;
constexpr size_t kMaxOpenCalls = 4096;
constexpr size_t kMaxPastReadings = 32;
// Making a context takes a tenth of a second as a rule.
constexpr int64_t kLongestContextNs = 2'000'000'000;

format::ImplicitKind ImplicitKindOf(const trace::Event& event) {
  return event.subkind <= static_cast<uint8_t>(format::ImplicitKind::kOther)
             ? static_cast<format::ImplicitKind>(event.subkind)
             : format::ImplicitKind::kOther;
}

OpenCall CallOf(const trace::Event& event, Part part) {
  OpenCall call;
  call.begin_ns = event.begin_ns;
  call.end_ns = event.end_ns;
  call.process = event.process;
  call.part = part;
  call.api = event.api;
  call.name = event.name;
  call.stack = event.stack;
  call.native = event.native_stack;
  call.thread = event.thread;
  call.context = event.kind == trace::EventKind::kImplicit ? event.value : event.context;
  if (call.context == 0)
    call.context = event.kind == trace::EventKind::kImplicit ? event.context : event.address;
  return call;
}

// The part that a row for all these calls stands under: initialising the driver is part of making
// a context; other mixtures cannot be told apart.
Part JointPart(const std::vector<OpenCall>& calls) {
  Part joint = calls.front().part;
  for (const OpenCall& call : calls) {
    if (call.part == Part::kContext)
      return Part::kContext;
    if (call.part != joint)
      joint = Part::kSeveral;
  }
  return joint;
}

bool OnlyTakes(format::ImplicitKind kind, std::string_view api) {
  using format::ImplicitKind;
  return kind == ImplicitKind::kInit || kind == ImplicitKind::kFunction ||
         kind == ImplicitKind::kLaunch ||
         (kind == ImplicitKind::kStream && api.find("Destroy") == std::string_view::npos) ||
         (kind == ImplicitKind::kModule && api.find("Unload") == std::string_view::npos);
}

// Then no change says something too: the estimates were right.
bool AreArrays(const std::vector<OpenCall>& calls) {
  return std::all_of(calls.begin(), calls.end(),
                     [](const OpenCall& call) { return call.is_array; });
}

// Which takes memory for sure: where none shows, somebody else gave as much back.
bool MakeContext(const std::vector<OpenCall>& calls) {
  return std::any_of(calls.begin(), calls.end(),
                     [](const OpenCall& call) { return call.is_context_create; });
}

}  // namespace

uint32_t Ledger::NewSlowItem(SlowItem item) {
  slow_items_.push_back(std::move(item));
  return static_cast<uint32_t>(slow_items_.size() - 1);
}

void Ledger::ChangeSlow(uint32_t index, int64_t bytes) {
  if (bytes == 0)
    return;
  SlowItem& item = slow_items_[index];
  item.bytes += bytes;
  slow_log_.push_back({index, bytes, now_ns_});
  if (item.segment != kNoIndex)
    return ChangeSegment(segments_[item.segment], bytes, 0, 0);
  DeviceState& device = devices_[static_cast<size_t>(item.device.value)];
  Space* space = item.space == kNoIndex ? nullptr : &spaces_[item.space];
  Add(device, space, item.part, bytes);
}

std::string Ledger::TriggerText(const std::vector<OpenCall>& calls) const {
  std::vector<std::string> texts;
  for (const OpenCall& call : calls) {
    std::string text(trace_.string(call.api));
    const std::string_view name = trace_.string(call.name);
    if (!name.empty())
      text += (text.empty() ? "" : " ") + std::string(name);
    if (text.empty())
      text = PartName(call.part);
    if (std::find(texts.begin(), texts.end(), text) == texts.end())
      texts.push_back(std::move(text));
  }
  constexpr size_t kShown = 3;
  std::string joined;
  for (size_t i = 0; i < std::min(kShown, texts.size()); ++i)
    joined += (i == 0 ? "" : " + ") + texts[i];
  if (texts.size() > kShown)
    joined += " + " + std::to_string(texts.size() - kShown) + " more";
  return joined;
}

// ---- events
// -----------------------------------------------------------------------------------------

// A call inside the driver, seen when its event arrives. It spoils the last reading if it was under
// way then, and proves pending figures right if it was not.
void Ledger::NoteCall(DeviceState& device, int64_t begin_ns, int64_t end_ns) {
  CommitPending(device, begin_ns);
  ReadingSeries& series = device.readings;
  if (series.has_last && begin_ns < series.last_end_ns && end_ns > series.last_begin_ns)
    series.last_unclear = true;
  for (auto past = series.past.rbegin(); past != series.past.rend() && begin_ns < past->end_ns;
       ++past)
    past->unclear |= end_ns > past->begin_ns;
}

void Ledger::AddOpenCall(DeviceState& device, OpenCall call) {
  ReadingSeries& series = device.readings;
  if (!call.is_array && !series.unexplained.empty()) {
    // A long call whose memory showed in readings of other threads before it returned. What showed
    // before the base is settled; the last interval is open until the next reading.
    int64_t settled = 0;
    int64_t open = 0;
    std::erase_if(series.unexplained, [&](const ReadingSeries::Unexplained& change) {
      if (change.to_ns <= call.begin_ns || change.from_ns >= call.end_ns)
        return false;
      (change.to_ns == series.last_end_ns ? open : settled) += change.bytes;
      return true;
    });
    Change change(*this, device.id, call.begin_ns, call.end_ns);
    if (settled != 0) {
      const int64_t assigned = Assign(device, {call}, settled, call.end_ns, series.base_begin_ns);
      series.assigned.clear();
      series.base_gap -= assigned;
      series.last_gap -= assigned;
    }
    if (open != 0)
      series.last_gap -= Assign(device, {call}, open, call.end_ns, series.last_begin_ns);
  }
  if (series.after_last.size() < kMaxOpenCalls)
    series.after_last.push_back(std::move(call));
}

int64_t Ledger::DriverOwnedBytes(const trace::Event& event) const {
  int64_t bytes = 0;
  for (const SlowItem& item : slow_items_) {
    if (item.process == event.process && item.device == event.device && item.owner == kDriverOwned)
      bytes += item.bytes;
  }
  return bytes;
}

void Ledger::OnImplicit(const trace::Event& event) {
  const format::ImplicitKind kind = ImplicitKindOf(event);
  OpenCall call = CallOf(event, PartOf(kind));
  call.only_takes = OnlyTakes(kind, trace_.string(event.api));
  if (ValidDevice(event.device)) {
    SpaceIndex(event.process, event.device, event.time_ns);
    DeviceState& device = devices_[static_cast<size_t>(event.device.value)];
    NoteCall(device, event.begin_ns, event.end_ns);
    // A new limit, or a kernel that needs more than any before, gives the old local memory back
    // before it takes the new: a sample in between can show less than before and after.
    if (kind == format::ImplicitKind::kLimit || kind == format::ImplicitKind::kLaunch)
      NoteMovement(device, event.begin_ns, event.end_ns, -DriverOwnedBytes(event));
    AddOpenCall(device, call);
    return;
  }
  // cuInit and the like belong to no device and may take memory of each.
  for (DeviceState& device : devices_) {
    if (device.kind != trace::DeviceKind::kGpu)
      continue;
    if (!device.baseline_frozen)
      RewindBaseline(device, event);
    device.baseline_frozen = true;
    NoteCall(device, event.begin_ns, event.end_ns);
    AddOpenCall(device, call);
  }
}

void Ledger::OnContextCreate(const trace::Event& event) {
  if (!ValidDevice(event.device))
    return;
  const uint32_t space = SpaceIndex(event.process, event.device, event.time_ns);
  spaces_[space].driver_events = true;
  ++spaces_[space].live_contexts;
  DeviceState& device = DeviceOf(spaces_[space]);
  NoteCall(device, event.begin_ns, event.end_ns);
  spaces_[space].rm_wanted = true;  // not before: the call may settle an earlier context's part
  OpenCall call = CallOf(event, Part::kContext);
  call.is_context_create = call.only_takes = true;
  call.lasts = event.begin_ns == event.end_ns;
  AddOpenCall(device, std::move(call));
}

void Ledger::OnContextDestroy(const trace::Event& event) {
  if (!ValidDevice(event.device))
    return;
  ProcessState& process = processes_[event.process.value];
  const uint32_t space_index = SpaceIndex(event.process, event.device, event.time_ns);
  DeviceState& device = DeviceOf(spaces_[space_index]);
  NoteCall(device, event.begin_ns, event.end_ns);
  const uint64_t context = event.address != 0 ? event.address : event.context;
  Space& space = spaces_[space_index];
  if (space.live_contexts > 0)
    --space.live_contexts;
  const bool last = space.live_contexts == 0;
  {
    Change change(*this, device.id, event.begin_ns, event.end_ns);
    std::optional<Change> host;  // its pinned memory goes too
    if (ValidDevice(host_device_) && host_device_ != device.id)
      host.emplace(*this, host_device_, event.begin_ns, event.end_ns);
    EndHoldingsOfContext(process, context);
    for (uint32_t i = 0; i < slow_items_.size(); ++i) {
      const SlowItem& item = slow_items_[i];
      if (item.space != space_index || item.bytes == 0)
        continue;
      const bool driver_owned = item.owner == kDriverOwned || item.part == Part::kRmInternal;
      if (driver_owned && (last || (item.context == context && item.process == event.process)))
        ChangeSlow(i, -item.bytes);
    }
  }
  // Figures are now of less than was priced.
  space.brackets.clear();
  if (last)
    space.figure_gap = 0;
  AddOpenCall(device, CallOf(event, Part::kContext));
}

void Ledger::TakeBackAssigned(const std::vector<SlowChange>& assigned) {
  for (const SlowChange& change : assigned) {
    const int64_t bytes = std::max<int64_t>(slow_items_[change.item].bytes, 0);
    ChangeSlow(change.item, -std::min(change.bytes, bytes));
  }
}

// The last reading becomes the base, or the last one that was clear is. The calls since the base.
std::vector<OpenCall> Ledger::TakeBackUnclear(DeviceState& device, const trace::Event& reading) {
  ReadingSeries& series = device.readings;
  if (!series.has_last)
    return {};
  const auto first = std::find_if(series.past.begin(), series.past.end(),
                                  [](const PastReading& past) { return past.unclear; });
  PastReading last;
  last.begin_ns = series.last_begin_ns;
  last.end_ns = series.last_end_ns;
  last.base_gap = series.base_gap;
  last.base_begin_ns = series.base_begin_ns;
  last.calls = std::move(series.before_last);
  last.assigned = std::move(series.assigned);
  last.repriced = std::move(series.repriced);
  series.assigned.clear();
  series.repriced.clear();
  if (first == series.past.end() && !series.last_unclear) {
    series.base_gap = series.last_gap;
    series.base_begin_ns = series.last_begin_ns;
    if (series.past.size() == kMaxPastReadings)
      series.past.erase(series.past.begin());
    series.past.push_back(std::move(last));
    return {};
  }
  const auto kept = first - series.past.begin();
  series.past.push_back(std::move(last));
  std::vector<PastReading> taken(std::make_move_iterator(series.past.begin() + kept),
                                 std::make_move_iterator(series.past.end()));
  series.past.resize(static_cast<size_t>(kept));
  Change change(*this, device.id, taken.front().begin_ns, reading.end_ns);
  std::vector<OpenCall> calls;
  for (const PastReading& past : taken) {
    for (const OpenCall& call : past.calls) {
      // One that was under way during a reading stands before and after it.
      const auto is_same = [&](const OpenCall& other) {
        return other.process == call.process && other.thread == call.thread &&
               other.begin_ns == call.begin_ns && other.life == call.life;
      };
      if (std::none_of(calls.begin(), calls.end(), is_same))
        calls.push_back(call);
    }
  }
  std::for_each(taken.rbegin(), taken.rend(), [&](const PastReading& past) {
    TakeBackAssigned(past.assigned);
    TakeBackPrices(device, past.repriced);
  });
  DropShares(device);
  DropBrackets(device, taken.front().begin_ns);
  std::erase_if(series.unexplained, [&](const ReadingSeries::Unexplained& unexplained) {
    return unexplained.to_ns >= taken.front().end_ns;
  });
  series.base_gap = taken.front().base_gap;
  series.base_begin_ns = taken.front().base_begin_ns;
  return calls;
}

void Ledger::OnReading(const trace::Event& event) {
  if (!ValidDevice(event.device) || event.value < event.size)
    return;
  const uint32_t space = SpaceIndex(event.process, event.device, event.time_ns);
  DeviceState& device = DeviceOf(spaces_[space]);
  ReadingSeries& series = device.readings;
  const auto used = static_cast<int64_t>(event.value - event.size);
  const auto lasts = [&](const OpenCall& call) {
    return call.lasts && call.process != event.process &&
           event.begin_ns - call.begin_ns < kLongestContextNs;
  };
  const bool unclear =
      std::any_of(device.calls.begin(), device.calls.end(),
                  [&](const CallUnderWay& call) {
                    return call.end_ns > event.begin_ns && call.begin_ns < event.end_ns;
                  }) ||
      std::any_of(series.after_last.begin(), series.after_last.end(), lasts);
  if (!series.has_offset && !unclear && series.after_last.empty() && !device.samples.empty() &&
      series.has_last) {
    // Not one that was taken while something moved: before or after it, nobody knows.
    const DeviceSampleRecord& sample = device.samples.back();
    if (sample.version == device.version && sample.low == 0 && sample.high == 0 &&
        sample.end_ns <= event.begin_ns)
      ProposeOffset(device, used - static_cast<int64_t>(sample.used), event.end_ns);
  }
  std::vector<OpenCall> calls;
  if (!series.has_base) {
    // Nothing says what was used before: what these calls took cannot be told.
    for (const OpenCall& call : series.after_last)
      series.contexts_not_measured += call.is_context_create ? 1 : 0;
    series.has_base = true;
    series.base_gap = used - device.total;
  } else {
    const int64_t begin_ns = series.has_last ? series.last_begin_ns : event.begin_ns;
    calls = TakeBackUnclear(device, event);
    for (const OpenCall& call : series.after_last) {
      const auto is_same = [&](const OpenCall& other) {
        return other.lasts && call.lasts && other.process == call.process &&
               other.context == call.context;
      };
      if (std::none_of(calls.begin(), calls.end(), is_same))
        calls.push_back(call);
    }
    int64_t bytes = used - device.total - series.base_gap;
    int64_t from_ns = begin_ns;
    for (const OpenCall& call : calls)
      from_ns = std::min(from_ns, call.begin_ns);
    // What sinks may have been too high since the base: samples from there on are not judged by it.
    if (bytes < 0 && series.has_last)
      from_ns = std::min(from_ns, series.base_begin_ns);
    if (!calls.empty() && (bytes != 0 || AreArrays(calls) || MakeContext(calls))) {
      const bool first = !series.has_last && series.first_assigned_from_sample;
      series.first_log_index = first ? slow_log_.size() : series.first_log_index;
      series.first_assigned_ns = first ? from_ns : series.first_assigned_ns;
      Change change(*this, device.id, from_ns, event.end_ns);
      bytes -= Assign(device, calls, bytes, event.time_ns, event.begin_ns);
    }
    if (bytes != 0 && series.unexplained.size() < kMaxUnexplained)
      series.unexplained.push_back({begin_ns, event.end_ns, bytes});
  }
  for (OpenCall& call : calls)
    call.lasts = call.lasts && call.process != event.process;
  series.before_last = std::move(calls);
  series.after_last.clear();
  // A call that was still under way may take more after the reading.
  for (const OpenCall& call : series.before_last) {
    if (call.end_ns > event.begin_ns || lasts(call))
      series.after_last.push_back(call);
  }
  series.has_last = true;
  series.last_unclear = unclear;
  series.last_begin_ns = event.begin_ns;
  series.last_end_ns = event.end_ns;
  series.last_gap = used - device.total;
  series.last_used = event.value - event.size;
  series.last_version = device.version;
}

// ---- whose memory it is
// -----------------------------------------------------------------------------

int64_t Ledger::Assign(DeviceState& device,
                       const std::vector<OpenCall>& all,
                       int64_t bytes,
                       int64_t time_ns,
                       int64_t reading_ns) {
  std::vector<OpenCall> calls;
  for (const OpenCall& call : all) {
    if (!call.is_array)
      calls.push_back(call);
  }
  if (calls.empty())
    return AssignToArrays(device, all, bytes) ? bytes : 0;
  Bracket bracket;
  bracket.begin_ns = time_ns;
  for (const OpenCall& call : calls)
    bracket.begin_ns = std::min(bracket.begin_ns, call.begin_ns);
  bracket.reading_ns = reading_ns;
  bracket.end_ns = time_ns;
  bracket.taken_begin = slow_log_.size();
  const int64_t taken = bytes < 0 ? TakeBack(device, calls, -bytes) : 0;
  bracket.taken_end = slow_log_.size();
  const bool only_take =
      std::all_of(calls.begin(), calls.end(), [](const OpenCall& call) { return call.only_takes; });
  bracket.sank = bytes <= 0 && (only_take || taken < -bytes);
  // What shrinks by itself is as large as its rows say.
  if (bytes <= 0 && !bracket.sank && !IsShared(device, INT64_MIN))
    return -taken;
  const OpenCall& last = calls.back();
  const size_t space_at =
      last.process.value * devices_.size() + static_cast<size_t>(device.id.value);
  const uint32_t space = space_index_[space_at];
  if (space == kNoIndex)
    return -taken;
  SlowItem item;
  item.process = last.process;
  item.device = device.id;
  item.space = space;
  item.owner = kDriverOwned;
  item.part = JointPart(calls);
  item.bracketed = true;
  item.trigger = TriggerText(calls);
  item.api = last.api;
  item.stack = last.stack;
  item.native = last.native;
  item.thread = last.thread;
  item.alloc_ns = time_ns;
  for (const OpenCall& call : calls) {
    if (call.part != item.part)
      continue;
    item.api = call.api;
    item.stack = call.stack;
    item.native = call.native;
    item.thread = call.thread;
    item.context = call.context;
  }
  const Part part = item.part;
  const uint32_t index = NewSlowItem(std::move(item));
  const size_t log_index = slow_log_.size();
  if (bytes > 0) {
    ChangeSlow(index, bytes);
    device.readings.assigned.push_back({index, bytes, now_ns_});
  } else {
    slow_log_.push_back({index, 0, now_ns_});
  }
  const bool is_first = spaces_[space].context_item == kNoIndex && MakeContext(calls);
  if (part == Part::kContext && (bytes > 0 || is_first)) {
    // Beside the contexts stands what the kernel module has for them: for this one not known yet.
    if (spaces_[space].rm_item == kNoIndex) {
      SlowItem rm;
      rm.device = device.id;
      rm.space = space;
      rm.owner = kNoOwner;
      rm.part = Part::kRmInternal;
      rm.bracketed = true;
      spaces_[space].rm_item = NewSlowItem(std::move(rm));
    }
    SlowItem& rm = slow_items_[spaces_[space].rm_item];
    rm.alloc_ns = rm.bytes == 0 ? time_ns : rm.alloc_ns;
    spaces_[space].context_item = index;
    spaces_[space].context_log_index = log_index;
    slow_log_.push_back({spaces_[space].rm_item, 0, now_ns_});
  }
  bracket.log_index = log_index;
  if (device.baseline_item != kNoIndex) {
    bracket.others_log_index = slow_log_.size();
    slow_log_.push_back({device.baseline_item, 0, now_ns_});
  }
  AddBracket(space, bracket);
  if (bytes > 0)
    ShareOut(device, calls, index, bracket);
  return bytes > 0 ? bytes : -taken;
}

// Memory that went back: first from rows of the same parts, then from any other driver-owned row,
// newest first, the context last. Returns what was found.
int64_t Ledger::TakeBack(DeviceState& device, const std::vector<OpenCall>& calls, int64_t bytes) {
  const trace::ProcessId process = calls.back().process;
  int64_t left = bytes;
  const auto take = [&](auto matches) {
    for (auto i = static_cast<uint32_t>(slow_items_.size()); i-- > 0 && left > 0;) {
      const SlowItem& item = slow_items_[i];
      if (item.process != process || item.device != device.id || item.owner != kDriverOwned ||
          item.bytes <= 0 || !matches(item))
        continue;
      const int64_t taken = std::min(left, item.bytes);
      ChangeSlow(i, -taken);
      left -= taken;
    }
  };
  take([&](const SlowItem& item) {
    return std::any_of(calls.begin(), calls.end(),
                       [&](const OpenCall& call) { return call.part == item.part; });
  });
  take([](const SlowItem& item) { return item.part != Part::kContext; });
  take([](const SlowItem&) { return true; });
  return bytes - left;
}

}  // namespace vramscope::resolve
