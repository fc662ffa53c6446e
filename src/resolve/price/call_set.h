// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// Implicit calls with one joint price: those between two figures of the device.
class CallSet {
 public:
  // `numbers`: ascending indices in DeviceInput::calls. The input outlives the set.
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

  // The calls without ends of contexts, which take no memory; all calls if only ends are there.
  CallSet ThatMayTake() const;
  // The part of a joint row. Initializing the driver is part of making a context; other mixtures
  // have the part "several".
  format::Part JointPart() const;
  // A joint row with the calls' names and context.
  Counter AsCounter(format::Part part) const;

 private:
  const DeviceInput* input_;
  std::vector<uint32_t> numbers_;
};

inline CallSet CallSet::ThatMayTake() const {
  CallSet takers = Only(
      [](const ImplicitCall& call) { return call.kind != ImplicitCall::Kind::kContextDestroy; });
  return takers.empty() ? *this : takers;
}

inline format::Part CallSet::JointPart() const {
  if (Has(format::Part::kContext))
    return format::Part::kContext;
  const format::Part part = last().part;
  return AreAll(part) ? part : format::Part::kSeveral;
}

inline Counter CallSet::AsCounter(format::Part part) const {
  constexpr size_t kShown = 3;
  Counter counter;
  counter.process = last().process;
  counter.part = part;
  counter.call = numbers_.back();
  std::unordered_set<std::string_view> texts;
  for (const uint32_t number : numbers_) {
    const ImplicitCall& one = call(number);
    if (one.part == part) {
      counter.call = number;
      counter.context = one.context;
    }
    const std::string_view text =
        one.text.empty() ? std::string_view(PartName(one.part)) : std::string_view(one.text);
    if (texts.insert(text).second && texts.size() <= kShown)
      counter.trigger += (counter.trigger.empty() ? "" : " + ") + std::string(text);
  }
  if (texts.size() > kShown)
    counter.trigger += " + " + std::to_string(texts.size() - kShown) + " more";
  return counter;
}

}  // namespace vramscope::resolve::price
