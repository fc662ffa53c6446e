// SPDX-License-Identifier: Apache-2.0 Finds figures of the device that can be compared, and the
// calls between them.
#include "resolve/price/series.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace vramscope::resolve::price {
namespace {

// Making a context usually takes a tenth of a second.
constexpr int64_t kLongestContextNs = 2'000'000'000;
// A reading usually follows its call at once, unless other threads are busy.
constexpr int64_t kLateReadingNs = 50'000'000;

// A figure from which later changes are counted.
struct Base {
  int64_t time_ns = 0;
  int64_t begin_ns = 0;
  int64_t used_bytes = 0;
  bool is_sample = false;
};

Interval Between(const Base& base, const When& until, int64_t used_bytes) {
  Interval interval;
  interval.until = until;
  interval.from_ns = base.time_ns;
  interval.from_begin_ns = base.begin_ns;
  interval.used_bytes = used_bytes;
  interval.growth_bytes = used_bytes - base.used_bytes;
  return interval;
}

class SeriesMaker {
 public:
  explicit SeriesMaker(const DeviceInput& input) : input_(input) {}

  Series Make() {
    EndOpenCalls();
    FindLateStarts();
    FindPeriods();
    CollectSpans();
    AvoidCallsUnderWay();
    CollectPaged();
    FindOffset();
    MakeIntervals();
    PlaceCalls();
    CloseBySamples(busy_);
    CloseBySamples(uncertain_);
    CloseBySamples(uncertain_but_ends_);
    CloseEarlier();
    return std::move(out_);
  }

 private:
  struct Period {
    int64_t begin_ns;
    int64_t counted_ns;  // before the first counted call
    int64_t end_ns;
  };

  void EndOpenCalls();
  void FindLateStarts();
  void FindTaken(LateStart* start) const;
  void FindPeriods();
  void CollectSpans();
  void AvoidCallsUnderWay();
  void CollectPaged();
  void FindOffset();
  void MakeIntervals();
  void PlaceCalls();
  void CloseBySamples(const Spans& not_during);
  void CloseEarlier();
  const DeviceSample* FindQuiet(int64_t from_ns, int64_t to_ns) const;
  Interval CutAt(const DeviceSample& sample, Interval* interval) const;
  bool IsClear(const Reading& reading) const {
    return !busy_.Overlap(reading.when.begin_ns, reading.when.end_ns);
  }
  static bool IsOutside(const Spans& spans, const DeviceSample& sample) {
    return !spans.Overlap(sample.when.begin_ns - kClockErrorNs, sample.when.end_ns + kClockErrorNs);
  }
  bool IsQuiet(const DeviceSample& sample) const { return IsOutside(busy_, sample); }
  int64_t MovedUntil(int64_t time_ns) const {
    const auto after =
        std::upper_bound(input_.moves.begin(), input_.moves.end(), time_ns,
                         [](int64_t ns, const Move& move) { return ns < move.when.time_ns; });
    return moved_[static_cast<size_t>(after - input_.moves.begin())];
  }
  // The first event of each process that uses the device, and the last one before its end.
  struct Presence {
    int64_t first_ns = kNever;
    int64_t counted_ns = kNever;
    int64_t last_ns = INT64_MIN;
    void Note(const When& when) {
      first_ns = std::min(first_ns, when.begin_ns);
      counted_ns = std::min(counted_ns, when.time_ns);
      last_ns = std::max(last_ns, when.end_ns);
    }
  };
  // Null if it has none.
  const When* EndOf(uint32_t process) const {
    const bool ends = process < input_.processes.size() && input_.processes[process].end;
    return ends ? &*input_.processes[process].end : nullptr;
  }
  bool IsEnd(const Move& move) const {
    const When* const end = EndOf(move.process);
    return end != nullptr && end->time_ns == move.when.time_ns;
  }

  const DeviceInput& input_;
  Series out_;
  std::vector<Presence> presences_;
  std::vector<Period> periods_;  // a recorded process used the device
  Spans busy_;                   // calls of any kind, ends
  Spans calling_;                // calls of any kind, ends of processes with a context
  Spans moving_;                 // explicit ones that moved memory, and ends
  Spans unpriced_;               // implicit calls, ends, checkpoints
  Spans uncertain_;              // these, and calls that made or freed arrays
  Spans uncertain_but_ends_;     // these, with ends extended until they are noticed
  Spans paged_;                  // while managed memory is live
  std::vector<bool> resets_;     // by sample: intervals begin anew at it
  std::vector<int64_t> moved_;   // by explicit calls, before each of them
  std::vector<bool> tails_;      // of the intervals, those whose reading is not clear
};

// A context that the driver made implicitly ends before the next reading of its process.
void SeriesMaker::EndOpenCalls() {
  for (const ImplicitCall& call : input_.calls) {
    When when = call.when;
    if (call.until_reading) {
      when.end_ns = when.begin_ns + kLongestContextNs;
      const auto from = std::lower_bound(
          input_.readings.begin(), input_.readings.end(), call.when.time_ns,
          [](const Reading& reading, int64_t ns) { return reading.when.time_ns < ns; });
      for (auto reading = from; reading != input_.readings.end(); ++reading) {
        if (reading->when.begin_ns >= when.end_ns)
          break;
        if (reading->process == call.process && reading->when.begin_ns >= when.begin_ns) {
          when.end_ns = reading->when.begin_ns;
          break;
        }
      }
      when.time_ns = when.end_ns;
    }
    out_.calls.push_back(when);
  }
}

void SeriesMaker::FindLateStarts() {
  for (uint32_t process = 0; process < input_.processes.size(); ++process) {
    const int64_t late_ns = input_.processes[process].late_ns;
    if (late_ns == kNever)
      continue;
    // The last figure before that was known, otherwise the first one after it.
    std::optional<size_t> figure;
    for (size_t i = 0; i < input_.figures.size(); ++i) {
      if (input_.figures[i].process != process)
        continue;
      if (figure && input_.figures[i].when.time_ns > late_ns)
        break;
      figure = i;
    }
    if (!figure)
      continue;
    LateStart start;
    start.process = process;
    start.figure = *figure;
    start.time_ns = std::max(late_ns, input_.figures[*figure].when.time_ns);
    for (size_t i = 0; i < input_.samples.size() && input_.samples[i].when.time_ns <= start.time_ns;
         ++i)
      start.sample = i;
    const bool was_sampled =
        std::any_of(input_.samples.begin(), input_.samples.end(), [&](const DeviceSample& sample) {
          return sample.when.time_ns > late_ns && sample.when.time_ns < start.time_ns;
        });
    start.since_ns = was_sampled ? start.time_ns : late_ns;
    // Sampling can begin with the process's figure.
    if (!start.sample && !input_.samples.empty() &&
        input_.samples[0].when.time_ns - start.time_ns < kLateReadingNs)
      start.sample = 0;
    FindTaken(&start);
    out_.late_starts.push_back(start);
  }
  std::sort(out_.late_starts.begin(), out_.late_starts.end(),
            [](const LateStart& a, const LateStart& b) { return a.time_ns < b.time_ns; });
}

// The process's first figure may have memory of a call under way: of an allocation, which counts
// when it ends, or of a free, which counted when it began. The first figure outside of its calls
// tells.
void SeriesMaker::FindTaken(LateStart* start) const {
  constexpr size_t kMostFigures = 64;
  const auto overlaps = [](const When& a, const When& b) {
    return a.begin_ns <= b.end_ns && b.begin_ns <= a.end_ns;
  };
  const ProcessSample& first = input_.figures[start->figure];
  int64_t asked = 0;
  for (const Move& move : input_.moves) {
    const bool is_counted = move.when.time_ns <= start->time_ns;
    if (move.process != start->process || is_counted != (move.bytes < 0) ||
        !overlaps(move.when, first.when))
      continue;
    asked += std::abs(move.bytes);
    start->taken_until_ns = std::max(start->taken_until_ns, move.when.end_ns);
  }
  const size_t end = std::min(input_.figures.size(), start->figure + kMostFigures);
  for (size_t i = start->figure + 1; asked != 0 && i < end; ++i) {
    const ProcessSample& figure = input_.figures[i];
    bool is_quiet = figure.process == start->process;
    int64_t known = 0;
    for (const Move& move : input_.moves) {
      if (move.process != start->process)
        continue;
      is_quiet = is_quiet && !overlaps(move.when, figure.when);
      if (move.when.time_ns > start->time_ns && move.when.time_ns <= figure.when.time_ns)
        known += move.bytes;
    }
    if (!is_quiet)
      continue;
    const int64_t before = figure.used_bytes - known;
    start->taken_bytes = std::clamp<int64_t>(first.used_bytes - before, 0, asked);
    return;
  }
}

void SeriesMaker::FindPeriods() {
  presences_.resize(input_.processes.size());
  const auto note = [&](uint32_t process, const When& when) {
    if (process < presences_.size())
      presences_[process].Note(when);
  };
  for (const Move& move : input_.moves) {
    if (!IsEnd(move))
      note(move.process, move.when);
  }
  const auto is_init = [](const ImplicitCall& call) {
    return call.kind == ImplicitCall::Kind::kInit;
  };
  for (size_t i = 0; i < input_.calls.size(); ++i) {
    if (!is_init(input_.calls[i]))
      note(input_.calls[i].process, out_.calls[i]);
  }
  for (const Reading& reading : input_.readings)
    note(reading.process, reading.when);
  for (const LateStart& start : out_.late_starts)
    note(start.process, {start.time_ns, start.time_ns, start.time_ns});
  // cuInit has no GPU; it counts for those that the process then uses.
  for (size_t i = 0; i < input_.calls.size(); ++i) {
    const uint32_t process = input_.calls[i].process;
    if (is_init(input_.calls[i]) && process < presences_.size() &&
        presences_[process].first_ns != kNever)
      note(process, out_.calls[i]);
  }

  for (size_t process = 0; process < presences_.size(); ++process) {
    const std::optional<When>& end = input_.processes[process].end;
    if (presences_[process].first_ns != kNever)
      periods_.push_back({presences_[process].first_ns, presences_[process].counted_ns,
                          end ? end->time_ns : kNever});
  }
  std::sort(periods_.begin(), periods_.end(),
            [](const Period& a, const Period& b) { return a.begin_ns < b.begin_ns; });
  std::vector<Period> joined;
  for (const Period& period : periods_) {
    if (joined.empty() || period.begin_ns > joined.back().end_ns)
      joined.push_back(period);
    joined.back().counted_ns = std::min(joined.back().counted_ns, period.counted_ns);
    joined.back().end_ns = std::max(joined.back().end_ns, period.end_ns);
  }
  periods_ = std::move(joined);

  for (const DeviceSample& sample : input_.samples) {
    const auto after = std::partition_point(
        periods_.begin(), periods_.end(),
        [&](const Period& period) { return period.begin_ns < sample.when.end_ns; });
    const bool is_first = after == periods_.begin();
    const auto period = is_first ? after : std::prev(after);
    out_.counted.push_back(!is_first && sample.when.time_ns >= period->counted_ns &&
                           sample.when.time_ns <= period->end_ns);
    // This sample is so close to a call that it may be from within it; the one before is better.
    const bool may_be_during = after != periods_.end() &&
                               after->begin_ns < sample.when.end_ns + kClockErrorNs &&
                               !out_.baseline.empty() && out_.baseline.back();
    out_.baseline.push_back((is_first || sample.when.begin_ns >= period->end_ns) && !may_be_during);
  }
}

// Pages of managed memory move without calls.
void SeriesMaker::CollectPaged() {
  size_t live = 0;
  int64_t from_ns = kNever;
  for (const ManagedMove& move : input_.managed_moves) {
    if (!move.frees && live++ == 0)
      from_ns = move.when.begin_ns;
    if (move.frees && live > 0 && --live == 0)
      paged_.Add(from_ns, move.when.end_ns);
  }
  if (live > 0)
    paged_.Add(from_ns, kNever);
  paged_.Sort();
}

void SeriesMaker::CollectSpans() {
  moved_.push_back(0);
  for (const Move& move : input_.moves) {
    moved_.push_back(moved_.back() + move.bytes);
    if (IsEnd(move))
      continue;
    busy_.Add(move.when.begin_ns, move.when.end_ns);
    calling_.Add(move.when.begin_ns, move.when.end_ns);
    if (move.bytes != 0)
      moving_.Add(move.when.begin_ns, move.when.end_ns);
    if (move.array == kNone)
      continue;
    for (Spans* spans : {&uncertain_, &uncertain_but_ends_})
      spans->Add(move.when.begin_ns, move.when.end_ns);
  }
  std::vector<int> contexts(presences_.size());
  for (size_t i = 0; i < out_.calls.size(); ++i) {
    for (Spans* spans : {&busy_, &calling_, &unpriced_, &uncertain_, &uncertain_but_ends_})
      spans->Add(out_.calls[i].begin_ns, out_.calls[i].end_ns);
    const ImplicitCall& call = input_.calls[i];
    const bool destroys = call.kind == ImplicitCall::Kind::kContextDestroy && !call.is_primary;
    if (call.process < contexts.size())
      contexts[call.process] += (call.kind == ImplicitCall::Kind::kContextCreate) - destroys;
  }
  Spans own_calls = calling_;
  for (const CheckpointCall& call : input_.checkpoints) {
    for (Spans* spans :
         {&busy_, &calling_, &moving_, &unpriced_, &uncertain_, &uncertain_but_ends_})
      spans->Add(call.when.begin_ns, call.when.end_ns);
  }
  Spans calls = calling_;
  // The driver frees a process's memory after its last call.
  for (size_t process = 0; process < presences_.size(); ++process) {
    const std::optional<When>& end = input_.processes[process].end;
    if (!end || presences_[process].first_ns == kNever)
      continue;
    const int64_t begin_ns =
        std::min(end->end_ns, std::max(end->begin_ns, presences_[process].last_ns));
    for (Spans* spans : {&busy_, &moving_, &unpriced_, &uncertain_})
      spans->Add(begin_ns, end->end_ns);
    uncertain_but_ends_.Add(std::min(begin_ns, end->time_ns), end->time_ns);
    if (contexts[process] > 0) {
      calling_.Add(begin_ns, end->end_ns);
      own_calls.Add(begin_ns, end->end_ns);
    }
  }
  for (Spans* spans : {&busy_, &calling_, &moving_, &unpriced_, &uncertain_, &uncertain_but_ends_})
    spans->Sort();
  own_calls.Sort();
  calls.Sort();
  for (size_t i = 0; i < input_.samples.size(); ++i) {
    const DeviceSample& sample = input_.samples[i];
    out_.calm.push_back(out_.counted[i] && IsOutside(calling_, sample));
    out_.calm_but_for_checkpoints.push_back(out_.counted[i] && IsOutside(own_calls, sample));
    out_.calm_but_for_ends.push_back(out_.counted[i] && IsOutside(calls, sample));
  }
}

// What a call under way has taken is in a sample and not yet in the ledger.
void SeriesMaker::AvoidCallsUnderWay() {
  for (LateStart& start : out_.late_starts) {
    for (size_t i = start.sample.value_or(input_.samples.size());
         i < input_.samples.size() &&
         input_.samples[i].when.time_ns - start.time_ns < kLateReadingNs;
         ++i) {
      if (IsOutside(moving_, input_.samples[i])) {
        start.sample = i;
        break;
      }
    }
  }
}

// NVML's figure and the driver's differ by at most a constant. Each sample at a quiet moment,
// compared with the nearest readings, gives a value of the constant. Most are right, even beside
// unrecorded processes. A single sample with a difference may have a wrong time stamp: on a busy
// machine, it can be off by more than the clocks.
void SeriesMaker::FindOffset() {
  struct Votes {
    std::set<size_t> readings;  // that vote for it
    std::set<size_t> samples;
  };
  std::map<int64_t, Votes> votes;  // by difference
  std::vector<int64_t> order;
  std::set<size_t> voters;  // readings
  std::vector<size_t> clear;
  for (size_t i = 0; i < input_.readings.size(); ++i) {
    if (IsClear(input_.readings[i]))
      clear.push_back(i);
  }
  const auto vote = [&](const DeviceSample& sample, size_t number) {
    const Reading& reading = input_.readings[number];
    const int64_t from_ns = std::min(reading.when.end_ns, sample.when.end_ns);
    const int64_t to_ns = std::max(reading.when.begin_ns, sample.when.begin_ns);
    if (from_ns > to_ns || uncertain_.Overlap(from_ns, to_ns) || paged_.Overlap(from_ns, to_ns))
      return;
    const int64_t moved = MovedUntil(sample.when.time_ns) - MovedUntil(reading.when.time_ns);
    const int64_t difference = reading.used_bytes + moved - sample.used_bytes;
    if (votes[difference].readings.insert(number).second)
      order.push_back(difference);
    voters.insert(number);
    votes[difference].samples.insert(static_cast<size_t>(&sample - input_.samples.data()));
  };
  for (size_t i = 0; i < input_.samples.size(); ++i) {
    const DeviceSample& sample = input_.samples[i];
    if (!out_.counted[i] || !IsQuiet(sample))
      continue;
    const auto after = std::partition_point(clear.begin(), clear.end(), [&](size_t reading) {
      return input_.readings[reading].when.time_ns <= sample.when.time_ns;
    });
    if (after != clear.begin())
      vote(sample, *std::prev(after));
    if (after != clear.end())
      vote(sample, *after);
  }
  size_t most = 0;
  for (const int64_t difference : order) {
    if (difference != 0 && votes[difference].samples.size() < 2)
      continue;
    const size_t count = votes[difference].readings.size();
    if (count > most || (count == most && difference == 0)) {
      out_.offset = difference;
      most = count;
    }
  }
  // With other processes, the difference may be their memory at one or two readings. A constant of
  // the driver would show in most readings, and in more than a few.
  constexpr size_t kEnough = 4;
  const bool beside_others =
      std::any_of(input_.figures.begin(), input_.figures.end(), [](const ProcessSample& figure) {
        return figure.process == kNone && figure.used_bytes > kNearlyNothing;
      });
  if (beside_others && out_.offset != 0 && (most < kEnough || 2 * most <= voters.size()))
    out_.offset = votes.count(0) != 0 ? std::optional<int64_t>(0) : std::nullopt;
}

void SeriesMaker::MakeIntervals() {
  std::vector<Base> resets;
  resets_.resize(input_.samples.size());
  const auto add_sample = [&](size_t number) {
    const DeviceSample& sample = input_.samples[number];
    resets_[number] = true;
    resets.push_back({sample.when.time_ns, sample.when.begin_ns,
                      sample.used_bytes + out_.offset.value_or(0), true});
  };
  for (size_t i = 0; i < input_.samples.size(); ++i) {
    if (out_.baseline[i])
      add_sample(i);
  }
  for (const LateStart& start : out_.late_starts) {
    if (start.sample)
      add_sample(*start.sample);
  }
  std::stable_sort(resets.begin(), resets.end(),
                   [](const Base& a, const Base& b) { return a.time_ns < b.time_ns; });

  std::optional<Base> base;
  auto reset = resets.begin();
  size_t tail = input_.readings.size();  // the last nearly clear one since the base
  const auto close = [&](size_t number, bool clear) {
    const Reading& reading = input_.readings[number];
    if (base) {
      Interval interval = Between(*base, reading.when, reading.used_bytes);
      interval.is_plain = !unpriced_.Overlap(base->begin_ns, reading.when.end_ns);
      tails_.push_back(!clear);
      out_.intervals.push_back(std::move(interval));
    }
    base = Base{reading.when.time_ns, reading.when.begin_ns, reading.used_bytes, false};
    tail = input_.readings.size();
  };
  for (size_t i = 0; i < input_.readings.size(); ++i) {
    const Reading& reading = input_.readings[i];
    while (reset != resets.end() && reset->time_ns <= reading.when.time_ns) {
      if (tail != input_.readings.size() && base)
        close(tail, false);
      base = *reset++;
      tail = input_.readings.size();
    }
    if (IsClear(reading))
      close(i, true);
    else if (!moving_.Overlap(reading.when.begin_ns, reading.when.end_ns))
      tail = i;
  }
  if (tail != input_.readings.size() && base)
    close(tail, false);
}

// A clear reading overlaps no call, so each call is in one interval. The last reading before a new
// base, or before the end, may overlap implicit calls. It then prices the part that it shows.
void SeriesMaker::PlaceCalls() {
  std::vector<Interval>& intervals = out_.intervals;
  for (uint32_t i = 0; i < out_.calls.size(); ++i) {
    const When& call = out_.calls[i];
    const auto closes_behind = [&](const Interval& interval) {
      const When& reading = interval.until;
      const auto number = static_cast<size_t>(&interval - intervals.data());
      return tails_[number] ? reading.end_ns <= call.begin_ns : reading.begin_ns < call.end_ns;
    };
    const auto found = std::partition_point(intervals.begin(), intervals.end(), closes_behind);
    if (found == intervals.end() || call.end_ns <= found->from_begin_ns)
      out_.unpriced.push_back(i);
    else
      found->calls.push_back(i);
  }
}

// Calls have no clear reading if others moved memory, or a process ended, meanwhile. A sample at a
// quiet moment after the calls gives their memory, if NVML's and the driver's figures can be
// compared. Otherwise the next best is a sample that is wrong by the bytes being moved, or one
// after the end of a process, whose memory is usually freed by then. Memory left by the end of a
// context does not belong to the calls.
void SeriesMaker::CloseBySamples(const Spans& not_during) {
  std::vector<uint32_t> left;
  for (const uint32_t call : std::exchange(out_.unpriced, {})) {
    const bool ends = input_.calls[call].kind == ImplicitCall::Kind::kContextDestroy;
    (ends ? out_.unpriced : left).push_back(call);
  }
  std::sort(left.begin(), left.end(),
            [&](uint32_t a, uint32_t b) { return out_.calls[a].end_ns < out_.calls[b].end_ns; });
  std::vector<Interval> closed;
  std::optional<Base> base;
  auto interval = out_.intervals.begin();
  auto call = left.begin();
  for (size_t number = 0; number < input_.samples.size() && call != left.end(); ++number) {
    const DeviceSample& sample = input_.samples[number];
    for (; interval != out_.intervals.end() && interval->until.time_ns <= sample.when.time_ns;
         ++interval)
      base = Base{interval->until.time_ns, interval->until.begin_ns, interval->used_bytes, false};
    const bool is_quiet = out_.counted[number] && IsOutside(not_during, sample);
    if (!resets_[number] && !is_quiet)
      continue;
    const Base next{sample.when.time_ns, sample.when.begin_ns,
                    sample.used_bytes + out_.offset.value_or(0), true};
    const auto behind = std::partition_point(call, left.end(), [&](uint32_t earlier) {
      return out_.calls[earlier].end_ns + kClockErrorNs < sample.when.begin_ns;
    });
    const bool comparable = base && (out_.offset || base->is_sample);
    if (call != behind && is_quiet && !out_.baseline[number] && comparable) {
      Interval own = Between(*base, sample.when, next.used_bytes);
      own.is_plain = false;
      own.calls.assign(call, behind);
      std::sort(own.calls.begin(), own.calls.end());
      closed.push_back(std::move(own));
    } else {
      out_.unpriced.insert(out_.unpriced.end(), call, behind);
    }
    call = behind;
    if (resets_[number] || comparable)
      base = next;
  }
  out_.unpriced.insert(out_.unpriced.end(), call, left.end());
  const auto middle = out_.intervals.insert(out_.intervals.end(), closed.begin(), closed.end());
  std::inplace_merge(
      out_.intervals.begin(), middle, out_.intervals.end(),
      [](const Interval& a, const Interval& b) { return a.until.time_ns < b.until.time_ns; });
}

// The first sample between two times at which no call was under way.
const DeviceSample* SeriesMaker::FindQuiet(int64_t from_ns, int64_t to_ns) const {
  for (auto sample = std::partition_point(
           input_.samples.begin(), input_.samples.end(),
           [&](const DeviceSample& earlier) { return earlier.when.time_ns <= from_ns; });
       sample != input_.samples.end() && sample->when.end_ns + kClockErrorNs < to_ns; ++sample) {
    if (sample->when.begin_ns - kClockErrorNs > from_ns && IsQuiet(*sample))
      return &*sample;
  }
  return nullptr;
}

// The part of an interval until a sample. The interval becomes the rest.
Interval SeriesMaker::CutAt(const DeviceSample& sample, Interval* interval) const {
  Interval first = *interval;
  first.until = sample.when;
  first.used_bytes = sample.used_bytes + *out_.offset;
  first.growth_bytes -= interval->used_bytes - first.used_bytes;
  const auto is_later = [&](uint32_t call) {
    return out_.calls[call].begin_ns >= sample.when.begin_ns;
  };
  std::erase_if(first.calls, is_later);
  std::erase_if(interval->calls, [&](uint32_t call) { return !is_later(call); });
  interval->from_ns = sample.when.time_ns;
  interval->from_begin_ns = sample.when.begin_ns;
  interval->growth_bytes -= first.growth_bytes;
  interval->is_plain = !unpriced_.Overlap(sample.when.begin_ns, interval->until.end_ns);
  return first;
}

// A reading long after its calls includes later changes of all processes, and nothing of those that
// have ended. NVML's sample at the first quiet moment after the calls is better, if its difference
// from readings is known.
void SeriesMaker::CloseEarlier() {
  if (!out_.offset)
    return;
  std::vector<Interval> closed;
  for (Interval& interval : out_.intervals) {
    std::map<int64_t, int64_t> gone;  // end of a process -> end of its last call
    int64_t last_ns = INT64_MIN;
    for (const uint32_t call : interval.calls) {
      const int64_t end_ns = out_.calls[call].end_ns;
      last_ns = std::max(last_ns, end_ns);
      if (const When* const end = EndOf(input_.calls[call].process);
          end != nullptr && end->time_ns <= interval.until.time_ns)
        gone[end->begin_ns] =
            std::max(gone.try_emplace(end->begin_ns, end_ns).first->second, end_ns);
    }
    for (const auto& [until_ns, from_ns] : gone) {
      const DeviceSample* const sample = FindQuiet(std::max(from_ns, interval.from_ns), until_ns);
      if (sample != nullptr)
        closed.push_back(CutAt(*sample, &interval));
    }
    if (!interval.calls.empty() && interval.until.begin_ns - last_ns > kLateReadingNs) {
      if (const DeviceSample* const sample = FindQuiet(last_ns, interval.until.begin_ns))
        closed.push_back(CutAt(*sample, &interval));
    }
    closed.push_back(std::move(interval));
  }
  out_.intervals = std::move(closed);
}

}  // namespace

Series MakeSeries(const DeviceInput& input) {
  return SeriesMaker(input).Make();
}

}  // namespace vramscope::resolve::price
