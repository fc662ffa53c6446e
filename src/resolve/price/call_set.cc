// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/call_set.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>

namespace vramscope::resolve::price {

using format::Part;

CallSet CallSet::ThatMayTake() const {
  CallSet takers = Only(
      [](const ImplicitCall& call) { return call.kind != ImplicitCall::Kind::kContextDestroy; });
  return takers.empty() ? *this : takers;
}

Part CallSet::JointPart() const {
  if (Has(Part::kContext))
    return Part::kContext;
  const Part part = last().part;
  return AreAll(part) ? part : Part::kSeveral;
}

Counter CallSet::AsCounter(Part part) const {
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
