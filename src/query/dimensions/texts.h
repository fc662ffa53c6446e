// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/enums.h"
#include "query/dimensions/cells.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/iteration_times.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "tables/row_of.h"

// What reports print of a row, by dimension: the one place where ids become words. Reports, exports
// and the page's data take their words from here, so that they are the same ones.
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

// Remembers what it looked up: each thread has its own.
class DimensionTexts {
 public:
  // `own`: packages whose code is the user's (--own).
  explicit DimensionTexts(const tables::Recording& recording, std::vector<std::string> own = {});

  // The value of a dimension as a number, where equal numbers have equal texts. `row` is null for
  // free bytes; that of rounding is its allocation's, that of a counter has its bytes and no times.
  uint64_t Number(Dimension dimension,
                  const tables::SiteRow& site,
                  const tables::AllocationRow* row) const;
  std::string Of(Dimension dimension,
                 const tables::SiteRow& site,
                 const tables::AllocationRow* row) const;
  // Whether the row has a value of the dimension: without one, Of() says that there is none.
  bool HasName(Dimension dimension,
               const tables::SiteRow& site,
               const tables::AllocationRow* row) const;
  // Of(); "" where the row has no value.
  std::string NameOf(Dimension dimension,
                     const tables::SiteRow& site,
                     const tables::AllocationRow* row) const;
  // What goes with its process was not freed.
  bool IsNeverFreed(const tables::SiteRow& site, const tables::AllocationRow& row) const;
  // Whether `row` matters.
  static bool IsOfRows(Dimension dimension);

  // The ledger's levels below process, for people: {"PyTorch", "cached"}, {"driver-owned",
  // "context", "cuCtxCreate"}, {"before recording"}.
  std::vector<std::string> TreePath(const tables::SiteRow& site) const;
  // The user's line that has the bytes.
  tables::FrameId LineOf(const tables::SiteRow& site) const { return user_frames_.Of(site.place); }

 private:
  const tables::AccountRow& AccountOf(const tables::SiteRow& site) const;
  std::string StackText(tables::StackId stack) const;

  const tables::Recording& recording_;
  IterationTimes iterations_;
  mutable UserFrames user_frames_;
  ShownStacks stacks_;
};

}  // namespace vramscope::query
