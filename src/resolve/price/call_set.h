// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// Implicit calls that have one price together: those between two figures of the device.
class CallSet {
 public:
  // `numbers` are of DeviceInput::calls, in their order. The input outlives the set.
  explicit CallSet(const DeviceInput& input, std::vector<uint32_t> numbers = {})
      : input_(&input), numbers_(std::move(numbers)) {}

  bool empty() const { return numbers_.empty(); }
  auto begin() const { return numbers_.begin(); }
  auto end() const { return numbers_.end(); }
  const ImplicitCall& call(uint32_t number) const { return input_->calls[number]; }
  const ImplicitCall& last() const { return call(numbers_.back()); }

  template <class Matches>
  bool All(Matches matches) const {
    return std::all_of(begin(), end(), [&](uint32_t number) { return matches(call(number)); });
  }
  template <class Matches>
  bool Any(Matches matches) const {
    return std::any_of(begin(), end(), [&](uint32_t number) { return matches(call(number)); });
  }
  template <class Matches>
  CallSet Only(Matches matches) const {
    CallSet some(*input_);
    std::copy_if(begin(), end(), std::back_inserter(some.numbers_),
                 [&](uint32_t number) { return matches(call(number)); });
    return some;
  }
  bool AreAll(format::Part part) const {
    return All([&](const ImplicitCall& call) { return call.part == part; });
  }
  bool Has(format::Part part) const {
    return Any([&](const ImplicitCall& call) { return call.part == part; });
  }
  bool Has(ImplicitCall::Kind kind) const {
    return Any([&](const ImplicitCall& call) { return call.kind == kind; });
  }

  // Without ends of contexts, which take nothing; where there is nothing else, as it is.
  CallSet ThatMayTake() const;
  // The part that a row for all of them stands under: initialising the driver is part of making a
  // context; other mixtures cannot be told apart.
  format::Part JointPart() const;
  // What such a row says of them.
  Counter AsCounter(format::Part part) const;

 private:
  const DeviceInput* input_;
  std::vector<uint32_t> numbers_;
};

}  // namespace vramscope::resolve::price
