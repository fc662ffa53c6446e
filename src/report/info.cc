// SPDX-License-Identifier: Apache-2.0
#include "report/info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <string_view>

#include "report/devices.h"
#include "report/trust_lines.h"
#include "util/size_text.h"

namespace vramscope::report {
namespace {

constexpr size_t kKeyColumns = 12;
constexpr size_t kMaxProcesses = 32;

class InfoText {
 public:
  InfoText(const engine::Report& report,
           const trace::Trace& trace,
           const Style& style,
           const std::vector<std::string>& away)
      : report_(report), trace_(trace), style_(style), away_(away) {}

  std::string Format() {
    AddSession();
    AddProcesses();
    AddDevices();
    AddFile();
    AddNotes();
    AddLosses();
    AddInvariants();
    return std::move(text_);
  }

 private:
  std::string Clean(std::string_view text) const { return Printable(text, style_.utf8); }

  // Nothing is cut here: whoever asks for `info` wants to know, and may pipe it.
  void Line(std::string_view key, std::string_view value, Ink ink = Ink::kBold) {
    const std::string padded = PadRight(std::string(key), kKeyColumns);
    text_ += Paint(padded, ink, style_);
    text_ += value;
    text_ += '\n';
  }
  void More(std::string_view value) { Line("", value); }

  void AddSession();
  void AddProcesses();
  void AddDevices();
  void AddFile();
  void AddNotes();
  void AddLosses();
  void AddInvariants();
  void AddResidual(const engine::DeviceReport& device);

  const engine::Report& report_;
  const trace::Trace& trace_;
  const Style& style_;
  const std::vector<std::string>& away_;
  std::string text_;
};

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

// As wait(2) reports it.
std::string WaitText(const trace::Process& process) {
  if (!process.wait_status)
    return process.closed_cleanly ? "ended" : "end not seen";
  const int status = *process.wait_status;
  const int signal = status & 0x7f;
  if (signal == 0)
    return fmt::format("exit status {}", (status >> 8) & 0xff);
  return fmt::format("killed by signal {}", signal);
}

void InfoText::AddSession() {
  const trace::SessionInfo& session = trace_.session();
  if (!trace_.processes().empty())
    Line("command", Clean(trace_.processes()[0].command));
  std::string recorded = Clean(session.name);
  if (session.start_wall_ns > 0)
    recorded += ", " + UtcTime(session.start_wall_ns);
  if (!session.version.empty())
    recorded += ", by vramscope " + Clean(session.version);
  Line("session", recorded);
  Line("duration", util::FormatDuration(session.end_ns - session.start_ns));
}

void InfoText::AddProcesses() {
  const size_t count = trace_.processes().size();
  Line("processes", util::FormatCount(count));
  for (size_t i = 0; i < std::min(count, kMaxProcesses); ++i) {
    const trace::Process& process = trace_.processes()[i];
    std::string line = fmt::format("pid {}", process.pid);
    if (process.rank)
      line += fmt::format(", rank {}", *process.rank);
    line += fmt::format(", {}, {}: {}", util::FormatDuration(process.end_ns - process.start_ns),
                        WaitText(process), Clean(process.command));
    More(line);
  }
  if (count > kMaxProcesses)
    More(fmt::format("({} more)", count - kMaxProcesses));
  for (const std::string& line : away_)
    More(line);
  // Index 0 stands for "no thread".
  const size_t threads = trace_.threads().empty() ? 0 : trace_.threads().size() - 1;
  Line("threads", util::FormatCount(threads));
}

void InfoText::AddResidual(const engine::DeviceReport& device) {
  for (const engine::ResidualSummary& summary : report_.residuals) {
    if (summary.device != device.device)
      continue;
    if (summary.samples > 0) {
      More(fmt::format("  residual at most {} ({}) at {}, p99 {}; {} samples, {} in transit",
                       util::FormatSignedBytes(summary.worst_bytes),
                       ExactPercent(summary.worst_bytes, summary.ledger_peak_bytes),
                       util::FormatDuration(summary.worst_at_ns - trace_.session().start_ns),
                       util::FormatBytes(summary.p99_bytes), util::FormatCount(summary.samples),
                       util::FormatCount(summary.samples_in_transit)));
    }
    if (device.kind == trace::DeviceKind::kGpu) {
      More(fmt::format(
          "  priced by readings (bracketed): {} of the peak ({})",
          util::FormatBytes(summary.bracketed_bytes),
          ExactPercent(static_cast<int64_t>(summary.bracketed_bytes), summary.ledger_peak_bytes)));
    }
  }
}

void InfoText::AddDevices() {
  Line("devices", util::FormatCount(trace_.devices().size()));
  for (const trace::Device& device : trace_.devices()) {
    std::string line = DeviceMark(device.kind, device.index);
    // The names of host and cpu say no more.
    if (device.kind == trace::DeviceKind::kGpu) {
      if (!device.name.empty())
        line += ", " + Clean(device.name);
      if (device.total_bytes > 0)
        line += ", " + util::FormatBytes(device.total_bytes);
      if (!device.uuid.empty())
        line += ", " + Clean(device.uuid);
    }
    for (const engine::DeviceReport& reported : report_.devices) {
      if (reported.kind != device.kind || reported.index != device.index)
        continue;
      line += fmt::format("; peak {} at {}", util::FormatBytes(reported.ledger_bytes),
                          util::FormatDuration(reported.at_ns - trace_.session().start_ns));
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
  const trace::SessionInfo& session = trace_.session();
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
  size_t widest = 0;
  for (const auto& [key, value] : trace_.session().notes)
    widest = std::max(widest, key.size());
  bool first = true;
  for (const auto& [key, value] : trace_.session().notes) {
    Line(first ? "notes" : "", PadRight(Clean(key), widest) + "  " + Clean(value));
    first = false;
  }
}

void InfoText::AddLosses() {
  bool any = false;
  for (const trace::Loss& loss : report_.losses) {
    if (loss.count == 0 && loss.bytes == 0)
      continue;
    std::string line = Clean(loss.name) + ": " + util::FormatCount(loss.count);
    if (loss.bytes > 0)
      line += fmt::format(" ({})", util::FormatBytes(loss.bytes));
    Line(any ? "" : "losses", Paint(line, Ink::kWarning, style_));
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
  for (const engine::Invariant& invariant : report_.invariants) {
    std::string line = (invariant.holds ? "holds   " : "BROKEN  ") + Clean(invariant.name);
    if (!invariant.detail.empty())
      line += ": " + Clean(invariant.detail);
    Line(first ? "invariants" : "", invariant.holds ? line : Paint(line, Ink::kError, style_));
    first = false;
  }
}

}  // namespace

std::string FormatInfo(const engine::Report& report,
                       const trace::Trace& trace,
                       const Style& style,
                       const std::vector<std::string>& away) {
  return InfoText(report, trace, style, away).Format();
}

}  // namespace vramscope::report
