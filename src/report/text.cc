// SPDX-License-Identifier: Apache-2.0
#include "report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "report/devices.h"
#include "report/ledger_tree.h"
#include "report/places.h"
#include "report/text_tables.h"
#include "report/trust_lines.h"
#include "util/size_text.h"
#include "util/utf8.h"

namespace vramscope::report {
namespace {

constexpr size_t kMaxClosedGroups = 60;  // with --by but no --top: two screens, then "(n more)"

using Lines = std::vector<std::string>;

// How many lines each part gets. Parts give way in a fixed order until everything fits.
struct Plan {
  std::vector<size_t> categories;  // by device; 0: no such table
  std::vector<size_t> ledger;      // by device
  size_t modules = 0;
  size_t lines = 0;
  size_t stacks = 0;
  size_t churn = 0;
};

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

class TextReport {
 public:
  TextReport(const engine::Report& report,
             const trace::Trace& trace,
             const engine::ReportQuery& query,
             const TextOptions& options)
      : report_(report), trace_(trace), query_(query), options_(options), style_(options.style) {
    ChooseDevices();
    for (const engine::DeviceReport* device : devices_) {
      categories_.push_back(MakeCategories(*device));
      trees_.push_back(MakeTree(*device, HasCategories(categories_.size() - 1)));
    }
  }

  std::string Format();

 private:
  void ChooseDevices();
  LedgerTree MakeCategories(const engine::DeviceReport& device) const;
  LedgerTree MakeTree(const engine::DeviceReport& device, bool only_owners) const;
  TreeLeaf LeafOf(const engine::ReportRow& row, bool by_process) const;
  bool HasCategories(size_t device) const { return categories_[device].full_lines() > 0; }

  bool IsOneRow(size_t device) const;
  size_t DeviceHeight(const Plan& plan, size_t device) const;
  size_t Height(const Plan& plan, size_t fixed) const;
  Plan MakePlan(size_t fixed) const;

  void AddTitle();
  void AddDevice(size_t index, const Plan& plan);
  void AddAbsence();
  void AddHeadline(const engine::DeviceReport& device);
  std::string TreeHead() const;

  std::string Clean(std::string_view text) const { return Printable(text, style_.utf8); }
  std::string Seconds(int64_t time_ns) const {
    return util::FormatDuration(time_ns - trace_.session().start_ns);
  }
  size_t columns() const { return static_cast<size_t>(style_.columns); }
  void Add(std::string line) { out_.push_back(std::move(line)); }

  const engine::Report& report_;
  const trace::Trace& trace_;
  const engine::ReportQuery& query_;
  const TextOptions& options_;
  const Style& style_;
  std::vector<const engine::DeviceReport*> devices_;
  std::vector<LedgerTree> categories_;  // by device; empty where the ledger tells more
  std::vector<LedgerTree> trees_;       // by device
  Lines out_;
};

// A device that nothing was ever seen on says nothing; unless there is no other, and somebody asked
// for an instant.
void TextReport::ChooseDevices() {
  for (const engine::DeviceReport& device : report_.devices) {
    if (device.ledger_bytes > 0 || device.nvml_bytes.value_or(0) > 0)
      devices_.push_back(&device);
  }
  const bool all_of_it = query_.at.kind == engine::Instant::Kind::kPeak;
  if (!devices_.empty() || all_of_it || !query_.where.empty())
    return;
  for (const engine::DeviceReport& device : report_.devices)
    devices_.push_back(&device);
}

LedgerTree TextReport::MakeCategories(const engine::DeviceReport& device) const {
  std::vector<TreeLeaf> leaves;
  bool any_purpose = false;
  for (const engine::CategoryEntry& entry : report_.categories) {
    if (entry.device != device.device)
      continue;
    leaves.push_back({{Clean(entry.category)}, entry.bytes, entry.count});
    any_purpose = any_purpose || (entry.bytes > 0 && IsPurpose(entry.category));
  }
  if (!any_purpose || !query_.by.empty())
    leaves.clear();
  return LedgerTree(leaves);
}

// `only_owners`: the categories above it say the rest, but what the driver owns is one of them.
LedgerTree TextReport::MakeTree(const engine::DeviceReport& device, bool only_owners) const {
  std::set<uint32_t> pids;
  for (const engine::ReportRow& row : report_.rows) {
    if (row.device == device.device && row.bytes > 0 && row.pid)
      pids.insert(*row.pid);
  }
  const bool by_process = query_.by.empty() && pids.size() > 1;
  std::vector<TreeLeaf> leaves;
  for (const engine::ReportRow& row : report_.rows) {
    if (row.device != device.device)
      continue;
    TreeLeaf leaf = LeafOf(row, by_process);
    if (only_owners) {
      const size_t owner = by_process && row.pid ? 1 : 0;
      const size_t levels = owner < leaf.path.size() && leaf.path[owner] == "driver-owned" ? 2 : 1;
      leaf.path.resize(std::min(leaf.path.size(), owner + levels));
    }
    leaves.push_back(std::move(leaf));
  }
  return LedgerTree(leaves);
}

TreeLeaf TextReport::LeafOf(const engine::ReportRow& row, bool by_process) const {
  TreeLeaf leaf;
  leaf.bytes = row.bytes;
  leaf.count = row.count;
  // Bytes of no recorded process name themselves: "other processes", "RM-internal".
  if (by_process && row.pid) {
    const auto found = std::find_if(report_.processes.begin(), report_.processes.end(),
                                    [&](const auto& process) { return process.pid == *row.pid; });
    leaf.path.push_back(found == report_.processes.end()
                            ? fmt::format("pid {}", *row.pid)
                            : Clean(ProcessLabel(found->command, found->pid, found->rank)));
  }
  for (size_t level = 0; level < row.path.size(); ++level) {
    const std::string name = row.path[level].empty() ? "-" : Clean(row.path[level]);
    if (level < query_.by.size() && query_.by[level] == engine::Dimension::kModule)
      AppendNameLevels(name, &leaf);
    else
      leaf.path.push_back(name);
  }
  return leaf;
}

// A ledger of a single line needs no table.
bool TextReport::IsOneRow(size_t device) const {
  return query_.by.empty() && trees_[device].full_lines() == 1;
}

// Headline and NVML line; each table with its header; a blank line behind tables.
size_t TextReport::DeviceHeight(const Plan& plan, size_t device) const {
  const bool last = device + 1 == devices_.size();
  size_t height = 2;
  if (plan.categories[device] > 0)
    height += plan.categories[device] + 1;
  if (plan.ledger[device] > 0 && !IsOneRow(device))
    height += plan.ledger[device] + 1;
  const bool any = plan.categories[device] > 0 || plan.ledger[device] > 0;
  return height + (any || last ? 1 : 0);
}

size_t TextReport::Height(const Plan& plan, size_t fixed) const {
  size_t height = fixed;
  for (size_t i = 0; i < plan.ledger.size(); ++i)
    height += DeviceHeight(plan, i);
  for (const size_t lines : {plan.modules, plan.lines, plan.stacks * 2, plan.churn})
    height += lines > 0 ? lines + 2 : 0;
  return height;
}

Plan TextReport::MakePlan(size_t fixed) const {
  Plan plan;
  const bool grouped = !query_.by.empty();
  for (size_t i = 0; i < devices_.size(); ++i) {
    const size_t full = trees_[i].full_lines();
    const size_t ceiling = query_.top > 0     ? full
                           : grouped          ? kMaxClosedGroups
                           : HasCategories(i) ? 8
                                              : 18;
    plan.ledger.push_back(std::min(full, ceiling));
    plan.categories.push_back(std::min<size_t>(categories_[i].full_lines(), 14));
  }
  if (grouped)
    return plan;
  plan.modules = std::min<size_t>(WorthALine(report_.top_modules), 10);
  // The lists of places are of all there was.
  if (!query_.where.empty())
    return plan;
  plan.lines = std::min<size_t>(WorthALine(report_.top_lines), 10);
  plan.stacks = std::min<size_t>(WorthALine(report_.top_stacks), 3);
  plan.churn = std::min<size_t>(WorthALine(report_.top_churn), 6);

  const auto shrink = [&](size_t* part, size_t floor) {
    while (*part > floor && Height(plan, fixed) > options_.rows)
      --*part;
  };
  // The largest first, down to `floor`, where there are categories to `short_floor`.
  const auto shrink_ledgers = [&](size_t floor, size_t short_floor) {
    while (query_.top == 0 && Height(plan, fixed) > options_.rows) {
      size_t* largest = nullptr;
      for (size_t i = 0; i < plan.ledger.size(); ++i) {
        if (plan.ledger[i] > (HasCategories(i) ? short_floor : floor) &&
            (largest == nullptr || plan.ledger[i] > *largest))
          largest = &plan.ledger[i];
      }
      if (largest == nullptr)
        break;
      --*largest;
    }
  };
  const auto shrink_categories = [&](size_t floor) {
    while (!plan.categories.empty() && Height(plan, fixed) > options_.rows) {
      const auto largest = std::max_element(plan.categories.begin(), plan.categories.end());
      if (*largest <= floor)
        break;
      --*largest;
    }
  };
  shrink(&plan.lines, 6);
  shrink(&plan.churn, 4);
  shrink_ledgers(13, 6);
  shrink(&plan.stacks, 2);
  shrink(&plan.churn, 3);
  shrink(&plan.lines, 5);
  shrink(&plan.stacks, plan.modules > 0 ? 0 : 1);
  shrink(&plan.modules, 8);
  shrink_categories(10);
  shrink_ledgers(10, 4);
  shrink(&plan.churn, 2);
  shrink(&plan.modules, 5);
  shrink(&plan.lines, 3);
  shrink(&plan.stacks, 0);
  shrink_categories(6);
  shrink_ledgers(4, 3);
  shrink(&plan.churn, 0);
  shrink(&plan.modules, 3);
  shrink(&plan.lines, 2);
  shrink_ledgers(3, 0);
  shrink_categories(3);
  shrink(&plan.lines, 0);
  shrink(&plan.modules, 0);
  // Many devices: the smaller ones keep their headlines only.
  while (query_.top == 0 && Height(plan, fixed) > options_.rows) {
    size_t smallest = plan.ledger.size();
    size_t tables = 0;
    for (size_t i = 0; i < plan.ledger.size(); ++i) {
      if (plan.ledger[i] == 0 && plan.categories[i] == 0)
        continue;
      ++tables;
      if (smallest == plan.ledger.size() ||
          devices_[i]->ledger_bytes < devices_[smallest]->ledger_bytes)
        smallest = i;
    }
    if (tables <= 1)
      break;
    plan.ledger[smallest] = plan.categories[smallest] = 0;
  }
  return plan;
}

void TextReport::AddTitle() {
  const trace::SessionInfo& session = trace_.session();
  std::string command = session.name;
  if (!trace_.processes().empty())
    command = trace_.processes()[0].command;
  Add(Paint(CutEnd(Clean(command), columns(), style_), Ink::kBold, style_));
  std::string facts = util::FormatDuration(session.end_ns - session.start_ns);
  const size_t processes = trace_.processes().size();
  if (processes > 0)
    facts +=
        fmt::format(", {} process{}", util::FormatCount(processes), processes == 1 ? "" : "es");
  if (session.event_count > 0)
    facts += fmt::format(", {} events", util::FormatCount(session.event_count));
  if (!session.finished)
    facts += ", read from the live session";
  Add(Paint(CutEnd(facts, columns(), style_), Ink::kDim, style_));
  Add("");
}

void TextReport::AddHeadline(const engine::DeviceReport& device) {
  std::string name;
  switch (device.kind) {
    case trace::DeviceKind::kGpu:
      name = fmt::format("GPU {}", device.index);
      if (!device.name.empty())
        name += "  " + Clean(device.name);
      if (device.total_bytes)
        name += fmt::format(", {}", util::FormatBytes(*device.total_bytes));
      break;
    case trace::DeviceKind::kCpu:
      name = "CPU tensors";
      break;
    case trace::DeviceKind::kHost:
      name = "Host memory, pinned and registered";
      break;
  }
  std::string when = Clean(device.at_kind) + " ";
  if (query_.at.kind == engine::Instant::Kind::kMark)
    when += Clean(query_.at.mark) + " ";
  if (device.at_kind == "time")
    when.clear();
  const bool nothing = device.ledger_bytes == 0 && device.at_ns < trace_.session().start_ns;
  if (nothing)
    when = "nothing allocated";
  else
    when += util::FormatBytes(device.ledger_bytes) + " at " + Seconds(device.at_ns);
  if (device.at_iteration)
    when += fmt::format(", iteration {}", *device.at_iteration);
  name = CutEnd(name, columns() - std::min(columns(), util::DisplayWidth(when) + 2), style_);
  const size_t gap =
      columns() - std::min(columns(), util::DisplayWidth(name) + util::DisplayWidth(when));
  Add(Paint(name, Ink::kBold, style_) + std::string(gap, ' ') + when);

  const Unit unit = TableUnit(std::max(device.ledger_bytes, device.nvml_bytes.value_or(0)));
  const std::string ledger = InUnit(device.ledger_bytes, unit.bytes);
  if (device.nvml_bytes && device.residual_bytes) {
    const int64_t residual = *device.residual_bytes;
    const bool explained = IsWithinTarget(residual, *device.nvml_bytes);
    std::string line = fmt::format("  NVML {} - ledger {} {} = residual ",
                                   InUnit(*device.nvml_bytes, unit.bytes), ledger, unit.name);
    line += Paint(fmt::format("{} ({})", util::FormatSignedBytes(residual),
                              ExactPercent(residual, *device.nvml_bytes)),
                  explained ? Ink::kGood : Ink::kWarning, style_);
    Add(line);
  } else if (!query_.where.empty()) {
    Add(fmt::format("  ledger {} {} of what was asked for", ledger, unit.name));
  } else if (device.kind == trace::DeviceKind::kGpu) {
    Add(fmt::format("  ledger {} {}; no NVML sample of this state, so no residual", ledger,
                    unit.name));
  } else {
    Add(fmt::format("  ledger {} {}{}", ledger, unit.name,
                    device.kind == trace::DeviceKind::kCpu ? " of live tensors" : ""));
  }
}

std::string TextReport::TreeHead() const {
  std::string head;
  for (const engine::Dimension dimension : query_.by)
    head += (head.empty() ? "by " : " / ") + std::string(engine::DimensionName(dimension));
  return head.empty() ? "ledger" : head;
}

void TextReport::AddDevice(size_t index, const Plan& plan) {
  const LedgerTree& tree = trees_[index];
  const size_t max_lines = plan.ledger[index];
  AddHeadline(*devices_[index]);
  // A line for less than a thousandth of the device tells nobody anything, unless it was asked for.
  const uint64_t smallest = query_.by.empty() && query_.top == 0 ? tree.total_bytes() / 1000 : 0;
  if (max_lines > 0 && IsOneRow(index)) {
    const TreeLine line = tree.Lines(1, 0)[0];
    out_.back() = CutEnd(out_.back() + ": " + line.name, columns(), style_);
  }
  if (plan.categories[index] > 0) {
    AddFigureTable("category", categories_[index], plan.categories[index], smallest, false, style_,
                   &out_);
  }
  if (max_lines > 0 && !IsOneRow(index)) {
    AddFigureTable(HasCategories(index) ? "ledger, by owner" : TreeHead(), tree, max_lines,
                   smallest, true, style_, &out_);
  }
  if (max_lines > 0 || plan.categories[index] > 0 || index + 1 == devices_.size())
    Add("");
}

void TextReport::AddAbsence() {
  std::string asked;
  std::string dimensions;
  for (const engine::ReportQuery::Where& where : query_.where) {
    const char* const name = engine::DimensionName(where.dimension);
    asked += fmt::format("{}{}={}", asked.empty() ? "" : " and ", name, Clean(where.value));
    dimensions += fmt::format("{}{}", dimensions.empty() ? "" : ",", name);
  }
  Add(asked.empty()
          ? "No device was used: nothing was allocated while this was recorded."
          : fmt::format("Nothing there has {}: `--by {}` shows what there is.", asked, dimensions));
  Add("");
}

std::string TextReport::Format() {
  AddTitle();
  Lines trust = options_.away;
  for (std::string& line : TrustLines(report_, trace_, style_))
    trust.push_back(std::move(line));
  const Plan plan = MakePlan(out_.size() + trust.size() + options_.closing.size());
  for (size_t i = 0; i < devices_.size(); ++i)
    AddDevice(i, plan);
  if (devices_.empty())
    AddAbsence();
  AddModuleTable(report_, plan.modules, style_, &out_);
  const auto add_places = [&](const char* title, const std::vector<engine::TopEntry>& entries,
                              size_t count, bool with_callers) {
    AddPlaceTable(title, entries, count, with_callers, report_, trace_, style_, &out_);
  };
  add_places("Top lines, live allocations", report_.top_lines, plan.lines, false);
  add_places("Top stacks", report_.top_stacks, plan.stacks, true);
  add_places("Allocated most, whole run", report_.top_churn, plan.churn, false);
  for (const std::string& line : trust)
    Add(line);
  for (const std::string& line : options_.closing)
    Add(line);
  std::string text;
  for (const std::string& line : out_) {
    // Padding at the end of a line is invisible until it wraps.
    const size_t end = line.find_last_not_of(' ');
    text.append(line, 0, end == std::string::npos ? 0 : end + 1);
    text += '\n';
  }
  return text;
}

}  // namespace

std::string ProcessLabel(const std::string& command, uint32_t pid, std::optional<int32_t> rank) {
  // The first two words say which program: "python train.py", "torchrun --nproc 2".
  std::string label;
  size_t at = 0;
  for (int words = 0; words < 2 && at < command.size(); ++words) {
    const size_t end = std::min(command.find(' ', at), command.size());
    if (!label.empty())
      label += ' ';
    label += Basename(std::string_view(command).substr(at, end - at));
    at = end + 1;
  }
  label += fmt::format("{}(pid {}", label.empty() ? "" : " ", pid);
  if (rank)
    label += fmt::format(", rank {}", *rank);
  return label + ")";
}

std::string FormatText(const engine::Report& report,
                       const trace::Trace& trace,
                       const engine::ReportQuery& query,
                       const TextOptions& options) {
  return TextReport(report, trace, query, options).Format();
}

}  // namespace vramscope::report
