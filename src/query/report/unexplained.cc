// SPDX-License-Identifier: Apache-2.0
#include "query/report/unexplained.h"

#include <algorithm>

#include "format/memory_words.h"
#include "query/dimensions/texts.h"
#include "tables/row_of.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

// "cm.py:8", or the innermost function of a native stack.
std::string WhereText(const DimensionTexts& texts, const tables::SiteRow& site) {
  if (site.stack.value == 0 && site.native_stack.value == 0)
    return {};
  return texts.Of(site.stack.value != 0 ? Dimension::kLine : Dimension::kNative, site, nullptr);
}

}  // namespace

std::vector<Unexplained> FindUnexplained(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  std::vector<Unexplained> found;
  std::vector<bool> is_seen(tables.counters.size());
  for (const tables::StepRow& step : tables.steps) {
    const uint32_t counter = step.counter.value;
    if (counter >= is_seen.size() || is_seen[counter])
      continue;
    is_seen[counter] = true;
    const tables::SiteRow& site = RowOf(tables.sites, tables.counters[counter].site);
    if (site.part != format::Part::kUnexplained)
      continue;
    Unexplained entry;
    entry.device = RowOf(tables.accounts, site.account).device;
    entry.bytes = step.bytes;
    entry.since_ns = step.time_ns;
    entry.near = std::string(recording.string(site.trigger));
    const std::string where = WhereText(DimensionTexts(recording), site);
    if (!where.empty())
      entry.near += " in " + where;
    found.push_back(std::move(entry));
  }
  return found;
}

std::string UnexplainedText(const tables::Recording& recording, const Unexplained& unexplained) {
  const tables::Tables& tables = recording.tables();
  std::string text = util::FormatSignedBytes(unexplained.bytes) + " since " +
                     util::FormatDuration(unexplained.since_ns - tables.session.begin_ns);
  if (!unexplained.near.empty())
    text += ", " + unexplained.near;
  return text + ": no known cause";
}

}  // namespace vramscope::query
