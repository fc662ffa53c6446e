// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "query/core/instant.h"
#include "tables/recording.h"
#include "util/status.h"

// The rows of `allocations` as they begin and end, for formats that tell a history.
namespace vramscope::output {

struct RowChange {
  // In the order in which those of one instant come.
  enum class Kind : uint8_t { kBlockEnds, kSegmentEnds, kSegmentBegins, kBlockBegins, kGoesOn };
  int64_t time_ns = 0;
  Kind kind = Kind::kBlockBegins;  // kGoesOn: one row ends and another of the same memory begins
  tables::AllocationRow row;       // the one that begins, where one does
};

// All changes of some accounts, each up to its own instant, in order of time and window by window:
// memory holds one of them.
class RowChanges {
 public:
  static constexpr uint64_t kWindowRows = uint64_t{1} << 20;

  // `accounts`: by AccountId, whether its rows count.
  RowChanges(const tables::Recording& recording,
             const query::Instants& until,
             std::vector<bool> accounts,
             uint64_t window_rows = kWindowRows);

  // The next of them; empty behind the last. Holds until the next call.
  util::Result<std::span<const RowChange>> Next();

 private:
  util::Status Plan();
  util::Status ReadWindow(int64_t after_ns, int64_t to_ns);
  void JoinRows();
  bool MayMatter(size_t frame) const;
  int64_t UntilOf(uint32_t site) const;

  const tables::Recording& recording_;
  const query::Instants& until_;
  std::vector<bool> accounts_;
  uint64_t window_rows_;
  bool planned_ = false;
  std::vector<int64_t> ends_ns_;  // of windows: the last instant of each
  size_t next_window_ = 0;
  std::vector<RowChange> changes_;
};

}  // namespace vramscope::output
