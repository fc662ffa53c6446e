// SPDX-License-Identifier: Apache-2.0 The device's figure does not show whose memory changed
// between two readings. NVML's process figures do, at moments without calls of the process:
//
//   device's readings      100 |-- context --| 750    110 of it are others'
//   row                      0                 650
//   figure of the process    0                 540
//   gap: figure less rows    0                -110    grew by the row's excess
//
// They settle three cases:
// - Processes that begin at the same time make their contexts between the same two readings. One
//   row, of the process that called last, has all of that memory. The figures of the others give
//   their shares.
// - Unrecorded processes use the device. The gap's growth since the last figure moves from or to
//   the row `other processes`, so the device's total stays as measured. It moves to a row of calls
//   that showed nothing or a decrease, otherwise to the row of the longest calls.
// - The kernel module has memory for each context that no process figure includes.
//
// If no other process uses the device, or NVML does not list the process, a difference stays
// residual. A late figure, or one of a moment within a call, is corrected by the next one: prices
// are kept until a figure agrees.
#include "resolve/price/figures.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "resolve/price/series.h"

namespace vramscope::resolve::price {
namespace {

constexpr size_t kMaxEstimates = 128;
// Figures may be rounded to driver pages, and others' memory has that granularity too.
constexpr int64_t kFigureStep = 2 << 20;

bool IsNothing(int64_t growth) {
  return growth > -kFigureStep && growth < kFigureStep;
}

}  // namespace

Figures::Figures(const DeviceInput& input, bool has_offset, Managed& managed, Book* book)
    : input_(input),
      managed_(managed),
      book_(*book),
      has_offset_(has_offset),
      states_(input.processes.size()) {
  for (size_t process = 0; process < states_.size(); ++process)
    states_[process].late = input.processes[process].late_ns != kNever;
  const auto note = [&](uint32_t process, const When& when) {
    if (process >= states_.size())
      return;
    const std::optional<When>& end = input.processes[process].end;
    states_[process].busy.Add(when.begin_ns, when.end_ns);
    if (!end || end->time_ns != when.time_ns)
      states_[process].last_call_ns = std::max(states_[process].last_call_ns, when.begin_ns);
  };
  for (const Move& move : input.moves) {
    note(move.process, move.when);
    if (move.process < states_.size())
      states_[move.process].moving.Add(move.when.begin_ns, move.when.end_ns);
  }
  for (const ImplicitCall& call : input.calls)
    note(call.process, call.when);
}

void Figures::Prepare() {
  for (State& state : states_) {
    state.busy.Sort();
    state.moving.Sort();
  }
}

void Figures::OnContextDestroy(uint32_t process, bool last) {
  states_[process].Forget();
  if (last)
    states_[process].gap = 0;
}

void Figures::OnGone(uint32_t process) {
  states_[process].Forget();
  states_[process].holder.reset();
  states_[process].context.reset();
  states_[process].waiting = SIZE_MAX;
}

void Figures::OnPriced(uint32_t process, Estimate estimate) {
  State& state = states_[process];
  if (estimate.is_context)
    state.context = estimate.own;
  if (state.estimates.size() == kMaxEstimates)
    state.estimates.erase(state.estimates.begin());
  state.estimates.push_back(std::move(estimate));
}

void Figures::OnPricedTogether(uint32_t process, Estimate estimate, StepRef holder) {
  states_[process].holder = holder;
  states_[process].share = estimate.own;
  OnPriced(process, std::move(estimate));
}

// Processes of other containers, and graphics processes, are not listed. They are known by memory
// that was in use before.
bool Figures::HasOthers(int64_t since_ns) const {
  const bool listed = seen_others_ns_ != INT64_MIN && seen_others_ns_ >= since_ns;
  return listed ||
         (others_ != kNone && book_.row(others_).bytes - others_since_bytes_ >= kLargestRm);
}

void Figures::OnFigure(size_t number, bool checkpointed) {
  const ProcessSample& figure = input_.figures[number];
  if (figure.process >= states_.size()) {
    if (figure.used_bytes > kNearlyNothing)
      seen_others_ns_ = figure.when.time_ns;
    return;
  }
  tells_apart_ |= figure.used_bytes > kNearlyNothing;
  const State& state = states_[figure.process];
  if (checkpointed)
    return;
  if (state.busy.Overlap(figure.when.begin_ns, figure.when.end_ns))
    return NotePassing(number);
  if (!state.rm_wanted && !state.holder && state.estimates.empty())
    return;
  const std::optional<StepRef> holder = state.holder;
  Settle(number);
  if (!holder)
    return;
  // The holder's figure usually came first. It is still valid if no call came since.
  const uint32_t process = book_.row(holder->counter).account;
  const size_t waiting = std::exchange(states_[process].waiting, SIZE_MAX);
  if (waiting != SIZE_MAX &&
      !states_[process].busy.Overlap(input_.figures[waiting].when.begin_ns, figure.when.end_ns))
    Settle(waiting);
}

void Figures::Settle(size_t number) {
  const ProcessSample& figure = input_.figures[number];
  State& state = states_[figure.process];
  if (state.holder && TakeShare(figure))
    return;
  if (IsHolder(figure.process))
    state.waiting = number;
  else if (!Agree(number))
    FindRmInternal(figure);
}

// False if the row has less: then another process freed memory meanwhile.
bool Figures::TakeShare(const ProcessSample& figure) {
  State& state = states_[figure.process];
  const StepRef holder = *std::exchange(state.holder, std::nullopt);
  const int64_t bytes = figure.used_bytes - book_.TotalOf(figure.process);
  const Step& step = book_.step(holder);
  if (bytes <= 0 ||
      bytes > std::min(step.bytes, book_.LowestFrom(holder.counter, step.when.time_ns)))
    return false;
  book_.Correct(holder, -bytes);
  book_.Correct(state.share, bytes);
  state.rm_wanted = false;
  state.Forget();
  state.gap = 0;
  state.agreed_ns = figure.when.end_ns;
  return true;
}

// Whether a row of this process still has others' bytes.
bool Figures::IsHolder(uint32_t process) const {
  return std::any_of(states_.begin(), states_.end(), [&](const State& other) {
    return other.holder && book_.row(other.holder->counter).account == process;
  });
}

// It calls again, or later had as much.
bool Figures::GoesOn(const ProcessSample& figure) const {
  const Process& process = input_.processes[figure.process];
  if (process.teardown_ns != kNever)
    return figure.when.end_ns <= process.teardown_ns;
  return !process.end || states_[figure.process].last_call_ns >= figure.when.end_ns ||
         std::any_of(input_.figures.begin(), input_.figures.end(), [&](const ProcessSample& other) {
           return other.process == figure.process && other.when.time_ns > figure.when.time_ns &&
                  other.used_bytes >= figure.used_bytes;
         });
}

// Whether the figure is usable: its process continues, or has not yet freed the bytes that the
// figure has beyond the rows; and it shares no memory with another process.
bool Figures::IsTelling(const ProcessSample& figure, int64_t growth) const {
  return (growth >= 0 || GoesOn(figure)) && figure.used_bytes > kNearlyNothing &&
         !states_[figure.process].late &&
         figure.when.time_ns < input_.processes[figure.process].shares_ns;
}

// True if it changed rows and no byte of it can be the kernel module's.
bool Figures::Agree(size_t number) {
  const ProcessSample& figure = input_.figures[number];
  State& state = states_[figure.process];
  int64_t growth = figure.used_bytes - book_.TotalOf(figure.process) - state.gap;
  int64_t moved = 0;
  if (IsShared(state.agreed_ns)) {
    if (!IsTelling(figure, growth))
      return false;
    moved = MakeGood(figure.process, growth);
    growth -= moved;
    if (IsNothing(growth))
      HoldToPassing(figure);
  }
  const bool may_be_rm = state.rm_wanted && growth < 0 && growth > -kLargestRm;
  if (!IsNothing(growth) && may_be_rm)
    return false;
  if (!IsNothing(growth))
    state.gap += growth;
  if (moved != 0) {
    // The next figure may show more of the others' bytes.
    NotePassing(number);
    state.rm_wanted = false;
    return true;
  }
  state.Forget();
  state.agreed_ns = figure.when.end_ns;
  return false;
}

// Returns by how much the rows of the process grew.
int64_t Figures::MakeGood(uint32_t process, int64_t growth) {
  const State& state = states_[process];
  int64_t moved = 0;
  const auto move = [&](const Estimate& estimate, int64_t bytes) {
    const int64_t there = MoveFromOthers(estimate, bytes);
    // The memory may be another call's, earlier or later than in the rows now.
    if (there != 0) {
      loose_.push_back({process, state.estimates.front().begin_ns, estimate.end_ns, there});
      loose_.push_back({process, estimate.begin_ns, state.estimates.back().end_ns, -there});
    }
    return there;
  };
  // Bytes taken from rows for calls that never free memory were the others' change.
  for (const Estimate& estimate : state.estimates) {
    for (size_t i = 0; estimate.sank && i < estimate.taken.size(); ++i)
      moved += move(estimate, std::max<int64_t>(-book_.step(estimate.taken[i]).bytes, 0));
  }
  int64_t left = growth - moved;
  // Rows of a new context include the kernel module's part, so they have at least the figure's
  // bytes.
  if (state.rm_wanted ? left == 0 || (left < 0 && left > -kLargestRm) : IsNothing(left))
    return moved;
  std::vector<const Estimate*> order;
  for (const Estimate& estimate : state.estimates)
    order.push_back(&estimate);
  std::stable_sort(order.begin(), order.end(), [&](const Estimate* a, const Estimate* b) {
    const auto fits = [&](const Estimate* estimate) {
      return left > 0 ? estimate->sank : book_.step(estimate->own).bytes >= -left;
    };
    if (fits(a) != fits(b))
      return fits(a);
    return a->end_ns - a->begin_ns > b->end_ns - b->begin_ns;
  });
  for (const Estimate* estimate : order)
    left -= left == 0 ? 0 : move(*estimate, left);
  return growth - left;
}

void Figures::NotePassing(size_t number) {
  const ProcessSample& figure = input_.figures[number];
  State& state = states_[figure.process];
  if (!IsTelling(figure, 0) || state.moving.Overlap(figure.when.begin_ns, figure.when.end_ns))
    return;
  if (state.passing.size() == kMaxEstimates)
    state.passing.erase(state.passing.begin());
  state.passing.push_back({number, book_.ExplicitOf(figure.process)});
}

// This figure confirms the sum of the rows. Figures taken during calls then show what came before
// and after them, because such a figure differs from the rows by at most the bytes of those calls.
// Goes through them from the last to the first and takes excess bytes from the nearest call, so
// later figures stay confirmed.
void Figures::HoldToPassing(const ProcessSample& figure) {
  State& state = states_[figure.process];
  const auto taken_by = [&](const Estimate& estimate) {
    int64_t bytes = 0;
    for (const StepRef& taken : estimate.taken)
      bytes -= book_.step(taken).bytes;
    return bytes;
  };
  int64_t until_ns = INT64_MAX;
  for (auto passing = state.passing.rbegin(); passing != state.passing.rend(); ++passing) {
    const ProcessSample& then = input_.figures[passing->figure];
    std::vector<const Estimate*> before;  // the nearest first
    std::vector<const Estimate*> after;
    const Estimate* nearest = nullptr;  // under way then, otherwise next to it
    int64_t least = 0;
    int64_t most = 0;
    for (const Estimate& estimate : state.estimates) {
      const Step& own = book_.step(estimate.own);
      if (own.when.end_ns <= then.when.begin_ns - kClockErrorNs) {
        before.insert(before.begin(), &estimate);
        continue;
      }
      const int64_t bytes = own.bytes - taken_by(estimate);
      const bool is_after = own.when.begin_ns >= then.when.end_ns + kClockErrorNs;
      least += is_after ? bytes : std::min<int64_t>(bytes, 0);
      most += is_after ? bytes : std::max<int64_t>(bytes, 0);
      if (is_after)
        after.push_back(&estimate);
      else
        nearest = &estimate;
    }
    const int64_t grew = figure.used_bytes - then.used_bytes -
                         (book_.ExplicitOf(figure.process) - passing->explicit_bytes);
    const int64_t wrong_bytes = grew < least ? least - grew : std::max<int64_t>(grew - most, 0);
    const std::vector<const Estimate*>& too_much = grew < least ? after : before;
    const std::vector<const Estimate*>& too_little = grew < least ? before : after;
    if (nearest == nullptr && !too_little.empty())
      nearest = too_little.front();
    if (nearest == nullptr || IsNothing(wrong_bytes))
      continue;
    int64_t left = 0;
    for (const Estimate* estimate : too_much)
      left += book_.step(estimate->own).bytes;
    left = std::min(left, wrong_bytes);
    int64_t given = 0;
    // To the row that seemed to free it, otherwise to the nearest.
    for (const Estimate* estimate : too_little) {
      if (estimate->sank && estimate->begin_ns < until_ns)
        given += MoveFromOthers(*estimate, std::min(left - given, taken_by(*estimate)));
    }
    MoveFromOthers(*nearest, left - given);
    for (const Estimate* estimate : too_much)
      left += MoveFromOthers(*estimate, -std::min(left, book_.step(estimate->own).bytes));
    until_ns = then.when.end_ns;
  }
}

// Moves bytes between an estimate's row and the other processes. Returns the bytes that the row
// got.
int64_t Figures::MoveFromOthers(const Estimate& estimate, int64_t bytes) {
  const When when = book_.step(estimate.own).when;
  const bool is_managed = managed_.IsUsed() && !HasOthers(INT64_MIN);
  if (is_managed)
    bytes = std::min(bytes, managed_.LowestFrom(when.time_ns));
  int64_t moved = 0;
  if (bytes < 0) {
    const int64_t has = std::min(book_.step(estimate.own).bytes,
                                 book_.LowestFrom(estimate.own.counter, when.time_ns));
    moved = -std::min(-bytes, std::max<int64_t>(has, 0));
    book_.Correct(estimate.own, moved);
    for (const StepRef& taken : estimate.taken) {
      const int64_t more = std::min(moved - bytes, book_.LowestFrom(taken.counter, when.time_ns));
      book_.Correct(taken, -more);
      moved -= more;
    }
  } else {
    for (auto taken = estimate.taken.rbegin(); taken != estimate.taken.rend(); ++taken) {
      const int64_t back = std::min(bytes - moved, std::max<int64_t>(-book_.step(*taken).bytes, 0));
      book_.Correct(*taken, back);
      moved += back;
    }
    book_.Correct(estimate.own, bytes - moved);
    moved = bytes;
  }
  if (is_managed)
    managed_.Correct(when, -moved);
  else if (others_ != kNone)
    book_.CorrectAt(others_, when, std::max(-moved, -book_.LowestFrom(others_, when.time_ns)));
  return moved;
}

// NVML's device figure exceeds its process figure by memory that came with the context.
void Figures::FindRmInternal(const ProcessSample& figure) {
  State& state = states_[figure.process];
  if (!state.rm_wanted || !state.context || !(has_offset_ || IsShared(state.agreed_ns)))
    return;
  const int64_t bytes = book_.TotalOf(figure.process) - figure.used_bytes;
  const Step& context = book_.step(*state.context);
  if (bytes <= 0 || (bytes > kLargestRm && !GoesOn(figure)) ||
      bytes >
          std::min(context.bytes, book_.LowestFrom(state.context->counter, context.when.time_ns)))
    return;
  state.rm_wanted = false;
  state.Forget();
  state.agreed_ns = figure.when.end_ns;
  state.gap = std::min<int64_t>(0, state.gap + bytes);
  const When when = context.when;
  book_.Correct(*state.context, -bytes);
  if (state.rm_row == kNone) {
    Counter counter;
    counter.part = format::Part::kRmInternal;
    state.rm_row = book_.Add(std::move(counter), figure.process);
  }
  book_.CorrectAt(state.rm_row, when, bytes);
}

Others::Others(const DeviceInput& input, Book* book, Figures* figures)
    : input_(input), book_(*book), figures_(*figures), figures_of_(input.processes.size()) {
  for (size_t i = 0; i < input.figures.size(); ++i) {
    const ProcessSample& figure = input.figures[i];
    if (figure.process < figures_of_.size())
      figures_of_[figure.process].push_back(i);
    are_listed_ |= figure.process == kNone && figure.used_bytes > kNearlyNothing;
  }
}

void Others::Change(const When& when, int64_t bytes) {
  if (row_ == kNone) {
    Counter counter;
    counter.part = format::Part::kOtherProcesses;
    row_ = book_.Add(std::move(counter), kNone);
    figures_.OthersAre(row_);
  }
  if (bytes != 0)
    book_.Change(row_, when, bytes);
}

// Whether NVML's figures next to that time list the process. If not, an unrecorded tool may have
// checkpointed it, and the freed memory is its own.
bool Others::IsListedAround(uint32_t process, int64_t time_ns) const {
  const std::vector<size_t>& figures = figures_of_[process];
  const auto after = std::partition_point(figures.begin(), figures.end(), [&](size_t number) {
    return input_.figures[number].when.time_ns <= time_ns;
  });
  const auto has_memory = [&](size_t number) {
    return input_.figures[number].used_bytes > kNearlyNothing;
  };
  if (figures.empty())
    return false;
  // NVML's figures of processes are rarer than its figures of the device: the first may come later.
  return (after == figures.begin() || has_memory(*std::prev(after))) &&
         (after == figures.end() || has_memory(*after));
}

int64_t Others::OnQuiet(const DeviceSample& sample, int64_t bytes) {
  const int64_t change = std::max(bytes, -this->bytes());
  if (change == 0)
    return 0;
  for (uint32_t process = 0; process < input_.processes.size(); ++process) {
    if (book_.WithRm(process) > kNearlyNothing && !IsListedAround(process, sample.when.time_ns))
      return 0;
  }
  Change(sample.when, change);
  figures_.NoteOthers(change);
  return change;
}

}  // namespace vramscope::resolve::price
