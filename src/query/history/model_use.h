// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "query/core/live_set.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

// Which of the models alive at the end are in use. A model is unused where
// - it does not run in the last iteration, and one of its class was made and ran after its last
// run;
// - it never ran, and one of its class was made in a later iteration;
// - the process has iterations, it ran in some of them, and only other models run in the last ones.
// An averaged or frozen copy that never runs is in use: it is there to be kept.
class ModelUse {
 public:
  explicit ModelUse(const tables::Recording& recording) : recording_(recording) {}

  // `live`: what is alive at the end. Reads allocations only where several models are.
  util::Status Read(const LiveSet& live);
  bool IsUnused(const tables::SiteRow& site) const;
  uint64_t unused_count() const { return unused_count_; }
  // "Linear#[1-9] x9".
  std::string UnusedNames() const;

 private:
  struct Model {
    tables::ProcessId process;
    std::string name;    // the first part of its layers' names: "Linear#2"
    std::string type;    // that without its number
    uint64_t bytes = 0;  // alive at the end, with gradients and optimizer state
    int64_t made_ns = INT64_MAX;
    int64_t last_run_ns = INT64_MIN;
    bool unused = false;

    bool HasRun() const { return last_run_ns != INT64_MIN; }
  };

  // Index into `models_`, or -1.
  int32_t ModelOf(const tables::SiteRow& site) const;
  util::Status ReadTimes();
  void Judge();

  const tables::Recording& recording_;
  std::vector<Model> models_;
  std::map<std::pair<tables::ProcessId, std::string_view>, int32_t> numbers_;
  uint64_t unused_count_ = 0;
};

}  // namespace vramscope::query
