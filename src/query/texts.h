// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "query/report.h"
#include "tables/recording.h"

// What reports print of a row, by dimension: the one place where ids become words. Reports, exports
// and the page's data take their words from here, so that they are the same ones.
namespace vramscope::query {

// What bytes stand under that no row of `sites` says: `site` for the rounding of its allocations,
// and a segment's site for its free bytes.
tables::SiteRow RoundingSite(const tables::SiteRow& site);
tables::SiteRow FreeSite(const tables::Recording& recording,
                         const tables::SegmentRow& segment,
                         bool in_use);

class DimensionTexts {
 public:
  // `own`: packages whose code is the user's (--own).
  explicit DimensionTexts(const tables::Recording& recording, std::vector<std::string> own = {});

  // `row` is null for bytes of no allocation: free bytes, rounding, counters.
  std::string Of(Dimension dimension,
                 const tables::SiteRow& site,
                 const tables::AllocationRow* row) const;
  // The ledger's levels below process.
  std::vector<std::string> TreePath(const tables::SiteRow& site) const;

 private:
  const tables::Recording& recording_;
  std::vector<std::string> own_;
};

}  // namespace vramscope::query
