// SPDX-License-Identifier: Apache-2.0
// Arrays are opaque: no call says what they take. Their price is an estimate until a reading with
// nothing but arrays before it says more.
//
// A reading that overlapped another thread's call prices nothing, and what it did price is taken
// back. Where arrays lie between two readings with other calls, or with each other, only the sum is
// known: such an array may have another's bytes, or the driver's. When it is freed, those show as a
// change that nobody caused, and the next reading is about the others.
#include <algorithm>

#include "resolve/ledger.h"
#include "resolve/pricing.h"

namespace vramscope::resolve {
namespace {

// Of arrays without a price of their own that are looked at anew when one of them goes.
constexpr size_t kMaxReopened = 64;

}  // namespace

void Ledger::OnArray(DeviceState& device, const trace::Event& event, uint32_t index) {
  OpenCall call;
  call.begin_ns = event.begin_ns;
  call.end_ns = event.end_ns;
  call.process = event.process;
  call.is_array = true;
  call.life = processes_[event.process.value].holdings[index].life;
  call.holding = index;
  device.readings.estimated[call.life] = {event.process, index};
  AddOpenCall(device, std::move(call));
}

// nullptr where it is gone.
Holding* Ledger::ArrayOf(trace::ProcessId process, uint32_t index, uint64_t life) {
  Holding& array = processes_[process.value].holdings[index];
  return array.live() && array.life == life ? &array : nullptr;
}

// From here on it has another price.
void Ledger::Reprice(int64_t bytes, Holding* array) {
  if (bytes == 0)
    return;
  EndRow(array, false);
  PriceHolding(*array, false);
  array->priced += static_cast<uint64_t>(bytes);
  array->bracketed = true;
  PriceHolding(*array, true);
}

// `calls` are those between two readings, all of arrays; `bytes` is what they took more or less
// than the ledger has. Those that are gone have left nothing in it.
bool Ledger::AssignToArrays(DeviceState& device,
                            const std::vector<OpenCall>& calls,
                            int64_t bytes) {
  std::vector<const OpenCall*> live;
  uint64_t estimate = 0;
  for (const OpenCall& call : calls) {
    const Holding* array = ArrayOf(call.process, call.holding, call.life);
    if (array == nullptr || spaces_[array->space].device != device.id)
      continue;
    live.push_back(&call);
    estimate += array->priced;
  }
  if (live.empty() || static_cast<int64_t>(estimate) + bytes < 0)
    return false;
  ReadingSeries& series = device.readings;
  int64_t left = bytes;
  for (size_t i = 0; i < live.size(); ++i) {
    const OpenCall& call = *live[i];
    Holding* array = ArrayOf(call.process, call.holding, call.life);
    const double share = estimate == 0
                             ? 1.0 / static_cast<double>(live.size())
                             : static_cast<double>(array->priced) / static_cast<double>(estimate);
    int64_t part =
        i + 1 == live.size() ? left : static_cast<int64_t>(static_cast<double>(bytes) * share);
    part = std::max(part, -static_cast<int64_t>(array->priced));
    left -= part;
    Reprice(part, array);
    series.repriced.push_back({call.process, call.holding, call.life, part});
  }
  if (live.size() == 1 && calls.size() == 1)
    series.estimated.erase(live[0]->life);
  return left == 0;
}

// The reading was unclear.
void Ledger::TakeBackPrices(DeviceState& device, const std::vector<ArrayPrice>& repriced) {
  for (const ArrayPrice& price : repriced) {
    Holding* array = ArrayOf(price.process, price.holding, price.life);
    if (array == nullptr)
      continue;
    Reprice(std::max(-price.bytes, -static_cast<int64_t>(array->priced)), array);
    device.readings.estimated[price.life] = {price.process, price.holding};
  }
}

void Ledger::OnArrayFreed(DeviceState& device, const trace::Event& event, uint64_t life) {
  ReadingSeries& series = device.readings;
  if (series.estimated.erase(life) == 0)
    return;
  // Before the next reading it comes and goes unseen.
  const auto is_it = [&](const OpenCall& call) { return call.is_array && call.life == life; };
  if (std::erase_if(series.after_last, is_it) != 0 ||
      (series.last_unclear && std::erase_if(series.before_last, is_it) != 0))
    return;
  OpenCall call;
  call.begin_ns = event.begin_ns;
  call.end_ns = event.end_ns;
  call.process = event.process;
  if (!series.estimated.empty() && series.estimated.size() <= kMaxReopened) {
    call.is_array = true;
    for (const auto& [other, where] : series.estimated) {
      call.process = where.process;
      call.holding = where.holding;
      call.life = other;
      if (ArrayOf(where.process, where.holding, other) != nullptr)
        AddOpenCall(device, call);
    }
    return;
  }
  call.api = event.api;
  call.thread = event.thread;
  AddOpenCall(device, std::move(call));
}

}  // namespace vramscope::resolve
