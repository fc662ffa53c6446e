// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/replay/ledger.h"
#include "resolve/price/price.h"

namespace differential {

// Makes the input of the pricing out of a recording's events. What explicit calls moved is what a
// ledger says that sees no readings, no implicit calls and no samples.
class PriceInputs {
 public:
  explicit PriceInputs(const vramscope::trace::Trace& trace);
  void Apply(const vramscope::trace::Event& event);
  // By device of the trace; empty for those that are no GPU.
  const std::vector<vramscope::resolve::price::DeviceInput>& devices() const { return devices_; }
  bool IsGpu(size_t device) const {
    return ledger_.devices()[device].kind == vramscope::trace::DeviceKind::kGpu;
  }

 private:
  void OnImplicit(const vramscope::trace::Event& event);
  void OnContext(const vramscope::trace::Event& event, bool creates);
  void ApplyExplicit(const vramscope::trace::Event& event);
  bool Knows(vramscope::trace::DeviceId device) const {
    return device.value >= 0 && IsGpu(static_cast<size_t>(device.value));
  }

  const vramscope::trace::Trace& trace_;
  vramscope::engine::Ledger ledger_;
  std::vector<vramscope::resolve::price::DeviceInput> devices_;
  std::vector<int64_t> totals_;  // of spaces
  struct Array {
    uint32_t number;
    uint32_t space;
    int64_t bytes;
  };
  std::vector<std::map<uint64_t, Array>> arrays_;  // by process and life, those that are live
  std::vector<uint32_t> array_counts_;             // by device
};

}  // namespace differential
