// SPDX-License-Identifier: Apache-2.0
#include "output/text/report_trees.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "output/devices.h"

namespace vramscope::output {
namespace {

// Where these have no bytes nobody said what memory is for, and the ledger tells more than
// categories.
bool IsPurpose(const std::string& category) {
  for (const char* name :
       {"parameter", "gradient", "optimizer state", "buffer", "activation", "temporary", "input"}) {
    if (category == name)
      return true;
  }
  return false;
}

}  // namespace

LedgerTree ReportTrees::Categories(const query::DeviceReport& device) const {
  std::vector<TreeLeaf> leaves;
  bool any_purpose = false;
  for (const query::CategoryEntry& entry : report_.categories) {
    if (entry.device != device.device)
      continue;
    leaves.push_back({{Clean(entry.category)}, entry.bytes, entry.count});
    any_purpose = any_purpose || (entry.bytes > 0 && IsPurpose(entry.category));
  }
  if (!any_purpose || !query_.by.empty())
    leaves.clear();
  return LedgerTree(leaves);
}

LedgerTree ReportTrees::Ledger(const query::DeviceReport& device, bool only_owners) const {
  std::set<uint32_t> pids;
  for (const query::ReportRow& row : report_.rows) {
    if (row.device == device.device && row.bytes > 0 && row.pid)
      pids.insert(*row.pid);
  }
  const bool by_process = query_.by.empty() && pids.size() > 1;
  std::map<size_t, StackNames> stacks;  // by level of `query.by`
  for (size_t level = 0; level < query_.by.size(); ++level) {
    const query::Dimension dimension = query_.by[level];
    if (dimension != query::Dimension::kPython && dimension != query::Dimension::kNative)
      continue;
    StackNames& names = stacks.try_emplace(level, recording_, dimension, query_.own).first->second;
    std::set<std::string> texts;
    for (const query::ReportRow& row : report_.rows) {
      if (row.device == device.device && level < row.path.size() &&
          texts.insert(row.path[level]).second)
        names.Add(row.path[level]);
    }
  }
  std::vector<TreeLeaf> leaves;
  for (const query::ReportRow& row : report_.rows) {
    if (row.device != device.device)
      continue;
    TreeLeaf leaf = LeafOf(row, by_process, stacks);
    if (only_owners) {
      const size_t owner = by_process && row.pid ? 1 : 0;
      const size_t levels = owner < leaf.path.size() && leaf.path[owner] == "driver-owned" ? 2 : 1;
      leaf.path.resize(std::min(leaf.path.size(), owner + levels));
    }
    leaves.push_back(std::move(leaf));
  }
  return LedgerTree(leaves);
}

TreeLeaf ReportTrees::LeafOf(const query::ReportRow& row,
                             bool by_process,
                             const std::map<size_t, StackNames>& stacks) const {
  TreeLeaf leaf;
  leaf.bytes = row.bytes;
  leaf.count = row.count;
  // Bytes of no recorded process name themselves: "other processes", "before recording".
  if (by_process && row.pid) {
    const auto found = std::find_if(report_.processes.begin(), report_.processes.end(),
                                    [&](const auto& process) { return process.pid == *row.pid; });
    leaf.path.push_back(found == report_.processes.end()
                            ? fmt::format("pid {}", *row.pid)
                            : Clean(ProcessLabel(found->command, found->pid, found->rank)));
  }
  std::string layer;
  for (size_t level = 0; level < row.path.size(); ++level) {
    leaf.repeats.resize(leaf.path.size());
    if (const auto names = stacks.find(level); names != stacks.end()) {
      const StackNames::Name name = names->second.Of(row.path[level]);
      leaf.path.push_back(Clean(name.head));
      leaf.below.resize(leaf.path.size());
      leaf.below.back() = Clean(name.callers);
      continue;
    }
    std::string name = row.path[level].empty() ? "-" : Clean(row.path[level]);
    const query::Dimension dimension =
        level < query_.by.size() ? query_.by[level] : query::Dimension::kOwner;
    // Below its layer a parameter needs not say which that is.
    if (dimension == query::Dimension::kParameter && !layer.empty() && name.starts_with(layer) &&
        name[layer.size()] == '.')
      name.erase(0, layer.size() + 1);
    if (dimension == query::Dimension::kModule)
      layer = name;
    if (dimension == query::Dimension::kModule)
      AppendNameLevels(name, &leaf);
    else
      leaf.path.push_back(name);
    leaf.repeats.resize(leaf.path.size(), dimension == query::Dimension::kModule ||
                                              dimension == query::Dimension::kParameter);
  }
  return leaf;
}

}  // namespace vramscope::output
