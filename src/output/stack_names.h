// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "query/dimensions/report.h"
#include "tables/recording.h"

namespace vramscope::output {

// "at::native::(anonymous namespace)::f<int>(long) [clone .isra.0]" -> "native::f": a C++ function
// by its last two names.
std::string ShortCxxName(std::string_view name);

// Stacks as a table of them names each: by the innermost frame that no other has, and by who called
// it. All of a table's stacks come before the first question.
class StackNames {
 public:
  struct Name {
    std::string head;     // "attention.py:60 in attend, through functional.py:12 in softmax"
    std::string callers;  // "< model.py:74 in forward < train.py:150 in main"
  };

  // `dimension`: kPython or kNative; `own` as in a query.
  StackNames(const tables::Recording& recording,
             query::Dimension dimension,
             const std::vector<std::string>& own);

  // `stack` as a row of that dimension has it: frames from the outermost on, between semicolons.
  void Add(const std::string& stack);
  Name Of(const std::string& stack) const;

 private:
  // From the innermost on. Frames without a name are left out where others have one.
  std::vector<std::string> Frames(const std::string& stack) const;

  const bool native_;
  std::map<std::string, bool, std::less<>> library_;  // Python frames by text: nobody's own code
  std::map<std::string, size_t, std::less<>> stacks_of_;  // by frame: how many have it
};

}  // namespace vramscope::output
