// SPDX-License-Identifier: Apache-2.0
#include "output/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "output/devices.h"
#include "output/stack_names.h"
#include "output/text/ledger_tree.h"
#include "output/text/overflow_lines.h"
#include "output/text/screen.h"
#include "output/text/text_tables.h"
#include "output/text/trust_lines.h"
#include "tables/imported.h"
#include "util/size_text.h"
#include "util/utf8.h"

namespace vramscope::output {
namespace {

constexpr size_t kMaxClosedGroups = 60;     // with --by but no --top: two screens, then "(n more)"
constexpr size_t kFewestClosedGroups = 15;  // of each of many devices

using Lines = std::vector<std::string>;
using query::LeftOut;

// The layout of a screen. Title, headlines, NVML's lines, what can be trusted and the closing lines
// are always there; the rest of the screen is shared out by these weights (screen.h has the rule).
// Of several devices each has as much of them as it has of the largest's bytes.
struct SectionRule {
  double weight;
  size_t fewest;           // entries
  size_t most;             // beyond that other commands tell more
  size_t lines_per_entry;  // 1, but for stacks
};
constexpr SectionRule kCategories = {4, 3, 14, 1};
constexpr SectionRule kOwners = {3, 3, 8, 1};   // the ledger beside categories
constexpr SectionRule kLedger = {5, 3, 18, 1};  // the ledger alone
constexpr SectionRule kLayers = {3, 3, 10, 1};
constexpr SectionRule kPlaces = {3, 2, 10, 1};
constexpr SectionRule kStacks = {1, 1, 3, 2};
constexpr SectionRule kChurn = {2, 2, 6, 1};
constexpr SectionRule kFree = {1, 1, 4, 1};
constexpr size_t kCachedLines = 5;
constexpr uint64_t kFreeShare = 10;  // free bytes below a tenth of all are no question
constexpr double kSmallestDevice = 1.0 / 64;
constexpr size_t kMostStacks = 10;
constexpr size_t kMostAsleep = 3;  // categories of what has no device memory

// The entries that each section shows; 0: it is not there.
struct Plan {
  std::vector<size_t> categories;  // by device
  std::vector<size_t> ledger;      // by device
  size_t layers = 0;
  size_t lines = 0;
  size_t stacks = 0;
  size_t churn = 0;
  size_t free = 0;
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
  TextReport(const query::Report& report,
             const tables::Recording& recording,
             const query::ReportQuery& query,
             const TextOptions& options)
      : report_(report),
        recording_(recording),
        query_(query),
        options_(options),
        style_(options.style) {
    ChooseDevices();
    Show(report.layers, LeftOut::List::kLayers, &layers_);
    Show(report.top_lines, LeftOut::List::kLines, &lines_);
    Show(report.top_stacks, LeftOut::List::kStacks, &stacks_);
    Show(report.top_churn, LeftOut::List::kChurn, &churn_);
    Show(report.free_lines, LeftOut::List::kFree, &free_);
    stacks_.MergeAlike(recording);
    for (const query::DeviceReport* device : devices_) {
      categories_.push_back(MakeCategories(*device));
      trees_.push_back(MakeTree(*device, HasCategories(categories_.size() - 1)));
    }
  }

  std::string Format();

 private:
  void ChooseDevices();
  // A report's entries, or a copy of some of them: the names of all may be tens of MiB.
  template <class Entry>
  class Shown {
   public:
    const std::vector<Entry>& operator*() const { return all_ != nullptr ? *all_ : some_; }
    // What it has beyond what the report lists.
    const LeftOut& left_out() const { return left_out_; }
    size_t size() const { return (**this).size() + left_out_.entries; }
    void MergeAlike(const tables::Recording& recording) {
      some_ = MergeAlikeStacks(recording, **this);
      all_ = nullptr;
    }

   private:
    friend class TextReport;
    const std::vector<Entry>* all_ = nullptr;
    std::vector<Entry> some_;
    LeftOut left_out_;
  };
  // Of what several GPUs have, the fullest one's where it stands for all.
  template <class Entry>
  void Show(const std::vector<Entry>& entries, LeftOut::List list, Shown<Entry>* shown) const;
  LedgerTree MakeCategories(const query::DeviceReport& device) const;
  LedgerTree MakeTree(const query::DeviceReport& device, bool only_owners) const;
  TreeLeaf LeafOf(const query::ReportRow& row,
                  bool by_process,
                  const std::map<size_t, StackNames>& stacks) const;
  bool HasCategories(size_t device) const { return categories_[device].full_lines() > 0; }

  bool IsOneRow(size_t device) const;
  bool HasMuchFree() const;
  // Of what the list of free lines is of; null: nothing to say.
  const query::CachedMemory* Cached() const;
  double DeviceWeight(size_t device) const;
  Plan MakePlan(size_t fixed) const;

  void AddTitle();
  void AddDevice(size_t index, const Plan& plan);
  void AddAbsence();
  void AddHeadline(const query::DeviceReport& device);
  void AddSelected(const query::DeviceReport& device, const Unit& unit);
  bool HasAllocated(const query::DeviceReport& device) const {
    return query_.SelectsWholeDevices() && device.reserved_bytes > 0 && device.allocated_peak;
  }
  void AddAllocated(const query::DeviceReport& device, const Unit& unit);
  std::string PeakText(const query::PeakFigure& peak, const Unit& unit) const;
  std::string Asked() const;
  void AddUnbacked(const query::DeviceReport& device);
  std::string TreeHead() const;
  // No screen limits it: nobody looks at one, or --top says how much is shown.
  bool IsWhole() const { return options_.rows == 0 || query_.top > 0; }
  // Of each table and list.
  size_t MostEntries() const { return query_.top > 0 ? query_.top : SIZE_MAX; }

  std::string Clean(std::string_view text) const { return Printable(text, style_.utf8); }
  // An imported dump, say: no time was measured.
  bool IsOfOneInstant() const { return !tables::NoteOf(recording_, tables::kInstantNote).empty(); }
  // As --at takes it: the same state again.
  std::string Seconds(int64_t time_ns) const {
    return ExactSeconds(time_ns - recording_.tables().session.begin_ns) + " s";
  }
  size_t columns() const { return static_cast<size_t>(style_.columns); }
  void Add(std::string line) { out_.push_back(std::move(line)); }

  const query::Report& report_;
  const tables::Recording& recording_;
  const query::ReportQuery& query_;
  const TextOptions& options_;
  const Style& style_;
  std::vector<const query::DeviceReport*> devices_;  // that have tables of their own
  std::vector<const query::DeviceReport*> gpus_;     // that have bytes
  const query::DeviceReport* fullest_ = nullptr;     // of several GPUs
  const query::DeviceReport* small_host_ = nullptr;  // named, without a section
  bool only_fullest_ = false;                        // it stands for all GPUs
  Shown<query::ModuleEntry> layers_;
  Shown<query::TopLine> lines_, churn_, free_;
  Shown<query::TopStack> stacks_;
  std::vector<LedgerTree> categories_;  // by device; empty where the ledger tells more
  std::vector<LedgerTree> trees_;       // by device
  Lines out_;
};

// A device that nothing was ever seen on says nothing; unless there is no other, and somebody asked
// for an instant.
void TextReport::ChooseDevices() {
  for (const query::DeviceReport& device : report_.devices) {
    if (device.ledger_bytes > 0 || device.nvml_bytes.value_or(0) > 0)
      devices_.push_back(&device);
  }
  // Pinned memory of a few bytes, such as that of a loss's item(), is a line and no section.
  if (query_.by.empty() && query_.where.empty() && !IsWhole()) {
    uint64_t most = 0;
    for (const query::DeviceReport* device : devices_)
      most = std::max(most, device->ledger_bytes);
    const auto host = std::find_if(devices_.begin(), devices_.end(), [&](const auto* device) {
      return device->kind == tables::DeviceKind::kHost && device->ledger_bytes < most / 1000;
    });
    if (host != devices_.end()) {
      small_host_ = *host;
      devices_.erase(host);
    }
  }
  for (const query::DeviceReport* device : devices_) {
    if (device->kind == tables::DeviceKind::kGpu)
      gpus_.push_back(device);
  }
  if (gpus_.size() > 1) {
    fullest_ = *std::max_element(gpus_.begin(), gpus_.end(), [](const auto* a, const auto* b) {
      return a->ledger_bytes < b->ledger_bytes;
    });
    // The table has a row for each; a screen has room for the rest of one.
    if (query_.by.empty() && !IsWhole()) {
      std::erase_if(devices_, [&](const auto* device) {
        return device->kind == tables::DeviceKind::kGpu && device != fullest_;
      });
      only_fullest_ = true;
    }
  }
  const bool all_of_it = query_.at.kind == query::Instant::Kind::kPeak;
  if (!devices_.empty() || all_of_it || !query_.where.empty())
    return;
  for (const query::DeviceReport& device : report_.devices)
    devices_.push_back(&device);
}

template <class Entry>
void TextReport::Show(const std::vector<Entry>& entries,
                      LeftOut::List list,
                      Shown<Entry>* shown) const {
  const auto is_shown = [&](const auto& entry) {
    return !only_fullest_ || std::none_of(gpus_.begin(), gpus_.end(), [&](const auto* gpu) {
      return gpu != fullest_ && gpu->device == entry.device;
    });
  };
  for (const LeftOut& left_out : report_.left_out) {
    if (left_out.list == list && is_shown(left_out))
      AddTo(left_out, &shown->left_out_);
  }
  if (only_fullest_)
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(shown->some_), is_shown);
  else
    shown->all_ = &entries;
}

LedgerTree TextReport::MakeCategories(const query::DeviceReport& device) const {
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

// `only_owners`: the categories above it say the rest, but what the driver owns is one of them.
LedgerTree TextReport::MakeTree(const query::DeviceReport& device, bool only_owners) const {
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

TreeLeaf TextReport::LeafOf(const query::ReportRow& row,
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

// A ledger of a single line needs no table.
bool TextReport::IsOneRow(size_t device) const {
  return query_.by.empty() && trees_[device].full_lines() == 1;
}

bool TextReport::HasMuchFree() const {
  uint64_t all = 0;
  for (const query::DeviceReport* device : devices_)
    all += device->ledger_bytes;
  LeftOut free = free_.left_out();
  for (const query::TopLine& entry : *free_)
    AddTo(entry, &free);
  return free.bytes > all / kFreeShare;
}

const query::CachedMemory* TextReport::Cached() const {
  for (const query::CachedMemory& cached : report_.cached) {
    if (!only_fullest_ || cached.device == fullest_->device)
      return &cached;
  }
  return nullptr;
}

double TextReport::DeviceWeight(size_t device) const {
  uint64_t largest = 1;
  for (const query::DeviceReport* other : devices_)
    largest = std::max(largest, other->ledger_bytes);
  const auto bytes = static_cast<double>(devices_[device]->ledger_bytes);
  return std::max(bytes / static_cast<double>(largest), kSmallestDevice);
}

// `fixed`: the lines that are there in any case.
Plan TextReport::MakePlan(size_t fixed) const {
  Plan plan;
  plan.categories.resize(devices_.size());
  plan.ledger.resize(devices_.size());
  if (!query_.by.empty()) {
    const size_t most =
        std::max(kMaxClosedGroups / std::max<size_t>(devices_.size(), 1), kFewestClosedGroups);
    for (size_t i = 0; i < devices_.size(); ++i) {
      const size_t full = trees_[i].full_lines();
      plan.ledger[i] = IsWhole() ? full : std::min(full, most);
    }
    return plan;
  }
  std::vector<Section> sections;
  std::vector<size_t*> targets;
  const auto add = [&](const SectionRule& rule, size_t entries, double share, size_t* target) {
    const size_t wanted = IsWhole() ? entries : std::min(entries, rule.most);
    sections.push_back({rule.weight * share, wanted, rule.fewest, rule.lines_per_entry});
    targets.push_back(target);
  };
  const auto add_list = [&](const SectionRule& rule, const auto& list, size_t most,
                            size_t* target) {
    add(rule, std::min({WorthALine(*list), most, MostEntries()}), 1, target);
    sections.back().all = list.size();
  };
  for (size_t i = 0; i < devices_.size(); ++i) {
    const double weight = DeviceWeight(i);
    add(kCategories, categories_[i].full_lines(), weight, &plan.categories[i]);
    if (IsOneRow(i))
      ++fixed;
    else
      add(HasCategories(i) ? kOwners : kLedger, trees_[i].full_lines(), weight, &plan.ledger[i]);
  }
  add_list(kLayers, layers_, SIZE_MAX, &plan.layers);
  // The lists of places are of all there was.
  if (query_.where.empty()) {
    add_list(kPlaces, lines_, SIZE_MAX, &plan.lines);
    // All of them are what `export --to collapsed` is for.
    add_list(kStacks, stacks_, kMostStacks, &plan.stacks);
    add_list(kChurn, churn_, SIZE_MAX, &plan.churn);
    if (HasMuchFree())
      add_list(kFree, free_, SIZE_MAX, &plan.free);
  }
  const size_t lines = IsWhole() ? 0 : options_.rows - std::min(options_.rows - 1, fixed);
  const std::vector<size_t> shown = ShareLines(lines, sections);
  for (size_t i = 0; i < shown.size(); ++i)
    *targets[i] = shown[i];
  return plan;
}

void TextReport::AddTitle() {
  const tables::Session& session = recording_.tables().session;
  Add(Paint(CutEnd(Clean(RecordedCommand(recording_)), columns(), style_), Ink::kBold, style_));
  std::string facts =
      IsOfOneInstant() ? "one instant" : util::FormatDuration(session.end_ns - session.begin_ns);
  if (const std::string_view counted = tables::NoteOf(recording_, tables::kCountedNote);
      !counted.empty())
    facts += fmt::format(" (no times: a second is one of the {})", counted);
  const size_t processes = recording_.tables().processes.size() - 1;
  if (processes > 0)
    facts +=
        fmt::format(", {} process{}", util::FormatCount(processes), processes == 1 ? "" : "es");
  if (session.event_count > 0)
    facts += ", " + util::FormatCountOf(session.event_count, "event");
  if (report_.sampled)
    facts += ", sampled: no allocations are known";
  if (!session.finished)
    facts += ", read from the live session";
  if (WasPaused(recording_))
    facts += ", paused all the time";
  Add(Paint(CutEnd(facts, columns(), style_), Ink::kDim, style_));
  for (const std::string& line : EndLines(recording_))
    Add(Paint(CutEnd(line, columns(), style_), Ink::kWarning, style_));
  Add("");
}

void TextReport::AddHeadline(const query::DeviceReport& device) {
  std::string name;
  switch (device.kind) {
    case tables::DeviceKind::kGpu:
      name = fmt::format("GPU {}", device.index);
      if (!device.name.empty())
        name += "  " + Clean(device.name);
      if (device.total_bytes)
        name += fmt::format(", {}", util::FormatBytes(*device.total_bytes));
      break;
    case tables::DeviceKind::kCpu:
      name = "CPU tensors";
      break;
    case tables::DeviceKind::kHost:
      name = report_.overflow.empty() ? "Host memory, pinned and registered"
                                      : "Host memory, pinned or in place of a GPU's";
      break;
  }
  // One figure has one unit on a screen.
  const Unit unit = TableUnit(std::max(device.ledger_bytes, device.nvml_bytes.value_or(0)));
  const std::string ledger = InUnit(device.ledger_bytes, unit.bytes);
  std::string when = Clean(device.at_kind) + " ";
  if (query_.at.kind == query::Instant::Kind::kMark)
    when += Clean(query_.at.mark) + " ";
  if (device.at_kind == "time")
    when.clear();
  const bool at_peak_of_all =
      query_.at.kind == query::Instant::Kind::kPeak && !query_.SelectsWholeDevices();
  const bool nothing =
      device.ledger_bytes == 0 && device.at_ns < recording_.tables().session.begin_ns;
  if (nothing)
    when = "nothing allocated";
  else if (IsOfOneInstant())
    when = ledger + " " + unit.name;
  else if (at_peak_of_all)
    when = "when the device peaked, at " + Seconds(device.at_ns);
  else
    when += fmt::format("{} {} at {}", ledger, unit.name, Seconds(device.at_ns));
  if (device.at_iteration)
    when += fmt::format(", iteration {}", *device.at_iteration);
  name = CutEnd(name, columns() - std::min(columns(), util::DisplayWidth(when) + 2), style_);
  // At the edge of the tables below, which take no more of a wide screen than they need.
  const size_t used = util::DisplayWidth(name) + util::DisplayWidth(when);
  const size_t gap = std::max<size_t>(std::min(columns(), kPlainColumns), used + 2) - used;
  Add(Paint(name, Ink::kBold, style_) + std::string(gap, ' ') + when);

  if (report_.sampled && query_.SelectsWholeDevices()) {
    Add(fmt::format("  {} {}, as NVML said", ledger, unit.name));
  } else if (device.nvml_bytes && device.residual_bytes) {
    const int64_t residual = *device.residual_bytes;
    const bool explained = IsWithinTarget(residual, *device.nvml_bytes);
    std::string line = fmt::format("  NVML {} - ledger {} {} = residual ",
                                   InUnit(*device.nvml_bytes, unit.bytes), ledger, unit.name);
    line += Paint(fmt::format("{} ({})", util::FormatSignedBytes(residual),
                              ExactPercent(residual, *device.nvml_bytes)),
                  explained ? Ink::kGood : Ink::kWarning, style_);
    Add(line);
  } else if (!query_.SelectsWholeDevices()) {
    AddSelected(device, unit);
  } else if (device.kind == tables::DeviceKind::kGpu) {
    Add(fmt::format("  ledger {} {}; no NVML sample of this state, so no residual", ledger,
                    unit.name));
  } else {
    Add(fmt::format("  ledger {} {}{}", ledger, unit.name,
                    device.kind == tables::DeviceKind::kCpu ? " of live tensors" : ""));
  }
  if (HasAllocated(device))
    AddAllocated(device, unit);
}

// What the conditions select of the device, and of their own peak.
void TextReport::AddSelected(const query::DeviceReport& device, const Unit& unit) {
  const std::string line =
      fmt::format("  {} {} of {}", InUnit(device.ledger_bytes, unit.bytes), unit.name, Asked());
  std::string own;
  if (device.own_peak && device.own_peak->bytes == device.ledger_bytes)
    own = "its own peak is the same";
  else if (device.own_peak)
    own = "its own peak: " + PeakText(*device.own_peak, unit) + " (--at own-peak)";
  const bool fits = util::DisplayWidth(line) + 2 + own.size() <= columns();
  Add(CutEnd(own.empty() || !fits ? line : line + "; " + own, columns(), style_));
  if (!own.empty() && !fits)
    Add("  " + own);
}

// The allocator's figures, where free memory in its segments makes them differ from the ledger's.
void TextReport::AddAllocated(const query::DeviceReport& device, const Unit& unit) {
  std::string line =
      fmt::format("  allocated {} of {} {} reserved", InUnit(device.allocated_bytes, unit.bytes),
                  InUnit(device.reserved_bytes, unit.bytes), unit.name);
  if (device.allocated_peak->bytes == device.allocated_bytes)
    return Add(CutEnd(line + ", the most at any time", columns(), style_));
  const std::string peak = "its own peak: " + PeakText(*device.allocated_peak, unit);
  // --at takes the time, so it is whole.
  if (util::DisplayWidth(line) + 2 + peak.size() <= columns())
    return Add(line + "; " + peak);
  Add(line + ";");
  Add(CutEnd("  " + peak + " (--at allocated-peak)", columns(), style_));
}

std::string TextReport::PeakText(const query::PeakFigure& peak, const Unit& unit) const {
  return fmt::format("{} {} at {}", InUnit(peak.bytes, unit.bytes), unit.name,
                     Seconds(peak.time_ns));
}

// "rank=1 and category=activation".
std::string TextReport::Asked() const {
  std::string asked;
  for (const query::ReportQuery::Where& where : query_.where)
    asked += fmt::format("{}{}={}", asked.empty() ? "" : " and ",
                         query::DimensionName(where.dimension), Clean(where.value));
  return asked;
}

// What is live for an allocator and has no device memory: the sums above are without it.
void TextReport::AddUnbacked(const query::DeviceReport& device) {
  if (device.unbacked_count == 0)
    return;
  const bool one = device.unbacked_count == 1;
  Add(fmt::format("  Asleep: {} in {} block{} no device memory now",
                  util::FormatBytes(device.unbacked_bytes),
                  util::FormatCount(device.unbacked_count), one ? " has" : "s have"));
  std::string largest;
  size_t named = 0;
  for (const query::CategoryEntry& entry : report_.unbacked_categories) {
    if (entry.device != device.device || entry.bytes == 0 || named == kMostAsleep)
      continue;
    ++named;
    largest += fmt::format("{}{} {}", largest.empty() ? "" : ", ", Clean(entry.category),
                           util::FormatBytes(entry.bytes));
  }
  Add(CutEnd("    " + largest, columns(), style_));
}

std::string TextReport::TreeHead() const {
  std::string head;
  for (const query::Dimension dimension : query_.by)
    head += (head.empty() ? "by " : " / ") + std::string(query::DimensionName(dimension));
  return head.empty() ? "ledger" : head;
}

void TextReport::AddDevice(size_t index, const Plan& plan) {
  const LedgerTree& tree = trees_[index];
  const size_t max_lines = plan.ledger[index];
  AddHeadline(*devices_[index]);
  // A line for less than a thousandth of the device tells nobody anything, unless it was asked for.
  const uint64_t smallest = query_.by.empty() && query_.top == 0 ? tree.total_bytes() / 1000 : 0;
  const bool whole = options_.rows == 0;
  if (IsOneRow(index))
    Add(CutEnd("  all of it: " + tree.Lines({})[0].name, columns(), style_));
  AddUnbacked(*devices_[index]);
  if (plan.categories[index] > 0) {
    const TreeLimits limits{plan.categories[index], smallest, MostEntries()};
    AddFigureTable("category", categories_[index], limits, false, whole, style_, &out_);
  }
  if (max_lines > 0) {
    const TreeLimits limits{max_lines, smallest, MostEntries()};
    AddFigureTable(HasCategories(index) ? "ledger, by owner" : TreeHead(), tree, limits, true,
                   whole, style_, &out_);
  }
  if (max_lines > 0 || plan.categories[index] > 0 || index + 1 == devices_.size())
    Add("");
}

void TextReport::AddAbsence() {
  std::string dimensions;
  for (const query::ReportQuery::Where& where : query_.where)
    dimensions +=
        fmt::format("{}{}", dimensions.empty() ? "" : ",", query::DimensionName(where.dimension));
  const query::DeviceReport* most = nullptr;
  for (const query::DeviceReport& device : report_.devices) {
    if (device.own_peak && (most == nullptr || device.own_peak->bytes > most->own_peak->bytes))
      most = &device;
  }
  if (query_.where.empty() && WasPaused(recording_)) {
    Add("The recording was paused all the time: nothing is known of the program's memory.");
  } else if (query_.where.empty()) {
    for (const std::string& line : AbsenceLines(recording_))
      Add(line);
  } else if (most != nullptr) {
    const Unit unit = TableUnit(most->own_peak->bytes);
    Add(fmt::format("Nothing had {} when the device peaked, at {}.", Asked(),
                    Seconds(most->at_ns)));
    Add("The most there was: " + PeakText(*most->own_peak, unit) + " (--at own-peak)");
  } else {
    Add(fmt::format("Nothing there has {}: `--by {}` shows what there is.", Asked(), dimensions));
  }
  Add("");
}

std::string TextReport::Format() {
  AddTitle();
  Lines trust = OverflowLines(report_, recording_, style_);
  for (std::string& line : CheckpointLines(recording_))
    trust.push_back(std::move(line));
  for (std::string& line : AsleepLines(report_, recording_))
    trust.push_back(std::move(line));
  for (std::string& line : TrustLines(report_, recording_, style_))
    trust.push_back(std::move(line));
  if (gpus_.size() > 1) {
    AddDeviceTable(
        gpus_, fullest_,
        IsOfOneInstant() ? std::nullopt : std::optional(recording_.tables().session.begin_ns),
        style_, &out_);
    if (only_fullest_) {
      out_.back() = Paint("  * the fullest, of which the rest is: `--where device=N` shows another",
                          Ink::kDim, style_);
      Add("");
    }
  }
  // Of each device the headline, NVML's line and the allocator's, and an empty one behind the last.
  const auto with_allocated = static_cast<size_t>(std::count_if(
      devices_.begin(), devices_.end(), [&](const auto* device) { return HasAllocated(*device); }));
  const Plan plan =
      MakePlan(out_.size() + 2 * devices_.size() + with_allocated + (small_host_ != nullptr) +
               2 * report_.unbacked_peaks.size() + 1 + trust.size() + options_.closing.size() +
               (HasMuchFree() && Cached() != nullptr ? kCachedLines : 0));
  for (size_t i = 0; i < devices_.size(); ++i)
    AddDevice(i, plan);
  if (devices_.empty())
    AddAbsence();
  const std::string whose = only_fullest_ ? fmt::format(" of GPU {}", fullest_->index) : "";
  AddLayerTable("Layers" + whose + ", own bytes", *layers_, layers_.left_out(), report_,
                plan.layers, style_, &out_);
  const auto add_lines = [&](const std::string& title, const Shown<query::TopLine>& list,
                             size_t count) {
    AddLineTable(title, *list, list.left_out(), report_, count, style_, &out_);
  };
  add_lines("Top lines" + whose + ", live allocations", lines_, plan.lines);
  AddStackTable("Top stacks" + whose, *stacks_, stacks_.left_out(), report_, recording_,
                plan.stacks, style_, &out_);
  add_lines("Free in segments" + whose + ", by the line that made them", free_, plan.free);
  if (const query::CachedMemory* cached = Cached(); cached != nullptr && plan.free > 0)
    AddCachedReason(*cached, recording_.tables().session.begin_ns, style_, &out_);
  add_lines("Allocated most" + (only_fullest_ ? fmt::format(" on GPU {}", fullest_->index) : "") +
                ", whole run",
            churn_, plan.churn);
  if (small_host_ != nullptr) {
    Add(Paint(fmt::format("Host memory, pinned and registered: {} (`--top 0` has its section)",
                          util::FormatBytes(small_host_->ledger_bytes)),
              Ink::kDim, style_));
  }
  for (const std::string& line : trust)
    Add(line);
  for (const std::string& line : options_.closing)
    Add(line);
  std::string text;
  for (const std::string& line : out_)
    AppendLine(line, &text);
  return text;
}

}  // namespace

std::string FormatText(const query::Report& report,
                       const tables::Recording& recording,
                       const query::ReportQuery& query,
                       const TextOptions& options) {
  return TextReport(report, recording, query, options).Format();
}

}  // namespace vramscope::output
