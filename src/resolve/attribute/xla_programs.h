// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "trace/event.h"

namespace vramscope::resolve {

// XLA's programs that ran, by name.
class ExecutedPrograms {
 public:
  static constexpr size_t kMost = 4096;

  void On(const trace::XlaBlock& e);

  // Each with its temporary memory; 0: not known, it only had results.
  using Programs = std::set<std::pair<tables::StringId, uint64_t>>;
  Programs all() const;
  uint64_t unlisted() const { return unlisted_; }

 private:
  Programs with_memory_;
  std::set<tables::StringId> with_results_;
  // Executions repeat.
  std::pair<tables::StringId, uint64_t> last_{};
  uint64_t unlisted_ = 0;
};

}  // namespace vramscope::resolve
