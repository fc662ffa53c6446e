// SPDX-License-Identifier: Apache-2.0
#include "top/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::cli {
namespace {

using output::CutEnd;
using output::CutMiddle;
using output::Ink;
using output::PadLeft;
using output::PadRight;
using output::Style;

using Lines = std::vector<std::string>;

constexpr size_t kWide = 120;  // columns from which categories and lines are side by side
constexpr size_t kBytesColumns = 10;
constexpr size_t kGrowthColumns = 12;
constexpr size_t kLeastTable = 5;  // rows of processes that details leave
constexpr double kNearlyFull = 0.9;

const char* const kHelp[] = {
    "Up, Down       select a process",
    "Enter          show this process alone, Esc goes back",
    "b g p n        sort by bytes, growth, process ID or name",
    "a              record the selected Python process with `vramscope attach`,",
    "               into this folder; press it again to end the recording",
    "r              read the recordings now",
    "q              quit; recordings that `a` began end",
    "",
    "GPUs and processes are read every second. Reading recordings takes at most 1 % of a",
    "processor, so figures of a busy program are a few seconds old.",
    "Growth compares the lowest figures of the last seconds with those of a minute ago.",
};

std::string GrowthText(const std::optional<double>& growth) {
  if (!growth)
    return "-";
  const double limit = 9e18;
  return util::FormatSignedBytes(static_cast<int64_t>(std::clamp(*growth, -limit, limit)));
}

std::string AgeText(int64_t age_ns) {
  const int64_t seconds = std::max<int64_t>(age_ns, 0) / 1'000'000'000;
  if (seconds < 60)
    return seconds == 0 ? "now" : fmt::format("{} s ago", seconds);
  return util::FormatDuration(seconds * 1'000'000'000) + " ago";
}

class ScreenMaker {
 public:
  ScreenMaker(const TopModel& model, const TopView& view, const Style& style)
      : model_(model),
        view_(view),
        style_(style),
        columns_(static_cast<size_t>(style.columns)),
        is_live_(view.rows != 0) {}

  Lines Make() {
    AddHead();
    if (view_.help)
      out_.insert(out_.end(), std::begin(kHelp), std::end(kHelp));
    else if (is_live_)
      AddLive();
    else
      AddAll();
    if (is_live_)
      AddFoot();
    return std::move(out_);
  }

 private:
  std::string Clean(std::string_view text) const { return output::Printable(text, style_.utf8); }
  // Without the folder of the program.
  std::string CommandOf(const TopProcess& process) const {
    const std::string_view command = process.command;
    const std::string_view program = command.substr(0, command.find(' '));
    return Clean(command.substr(program.rfind('/') + 1));
  }
  std::string Heading(const std::string& text) const {
    return output::Paint(CutEnd(text, columns_, style_), Ink::kDim, style_);
  }

  void AddHead() {
    const auto seconds = static_cast<time_t>(model_.unix_seconds);
    tm local{};
    localtime_r(&seconds, &local);
    const std::string left = fmt::format("vramscope top  {}, {}",
                                         util::FormatCountOf(model_.gpus.size(), "GPU"), Count());
    const std::string time =
        fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
    const size_t room = columns_ - std::min(columns_, left.size());
    out_.push_back(output::Paint(left, Ink::kBold, style_) + PadLeft(time, room));
    if (!model_.no_nvml.empty())
      out_.push_back(CutEnd("No NVML: " + Clean(model_.no_nvml), columns_, style_));
    for (const TopGpu& gpu : model_.gpus)
      out_.push_back(GpuLine(gpu));
    for (const std::string& note : model_.notes)
      out_.push_back(CutEnd(Clean(note), columns_, style_));
    out_.emplace_back();
  }

  // A process on two devices is one.
  std::string Count() const {
    std::vector<uint32_t> pids;
    for (const TopProcess& process : model_.processes)
      pids.push_back(process.pid);
    std::sort(pids.begin(), pids.end());
    const auto count = static_cast<uint64_t>(std::unique(pids.begin(), pids.end()) - pids.begin());
    return count == 1 ? "1 process" : util::FormatCount(count) + " processes";
  }

  std::string GpuLine(const TopGpu& gpu) const {
    constexpr size_t kFigures = 32;
    const size_t name_columns = columns_ >= kWide ? 40 : 26;
    const std::string name =
        PadRight(CutEnd(fmt::format("GPU {} {}", gpu.index, Clean(gpu.name)), name_columns, style_),
                 name_columns);
    if (!gpu.used_bytes || gpu.total_bytes == 0)
      return name + " no figure";
    const double share =
        static_cast<double>(*gpu.used_bytes) / static_cast<double>(gpu.total_bytes);
    const std::string figures =
        fmt::format("{:>10} / {:>10} {:>7}", util::FormatBytes(*gpu.used_bytes),
                    util::FormatBytes(gpu.total_bytes), output::Percent(share));
    const std::string bar = output::Bar(share, columns_ - name_columns - kFigures - 2, style_);
    return name + " " +
           output::Paint(bar, share >= kNearlyFull ? Ink::kWarning : Ink::kBar, style_) + " " +
           figures;
  }

  // ---- the table of processes

  bool IsSelected(const TopProcess& process) const {
    return is_live_ && view_.selected == std::pair(process.pid, process.device);
  }

  std::string TableHeading() const {
    const auto name = [&](TopOrder order, std::string text) {
      return is_live_ && view_.order == order ? text + "*" : text;
    };
    return Heading(fmt::format(
        "  {:>7} {:<8} {:<4} {:>10} {:>11} {:<3} {}", name(TopOrder::kPid, "PID"), "USER", "GPU",
        name(TopOrder::kBytes, "MEMORY"), name(TopOrder::kGrowth, "GROWTH/MIN"), "REC",
        name(TopOrder::kName, "COMMAND")));
  }

  std::string TableLine(const TopProcess& process) const {
    const std::string growth = process.ended ? "ended" : GrowthText(process.growth);
    const std::string left = fmt::format(
        "{} {:>7} {} {:<4} {:>10} {:>11} {:<3} ", IsSelected(process) ? '>' : ' ', process.pid,
        PadRight(CutEnd(Clean(process.user), 8, style_), 8), process.device,
        util::FormatBytes(process.bytes()), growth, process.details != nullptr ? "yes" : "");
    // The largest category, where there is room.
    const size_t most_columns = columns_ >= kWide ? 28 : 0;
    const size_t room = columns_ - std::min(columns_, left.size() + most_columns);
    std::string line = left + CutMiddle(CommandOf(process), room, style_);
    if (most_columns != 0 && process.details != nullptr && !process.details->categories.empty()) {
      const TopCategory& most = process.details->categories.front();
      line = PadRight(line, columns_ - most_columns) +
             PadLeft(CutEnd(fmt::format("{} {}", most.name, util::FormatBytes(most.bytes)),
                            most_columns, style_),
                     most_columns);
    }
    return IsSelected(process) ? output::Paint(line, Ink::kBold, style_)
           : process.ended     ? output::Paint(line, Ink::kDim, style_)
                               : line;
  }

  // ---- the details of a recorded process

  Lines Categories(const TopDetails& details, size_t columns) const {
    const size_t bar_columns = 12;
    const size_t name_columns =
        columns - std::min(columns, kBytesColumns + kGrowthColumns + bar_columns + 6);
    const auto line = [&](const std::string& name, const std::string& bytes,
                          const std::string& growth, const std::string& bar) {
      return fmt::format("  {} {:>10} {:>12}  {}",
                         PadRight(CutEnd(name, name_columns, style_), name_columns), bytes, growth,
                         bar);
    };
    Lines lines = {line("CATEGORY", "MEMORY", "GROWTH/MIN", "")};
    for (const TopCategory& category : details.categories) {
      const double share = details.bytes == 0 ? 0
                                              : static_cast<double>(category.bytes) /
                                                    static_cast<double>(details.bytes);
      lines.push_back(line(Clean(category.name), util::FormatBytes(category.bytes),
                           GrowthText(category.growth), output::Bar(share, bar_columns, style_)));
    }
    return lines;
  }

  Lines LargestLines(const TopDetails& details, size_t columns) const {
    const size_t room = columns - std::min(columns, kBytesColumns + 4);
    const size_t place_columns = std::min<size_t>(room, std::max<size_t>(room / 2, 30));
    const auto line = [&](const std::string& bytes, const std::string& place,
                          const std::string& source) {
      const std::string cut = CutMiddle(place, place_columns, style_);
      const size_t left = room - std::min(room, place_columns + 1);
      return fmt::format("  {:>10}  {} {}", bytes, PadRight(cut, place_columns),
                         CutEnd(source, left, style_));
    };
    Lines lines = {line("MEMORY", "LINE", "")};
    for (const query::TopLine& one : details.lines)
      lines.push_back(
          line(util::FormatBytes(one.bytes), Clean(one.place), Clean(WithoutIndent(one.source))));
    if (details.lines.empty())
      lines.push_back(line("", "no line is known", ""));
    return lines;
  }

  // Cut to `rows` lines; 0: all.
  Lines Details(const TopProcess& process, size_t rows) const {
    const std::string who = fmt::format("{} {}", process.pid, CommandOf(process));
    if (process.details == nullptr) {
      return {CutEnd(who, columns_, style_),
              fmt::format("  Not recorded: {} records a Python process.",
                          is_live_ ? "`a`" : fmt::format("`vramscope attach {}`", process.pid))};
    }
    const TopDetails& details = *process.details;
    if (process.device.empty()) {
      return {CutEnd(who, columns_, style_),
              CutEnd("  " + RecordingOf(details) + ": no memory yet", columns_, style_)};
    }
    std::string facts = fmt::format("  {}: {} on {}, read {}", RecordingOf(details),
                                    util::FormatBytes(details.bytes), DeviceName(process.device),
                                    AgeText(model_.now_ns - details.read_ns));
    if (details.peak_bytes)
      facts += ", peak " + util::FormatBytes(*details.peak_bytes);
    if (details.reserved_bytes != 0)
      facts += ", " + util::FormatBytes(details.reserved_bytes) + " reserved by allocators";
    Lines lines = {output::Paint(CutMiddle(who, columns_, style_), Ink::kBold, style_),
                   CutEnd(facts, columns_, style_)};
    const bool side_by_side = columns_ >= kWide;
    const size_t left_columns = side_by_side ? 66 : columns_;
    Lines left = Categories(details, left_columns);
    Lines right = LargestLines(details, columns_ - (side_by_side ? left_columns : 0));
    if (side_by_side) {
      left.resize(std::max(left.size(), right.size()));
      for (size_t i = 0; i < left.size(); ++i)
        left[i] = PadRight(left[i], left_columns) + (i < right.size() ? right[i] : "");
    } else {
      // Both get a part of the rows.
      const size_t room = rows == 0 ? SIZE_MAX : rows - std::min<size_t>(rows, lines.size());
      left.resize(std::min(left.size(), std::max(room / 2, room - std::min(room, right.size()))));
      left.insert(left.end(), right.begin(), right.end());
    }
    for (std::string& line : left) {
      const bool is_heading = line.starts_with("  CATEGORY") || line.ends_with("MEMORY  LINE");
      lines.push_back(is_heading ? Heading(Trimmed(line)) : Trimmed(line));
    }
    if (rows != 0 && lines.size() > rows)
      lines.resize(rows);
    return lines;
  }

  static std::string_view WithoutIndent(std::string_view line) {
    return line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
  }
  static std::string DeviceName(const std::string& device) {
    if (device == "cpu")
      return "the CPU";
    return device == "host" ? "the host (pinned)" : "GPU " + device;
  }
  static std::string Trimmed(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  }

  std::string RecordingOf(const TopDetails& details) const {
    return Clean(std::filesystem::path(details.recording).filename().string());
  }

  // ---- screens

  void AddAll() {
    if (model_.processes.empty()) {
      out_.push_back("No process has memory on a GPU, and none is recorded.");
      return;
    }
    out_.push_back(TableHeading());
    for (const TopProcess& process : model_.processes)
      out_.push_back(Trimmed(TableLine(process)));
    for (const TopProcess& process : model_.processes) {
      if (process.details == nullptr && model_.processes.size() > 1)
        continue;
      out_.emplace_back();
      const Lines lines = Details(process, 0);
      out_.insert(out_.end(), lines.begin(), lines.end());
    }
  }

  void AddLive() {
    const size_t foot = 2;
    const size_t room = view_.rows - std::min(view_.rows, out_.size() + foot);
    const auto selected = std::find_if(model_.processes.begin(), model_.processes.end(),
                                       [&](const TopProcess& one) { return IsSelected(one); });
    const bool has_selected = selected != model_.processes.end();
    if (model_.processes.empty()) {
      out_.push_back("No process has memory on a GPU, and none is recorded.");
      return;
    }
    if (view_.detail && has_selected) {
      const Lines lines = Details(*selected, room);
      out_.insert(out_.end(), lines.begin(), lines.end());
      return;
    }
    // The table comes first, and leaves at least half of the room to the details.
    const size_t all = model_.processes.size() + 1;
    const size_t table = std::min(all, std::max(room / 2, std::min(room, kLeastTable)));
    const size_t shown = table - std::min<size_t>(table, 1);
    const auto position =
        has_selected ? static_cast<size_t>(selected - model_.processes.begin()) : size_t{0};
    const size_t first = position < shown ? 0 : position + 1 - shown;
    out_.push_back(TableHeading());
    for (size_t i = first; i < model_.processes.size() && i < first + shown; ++i)
      out_.push_back(TableLine(model_.processes[i]));
    if (!has_selected || room < table + 2)
      return;
    out_.emplace_back();
    const Lines lines = Details(*selected, room - table - 1);
    out_.insert(out_.end(), lines.begin(), lines.end());
  }

  void AddFoot() {
    out_.resize(view_.rows - std::min<size_t>(view_.rows, 2));
    out_.push_back(CutEnd(Clean(view_.message), columns_, style_));
    out_.push_back(Heading(view_.help     ? "any key goes back"
                           : view_.detail ? "q quit  Esc back  a attach  r read now  ? help"
                                          : "q quit  b g p n sort  Up Down select  Enter detail  "
                                            "a attach  r read now  ? help"));
    out_.resize(view_.rows);
  }

  const TopModel& model_;
  const TopView& view_;
  const Style& style_;
  const size_t columns_;
  const bool is_live_;
  Lines out_;
};

}  // namespace

std::vector<std::string> TopScreen(const TopModel& model, const TopView& view, const Style& style) {
  return ScreenMaker(model, view, style).Make();
}

}  // namespace vramscope::cli
