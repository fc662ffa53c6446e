// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/budget.h"
#include "util/status.h"

// The parts of a report beside its rows: lists of the largest, repeated layers, cached memory, and
// the invariants.
namespace vramscope::query {

// The lists of a report that are shorter than its rows: the largest stacks, lines and modules, and
// all categories.
class Tops {
 public:
  // The budget is charged for texts, those of whole stacks too, which JSON has.
  Tops(const tables::Recording& recording, const DimensionValues& texts, util::Budget* budget)
      : recording_(recording), texts_(texts), stacks_(recording), budget_(*budget) {}

  void Add(const Leaf& leaf);
  void MoveTo(Report* report);

 private:
  struct Sum {
    uint64_t bytes = 0;
    uint64_t count = 0;
  };
  struct ModuleSum {
    Sum all;
    tables::StringId type;
    std::array<uint64_t, format::kCategoryCount> categories{};
  };
  struct DeviceSums {
    std::array<Sum, format::kCategoryCount> categories{};
    std::unordered_map<uint32_t, Sum> stacks;
    std::unordered_map<uint32_t, Sum> free;           // by the stack that made the segment
    std::unordered_map<uint32_t, ModuleSum> modules;  // by StringId
  };
  struct LineSum {
    Sum sum;
    uint64_t largest = 0;
    tables::StackId stack;  // with the largest share
  };
  using Lines = std::map<uint32_t, LineSum>;  // by FrameId

  tables::FrameId LineOf(tables::StackId stack) const;
  void AppendStacks(tables::DeviceId device, const DeviceSums& sums, Report* report) const;
  void AppendLines(tables::DeviceId device,
                   const Lines& lines,
                   LeftOut::List list,
                   Report* report) const;
  void AppendModules(tables::DeviceId device, const DeviceSums& sums, Report* report) const;
  void AppendChurn(Report* report) const;
  void AddTo(Lines* lines, tables::StackId stack, Sum sum) const;
  void Charge(std::string_view text) const;

  const tables::Recording& recording_;
  const DimensionValues& texts_;
  ShownStacks stacks_;
  util::Budget& budget_;
  std::map<tables::DeviceId, DeviceSums> devices_;
  uint64_t block_bytes_ = 0;
  uint64_t with_category_ = 0;
  uint64_t with_place_ = 0;
};

// Repeated layers as one entry: modules of one device and class whose names differ in numbers alone
// ("blocks.3.attn", "encoder_layer_3"), that hold the same categories, and as many bytes within one
// percent of the largest. The name says which they are ("blocks.[0-11].attn"), `modules` how many;
// bytes and counts are of all of them. Largest first within a device, as the entries come.
std::vector<ModuleEntry> FoldModules(const std::vector<ModuleEntry>& entries);

// Of processes with as much free as is worth a word, the most first, where an earlier segment could
// have served the request for the newest. `live` is of that instant.
util::Result<std::vector<CachedMemory>> FindCached(const tables::Recording& recording,
                                                   const Instants& at,
                                                   const LiveSet& live);

// What must hold of every recording, whatever the report asks: fills report->invariants.
// `peak_sums` are those of the report's rows, where it is of the peaks: by device, of all rows.
using DeviceSums = std::vector<std::pair<tables::DeviceId, uint64_t>>;
util::Status CheckInvariants(const tables::Recording& recording,
                             const DeviceSums& peak_sums,
                             Report* report);

}  // namespace vramscope::query
