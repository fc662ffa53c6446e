// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/enums.h"
#include "query/dimensions/cells.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/iteration_times.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "tables/row_of.h"

// What rows are grouped by and called. Reports, exports and the page's data take their words from
// here, so that all of them use the same ones.
namespace vramscope::query {

// "gpu", "host" or "cpu".
inline const char* DeviceKindName(tables::DeviceKind kind) {
  switch (kind) {
    case tables::DeviceKind::kGpu:
      return "gpu";
    case tables::DeviceKind::kHost:
      return "host";
    case tables::DeviceKind::kCpu:
      break;
  }
  return "cpu";
}

// "gpu0", "host", "cpu"; `index` is NVML's.
inline std::string DeviceMark(tables::DeviceKind kind, int32_t index) {
  const std::string name = DeviceKindName(kind);
  return kind == tables::DeviceKind::kGpu ? name + std::to_string(index) : name;
}

// NVML's number.
inline int32_t DeviceIndex(const tables::Recording& recording, tables::DeviceId device) {
  const std::vector<tables::DeviceRow>& devices = recording.tables().devices;
  return device.value != 0 && device.value < devices.size() ? devices[device.value].index
                                                            : format::kNoDevice;
}

// 0 for no process.
inline uint32_t PidOf(const tables::Recording& recording, tables::ProcessId process) {
  return RowOf(recording.tables().processes, process).pid;
}

// The value of each dimension of a row, as an id and as a text. Equal ids have equal texts. Id 0
// means "none". An id is cheap; ask for its text once, when the row is printed. The class caches
// look-ups, so threads must not share it.
class DimensionValues {
 public:
  // `own`: packages whose code is the user's (--own).
  explicit DimensionValues(const tables::Recording& recording, std::vector<std::string> own = {});

  // `row`: null for free bytes; for rounding, its allocation's; for a counter, bytes without times.
  uint64_t Id(Dimension dimension,
              const tables::SiteRow& site,
              const tables::AllocationRow* row) const;
  std::string Text(Dimension dimension, uint64_t id) const;
  std::string Of(Dimension dimension,
                 const tables::SiteRow& site,
                 const tables::AllocationRow* row) const {
    return Text(dimension, Id(dimension, site, row));
  }
  // Whether the id is a value. Without one the text says so: "(none)".
  static bool IsName(Dimension dimension, uint64_t id);
  // True for free bytes of a segment; the text names the owner of the segment.
  static bool IsOfSegment(Dimension dimension, uint64_t id);
  // Whether a condition that wants `wanted` selects the id; `text` is the id's.
  bool Matches(Dimension dimension,
               uint64_t id,
               const std::string& text,
               const std::string& wanted) const;
  // Whether rows of one site differ in it.
  static bool IsOfRows(Dimension dimension);

  // The ledger's levels below process, for people: {"PyTorch", "cached"}, {"driver-owned",
  // "context", "cuCtxCreate"}, {"before recording"}.
  std::vector<std::string> TreePath(const tables::SiteRow& site) const;
  // The user's line that has the bytes.
  tables::FrameId LineOf(const tables::SiteRow& site) const { return user_frames_.Of(site.place); }
  // True for memory that lives as long as its process.
  bool IsNeverFreed(const tables::SiteRow& site, const tables::AllocationRow& row) const {
    return row.end_ns >= AccountOf(site).end_ns;
  }

  // For the table of dimensions.
  const tables::Recording& recording() const { return recording_; }
  const tables::Tables& tables() const { return recording_.tables(); }
  const tables::AccountRow& AccountOf(const tables::SiteRow& site) const {
    return RowOf(tables().accounts, site.account);
  }
  const ProcessIterations& IterationsOf(const tables::SiteRow& site) const {
    return iterations_.Of(AccountOf(site).process);
  }
  std::string String(tables::StringId id) const { return std::string(recording_.string(id)); }
  std::string StackText(tables::StackId stack) const;

 private:
  bool IsOfPyTorch(const tables::SiteRow& site) const;

  const tables::Recording& recording_;
  IterationTimes iterations_;
  mutable UserFrames user_frames_;
  ShownStacks stacks_;
  mutable std::optional<tables::StringId> pytorch_;  // once it was needed
};

// A row of the table of dimensions: how a dimension makes an id of a row, and a text of an id.
struct DimensionDef {
  // How a condition compares its value with the text.
  enum class Match : uint8_t {
    kWhole,
    kContains,  // any part of the text
    kBelow,     // the text, or a layer that it is inside of
  };

  Dimension dimension;
  const char* name;
  uint64_t (*id)(const DimensionValues& values,
                 const tables::SiteRow& site,
                 const tables::AllocationRow* row);
  std::string (*text)(const DimensionValues& values, uint64_t id);  // of an id that is not 0
  const char* none = "(none)";                                      // the text of id 0
  uint64_t nameless_bits = 0;  // ids with one of these have a text, but no value
  Match match = Match::kWhole;
  // Rows of one site differ in it.
  bool of_rows = false;
  // Free bytes of a segment have no value of their own; the text names the owner of the segment.
  bool is_of_segment = false;
  // Other texts for a condition.
  std::vector<std::string> (*other_names)(const DimensionValues& values, uint64_t id) = nullptr;
};
// The table is in dimensions.cc.
const DimensionDef& DefOf(Dimension dimension);

}  // namespace vramscope::query
