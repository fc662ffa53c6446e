// SPDX-License-Identifier: Apache-2.0
#include "resolve/ledger/counters.h"

#include <algorithm>
#include <iterator>
#include <map>

namespace vramscope::resolve {

uint32_t Counters::Before(uint32_t account) {
  BeforeRecording& before = before_[account];
  if (before.counter == kNoIndex) {
    Counter counter = CounterOf(account);
    counter.owner = Owner::kNone;
    counter.part = Part::kBeforeRecording;
    counter.alloc_ns = accounts_[account].begin_ns;
    before.counter = Add(std::move(counter));
  }
  return before.counter;
}

void Counters::AddPriced(trace::DeviceId device, const price::DevicePrices& prices) {
  std::vector<uint32_t> counters(prices.counters.size(), kNoIndex);
  for (const price::Step& step : prices.steps) {
    uint32_t& counter = counters[step.counter];
    if (counter == kNoIndex)
      counter = AddPriced(device, prices.counters[step.counter], step.when.time_ns);
    Step(counter, step.bytes, step.when.time_ns);
  }
  // No row is negative. So missing bytes have a counter with their time and the calls of that time.
  for (const price::Missing& missing : prices.missing) {
    price::Counter counter;
    counter.part = Part::kUnexplained;
    counter.came = missing.when;
    Step(AddPriced(device, counter, missing.when.time_ns), missing.bytes, missing.when.time_ns);
  }
}

// The calls under way in that time, otherwise the last before it, latest of each thread first: they
// may have caused the change.
void Counters::NameNear(const price::When& came, Counter* counter) {
  struct Near {
    price::When when;
    uint32_t process = price::kNone;
    const PriceInputs::Caller* caller = nullptr;
  };
  constexpr size_t kMost = 3;
  const auto device = static_cast<size_t>(counter->device.value);
  const price::DeviceInput& input = prices_.input(device);
  std::vector<Near> under_way;
  std::map<tables::ThreadId, Near> before;
  const auto look_at = [&](const price::When& when, uint32_t process,
                           const PriceInputs::Caller& caller) {
    if (caller.api.value == 0 || when.begin_ns >= came.end_ns)
      return;
    const Near near{when, process, &caller};
    if (when.end_ns >= came.begin_ns)
      under_way.push_back(near);
    else if (Near& last = before[caller.thread];
             last.caller == nullptr || last.when.end_ns <= when.end_ns)
      last = near;
  };
  for (size_t i = 0; i < input.moves.size(); ++i)
    look_at(input.moves[i].when, input.moves[i].process, prices_.move_callers(device)[i]);
  // Implicit calls have readings before and after them, so their memory is already attributed.
  const bool has_explicit = !under_way.empty();
  for (size_t i = 0; !has_explicit && i < input.calls.size(); ++i)
    look_at(input.calls[i].when, input.calls[i].process, prices_.callers(device)[i]);
  const char* const how = under_way.empty() ? "after " : "at ";
  if (under_way.empty()) {
    for (const auto& [thread, near] : before)
      under_way.push_back(near);
  }
  std::stable_sort(under_way.begin(), under_way.end(),
                   [](const Near& a, const Near& b) { return a.when.begin_ns > b.when.begin_ns; });
  std::vector<std::string> names;
  size_t others = 0;
  for (const Near& near : under_way) {
    if (near.caller == nullptr)
      continue;
    std::string name(prices_.text(near.caller->api));
    if (progress_.processes.size() > 1)
      name += " of pid " + std::to_string(prices_.pid(near.process));
    if (std::find(names.begin(), names.end(), name) != names.end())
      continue;
    if (names.size() == kMost)
      ++others;
    else
      names.push_back(std::move(name));
  }
  for (const std::string& name : names)
    counter->trigger += (counter->trigger.empty() ? how : ", ") + name;
  if (others > 0)
    counter->trigger += " and " + std::to_string(others) + " more";
  if (names.empty())
    return;
  counter->api = under_way.front().caller->api;
  counter->stack = under_way.front().caller->stack;
  counter->native = under_way.front().caller->native;
  counter->thread = under_way.front().caller->thread;
}

uint32_t Counters::AddPriced(trace::DeviceId device,
                             const price::Counter& priced,
                             int64_t begin_ns) {
  Counter counter;
  counter.device = device;
  counter.owner = Owner::kNone;
  if (priced.process != price::kNone) {
    const trace::ProcessId process{static_cast<uint16_t>(priced.process)};
    counter.account = accounts_.FindOrAdd(process, device, begin_ns);
    if (priced.part != Part::kSampled)
      counter.owner = Owner::kDriver;
  }
  if (priced.part == Part::kBeforeRecording) {
    const uint32_t before = Before(counter.account);
    counters_[before].estimated = tables::Estimated::kCorrected;
    return before;
  }
  counter.part = priced.part;
  counter.estimated = priced.part == Part::kSampled || priced.part == Part::kBeforeStart
                          ? tables::Estimated::kCorrected
                          : tables::Estimated::kByFreeMemory;
  counter.trigger = priced.trigger;
  counter.context = priced.context;
  counter.alloc_ns = begin_ns;
  const auto made_by = [&](const PriceInputs::Caller& caller) {
    counter.api = caller.api;
    counter.stack = caller.stack;
    counter.native = caller.native;
    counter.thread = caller.thread;
  };
  if (priced.call != price::kNone)
    made_by(prices_.callers(static_cast<size_t>(device.value))[priced.call]);
  if (priced.came)
    NameNear(*priced.came, &counter);
  if (priced.managed_site != price::kNone) {
    made_by(prices_.managed_caller(priced.managed_site));
    counter.owner = prices_.managed_caller(priced.managed_site).owner;
  }
  return Add(std::move(counter));
}

void Counters::Finish() {
  for (uint32_t account = 0; account < accounts_.count(); ++account) {
    const BeforeRecording before = before_[account];
    if (before.counter == kNoIndex && before.missing == 0)
      continue;
    std::vector<CounterStep> steps;
    std::copy_if(steps_.begin(), steps_.end(), std::back_inserter(steps),
                 [&](const CounterStep& step) { return step.counter == before.counter; });
    std::stable_sort(steps.begin(), steps.end(), [](const CounterStep& a, const CounterStep& b) {
      return a.time_ns < b.time_ns;
    });
    int64_t missing = before.missing;
    int64_t bytes = 0;
    for (const CounterStep& step : steps)
      missing = std::max(missing, -(bytes += step.bytes));
    Step(Before(account), missing, accounts_[account].begin_ns);
    if (accounts_[account].end_ns != INT64_MAX)
      Step(Before(account), -missing, accounts_[account].end_ns);
  }
}

}  // namespace vramscope::resolve
