// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/price.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "resolve/price/book.h"
#include "resolve/price/call_set.h"
#include "resolve/price/checkpoints.h"
#include "resolve/price/figures.h"
#include "resolve/price/freed_memory.h"
#include "resolve/price/left_over.h"
#include "resolve/price/managed.h"
#include "resolve/price/results.h"
#include "resolve/price/series.h"
#include "resolve/price/unexplained.h"

namespace vramscope::resolve::price {
namespace {

using format::Part;
using Kind = ImplicitCall::Kind;

// Events with the same time are handled in this order.
enum class What : uint8_t {
  kMove,
  kManaged,
  kCall,
  kCheckpoint,
  kSample,
  kLateStart,
  kFigure,
  kReading,
  kInterval,
  kEnd
};

struct Entry {
  int64_t time_ns;
  What what;
  size_t number;
};

class Pricer {
 public:
  explicit Pricer(const DeviceInput& input)
      : input_(input),
        series_(MakeSeries(input)),
        arrays_(PriceArrays(input, series_)),
        book_(input.processes.size()),
        managed_(input, &book_),
        figures_(input, series_.offset.has_value(), managed_, &book_),
        checkpoints_(input, book_),
        kept_(input, &book_),
        others_(input, &book_, &figures_),
        unexplained_(input, &book_),
        live_contexts_(input.processes.size()),
        left_over_(input, &book_),
        moving_(input, checkpoints_, &book_),
        before_(input.processes.size(), kNone) {
    moved_.push_back(0);
    for (const Move& move : input.moves) {
      bytes_.push_back(move.array == kNone ? move.bytes
                                           : (move.bytes < 0 ? -1 : 1) * arrays_[move.array].bytes);
      moved_.push_back(moved_.back() + bytes_.back());
    }
  }

  DevicePrices Price() {
    NoteUnsettled();
    for (const Entry& entry : InOrder())
      Apply(entry);
    DevicePrices out;
    out.arrays = std::move(arrays_);
    out.reading_offset = series_.offset;
    out.contexts_not_measured = CountUnknownContexts();
    out.checkpointed = checkpoints_.found();
    out.unsettled = std::move(unsettled_);
    out.has_others = figures_.HasOthers(INT64_MIN);
    out.missing = unexplained_.TakeMissing();
    managed_.Split();
    Results(input_, series_, bytes_, book_, checkpoints_, figures_).Fill(&out);
    return out;
  }

 private:
  std::vector<Entry> InOrder() const;
  void Apply(const Entry& entry);
  void NoteUnsettled();
  uint64_t CountUnknownContexts() const;
  void NoteCheckpoints();
  void OnMove(size_t number);
  void OnCall(uint32_t number);
  void OnSample(size_t number);
  bool IsUnsettled(const When& sample) const;
  void OnFigure(size_t number);
  void OnLateStart(const LateStart& start);
  void OnEnd(uint32_t process);
  void OnInterval(const Interval& interval);
  void Assign(const Interval& interval, const CallSet& calls, int64_t bytes);
  int64_t TouchedBy(const CallSet& calls, const When& when, int64_t bytes);
  int64_t OverfreedBy(const CallSet& calls, int64_t bytes) const;
  void ShareOut(const CallSet& calls, uint32_t holder, const Estimate& estimate);
  void EndRow(uint32_t row, const When& when);
  // Known moves of memory other than by explicit calls.
  void NoteHidden(int64_t time_ns, int64_t bytes) {
    if (bytes == 0)
      return;
    const auto after = std::partition_point(
        hidden_.begin(), hidden_.end(), [&](const auto& noted) { return noted.first <= time_ns; });
    hidden_.emplace(after, time_ns, bytes);
  }
  int64_t KnownIn(int64_t from_ns, int64_t to_ns) const;
  int64_t GiveToKept(const When& figure, int64_t bytes);
  bool IsGone(uint32_t process, int64_t time_ns) const {
    return process >= input_.processes.size() ||
           (input_.processes[process].end && input_.processes[process].end->time_ns <= time_ns);
  }

  const DeviceInput& input_;
  const Series series_;
  std::vector<ArrayPrice> arrays_;
  std::vector<int64_t> bytes_;  // of each explicit call, arrays at their prices
  std::vector<int64_t> moved_;  // sums before each of them
  Book book_;
  Managed managed_;
  Figures figures_;
  Checkpoints checkpoints_;
  Kept kept_;
  Others others_;
  Unexplained unexplained_;
  std::vector<uint32_t> live_contexts_;  // by process
  LeftOver left_over_;
  Moving moving_;
  std::vector<uint32_t> before_;  // by process: the row of its memory from before recording
  std::vector<std::pair<int64_t, int64_t>> hidden_;  // time, bytes
  size_t checkpoints_seen_ = 0;
  std::vector<Unsettled> unsettled_;
  Spans unsettled_spans_;
};

std::vector<Entry> Pricer::InOrder() const {
  std::vector<Entry> entries;
  const auto add = [&](What what, const auto& all, auto time_of) {
    for (size_t i = 0; i < all.size(); ++i)
      entries.push_back({time_of(all[i]), what, i});
  };
  const auto time_of = [](const auto& entry) { return entry.when.time_ns; };
  add(What::kMove, input_.moves, time_of);
  add(What::kManaged, input_.managed_moves, time_of);
  add(What::kCall, input_.calls, time_of);
  add(What::kCheckpoint, input_.checkpoints, time_of);
  add(What::kSample, input_.samples, time_of);
  add(What::kLateStart, series_.late_starts, [](const LateStart& start) { return start.time_ns; });
  add(What::kFigure, input_.figures, time_of);
  add(What::kReading, input_.readings, time_of);
  add(What::kInterval, series_.intervals,
      [&](const Interval& interval) { return interval.until.time_ns; });
  for (size_t i = 0; i < input_.processes.size(); ++i) {
    if (input_.processes[i].end)
      entries.push_back({input_.processes[i].end->time_ns, What::kEnd, i});
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.what < b.what;
  });
  return entries;
}

// Counts contexts that have no price from readings or NVML's figures, and are not among the memory
// from before the recording.
uint64_t Pricer::CountUnknownContexts() const {
  const auto has_row = [&](uint32_t process) {
    return std::any_of(book_.rows().begin(), book_.rows().end(), [&](const Book::Row& row) {
      return row.account == process && row.counter.part == Part::kContext;
    });
  };
  return static_cast<uint64_t>(
      std::count_if(series_.unpriced.begin(), series_.unpriced.end(), [&](uint32_t number) {
        const ImplicitCall& call = input_.calls[number];
        const bool was_before = call.process < before_.size() && before_[call.process] != kNone;
        return call.kind == Kind::kContextCreate && !was_before && !has_row(call.process);
      }));
}

void Pricer::Apply(const Entry& entry) {
  switch (entry.what) {
    case What::kMove:
      OnMove(entry.number);
      break;
    case What::kManaged:
      NoteHidden(entry.time_ns, managed_.OnMove(input_.managed_moves[entry.number]));
      break;
    case What::kCall:
      OnCall(static_cast<uint32_t>(entry.number));
      break;
    case What::kCheckpoint:
      checkpoints_.OnCheckpoint(input_.checkpoints[entry.number]);
      NoteHidden(entry.time_ns, moving_.End(input_.checkpoints[entry.number].when));
      break;
    case What::kSample:
      OnSample(entry.number);
      if (!moving_.goes_on()) {
        const int64_t next_ns = entry.time_ns + 1;
        NoteHidden(next_ns, moving_.End({next_ns, next_ns, next_ns}));
      }
      break;
    case What::kLateStart:
      OnLateStart(series_.late_starts[entry.number]);
      break;
    case What::kFigure:
      OnFigure(entry.number);
      break;
    case What::kReading:
      checkpoints_.OnCall(input_.readings[entry.number].process, entry.time_ns);
      break;
    case What::kInterval:
      OnInterval(series_.intervals[entry.number]);
      break;
    case What::kEnd:
      OnEnd(static_cast<uint32_t>(entry.number));
      break;
  }
  NoteCheckpoints();
}

void Pricer::NoteCheckpoints() {
  for (; checkpoints_seen_ < checkpoints_.changes().size(); ++checkpoints_seen_) {
    const Checkpoints::Change& change = checkpoints_.changes()[checkpoints_seen_];
    if (change.is_known)
      continue;
    const int64_t total = book_.WithRm(change.process);
    NoteHidden(change.when.time_ns, change.leaves ? -total : total);
    if (change.leaves) {
      figures_.OnLeft(change.process);  // less memory may come back
      unexplained_.OnReason(change.when);
    } else {
      left_over_.OnRestore(change.process, change.when);
    }
  }
}

// The memory of calls is known from the reading after them on.
void Pricer::NoteUnsettled() {
  for (const Interval& interval : series_.intervals) {
    const int64_t end_ns = interval.until.time_ns;
    int64_t begin_ns = end_ns;
    for (const uint32_t call : interval.calls) {
      begin_ns = std::min(begin_ns, series_.calls[call].begin_ns);
      figures_.AddBusy(input_.calls[call].process, series_.calls[call].begin_ns, end_ns);
    }
    if (!interval.calls.empty())
      unsettled_.push_back({begin_ns, end_ns});
  }
  for (const uint32_t call : series_.unpriced) {
    // A sample shows what the kernel module keeps for it: see Kept.
    if (input_.calls[call].kind == Kind::kInit)
      continue;
    const When& when = series_.calls[call];
    const std::optional<When>& end = input_.processes[input_.calls[call].process].end;
    // A later base figure includes it.
    const auto next = std::partition_point(
        series_.intervals.begin(), series_.intervals.end(),
        [&](const Interval& interval) { return interval.from_begin_ns < when.end_ns; });
    const int64_t until_ns = std::min(next == series_.intervals.end() ? kNever : next->from_ns,
                                      end ? end->end_ns : kNever);
    figures_.AddBusy(input_.calls[call].process, when.begin_ns, until_ns);
    unsettled_.push_back({when.begin_ns, until_ns});
  }
  for (const Unsettled& span : unsettled_)
    unsettled_spans_.Add(span.begin_ns, span.end_ns);
  unsettled_spans_.Sort();
  figures_.Prepare();
}

// ---- known changes

void Pricer::OnMove(size_t number) {
  const Move& move = input_.moves[number];
  const int64_t bytes = bytes_[number];
  if (bytes > 0 || move.asks) {
    checkpoints_.OnCall(move.process, move.when.time_ns);
    NoteCheckpoints();
  }
  book_.Move(move.process, bytes);
  if (checkpoints_.IsCheckpointed(move.process))
    NoteHidden(move.when.time_ns, -bytes);
  const uint32_t before = move.process < before_.size() ? before_[move.process] : kNone;
  if (!move.from_before || before == kNone)
    return;
  const int64_t taken = std::min(bytes, book_.row(before).bytes);
  book_.Change(before, move.when, -taken);
  NoteHidden(move.when.time_ns, -taken);
}

void Pricer::OnCall(uint32_t number) {
  const ImplicitCall& call = input_.calls[number];
  if (IsGone(call.process, call.when.time_ns))
    return;
  if (call.kind != Kind::kContextDestroy) {
    checkpoints_.OnCall(call.process, call.when.time_ns);
    NoteCheckpoints();
  }
  uint32_t& live = live_contexts_[call.process];
  if (call.kind == Kind::kContextCreate) {
    live += call.is_primary && left_over_.IsParked(call.process) ? 0u : 1u;
    if (!call.is_primary || !left_over_.TakeParked(call.process))
      figures_.OnContextCreate(call.process);
    kept_.OnContext(call.process);
    checkpoints_.OnContexts(call.process, true);
  }
  if (call.kind == Kind::kInit && live == 0)
    kept_.OnNoContext(call.process, call.when);
  if (call.kind != Kind::kContextDestroy)
    return;
  if (call.is_primary) {
    left_over_.OnPrimaryEnd(call.process, call.context, call.when);
    checkpoints_.OnContexts(call.process, live > 1);
    return figures_.OnContextDestroy(call.process, false);
  }
  live -= live > 0 ? 1 : 0;
  checkpoints_.OnContexts(call.process, live > (left_over_.IsParked(call.process) ? 1u : 0u));
  for (uint32_t i = 0; i < book_.rows().size(); ++i) {
    const Book::Row& row = book_.row(i);
    const bool is_drivers = IsDriverPart(row.counter.part) || row.counter.part == Part::kRmInternal;
    const bool is_of_it = row.counter.context == call.context && !row.of_primary;
    if (row.account == call.process && is_drivers && !kept_.Has(i) && (live == 0 || is_of_it))
      EndRow(i, call.when);
  }
  figures_.OnContextDestroy(call.process, live == 0);
  if (live == 0)
    kept_.OnNoContext(call.process, call.when);
}

void Pricer::OnEnd(uint32_t process) {
  const When& end = *input_.processes[process].end;
  left_over_.OnEnd(process);
  for (uint32_t i = 0; i < book_.rows().size(); ++i) {
    if (book_.row(i).account == process)
      EndRow(i, end);
  }
  NoteHidden(end.time_ns, managed_.OnEnd(process, end));
  const bool is_last = std::all_of(
      input_.processes.begin(), input_.processes.end(),
      [&](const Process& other) { return other.end && other.end->time_ns <= end.time_ns; });
  for (const uint32_t row : unexplained_.rows()) {
    if (is_last)
      EndRow(row, end);
  }
  figures_.OnGone(process);
  kept_.OnEnd(process);
  checkpoints_.OnEnd(process, end.time_ns);
}

void Pricer::EndRow(uint32_t row, const When& when) {
  const int64_t bytes = book_.row(row).bytes;
  if (bytes == 0)
    return;
  book_.Change(row, when, -bytes);
  if (!checkpoints_.IsCheckpointed(book_.row(row).account))
    NoteHidden(when.time_ns, -bytes);
}

int64_t Pricer::KnownIn(int64_t from_ns, int64_t to_ns) const {
  const auto moved_until = [&](int64_t time_ns) {
    const auto after =
        std::partition_point(input_.moves.begin(), input_.moves.end(),
                             [&](const Move& move) { return move.when.time_ns <= time_ns; });
    return moved_[static_cast<size_t>(after - input_.moves.begin())];
  };
  int64_t bytes = moved_until(to_ns) - moved_until(from_ns);
  for (auto hidden = hidden_.rbegin(); hidden != hidden_.rend() && hidden->first > from_ns;
       ++hidden)
    bytes += hidden->second;
  return bytes;
}

// ---- other processes, and memory from before recording

void Pricer::OnSample(size_t number) {
  const DeviceSample& sample = input_.samples[number];
  if (series_.baseline[number])
    others_.Change(sample.when, sample.used_bytes - checkpoints_.DeviceTotal());
  checkpoints_.OnSample(sample);
  const bool is_unsettled = IsUnsettled(sample.when);
  if (series_.calm_but_for_checkpoints[number] && !is_unsettled)
    NoteHidden(sample.when.time_ns,
               moving_.OnSample(sample.when, sample.used_bytes - checkpoints_.DeviceTotal()));
  const bool may_be_others =
      managed_.IsUsed() || others_.are_listed() || figures_.HasOthers(INT64_MIN);
  if (series_.calm_but_for_ends[number] && !is_unsettled && !may_be_others) {
    const int64_t more = sample.used_bytes - checkpoints_.DeviceTotal();
    if (const std::optional<StepRef> left = left_over_.Leave(sample.when, more))
      NoteHidden(book_.step(*left).when.time_ns, book_.step(*left).bytes);
  }
  if (!series_.calm[number])
    return;
  int64_t unknown = sample.used_bytes - checkpoints_.DeviceTotal();
  const auto take = [&](int64_t bytes) {
    NoteHidden(sample.when.time_ns, bytes);
    unknown -= bytes;
  };
  if (!is_unsettled)
    take(-left_over_.TakeBackRestored(sample.when, -unknown));
  if (others_.are_listed() || figures_.HasOthers(INT64_MIN)) {
    const int64_t bytes = is_unsettled ? 0 : others_.OnQuiet(sample, unknown);
    return NoteHidden(sample.when.time_ns, bytes);
  }
  if (managed_.IsUsed() && !is_unsettled)
    take(managed_.OnFigure(sample.when, unknown));
  take(-left_over_.TakeBackParked(sample.when, -unknown));
  unknown -= GiveToKept(sample.when, unknown);
  if (is_unsettled)
    return unexplained_.OnUnsettled(sample, unknown);
  for (const StepRef& ref : unexplained_.OnQuiet(sample, unknown))
    NoteHidden(book_.step(ref).when.time_ns, book_.step(ref).bytes);
}

void Pricer::OnFigure(size_t number) {
  const uint32_t process = input_.figures[number].process;
  checkpoints_.OnFigure(input_.figures[number]);
  NoteCheckpoints();
  const int64_t managed_bytes = managed_.used_bytes();
  figures_.OnFigure(number, checkpoints_.IsCheckpointed(process));
  // The figure moved bytes that looked like pages to a row of calls. Later pages exceeded what
  // managed memory could then have, and counted as unexplained.
  const int64_t fewer_bytes = managed_bytes - managed_.used_bytes();
  unexplained_.MoveToManaged(std::min(fewer_bytes, managed_.RoomBytes()), &managed_);
}

// Returns how many of the bytes without a row at that figure the kernel module keeps.
int64_t Pricer::GiveToKept(const When& figure, int64_t bytes) {
  int64_t given = 0;
  for (const StepRef& ref : kept_.OnQuiet(figure, bytes)) {
    const Step& step = book_.step(ref);
    NoteHidden(step.when.time_ns, step.bytes);
    given += step.bytes;
  }
  return given;
}

// Calls are unpriced until the next reading, or the order of a reading and the sample is unknown.
bool Pricer::IsUnsettled(const When& sample) const {
  const int64_t from_ns = sample.begin_ns - kClockErrorNs;
  const int64_t to_ns = sample.end_ns + kClockErrorNs;
  const auto reading =
      std::partition_point(input_.readings.begin(), input_.readings.end(),
                           [&](const Reading& other) { return other.when.time_ns < from_ns; });
  return unsettled_spans_.Overlap(from_ns, to_ns) ||
         (reading != input_.readings.end() && reading->when.begin_ns <= to_ns);
}

// A process that began late had before: NVML's process figure less its known memory. Until then,
// that memory counted as other processes'.
void Pricer::OnLateStart(const LateStart& start) {
  const When when{start.since_ns, start.since_ns, start.since_ns};
  const int64_t figure = input_.figures[start.figure].used_bytes - start.taken_bytes;
  Counter counter;
  counter.process = start.process;
  counter.part = Part::kBeforeRecording;
  const uint32_t row = book_.Add(std::move(counter), start.process);
  before_[start.process] = row;
  book_.Change(row, when, std::max<int64_t>(0, figure - book_.TotalOf(start.process)));
  figures_.OnLateStartSettled(start.process);
  if (!start.sample)
    return;
  others_.Change(when, 0);
  const int64_t others = others_.bytes();
  // What moved between the two figures.
  const DeviceSample& sample = input_.samples[*start.sample];
  const int64_t later = sample.when.time_ns < start.time_ns
                            ? -KnownIn(sample.when.time_ns, start.time_ns)
                            : KnownIn(start.time_ns, sample.when.time_ns);
  const int64_t taken = sample.when.begin_ns < start.taken_until_ns ? start.taken_bytes : 0;
  const int64_t left = sample.used_bytes - taken - later - (checkpoints_.DeviceTotal() - others);
  int64_t rest = std::max<int64_t>(0, left);
  // What came with its context is in the device's figure and not in its own.
  if (figure > kNearlyNothing && rest > 0 && rest <= kLargestRm && !others_.are_listed()) {
    Counter module;
    module.part = Part::kRmInternal;
    book_.Change(book_.Add(std::move(module), start.process), when, rest);
    rest = 0;
  }
  others_.Change(when, rest - others);
}

// ---- memory of calls between two figures

void Pricer::OnInterval(const Interval& interval) {
  const int64_t to_ns = interval.until.time_ns;
  const CallSet calls = CallSet(input_, interval.calls).Only([&](const ImplicitCall& call) {
    return !IsGone(call.process, to_ns);
  });
  int64_t bytes = interval.growth_bytes - KnownIn(interval.from_ns, to_ns);
  const Managed::Unpaid unpaid = managed_.TakeUnpaid();
  if (calls.empty()) {
    // Another process's move would look the same.
    if (!managed_.IsUsed() || others_.are_listed() || figures_.HasOthers(INT64_MIN))
      return;
    const int64_t moved = managed_.OnFigure(interval.until, bytes);
    NoteHidden(to_ns, moved);
    // It was the UVM driver's: rows of calls have that much too much.
    if (unpaid.bytes > 0 && moved - bytes == unpaid.bytes)
      NoteHidden(to_ns, -TakeFromDriver(unpaid.process, interval.until, unpaid.bytes, &book_));
    return;
  }
  // A process has no context on a GPU that it initializes but does not use.
  if (calls.All([](const ImplicitCall& call) { return call.kind == Kind::kInit; }))
    bytes -= GiveToKept(interval.until, bytes);
  if (bytes != 0 || calls.Has(Kind::kContextCreate))
    Assign(interval, calls, bytes);
}

// Kernels may touch managed memory while calls load their code. Until NVML's process figure shows
// more, growth that looks like the UVM driver's steps counts as its own.
int64_t Pricer::TouchedBy(const CallSet& calls, const When& when, int64_t bytes) {
  const bool may_move = calls.Has(Part::kUvmDriver);
  const bool only_moves = calls.AreAll(Part::kUvmDriver);
  const bool may_touch = may_move || calls.All([](const ImplicitCall& call) {
    return call.part == Part::kLaunch || call.part == Part::kGraphs || call.part == Part::kCode;
  });
  // These calls free nothing and allocate nothing, so the bytes are from freed managed memory.
  const bool cannot = calls.All([&](const ImplicitCall& call) {
    return bytes < 0 ? call.only_takes : call.kind == Kind::kContextDestroy;
  });
  // The memory was on the host, or the driver keeps its chunks: no call takes exactly as much.
  const bool is_what_was_freed = bytes > 0 && bytes == managed_.freed_bytes();
  const bool is_known = cannot || may_move || is_what_was_freed;
  if (!managed_.IsUsed() ||
      !(only_moves || cannot || is_what_was_freed || (bytes > 0 && may_touch)))
    return 0;
  const int64_t touched = only_moves
                              ? managed_.OnMovedPages(when, bytes)
                              : managed_.OnCalls(when, is_known ? bytes : managed_.LikelyOf(bytes));
  NoteHidden(when.time_ns, touched);
  return touched;
}

// The end of a primary context frees its managed memory, whose resident part is estimated. If the
// estimate is wrong, the context's own memory is freed first, and managed memory is the rest.
// `bytes`: the growth without the estimate. Returns by how much the estimate was too high.
int64_t Pricer::OverfreedBy(const CallSet& calls, int64_t bytes) const {
  const ImplicitCall* const end = EndOfPrimary(calls);
  const auto takes_nothing = [](const ImplicitCall& call) {
    return call.kind == Kind::kContextDestroy;
  };
  if (end == nullptr || (bytes >= 0 && !calls.All(takes_nothing)))
    return 0;
  return std::min(managed_.freed_bytes(), OwnBytesOf(*end, book_) + bytes);
}

void Pricer::Assign(const Interval& interval, const CallSet& calls, int64_t bytes) {
  const CallSet takers = calls.ThatMayTake();
  const uint32_t process = takers.last().process;
  // A decreasing row may have been too high since the base, so samples from there on are not
  // compared with it.
  When when{INT64_MIN, bytes < 0 ? interval.from_begin_ns : INT64_MAX, INT64_MIN};
  bool only_take = true;
  for (const uint32_t call : calls) {
    when.time_ns = std::max(when.time_ns, series_.calls[call].time_ns);
    when.begin_ns = std::min(when.begin_ns, series_.calls[call].begin_ns);
    when.end_ns = std::max(when.end_ns, series_.calls[call].end_ns);
    only_take = only_take && input_.calls[call].only_takes;
  }
  // A kernel may touch pages until a figure shows them.
  const When until{when.time_ns, when.begin_ns, std::max(when.end_ns, interval.until.end_ns)};
  if (const int64_t overfreed = OverfreedBy(calls, bytes); overfreed > 0) {
    const int64_t corrected = managed_.OnCalls(until, overfreed);
    NoteHidden(until.time_ns, corrected);
    bytes -= corrected;
  }
  bytes -= TouchedBy(bytes > 0 ? takers : calls, until, bytes);
  // Moves of pages are in no process figure.
  if (bytes == 0 && calls.AreAll(Part::kUvmDriver))
    return;
  Estimate estimate;
  estimate.begin_ns = when.begin_ns;
  estimate.end_ns = interval.until.time_ns;
  int64_t taken = 0;
  if (bytes < 0) {
    estimate.taken = TakeFreed(calls, when, -bytes, &book_);
    for (const StepRef& ref : estimate.taken)
      taken -= book_.step(ref).bytes;
  }
  estimate.sank = bytes <= 0 && (only_take || taken < -bytes);
  if (!only_take && others_.are_listed())
    AddCandidates(calls, when, &book_, &estimate.taken);
  // Memory that only shrinks is as large as its rows.
  if (bytes <= 0 && !estimate.sank && !figures_.IsShared(INT64_MIN))
    return;
  const Part part = takers.JointPart();
  const uint32_t row = book_.Add(takers.AsCounter(part), process);
  estimate.own = book_.Change(row, when, std::max<int64_t>(bytes, 0));
  estimate.is_context =
      part == Part::kContext &&
      (bytes > 0 || (calls.Has(Kind::kContextCreate) && !figures_.HasContext(process)));
  figures_.OnPriced(process, estimate);
  if (bytes > 0)
    ShareOut(calls, row, estimate);
}

// Rows of 0 bytes for the other processes of these calls: their figures may add bytes.
void Pricer::ShareOut(const CallSet& calls, uint32_t holder, const Estimate& estimate) {
  std::vector<uint32_t> processes{book_.row(holder).account};
  for (const uint32_t first : calls) {
    const uint32_t process = input_.calls[first].process;
    if (std::find(processes.begin(), processes.end(), process) != processes.end())
      continue;
    processes.push_back(process);
    const CallSet own =
        calls.Only([&](const ImplicitCall& call) { return call.process == process; });
    Estimate share = estimate;
    share.taken.clear();
    share.is_context = false;
    const uint32_t row = book_.Add(own.AsCounter(book_.row(holder).counter.part), process);
    share.own = book_.Change(row, book_.step(estimate.own).when, 0);
    figures_.OnPricedTogether(process, std::move(share), estimate.own);
  }
}

}  // namespace

DevicePrices PriceDevice(const DeviceInput& input) {
  return Pricer(input).Price();
}

}  // namespace vramscope::resolve::price
