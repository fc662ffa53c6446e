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
#include "report/trust_lines.h"
#include "util/size_text.h"
#include "util/utf8.h"

namespace vramscope::report {
namespace {

constexpr size_t kBytesColumns = 11;
constexpr size_t kShareColumns = 8;
constexpr size_t kBarColumns = 10;
constexpr size_t kCountColumns = 9;
constexpr size_t kMaxClosedGroups = 60;  // with --by but no --top: two screens, then "(n more)"

using Lines = std::vector<std::string>;

// How many lines each part gets. Parts give way in a fixed order until everything fits.
struct Plan {
  std::vector<size_t> ledger;  // by device
  size_t lines = 0;
  size_t stacks = 0;
  size_t churn = 0;
};

// Entries that are at least a thousandth of the first: the others say nothing beside it.
size_t WorthALine(const std::vector<engine::TopEntry>& entries) {
  size_t count = 0;
  while (count < entries.size() && entries[count].bytes > 0 &&
         entries[count].bytes >= entries[0].bytes / 1000) {
    ++count;
  }
  return count;
}

class TextReport {
 public:
  TextReport(const engine::Report& report,
             const trace::Trace& trace,
             const engine::ReportQuery& query,
             const TextOptions& options)
      : report_(report), trace_(trace), query_(query), options_(options), style_(options.style) {
    ChooseDevices();
    for (const engine::DeviceReport* device : devices_)
      trees_.push_back(MakeTree(*device));
  }

  std::string Format();

 private:
  void ChooseDevices();
  LedgerTree MakeTree(const engine::DeviceReport& device) const;
  std::vector<std::string> TreePath(const engine::ReportRow& row, bool by_process) const;

  bool IsOneRow(size_t device) const;
  size_t DeviceHeight(size_t device, size_t lines) const;
  size_t Height(const Plan& plan, size_t fixed) const;
  Plan MakePlan(size_t fixed) const;

  void AddTitle();
  void AddDevice(size_t index, size_t max_lines);
  void AddHeadline(const engine::DeviceReport& device);
  void AddTree(const LedgerTree& tree, size_t max_lines);
  void AddPlaces(const char* title,
                 const std::vector<engine::TopEntry>& entries,
                 size_t count,
                 bool with_callers);

  std::string Clean(std::string_view text) const { return Printable(text, style_.utf8); }
  std::string Mark(trace::DeviceId device) const;
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
  std::vector<LedgerTree> trees_;
  Lines out_;
};

// A device that nothing was ever seen on says nothing; unless there is no other.
void TextReport::ChooseDevices() {
  for (const engine::DeviceReport& device : report_.devices) {
    if (device.ledger_bytes > 0 || device.nvml_bytes.value_or(0) > 0)
      devices_.push_back(&device);
  }
  if (!devices_.empty())
    return;
  for (const engine::DeviceReport& device : report_.devices)
    devices_.push_back(&device);
}

LedgerTree TextReport::MakeTree(const engine::DeviceReport& device) const {
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
    leaves.push_back({TreePath(row, by_process), row.bytes, row.count});
  }
  return LedgerTree(leaves);
}

std::vector<std::string> TextReport::TreePath(const engine::ReportRow& row, bool by_process) const {
  std::vector<std::string> path;
  // Bytes of no recorded process name themselves: "other processes", "RM-internal".
  if (by_process && row.pid) {
    const auto found = std::find_if(report_.processes.begin(), report_.processes.end(),
                                    [&](const auto& process) { return process.pid == *row.pid; });
    path.push_back(found == report_.processes.end()
                       ? fmt::format("pid {}", *row.pid)
                       : Clean(ProcessLabel(found->command, found->pid, found->rank)));
  }
  for (const std::string& level : row.path)
    path.push_back(level.empty() ? "-" : Clean(level));
  return path;
}

// A ledger of a single line needs no table.
bool TextReport::IsOneRow(size_t device) const {
  return query_.by.empty() && trees_[device].full_lines() == 1;
}

// Headline, NVML line; header, table and blank line where there is a table.
size_t TextReport::DeviceHeight(size_t device, size_t lines) const {
  const bool last = device + 1 == devices_.size();
  if (lines == 0)
    return 2 + (last ? 1 : 0);
  return IsOneRow(device) ? 3 : lines + 4;
}

size_t TextReport::Height(const Plan& plan, size_t fixed) const {
  size_t height = fixed;
  for (size_t i = 0; i < plan.ledger.size(); ++i)
    height += DeviceHeight(i, plan.ledger[i]);
  if (plan.lines > 0)
    height += plan.lines + 2;
  if (plan.stacks > 0)
    height += plan.stacks * 2 + 2;
  if (plan.churn > 0)
    height += plan.churn + 2;
  return height;
}

Plan TextReport::MakePlan(size_t fixed) const {
  Plan plan;
  const bool grouped = !query_.by.empty();
  for (const LedgerTree& tree : trees_) {
    const size_t ceiling = query_.top > 0 ? tree.full_lines() : grouped ? kMaxClosedGroups : 18;
    plan.ledger.push_back(std::min(tree.full_lines(), ceiling));
  }
  if (grouped)
    return plan;
  plan.lines = std::min<size_t>(WorthALine(report_.top_lines), 10);
  plan.stacks = std::min<size_t>(WorthALine(report_.top_stacks), 3);
  plan.churn = std::min<size_t>(WorthALine(report_.top_churn), 6);

  const auto shrink = [&](size_t* part, size_t floor) {
    while (*part > floor && Height(plan, fixed) > options_.rows)
      --*part;
  };
  const auto shrink_ledgers = [&](size_t floor) {
    while (!plan.ledger.empty() && Height(plan, fixed) > options_.rows) {
      const auto largest = std::max_element(plan.ledger.begin(), plan.ledger.end());
      if (*largest <= floor)
        break;
      --*largest;
    }
  };
  shrink(&plan.lines, 6);
  shrink(&plan.churn, 4);
  shrink(&plan.stacks, 2);
  if (query_.top == 0)
    shrink_ledgers(13);
  shrink(&plan.churn, 3);
  shrink(&plan.lines, 5);
  shrink(&plan.stacks, 1);
  if (query_.top == 0)
    shrink_ledgers(10);
  shrink(&plan.churn, 2);
  shrink(&plan.lines, 3);
  shrink(&plan.stacks, 0);
  if (query_.top == 0)
    shrink_ledgers(4);
  shrink(&plan.churn, 0);
  shrink(&plan.lines, 2);
  if (query_.top == 0)
    shrink_ledgers(3);
  shrink(&plan.lines, 0);
  // Many devices: the smaller ones keep their headlines only.
  while (query_.top == 0 && Height(plan, fixed) > options_.rows) {
    size_t smallest = plan.ledger.size();
    size_t tables = 0;
    for (size_t i = 0; i < plan.ledger.size(); ++i) {
      if (plan.ledger[i] == 0)
        continue;
      ++tables;
      if (smallest == plan.ledger.size() ||
          devices_[i]->ledger_bytes < devices_[smallest]->ledger_bytes)
        smallest = i;
    }
    if (tables <= 1)
      break;
    plan.ledger[smallest] = 0;
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

std::string TextReport::Mark(trace::DeviceId id) const {
  for (const engine::DeviceReport& device : report_.devices) {
    if (device.device == id)
      return DeviceMark(device.kind, device.index);
  }
  return "?";
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
  } else if (device.kind == trace::DeviceKind::kGpu) {
    Add(fmt::format("  ledger {} {}; no NVML sample of this state, so no residual", ledger,
                    unit.name));
  } else {
    Add(fmt::format("  ledger {} {}{}", ledger, unit.name,
                    device.kind == trace::DeviceKind::kCpu ? " of live tensors" : ""));
  }
}

void TextReport::AddTree(const LedgerTree& tree, size_t max_lines) {
  const Unit unit = TableUnit(tree.total_bytes());
  const size_t figures = kBytesColumns + kShareColumns + 2 + kBarColumns + kCountColumns;
  const size_t names = columns() - std::min(columns(), figures + 2);
  std::string head = "ledger";
  for (size_t i = 0; i < query_.by.size(); ++i) {
    head = (i == 0 ? "by " : head + " / ") + engine::DimensionName(query_.by[i]);
  }
  Add(Paint(fmt::format("  {}{}{}  {}{}", PadRight(CutEnd(head, names, style_), names),
                        PadLeft(unit.name, kBytesColumns), PadLeft("share", kShareColumns),
                        std::string(kBarColumns, ' '), PadLeft("count", kCountColumns)),
            Ink::kDim, style_));
  // A line for less than a thousandth of the device tells nobody anything, unless it was asked for.
  const uint64_t smallest = query_.by.empty() && query_.top == 0 ? tree.total_bytes() / 1000 : 0;
  for (const TreeLine& line : tree.Lines(max_lines, smallest)) {
    const double share = static_cast<double>(line.bytes) /
                         static_cast<double>(std::max<uint64_t>(tree.total_bytes(), 1));
    const std::string indent(2 * std::min<size_t>(line.depth, 8), ' ');
    const size_t room = names - std::min(names, indent.size());
    const std::string name = indent + CutEnd(line.name, room - std::min<size_t>(room, 1), style_);
    std::string text = "  ";
    const std::string padded = PadRight(name, names);
    if (line.rest) {
      text += Paint(padded, Ink::kDim, style_);
    } else {
      text += line.depth == 0 ? Paint(padded, Ink::kBold, style_) : padded;
    }
    text += PadLeft(InUnit(line.bytes, unit.bytes), kBytesColumns);
    text += PadLeft(Percent(share), kShareColumns);
    text += "  " + Paint(Bar(share, kBarColumns, style_), Ink::kBar, style_);
    // Slack has no count.
    text += PadLeft(line.count == 0 ? "" : util::FormatCount(line.count), kCountColumns);
    Add(text);
  }
}

void TextReport::AddDevice(size_t index, size_t max_lines) {
  const LedgerTree& tree = trees_[index];
  AddHeadline(*devices_[index]);
  if (max_lines > 0 && IsOneRow(index)) {
    const TreeLine line = tree.Lines(1, 0)[0];
    out_.back() = CutEnd(out_.back() + ": " + line.name, columns(), style_);
  } else if (max_lines > 0) {
    AddTree(tree, max_lines);
  }
  if (max_lines > 0 || index + 1 == devices_.size())
    Add("");
}

void TextReport::AddPlaces(const char* title,
                           const std::vector<engine::TopEntry>& entries,
                           size_t count,
                           bool with_callers) {
  if (count == 0)
    return;
  uint64_t largest = 0;
  size_t place_columns = 0;
  std::set<trace::DeviceId> devices;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, entries[i].bytes);
    place_columns = std::max(place_columns, util::DisplayWidth(Clean(entries[i].place)));
    devices.insert(entries[i].device);
  }
  const Unit unit = TableUnit(largest);
  const size_t mark_columns = devices.size() > 1 ? 6 : 0;
  const size_t left = kBytesColumns + 1 + kCountColumns + 2 + mark_columns;
  const size_t right = columns() - std::min(columns(), left);
  // The place matters more than the text of the line; the text gets what is left.
  place_columns = std::min(place_columns, with_callers ? right : right * 3 / 5);
  std::string head =
      fmt::format("{}{}", PadLeft(unit.name, kBytesColumns + 1), PadLeft("count", kCountColumns));
  Add(Paint(head, Ink::kDim, style_) + "  " + Paint(title, Ink::kBold, style_));
  for (size_t i = 0; i < count; ++i) {
    const engine::TopEntry& entry = entries[i];
    std::string text = PadLeft(InUnit(entry.bytes, unit.bytes), kBytesColumns + 1) +
                       PadLeft(util::FormatCount(entry.count), kCountColumns) + "  ";
    if (mark_columns > 0)
      text += PadRight(Mark(entry.device), mark_columns);
    const std::string place = entry.place.empty() ? "(no stack)" : Clean(entry.place);
    const std::string cut = CutEnd(place, place_columns, style_);
    text += cut;
    if (!with_callers) {
      const size_t room = right - std::min(right, place_columns + 2);
      std::string source = Clean(entry.source);
      source.erase(0, source.find_first_not_of(' '));
      if (!source.empty() && room > 4) {
        text += std::string(place_columns - util::DisplayWidth(cut) + 2, ' ');
        text += Paint(CutEnd(source, room, style_), Ink::kDim, style_);
      }
      Add(text);
      continue;
    }
    Add(text);
    std::string callers;
    for (const std::string& caller : Callers(trace_, entry.stack, 6)) {
      callers += (callers.empty() ? "< " : " < ") + Clean(caller);
    }
    if (!callers.empty())
      Add(std::string(left, ' ') + Paint(CutEnd(callers, right, style_), Ink::kDim, style_));
  }
  Add("");
}

std::string TextReport::Format() {
  AddTitle();
  const Lines trust = TrustLines(report_, trace_, style_);
  const Plan plan = MakePlan(out_.size() + trust.size() + options_.closing.size());
  for (size_t i = 0; i < devices_.size(); ++i)
    AddDevice(i, plan.ledger[i]);
  if (report_.devices.empty()) {
    Add("No device was used: nothing was allocated while this was recorded.");
    Add("");
  }
  AddPlaces("Top lines", report_.top_lines, plan.lines, false);
  AddPlaces("Top stacks", report_.top_stacks, plan.stacks, true);
  AddPlaces("Allocated most, whole run", report_.top_churn, plan.churn, false);
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
