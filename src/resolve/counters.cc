// SPDX-License-Identifier: Apache-2.0
#include "resolve/counters.h"

#include <algorithm>
#include <iterator>

namespace vramscope::resolve {

uint32_t Counters::Before(uint32_t account) {
  BeforeRecording& before = before_[account];
  if (before.counter == kNoIndex) {
    Counter counter = CounterOf(account);
    counter.owner = kNoOwner;
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
}

uint32_t Counters::AddPriced(trace::DeviceId device,
                             const price::Counter& priced,
                             int64_t begin_ns) {
  Counter counter;
  counter.device = device;
  counter.owner = kNoOwner;
  if (priced.process != price::kNone) {
    const trace::ProcessId process{static_cast<uint16_t>(priced.process)};
    counter.account = accounts_.FindOrAdd(process, device, begin_ns);
    if (priced.part != Part::kSampled)
      counter.owner = kDriverOwned;
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
  if (priced.call != price::kNone) {
    const PriceInputs::Caller& caller =
        prices_.callers(static_cast<size_t>(device.value))[priced.call];
    counter.api = caller.api;
    counter.stack = caller.stack;
    counter.native = caller.native;
    counter.thread = caller.thread;
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
