// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <tuple>

#include "format/memory_words.h"
#include "output/names.h"
#include "output/text/text.h"
#include "query/core/residual.h"
#include "tables/imported.h"
#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

constexpr size_t kMaxLosses = 4;
constexpr size_t kMaxBroken = 5;
constexpr size_t kMaxCheckpoints = 8;
constexpr size_t kMaxUnexplained = 5;

constexpr char kSampledTrust[] =
    "Sampled: NVML's figures only. Memory allocated and freed between two readings\n"
    "is missing. `vramscope run` records the allocations.";

uint64_t Magnitude(int64_t bytes) {
  return bytes < 0 ? 0 - static_cast<uint64_t>(bytes) : static_cast<uint64_t>(bytes);
}

// One line for the worst device: `info` has all of them.
void AddResidual(const query::Report& report,
                 const tables::Recording& recording,
                 const Style& style,
                 std::vector<std::string>* out) {
  const query::ResidualSummary* worst = nullptr;
  size_t sampled = 0;
  for (const query::ResidualSummary& summary : report.residuals) {
    if (summary.samples == 0)
      continue;
    ++sampled;
    if (worst == nullptr || Magnitude(summary.worst_bytes) > Magnitude(worst->worst_bytes)) {
      worst = &summary;
    }
  }
  if (worst == nullptr)
    return;
  const std::string of =
      sampled > 1 ? fmt::format(", {} of {}", DeviceMark(report, worst->device), sampled) : "";
  out->push_back(CutEnd(fmt::format("Peak{}: {}", of, KnownBy(*worst)),
                        static_cast<size_t>(style.columns), style));
  const std::string head = fmt::format("Unexplained{}: ", of);
  std::string more;
  out->push_back(head + Unexplained(*worst, recording, head.size(), style, &more));
  if (!more.empty())
    out->push_back("  " + more);
}

// The first `most` items that have a line, and how many more have one.
template <class Items, class LineOf>
void AddFirst(const Items& items,
              size_t most,
              const char* head,
              const char* of_more,
              Ink ink,
              const Style& style,
              const LineOf& line_of,
              std::vector<std::string>* out) {
  size_t count = 0;
  for (const auto& item : items) {
    const std::string line = line_of(item);
    if (!line.empty() && ++count <= most)
      out->push_back(Paint(line, ink, style));
  }
  if (count > most) {
    out->push_back(
        Paint(fmt::format("{}: ({} more{}, see vramscope info)", head, count - most, of_more), ink,
              style));
  }
}

void AddUnexplained(const query::Report& report,
                    const tables::Recording& recording,
                    const Style& style,
                    std::vector<std::string>* out) {
  const auto line_of = [&](const query::Unexplained& what) {
    return Wrapped(fmt::format("Unexplained, {}: {}", DeviceMark(report, what.device),
                               Printable(query::UnexplainedText(recording, what), style.utf8)),
                   0, 2, style);
  };
  AddFirst(report.unexplained, kMaxUnexplained, "Unexplained", " times", Ink::kError, style,
           line_of, out);
}

// The share of blocks with a known category or line.
void AddNames(const query::Report& report, const Style& style, std::vector<std::string>* out) {
  if (report.block_bytes == 0 || report.block_bytes_with_category == 0)
    return;
  const auto percent = [&](uint64_t bytes) {
    return ExactPercent(static_cast<int64_t>(bytes), report.block_bytes);
  };
  const std::string line =
      fmt::format("Tensors: {} of {} have a category, {} a layer or line",
                  percent(report.block_bytes_with_category), util::FormatBytes(report.block_bytes),
                  percent(report.block_bytes_with_place));
  out->push_back(CutEnd(line, static_cast<size_t>(style.columns), style));
}

void AddLosses(const query::Report& report, const Style& style, std::vector<std::string>* out) {
  const auto line_of = [&](const query::Loss& loss) -> std::string {
    if (loss.count == 0 && loss.bytes == 0)
      return "";
    std::string line = fmt::format("Lost: {}: {}", Printable(loss.name, style.utf8),
                                   util::FormatCount(loss.count));
    if (loss.bytes > 0)
      line += fmt::format(" ({})", util::FormatBytes(loss.bytes));
    return CutEnd(line, static_cast<size_t>(style.columns), style);
  };
  AddFirst(report.losses, kMaxLosses, "Lost", " kinds", Ink::kWarning, style, line_of, out);
}

void AddBroken(const query::Report& report, const Style& style, std::vector<std::string>* out) {
  const auto line_of = [&](const query::Invariant& invariant) -> std::string {
    if (invariant.holds)
      return "";
    std::string line = "BROKEN INVARIANT: " + Printable(invariant.name, style.utf8);
    if (!invariant.detail.empty())
      line += ": " + Printable(invariant.detail, style.utf8);
    return CutEnd(line, static_cast<size_t>(style.columns), style);
  };
  AddFirst(report.invariants, kMaxBroken, "BROKEN INVARIANT", "", Ink::kError, style, line_of, out);
}

// Why parameters and inputs cannot be distinguished, if so: PyTorch is too old, or unknown to the
// probe.
void AddUnnamed(const tables::Recording& recording,
                const Style& style,
                std::vector<std::string>* out) {
  bool off = false;
  for (const tables::NoteRow& note : recording.tables().notes) {
    const std::string_view key = recording.string(note.key);
    off = off ||
          format::SaysNamesAreOff(key.substr(0, key.find(" (pid ")), recording.string(note.value));
  }
  if (!off)
    return;
  const std::string_view version = tables::NoteOf(recording, format::kTorchNote);
  const std::string line =
      fmt::format("Names: off for {}: parameters and inputs are `unknown`",
                  version.empty() ? "this PyTorch" : "PyTorch " + Printable(version, style.utf8));
  out->push_back(
      Paint(CutEnd(line, static_cast<size_t>(style.columns), style), Ink::kWarning, style));
}

}  // namespace

std::string KnownBy(const query::ResidualSummary& summary) {
  const uint64_t peak = summary.ledger_peak_bytes;
  const uint64_t estimated = std::min(summary.estimated_bytes, peak);
  return fmt::format("{} from call sizes, {} from changes of free memory",
                     ExactPercent(static_cast<int64_t>(peak - estimated), peak),
                     ExactPercent(static_cast<int64_t>(estimated), peak));
}

std::string Unexplained(const query::ResidualSummary& summary,
                        const tables::Recording& recording,
                        size_t columns_before,
                        const Style& style,
                        std::string* more) {
  const bool good = IsWithinTarget(summary.worst_bytes, summary.ledger_peak_bytes);
  const std::string figure =
      fmt::format("{} ({})", util::FormatSignedBytes(summary.worst_bytes),
                  ExactPercent(summary.worst_bytes, summary.ledger_peak_bytes));
  std::string when;
  std::string rest = fmt::format("in {} readings", util::FormatCount(summary.samples));
  if (summary.worst_bytes != 0) {
    when = " at " + util::FormatDuration(summary.worst_at_ns - recording.tables().session.begin_ns);
    rest = fmt::format("99 % of {} readings within {}", util::FormatCount(summary.samples),
                       util::FormatBytes(summary.p99_bytes));
  }
  if (summary.samples_in_transit > 0)
    rest += fmt::format(", {} during calls", util::FormatCount(summary.samples_in_transit));
  std::string text = "at most " + Paint(figure, good ? Ink::kGood : Ink::kWarning, style) + when;
  const size_t columns =
      columns_before + std::string_view("at most ").size() + figure.size() + when.size();
  if (columns + 1 + rest.size() <= static_cast<size_t>(style.columns))
    return text + (when.empty() ? " " : "; ") + rest;
  *more = rest;
  return text;
}

bool IsWithinTarget(int64_t residual_bytes, uint64_t nvml_bytes) {
  return Magnitude(residual_bytes) <= std::max<uint64_t>(4ull << 20, nvml_bytes / 1000);
}

std::vector<std::string> TrustLines(const query::Report& report,
                                    const tables::Recording& recording,
                                    const Style& style) {
  std::vector<std::string> out;
  AddNames(report, style, &out);
  AddUnnamed(recording, style, &out);
  AddResidual(report, recording, style, &out);
  AddUnexplained(report, recording, style, &out);
  if (const std::string_view ring = tables::NoteOf(recording, format::kRingNote); !ring.empty()) {
    out.push_back(
        Paint(CutEnd(Printable(ring, style.utf8), static_cast<size_t>(style.columns), style),
              Ink::kWarning, style));
  }
  const size_t before = out.size();
  AddLosses(report, style, &out);
  const bool lost = out.size() > before;
  const size_t with_losses = out.size();
  AddBroken(report, style, &out);
  const bool broken = out.size() > with_losses;
  const std::string_view imported = tables::NoteOf(recording, tables::kImportedNote);
  if (!imported.empty()) {
    const std::string from = "Imported from " + Printable(imported, style.utf8);
    const std::string hint = "see `vramscope info` for what is missing";
    const auto columns = static_cast<size_t>(style.columns);
    if (util::DisplayWidth(from) + hint.size() + 2 <= columns) {
      out.push_back(from + ": " + hint);
    } else {
      out.push_back(CutEnd(from, columns, style));
      out.push_back(hint);
    }
  }
  if (report.sampled) {
    out.push_back(kSampledTrust);
  } else if (!broken) {
    // A foreign file may be incomplete, although vramscope lost nothing.
    std::string line = lost || !imported.empty() ? "" : "Nothing was lost. ";
    if (!report.invariants.empty() && !report.devices.empty())
      line += fmt::format("Checks of the ledger: {} of {} hold.", report.invariants.size(),
                          report.invariants.size());
    if (!line.empty())
      out.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return out;
}

std::vector<std::string> AbsenceLines(const tables::Recording& recording) {
  const std::string options =
      "," + std::string(tables::NoteOf(recording, tables::kOptionsNote)) + ",";
  std::vector<std::string> lines;
  if (options.find(",cpu,") != std::string::npos) {
    lines.emplace_back("No device was used: no GPU memory and no CPU tensor was allocated.");
  } else {
    lines.emplace_back("No device was used: no GPU memory was allocated while this was recorded.");
    if (tables::NoteOf(recording, tables::kImportedNote).empty())
      lines.emplace_back("`vramscope run --cpu` records CPU tensors.");
  }
  if (options.find(",overflow") != std::string::npos)
    lines.emplace_back("--overflow did nothing.");
  return lines;
}

std::vector<std::string> CheckpointLines(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  // A process has an account on each device that it uses, and leaves them at one time.
  std::set<std::tuple<tables::ProcessId, int64_t, int64_t>> times;
  for (const tables::CheckpointRow& row : tables.checkpointed) {
    if (row.account.value < tables.accounts.size())
      times.emplace(tables.accounts[row.account.value].process, row.begin_ns, row.end_ns);
  }
  std::vector<std::string> lines;
  for (const auto& [process, begin_ns, end_ns] : times) {
    if (lines.size() == kMaxCheckpoints) {
      lines.push_back(fmt::format("({} more times)", times.size() - kMaxCheckpoints));
      break;
    }
    const auto since_begin = [&](int64_t time_ns) {
      return util::FormatDuration(time_ns - tables.session.begin_ns);
    };
    std::string line = fmt::format("pid {} was checkpointed, its memory off the device, ",
                                   PidOf(recording, process));
    line += end_ns == tables::kNever
                ? fmt::format("from {} on", since_begin(begin_ns))
                : fmt::format("from {} to {}", since_begin(begin_ns), since_begin(end_ns));
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> AsleepLines(const query::Report& report,
                                     const tables::Recording& recording) {
  std::vector<std::string> lines;
  for (const tables::PeakRow& peak : report.unbacked_peaks) {
    const std::string at = ExactSeconds(peak.time_ns - recording.tables().session.begin_ns);
    lines.push_back(fmt::format(
        "Asleep: at most {} of {} without device memory, at {} s (`--at @{}`)",
        util::FormatBytes(peak.bytes), DeviceMark(recording, peak.device), at, peak.time_ns));
  }
  return lines;
}

namespace {

std::string ProcessText(const std::optional<uint32_t>& pid, const std::string& command) {
  return pid ? ProcessLabel(command, *pid, std::nullopt) : "an unrecorded process";
}

// "python engine.py (pid 13) at engine.py:42 in load".
std::string OpenedBy(const query::OpenMemory& entry) {
  std::string text = ProcessText(entry.pid, entry.command);
  if (!entry.place.empty())
    text += " at " + entry.place;
  return text;
}

}  // namespace

std::vector<std::string> OpenMemoryLines(const query::Report& report,
                                         const tables::Recording& recording,
                                         const Style& style) {
  constexpr size_t kMostLines = 4;
  std::vector<std::string> lines;
  const auto add = [&](const std::vector<query::OpenMemory>& entries, const auto& text) {
    size_t count = 0;
    for (const query::OpenMemory& entry : entries) {
      const std::string line = text(entry);
      if (!line.empty() && ++count <= kMostLines)
        lines.push_back(line);
    }
    if (count > kMostLines)
      lines.push_back(fmt::format("({} more of open memory: `--json`)", count - kMostLines));
  };
  add(report.kept_memory, [&](const query::OpenMemory& entry) {
    const int64_t since_begin = entry.kept_ns.value_or(0) - recording.tables().session.begin_ns;
    return fmt::format("Kept open: {} of {} by {}; {} {} at {}", util::FormatBytes(entry.bytes),
                       DeviceMark(recording, entry.device), OpenedBy(entry),
                       ProcessText(entry.maker_pid, entry.maker_command),
                       entry.maker == "ended" ? "made it and ended" : "freed it",
                       util::FormatDuration(since_begin));
  });
  add(report.open_memory, [&](const query::OpenMemory& entry) {
    return entry.maker == "freed" || entry.maker == "ended"
               ? ""
               : fmt::format("Open: {} of {} of {}, by {}", util::FormatBytes(entry.bytes),
                             DeviceMark(recording, entry.device),
                             ProcessText(entry.maker_pid, entry.maker_command), OpenedBy(entry));
  });
  for (std::string& line : lines)
    line = Printable(line, style.utf8);
  return lines;
}

namespace {

// "At 12.3 s its 3 processes had 3.90 GiB of host memory (1.00 GiB shared), pid 17 most (2.10 GiB);
// the control group used 3.98 GiB of 4.00 GiB".
std::string HostMemoryText(const query::HostMemory& sample, const tables::Recording& recording) {
  std::string text =
      fmt::format("At {} its {} had {} of host memory",
                  util::FormatDuration(sample.time_ns - recording.tables().session.begin_ns),
                  sample.processes == 1 ? "process" : fmt::format("{} processes", sample.processes),
                  util::FormatBytes(sample.resident_bytes));
  if (sample.shared_bytes != 0)
    text += fmt::format(" ({} shared)", util::FormatBytes(sample.shared_bytes));
  if (sample.processes > 1) {
    text += fmt::format(", pid {} most ({})", sample.largest_pid,
                        util::FormatBytes(sample.largest_bytes));
  }
  if (sample.pinned_bytes != 0)
    text += fmt::format("; {} pinned", util::FormatBytes(sample.pinned_bytes));
  if (sample.limit_bytes) {
    text += fmt::format("; the control group used {} of {}",
                        util::FormatBytes(sample.used_bytes.value_or(0)),
                        util::FormatBytes(*sample.limit_bytes));
  }
  return text;
}

const query::HostMemory* HostMemoryOf(const query::Report& report, std::string_view at) {
  const auto found = std::find_if(report.host_memory.begin(), report.host_memory.end(),
                                  [&](const query::HostMemory& row) { return row.at == at; });
  return found != report.host_memory.end() ? &*found : nullptr;
}

bool IsNearLimit(const query::HostMemory* sample, uint64_t percent) {
  return sample != nullptr && sample->limit_bytes &&
         sample->used_bytes.value_or(0) / percent >= *sample->limit_bytes / 100;
}

}  // namespace

std::string HostKillLine(const query::Report& report, const tables::Recording& recording) {
  const query::HostMemory* const last = HostMemoryOf(report, "last");
  if (last == nullptr)
    return "";
  const tables::Tables& tables = recording.tables();
  const bool has_process = tables.processes.size() > 1;
  const bool is_killed = tables::NoteOf(recording, kProgramEndNote) == WaitText(SIGKILL) ||
                         (has_process && tables.processes[1].wait_status == SIGKILL);
  const std::string figures = HostMemoryText(*last, recording);
  if (last->kills != 0) {
    const std::string what = is_killed && last->kills == 1 ? "it"
                             : last->kills == 1
                                 ? "a process of its control group"
                                 : fmt::format("{} processes of its control group", last->kills);
    return fmt::format("Host memory ran out: the kernel's out-of-memory killer ended {}. {}.", what,
                       figures);
  }
  // Where the kernel kills the whole group, the launcher ends, too, and cannot count.
  const bool is_lost =
      has_process && tables.processes[1].wait_status < 0 && tables.processes[1].closed_cleanly == 0;
  constexpr uint64_t kNearPercent = 97;
  if (!IsNearLimit(last, kNearPercent) || (!is_killed && !is_lost))
    return "";
  return "Host memory probably ran out, and the kernel's out-of-memory killer ended it. " +
         figures + ".";
}

std::vector<std::string> HostMemoryLines(const query::Report& report,
                                         const tables::Recording& recording,
                                         bool always) {
  constexpr uint64_t kWorthPercent = 90;
  const query::HostMemory* const fullest = HostMemoryOf(report, "fullest");
  if (IsNearLimit(fullest, kWorthPercent) && (always || HostKillLine(report, recording).empty())) {
    return {HostMemoryText(*fullest, recording) +
            ": the kernel kills processes of a group that exceeds its limit"};
  }
  const query::HostMemory* const peak = HostMemoryOf(report, "peak");
  if (!always || peak == nullptr)
    return {};
  return {HostMemoryText(*peak, recording)};
}

std::string TraceLine(const tables::Recording& recording,
                      const std::string& path,
                      const Style& style) {
  const tables::Session& session = recording.tables().session;
  std::string line = "Trace: " + Printable(path, style.utf8);
  if (session.file_bytes == 0)
    return line;
  line += " (" + util::FormatBytes(session.file_bytes);
  // Below that the file is mostly its tables of names.
  if (session.event_count >= 10'000) {
    line += fmt::format(", {:.1f} bytes an event", static_cast<double>(session.file_bytes) /
                                                       static_cast<double>(session.event_count));
  }
  return line + ")";
}

namespace {

using util::FormatBytes;

constexpr size_t kMostOverflowNames = 4;

std::string Names(const query::BytesByName& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostOverflowNames); ++i)
    text +=
        fmt::format("{}{} {}", i == 0 ? "" : ", ", names[i].first, FormatBytes(names[i].second));
  return text;
}

std::string WouldFit(const query::Overflow& overflow) {
  std::string text = overflow.card_gb != 0 ? fmt::format("  fits a card of {} GB", overflow.card_gb)
                                           : "  fits no single card";
  if (!overflow.batch_percent)
    return text;
  return text + (*overflow.batch_percent == 0
                     ? "; this one does not hold what no batch changes"
                     : fmt::format("; this one, about {} % of the batch", *overflow.batch_percent));
}

}  // namespace

std::string OverflowTrouble(const tables::Recording& recording) {
  const std::string_view unavailable = tables::NoteOf(recording, "overflow.unavailable");
  if (!unavailable.empty())
    return fmt::format("--overflow could not serve a request: {}: it got the driver's own answer",
                       unavailable);
  const std::string_view limit = tables::NoteOf(recording, "overflow.limit");
  if (!limit.empty())
    return fmt::format("--overflow served no more: {}", limit);
  return "";
}

std::vector<std::string> OverflowLines(const query::Report& report,
                                       const tables::Recording& recording,
                                       const Style& style) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& line) {
    lines.push_back(CutEnd(Printable(line, style.utf8), static_cast<size_t>(style.columns), style));
  };
  for (const query::Overflow& overflow : report.overflow) {
    add(fmt::format("Overflow on {}: the peak would have been {} in use, {} held",
                    DeviceMark(report, overflow.device), FormatBytes(overflow.used_bytes),
                    FormatBytes(overflow.held_bytes)));
    add("  by category: " + Names(overflow.all_categories));
    add(fmt::format("  {} of it in host memory, at {} s: {}", FormatBytes(overflow.host_bytes),
                    ExactSeconds(overflow.time_ns - recording.tables().session.begin_ns),
                    Names(overflow.categories)));
    if (!overflow.layers.empty())
      add("    layers: " + Names(overflow.layers));
    if (!overflow.lines.empty())
      add("    lines:  " + Names(overflow.lines));
    add(WouldFit(overflow));
  }
  if (const std::string trouble = OverflowTrouble(recording); !trouble.empty())
    add(trouble);
  return lines;
}

}  // namespace vramscope::output
