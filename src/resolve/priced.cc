// SPDX-License-Identifier: Apache-2.0
// What the pricer found becomes counters, beside those that say themselves what they hold.
#include <algorithm>
#include <utility>
#include <vector>

#include "resolve/ledger.h"

namespace vramscope::resolve {

void Ledger::AddPriced(trace::DeviceId device) {
  const auto number = static_cast<size_t>(device.value);
  const price::DevicePrices& prices = device_prices_[number];
  std::vector<uint32_t> counters(prices.counters.size(), kNoIndex);
  for (const price::Step& step : prices.steps) {
    if (counters[step.counter] == kNoIndex)
      counters[step.counter] = AddPriced(device, prices.counters[step.counter], step.when.time_ns);
    counters_.Step(counters[step.counter], step.bytes, step.when.time_ns);
  }
}

uint32_t Ledger::AddPriced(trace::DeviceId device, const price::Counter& priced, int64_t begin_ns) {
  const uint32_t space =
      priced.process == price::kNone
          ? kNoIndex
          : SpaceIndex(trace::ProcessId{static_cast<uint16_t>(priced.process)}, device, begin_ns);
  if (priced.part == Part::kBeforeRecording) {
    const uint32_t before = BeforeCounter(space);
    counters_[before].estimated = tables::Estimated::kCorrected;
    return before;
  }
  Counter counter;
  counter.device = device;
  counter.space = space;
  counter.owner = space == kNoIndex ? kNoOwner : kDriverOwned;
  counter.part = priced.part;
  counter.estimated = tables::Estimated::kByFreeMemory;
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
  return counters_.Add(std::move(counter));
}

// `before recording` starts at what is known and sinks with each unknown free. Where it would sink
// below zero, more must have been there, from the start to the end.
void Ledger::LiftBefore() {
  for (Space& space : spaces_) {
    if (space.before_counter == kNoIndex && space.before_offset == 0)
      continue;
    const uint32_t counter = BeforeCounter(static_cast<uint32_t>(&space - spaces_.data()));
    std::vector<CounterStep> steps;
    std::copy_if(counters_.steps().begin(), counters_.steps().end(), std::back_inserter(steps),
                 [&](const CounterStep& step) { return step.counter == counter; });
    std::stable_sort(steps.begin(), steps.end(),
                     [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
    int64_t bytes = 0;
    for (const CounterStep& step : steps) {
      bytes += step.bytes;
      space.before_offset = std::max(space.before_offset, -bytes);
    }
    counters_.Step(counter, space.before_offset, space.first_ns);
    if (space.end_ns != INT64_MAX)
      counters_.Step(counter, -space.before_offset, space.end_ns);
  }
}

}  // namespace vramscope::resolve
