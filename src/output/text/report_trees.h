// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "output/stack_names.h"
#include "output/terminal.h"
#include "output/text/ledger_tree.h"
#include "query/dimensions/report.h"

namespace vramscope::output {

// The rows of a report as trees of names, one of each kind a device.
class ReportTrees {
 public:
  ReportTrees(const query::Report& report,
              const tables::Recording& recording,
              const query::ReportQuery& query,
              bool utf8)
      : report_(report), recording_(recording), query_(query), utf8_(utf8) {}

  // Empty where the ledger tells more than categories.
  LedgerTree Categories(const query::DeviceReport& device) const;
  // `only_owners`: the categories above it say the rest, but what the driver owns is one of them.
  LedgerTree Ledger(const query::DeviceReport& device, bool only_owners) const;

 private:
  TreeLeaf LeafOf(const query::ReportRow& row,
                  bool by_process,
                  const std::map<size_t, StackNames>& stacks) const;
  std::string Clean(std::string_view text) const { return Printable(text, utf8_); }

  const query::Report& report_;
  const tables::Recording& recording_;
  const query::ReportQuery& query_;
  const bool utf8_;
};

}  // namespace vramscope::output
