// SPDX-License-Identifier: Apache-2.0
#include "output/text/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "output/names.h"
#include "output/text/text_parts.h"
#include "output/text/text_table.h"
#include "tables/imported.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

constexpr size_t kMaxClosedGroups = 60;     // with --by but no --top: two screens, then "(n more)"
constexpr size_t kFewestClosedGroups = 15;  // of each of many devices

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
constexpr uint64_t kFreeShare = 10;  // free bytes below a tenth of all need no explanation
constexpr double kSmallestDevice = 1.0 / 64;
constexpr size_t kMostStacks = 10;
// After so many lines the answer has left the screen, or soon will.
constexpr size_t kFarFromTheAnswer = 20;

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
        out_(options.style),
        headline_(report, recording, query, &out_) {
    ChooseDevices();
    Show(report.layers, LeftOut::List::kLayers, &layers_);
    Show(report.top_lines, LeftOut::List::kLines, &lines_);
    Show(report.top_stacks, LeftOut::List::kStacks, &stacks_);
    Show(report.top_churn, LeftOut::List::kChurn, &churn_);
    Show(report.free_lines, LeftOut::List::kFree, &free_);
    stacks_ = {nullptr, MergeAlikeStacks(recording, *stacks_), stacks_.left_out};
    const ReportTrees trees(report, recording, query, options.style.utf8);
    for (const query::DeviceReport* device : devices_) {
      categories_.push_back(trees.Categories(*device));
      trees_.push_back(trees.Ledger(*device, HasCategories(categories_.size() - 1)));
    }
  }

  std::string Format();

 private:
  void ChooseDevices();
  // The entries of several GPUs, or of the fullest one if only that is shown.
  template <class Entry>
  void Show(const std::vector<Entry>& entries, LeftOut::List list, ReportList<Entry>* shown) const;
  bool HasCategories(size_t device) const { return categories_[device].full_lines() > 0; }

  bool IsOneRow(size_t device) const;
  bool HasMuchFree() const;
  // Of what the list of free lines is of; null: nothing to say.
  const query::CachedMemory* Cached() const;
  double DeviceWeight(size_t device) const;
  Plan MakePlan(size_t fixed) const;

  // Of the device that the program uses most; empty where there is nothing to answer.
  std::string Answer() const;
  void AddTitle(const std::string& answer);
  void AddDevice(size_t index, const Plan& plan);
  std::string TreeHead() const;
  // True if no screen limits the text: it goes to a file, or --top gives the limit.
  bool IsWhole() const { return options_.rows == 0 || query_.top > 0; }
  // Of each table and list.
  size_t MostEntries() const { return query_.top > 0 ? query_.top : SIZE_MAX; }

  // An imported dump, say: no time was measured.
  bool IsOfOneInstant() const { return !tables::NoteOf(recording_, tables::kInstantNote).empty(); }

  const query::Report& report_;
  const tables::Recording& recording_;
  const query::ReportQuery& query_;
  const TextOptions& options_;
  TextLines out_;
  DeviceHeadline headline_;
  std::vector<const query::DeviceReport*> devices_;  // that have tables of their own
  std::vector<const query::DeviceReport*> gpus_;     // that have bytes
  const query::DeviceReport* fullest_ = nullptr;     // of several GPUs
  const query::DeviceReport* small_host_ = nullptr;  // named, without a section
  bool only_fullest_ = false;                        // the only GPU that is shown
  ReportList<query::ModuleEntry> layers_;
  ReportList<query::TopLine> lines_, churn_, free_;
  ReportList<query::TopStack> stacks_;
  std::vector<LedgerTree> categories_;  // by device; empty where the ledger tells more
  std::vector<LedgerTree> trees_;       // by device
};

// Leaves out devices that never had memory, unless all are like that and the user asked for an
// instant.
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
                      ReportList<Entry>* shown) const {
  const auto is_shown = [&](const auto& entry) {
    return !only_fullest_ || std::none_of(gpus_.begin(), gpus_.end(), [&](const auto* gpu) {
      return gpu != fullest_ && gpu->device == entry.device;
    });
  };
  for (const LeftOut& left_out : report_.left_out) {
    if (left_out.list == list && is_shown(left_out))
      AddTo(left_out, &shown->left_out);
  }
  if (only_fullest_)
    std::copy_if(entries.begin(), entries.end(), std::back_inserter(shown->some), is_shown);
  else
    shown->all = &entries;
}

// A ledger of a single line needs no table.
bool TextReport::IsOneRow(size_t device) const {
  return query_.by.empty() && trees_[device].full_lines() == 1;
}

bool TextReport::HasMuchFree() const {
  uint64_t all = 0;
  for (const query::DeviceReport* device : devices_)
    all += device->ledger_bytes;
  return free_.Beyond(0).bytes > all / kFreeShare;
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

std::string TextReport::Answer() const {
  if (!query_.by.empty() || !query_.SelectsWholeDevices())
    return "";
  size_t main = devices_.size();
  for (size_t i = 0; i < devices_.size(); ++i) {
    const bool is_first = main == devices_.size();
    const bool is_gpu = devices_[i]->kind == tables::DeviceKind::kGpu;
    const bool main_is_gpu = !is_first && devices_[main]->kind == tables::DeviceKind::kGpu;
    if (is_first || (is_gpu && !main_is_gpu) ||
        (is_gpu == main_is_gpu && devices_[i]->ledger_bytes > devices_[main]->ledger_bytes))
      main = i;
  }
  if (main == devices_.size() || devices_[main]->ledger_bytes == 0)
    return "";
  return headline_.Answer(*devices_[main], HasCategories(main) ? categories_[main] : trees_[main],
                          gpus_.size());
}

void TextReport::AddTitle(const std::string& answer) {
  const tables::Session& session = recording_.tables().session;
  out_.AddWrapped(answer, Ink::kBold);
  for (const std::string& line : EndLines(recording_))
    out_.AddCut(line, Ink::kWarning);
  if (const std::string line = HostKillLine(report_, recording_); !line.empty())
    out_.AddWrapped(line, Ink::kWarning);
  out_.AddCut(out_.Clean(RecordedCommand(recording_)), answer.empty() ? Ink::kBold : Ink::kDim);
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
    facts += ", sampled: allocations are unknown";
  if (!session.finished)
    facts += ", read from the live session";
  if (WasPaused(recording_))
    facts += ", recording never started";
  out_.AddCut(facts, Ink::kDim);
  out_.Add("");
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
  headline_.Add(*devices_[index]);
  // Lines below a thousandth of the device are left out, unless the user asked for rows.
  const uint64_t smallest = query_.by.empty() && query_.top == 0 ? tree.total_bytes() / 1000 : 0;
  const bool whole = options_.rows == 0;
  if (IsOneRow(index))
    out_.AddCut("  all of it: " + tree.Lines({})[0].name);
  headline_.AddUnbacked(*devices_[index]);
  if (plan.categories[index] > 0) {
    const TreeLimits limits{plan.categories[index], smallest, MostEntries()};
    AddFigureTable("category", categories_[index], limits, false, whole, &out_);
  }
  if (max_lines > 0) {
    const TreeLimits limits{max_lines, smallest, MostEntries()};
    AddFigureTable(HasCategories(index) ? "ledger, by owner" : TreeHead(), tree, limits, true,
                   whole, &out_);
  }
  if (max_lines > 0 || plan.categories[index] > 0 || index + 1 == devices_.size())
    out_.Add("");
}

std::string TextReport::Format() {
  const std::string answer = Answer();
  AddTitle(answer);
  std::vector<std::string> last = OverflowLines(report_, recording_, out_.style());
  for (const std::vector<std::string>& lines :
       {CheckpointLines(recording_), AsleepLines(report_, recording_),
        OpenMemoryLines(report_, recording_, out_.style()),
        HostMemoryLines(report_, recording_, false), TrustLines(report_, recording_, out_.style()),
        options_.closing})
    last.insert(last.end(), lines.begin(), lines.end());
  ReportTables tables(report_, recording_, &out_);
  if (gpus_.size() > 1) {
    tables.AddDevices(gpus_, fullest_, !IsOfOneInstant());
    if (only_fullest_)
      out_.Add("  * the fullest, of which the rest is: `--where device=N` shows another",
               Ink::kDim);
    out_.Add("");
  }
  // Of each device the headline, NVML's line and the allocator's, and an empty one behind the last.
  const auto with_allocated =
      static_cast<size_t>(std::count_if(devices_.begin(), devices_.end(), [&](const auto* device) {
        return headline_.HasAllocated(*device);
      }));
  const Plan plan =
      MakePlan(out_.size() + 2 * devices_.size() + with_allocated + (small_host_ != nullptr) +
               2 * report_.unbacked_peaks.size() + 1 + last.size() + 1 + options_.next.size() +
               (HasMuchFree() && Cached() != nullptr ? kCachedLines : 0));
  for (size_t i = 0; i < devices_.size(); ++i)
    AddDevice(i, plan);
  if (devices_.empty())
    headline_.AddAbsence();
  const std::string whose = only_fullest_ ? fmt::format(" of GPU {}", fullest_->index) : "";
  tables.AddLayers("Layers" + whose + ", own bytes", layers_, plan.layers);
  tables.AddLines("Top lines" + whose + ", live allocations", lines_, plan.lines);
  tables.AddStacks("Top stacks" + whose, stacks_, plan.stacks);
  tables.AddLines("Free in segments" + whose + ", by the line that made them", free_, plan.free);
  if (const query::CachedMemory* cached = Cached(); cached != nullptr && plan.free > 0)
    tables.AddCachedReason(*cached);
  tables.AddLines("Allocated most" +
                      (only_fullest_ ? fmt::format(" on GPU {}", fullest_->index) : "") +
                      ", whole run",
                  churn_, plan.churn);
  if (small_host_ != nullptr) {
    out_.Add(fmt::format("Host memory, pinned and registered: {} (`--top 0` has its section)",
                         util::FormatBytes(small_host_->ledger_bytes)),
             Ink::kDim);
  }
  for (const std::string& line : last)
    out_.Add(line);
  if (!answer.empty() && out_.size() > kFarFromTheAnswer)
    out_.AddCut(answer, Ink::kBold);
  for (const std::string& line : options_.next)
    out_.Add(line);
  return out_.Take();
}

}  // namespace

std::string FormatText(const query::Report& report,
                       const tables::Recording& recording,
                       const query::ReportQuery& query,
                       const TextOptions& options) {
  return TextReport(report, recording, query, options).Format();
}

}  // namespace vramscope::output
