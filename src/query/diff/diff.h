// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/memory_words.h"
#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

// What changed between two recordings, and why. They are aligned by iteration, phase, layer, name
// and line, never by time or address.
namespace vramscope::query {

// What a row's path consists of.
inline constexpr const char* kDiffLevels[] = {"device", "category", "phase",
                                              "module", "name",     "line"};

// What is compared: a recording, or one rank's processes of it.
struct DiffSubject {
  const tables::Recording* recording = nullptr;
  std::optional<int32_t> rank{};

  bool Has(tables::ProcessId process) const {
    const auto& processes = recording->tables().processes;
    return !rank || (process.value != 0 && process.value < processes.size() &&
                     processes[process.value].rank == *rank);
  }
};

// ", called from train.py:12 in step": the one that has most of what changed; else nothing.
std::string CallerText(const std::vector<DiffCaller>& callers);

// An error where there is nothing to compare.
util::Result<Diff> MakeDiff(const DiffSubject& a, const DiffSubject& b);
inline util::Result<Diff> MakeDiff(const tables::Recording& a, const tables::Recording& b) {
  return MakeDiff(DiffSubject{&a}, DiffSubject{&b});
}

}  // namespace vramscope::query
