// SPDX-License-Identifier: Apache-2.0
#include "query/diff/diff_callers.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <utility>

namespace vramscope::query {
namespace {

uint64_t ChangeOf(const DiffCaller& caller) {
  return static_cast<uint64_t>(std::abs(caller.delta_bytes()));
}

}  // namespace

std::vector<DiffCaller> CallersOf(const Comparison& comparison, const std::vector<DiffKey>& keys) {
  std::map<DiffChain, DiffCaller> chains;
  for (const DiffKey& key : keys) {
    for (const bool of_b : {false, true}) {
      const auto& callers = (of_b ? comparison.b : comparison.a).callers;
      const auto found = callers.find(key);
      if (found == callers.end())
        continue;
      for (const auto& [chain, bytes] : found->second)
        (of_b ? chains[chain].b_bytes : chains[chain].a_bytes) += bytes;
    }
  }
  for (size_t level = 0; chains.size() > 1; ++level) {
    std::map<uint32_t, DiffCaller> at;
    for (const auto& [chain, bytes] : chains) {
      DiffCaller& caller = at[level < chain.size() ? chain[level] : 0];
      caller.a_bytes += bytes.a_bytes;
      caller.b_bytes += bytes.b_bytes;
    }
    if (at.size() == 1 && at.begin()->first != 0)
      continue;
    std::vector<DiffCaller> callers;
    for (auto& [place, caller] : at) {
      caller.line = place == 0 ? "(no caller)" : comparison.Line(place);
      callers.push_back(std::move(caller));
    }
    std::stable_sort(callers.begin(), callers.end(), [](const DiffCaller& x, const DiffCaller& y) {
      return ChangeOf(x) > ChangeOf(y);
    });
    return callers;
  }
  return {};
}

std::string CallerText(const std::vector<DiffCaller>& callers) {
  uint64_t changed = 0;
  for (const DiffCaller& caller : callers)
    changed += ChangeOf(caller);
  if (callers.size() < 2 || changed == 0 || ChangeOf(callers[0]) * 5 < changed * 4)
    return {};
  return ", called from " + callers[0].line;
}

}  // namespace vramscope::query
