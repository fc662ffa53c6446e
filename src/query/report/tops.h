// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "query/core/live_set.h"
#include "query/dimensions/report.h"
#include "query/dimensions/texts.h"
#include "util/budget.h"

namespace vramscope::query {

// The lists of a report that are shorter than its rows: the largest stacks, lines and modules, and
// all categories.
class Tops {
 public:
  // The budget is charged for texts, those of whole stacks too, which JSON has.
  Tops(const tables::Recording& recording, const DimensionTexts& texts, util::Budget* budget)
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
  const DimensionTexts& texts_;
  ShownStacks stacks_;
  util::Budget& budget_;
  std::map<tables::DeviceId, DeviceSums> devices_;
  uint64_t block_bytes_ = 0;
  uint64_t with_category_ = 0;
  uint64_t with_place_ = 0;
};

}  // namespace vramscope::query
