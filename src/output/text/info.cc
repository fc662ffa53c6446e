// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <string_view>

#include "format/enums.h"
#include "output/names.h"
#include "output/text/text.h"
#include "output/text/text_table.h"
#include "query/core/peaks.h"
#include "tables/imported.h"
#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

constexpr size_t kKeyColumns = 12;
constexpr size_t kMaxProcesses = 32;

class InfoText : public TextLines {
 public:
  InfoText(const query::Report& report, const tables::Recording& recording, const Style& style)
      : TextLines(style), report_(report), recording_(recording) {}

  std::string Format() {
    AddSession();
    AddProcesses();
    AddDevices();
    AddFile();
    AddNotes();
    AddLosses();
    AddInvariants();
    return Take();
  }

 private:
  // `info` cuts nothing, since its output may be piped.
  void Line(std::string_view key, std::string_view value, Ink ink = Ink::kBold);
  void More(std::string_view value) { Line("", value); }

  void AddSession();
  void AddProcesses();
  void AddDevices();
  void AddFile();
  void AddNotes();
  void AddLosses();
  void AddInvariants();
  void AddResidual(const query::DeviceReport& device);

  const query::Report& report_;
  const tables::Recording& recording_;
};

void InfoText::Line(std::string_view key, std::string_view value, Ink ink) {
  // Wrapped lines are indented a little more.
  const size_t first = value.find_first_not_of(' ');
  const size_t indent = kKeyColumns + (first == std::string_view::npos ? 0 : first) + 2;
  Add(Paint(PadRight(std::string(key), kKeyColumns), ink, style()) +
      Wrapped(value, kKeyColumns, indent, style()));
}

std::string UtcTime(int64_t wall_ns) {
  const std::time_t seconds = wall_ns / 1'000'000'000;
  std::tm parts{};
  std::array<char, 64> text{};
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) {
    return "?";
  }
  return text.data();
}

// What a loss means, for the names that the recorder and the reader give.
std::string_view LossHelp(std::string_view name) {
  struct Entry {
    std::string_view text, help;
  };
  constexpr Entry kHelp[] = {
#define VRAMSCOPE_LOSS(Name, id, text, help) {text, help},
#include "format/losses.def"
  };
  for (const Entry& entry : kHelp) {
    if (entry.text == name)
      return entry.help;
  }
  return {};
}

void InfoText::AddSession() {
  const tables::Session& session = recording_.tables().session;
  const std::vector<tables::ProcessRow>& processes = recording_.tables().processes;
  if (processes.size() > 1 && processes[1].command.value != 0)
    Line("command", Clean(recording_.string(processes[1].command)));
  std::string recorded = Clean(session.name);
  if (session.begin_wall_ns > 0)
    recorded += ", " + UtcTime(session.begin_wall_ns);
  if (!session.version.empty())
    recorded += ", by vramscope " + Clean(session.version);
  if (report_.sampled)
    recorded += "; sampled: allocations are unknown";
  Line("session", recorded);
  Line("duration", tables::NoteOf(recording_, tables::kInstantNote).empty()
                       ? util::FormatDuration(session.end_ns - session.begin_ns)
                       : "one instant");
  if (session.HasPast()) {
    const std::string outran = format::LossName(static_cast<uint64_t>(format::Loss::kDropped));
    const bool all = std::none_of(report_.losses.begin(), report_.losses.end(),
                                  [&](const query::Loss& loss) { return loss.name == outran; });
    Line("history", fmt::format("the last {} ({} from the start on), and {} (--ring)",
                                util::FormatDuration(session.end_ns - session.history_ns),
                                util::FormatDuration(session.history_ns - session.begin_ns),
                                all ? "the peaks of the whole run" : "the peaks that were found"));
  }
}

void InfoText::AddProcesses() {
  const tables::Tables& tables = recording_.tables();
  // Row 0 of each table means "none".
  const size_t count = tables.processes.size() - 1;
  Line("processes", util::FormatCount(count));
  const bool is_instant = !tables::NoteOf(recording_, tables::kInstantNote).empty();
  for (size_t i = 1; i <= std::min(count, kMaxProcesses); ++i) {
    const tables::ProcessRow& process = tables.processes[i];
    const std::string command = Clean(recording_.string(process.command));
    std::string line = process.pid == 0 ? "pid unknown" : fmt::format("pid {}", process.pid);
    if (process.rank >= 0)
      line += fmt::format(", rank {}", process.rank);
    if (!is_instant)
      line += ", " + util::FormatDuration(process.end_ns - process.begin_ns);
    const bool is_detached =
        tables::NoteOf(recording_, tables::kDetachedNote) == std::to_string(process.pid);
    line += ", " + (is_detached ? "detached at " +
                                      util::FormatDuration(process.end_ns - tables.session.begin_ns)
                                : WaitText(process));
    More(command.empty() ? line : line + ": " + command);
  }
  if (count > kMaxProcesses)
    More(fmt::format("({} more)", count - kMaxProcesses));
  for (const std::string& line : CheckpointLines(recording_))
    More(line);
  for (const std::string& line : AsleepLines(report_, recording_))
    More(line);
  for (const std::string& line : OpenMemoryLines(report_, recording_, style()))
    More(line);
  for (const std::string& line : HostMemoryLines(report_, recording_, true))
    Line("host memory", line);
  Line("threads", util::FormatCount(tables.threads.size() - 1));
}

void InfoText::AddResidual(const query::DeviceReport& device) {
  for (const query::ResidualSummary& summary : report_.residuals) {
    if (summary.device != device.device)
      continue;
    if (summary.samples > 0) {
      constexpr std::string_view kHead = "  unexplained: ";
      std::string more;
      // After the names of lines.
      More(std::string(kHead) +
           Unexplained(summary, recording_, kHead.size() + kKeyColumns, style(), &more));
      if (!more.empty())
        More("    " + more);
    }
    if (device.kind == tables::DeviceKind::kGpu && !report_.sampled) {
      More("  peak: " + KnownBy(summary));
    }
  }
}

void InfoText::AddDevices() {
  Line("devices", util::FormatCount(recording_.tables().devices.size() - 1));
  for (size_t i = 1; i < recording_.tables().devices.size(); ++i) {
    const tables::DeviceId id{static_cast<uint32_t>(i)};
    const tables::DeviceRow& device = recording_.tables().devices[i];
    std::string line = DeviceMark(recording_, id);
    // The names of host and cpu say no more.
    if (device.kind == tables::DeviceKind::kGpu) {
      if (device.name.value != 0)
        line += ", " + Clean(recording_.string(device.name));
      if (device.total_bytes > 0)
        line += ", " + util::FormatBytes(device.total_bytes);
      if (device.uuid.value != 0)
        line += ", " + Clean(recording_.string(device.uuid));
    }
    for (const query::DeviceReport& reported : report_.devices) {
      if (reported.device != id)
        continue;
      line += "; peak " + util::FormatBytes(reported.ledger_bytes);
      if (tables::NoteOf(recording_, tables::kInstantNote).empty()) {
        line += fmt::format(" at {} s",
                            ExactSeconds(reported.at_ns - recording_.tables().session.begin_ns));
      }
      More(line);
      AddResidual(reported);
      line.clear();
      break;
    }
    if (!line.empty())
      More(line);
  }
}

void InfoText::AddFile() {
  const tables::Session& session = recording_.tables().session;
  Line("events", util::FormatCount(session.event_count));
  std::string file = Clean(session.path);
  if (!session.finished)
    file += " (live session, not finished)";
  if (session.file_bytes > 0) {
    file +=
        fmt::format(", {} ({} bytes)", util::FormatBytes(session.file_bytes), session.file_bytes);
    if (session.event_count > 0) {
      file += fmt::format(", {:.2f} bytes an event", static_cast<double>(session.file_bytes) /
                                                         static_cast<double>(session.event_count));
    }
  }
  Line("file", file);
}

void InfoText::AddNotes() {
  std::vector<tables::NoteRow> notes = recording_.tables().notes;
  // Of readings alone no allocations are known, so that their peak is not 0.
  if (tables::IsSampled(recording_)) {
    std::erase_if(notes, [&](const tables::NoteRow& note) {
      return recording_.string(note.key).starts_with(query::kAllocatedPeakNote);
    });
  }
  size_t widest = 0;
  for (const tables::NoteRow& note : notes)
    widest = std::max(widest, recording_.string(note.key).size());
  bool first = true;
  for (const tables::NoteRow& note : notes) {
    Line(first ? "notes" : "", PadRight(Clean(recording_.string(note.key)), widest) + "  " +
                                   Clean(recording_.string(note.value)));
    first = false;
  }
}

void InfoText::AddLosses() {
  bool any = false;
  for (const query::Loss& loss : report_.losses) {
    if (loss.count == 0 && loss.bytes == 0)
      continue;
    std::string line = Clean(loss.name) + ": " + util::FormatCount(loss.count);
    if (loss.bytes > 0)
      line += fmt::format(" ({})", util::FormatBytes(loss.bytes));
    Line(any ? "" : "losses", Paint(line, Ink::kWarning, style()));
    any = true;
    const std::string_view help = LossHelp(loss.name);
    if (!help.empty())
      More("  " + std::string(help));
  }
  if (!any)
    Line("losses", "none");
}

void InfoText::AddInvariants() {
  bool first = true;
  for (const query::Invariant& invariant : report_.invariants) {
    std::string line = (invariant.holds ? "holds   " : "BROKEN  ") + Clean(invariant.name);
    if (!invariant.detail.empty())
      line += ": " + Clean(invariant.detail);
    Line(first ? "invariants" : "", invariant.holds ? line : Paint(line, Ink::kError, style()));
    first = false;
  }
  if (report_.sampled) {
    More("not checked: frees, blocks in segments (allocations are unknown), and the rows against");
    More("NVML's figures, of which they are made");
  }
}

}  // namespace

std::string FormatInfo(const query::Report& report,
                       const tables::Recording& recording,
                       const Style& style) {
  return InfoText(report, recording, style).Format();
}

}  // namespace vramscope::output
