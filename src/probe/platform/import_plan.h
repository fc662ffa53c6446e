// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace vramscope::probe {

// Which functions loaded objects shall call instead of those that they were bound to.
class ImportPlan {
 public:
  // `object`: only in objects whose file name begins so; nullptr: in all. Texts are kept by
  // pointer. Beyond kMaxEntries nothing is added.
  void Add(const char* symbol, const char* object, void* function);
  // Changes the slots of all loaded objects (got_patch.h), in one look at their hundred thousand.
  void Apply() const;

 private:
  static constexpr size_t kMaxEntries = 32;
  struct Entry {
    const char* symbol;
    const char* object;
    void* function;
  };

  static void* Choose(const struct Import& import, void* plan);

  Entry entries_[kMaxEntries] = {};
  size_t count_ = 0;
};

}  // namespace vramscope::probe
