// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "output/names.h"
#include "output/text/text.h"
#include "output/text/text_parts.h"
#include "query/dimensions/fold_names.h"
#include "tables/imported.h"
#include "util/size_text.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

constexpr size_t kMostAsleep = 3;   // categories of what has no device memory
constexpr size_t kAnswerParts = 3;  // that the answer names
constexpr size_t kAnswerNameColumns = 40;

}  // namespace

std::string DeviceHeadline::Answer(const query::DeviceReport& device,
                                   const LedgerTree& parts,
                                   size_t gpus) const {
  std::string text = query_.at.kind == query::Instant::Kind::kPeak ? "Peak " : "";
  text += util::FormatBytes(device.ledger_bytes);
  if (device.kind == tables::DeviceKind::kGpu)
    text += fmt::format(" on GPU {}", device.index);
  else
    text += device.kind == tables::DeviceKind::kCpu ? " of CPU tensors" : " of host memory";
  if (gpus > 1)
    text += fmt::format(", the fullest of {},", gpus);
  text += AnswerInstant(device);
  if (report_.sampled)
    return text + ", as NVML reports it.";
  uint64_t left = device.ledger_bytes;
  size_t named = 0;
  for (const TreeLine& part : parts.Lines({})) {
    if (part.depth > 0 || part.rest || named == kAnswerParts)
      continue;
    text += fmt::format("{}{} {}", named++ == 0 ? ": " : ", ",
                        CutEnd(part.name, kAnswerNameColumns, out_.style()),
                        util::FormatBytes(part.bytes));
    text += PartOfModel(device, part);
    left -= std::min(left, part.bytes);
  }
  if (named > 0 && left > 0)
    text += ", other " + util::FormatBytes(left);
  if (report_.block_bytes_with_place > 0) {
    text += fmt::format(
        "; {} of the tensors' bytes have a known layer or line",
        ExactPercent(static_cast<int64_t>(report_.block_bytes_with_place), report_.block_bytes));
  }
  return text + ".";
}

std::string DeviceHeadline::AnswerInstant(const query::DeviceReport& device) const {
  std::string text;
  if (!tables::NoteOf(recording_, tables::kInstantNote).empty())
    return text;
  if (query_.at.kind == query::Instant::Kind::kEnd)
    text = " at the end";
  else if (query_.at.kind == query::Instant::Kind::kMark)
    text = " at mark " + out_.Clean(query_.at.mark);
  else
    text = " at " + util::FormatDuration(device.at_ns - recording_.tables().session.begin_ns);
  if (device.at_iteration)
    text += fmt::format(", in iteration {}", *device.at_iteration);
  return text;
}

// " (blocks.*)": the part of the model, by the first level of layers' names, that has most of the
// category's bytes. Empty if none has.
std::string DeviceHeadline::PartOfModel(const query::DeviceReport& device,
                                        const TreeLine& category) const {
  struct Part {
    uint64_t bytes = 0;
    bool has_layers = false;
  };
  std::map<std::string, Part> parts;
  for (const query::ModuleEntry& layer : report_.top_modules) {
    if (layer.device != device.device)
      continue;
    const size_t dot = layer.module.find('.');
    for (const auto& [name, bytes] : layer.categories) {
      if (name != category.name)
        continue;
      Part& part = parts[layer.module.substr(0, dot)];
      part.bytes += bytes;
      part.has_layers = part.has_layers || dot != std::string::npos;
    }
  }
  for (const auto& [name, part] : parts) {
    if (part.bytes > category.bytes / 2)
      return fmt::format(" ({}{})", out_.Clean(query::LayerWords(name)),
                         part.has_layers ? ".*" : "");
  }
  return "";
}

void DeviceHeadline::Add(const query::DeviceReport& device) {
  std::string name;
  switch (device.kind) {
    case tables::DeviceKind::kGpu:
      name = fmt::format("GPU {}", device.index);
      if (!device.name.empty())
        name += "  " + out_.Clean(device.name);
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
  std::string when = out_.Clean(device.at_kind) + " ";
  if (query_.at.kind == query::Instant::Kind::kMark)
    when += out_.Clean(query_.at.mark) + " ";
  if (device.at_kind == "time")
    when.clear();
  const bool at_peak_of_all =
      query_.at.kind == query::Instant::Kind::kPeak && !query_.SelectsWholeDevices();
  const bool nothing =
      device.ledger_bytes == 0 && device.at_ns < recording_.tables().session.begin_ns;
  if (nothing)
    when = "nothing allocated";
  else if (!tables::NoteOf(recording_, tables::kInstantNote).empty())
    when = ledger + " " + unit.name;
  else if (at_peak_of_all)
    when = "when the device peaked, at " + Seconds(device.at_ns);
  else
    when += fmt::format("{} {} at {}", ledger, unit.name, Seconds(device.at_ns));
  if (device.at_iteration)
    when += fmt::format(", iteration {}", *device.at_iteration);
  name = CutEnd(name, out_.RoomBeside(util::DisplayWidth(when) + 2), out_.style());
  // At the edge of the tables below, which take no more of a wide screen than they need.
  const size_t used = util::DisplayWidth(name) + util::DisplayWidth(when);
  const size_t gap = std::max<size_t>(std::min(out_.columns(), kPlainColumns), used + 2) - used;
  out_.Add(Paint(name, Ink::kBold, out_.style()) + std::string(gap, ' ') + when);

  if (report_.sampled && query_.SelectsWholeDevices()) {
    out_.Add(fmt::format("  {} {}, as NVML said", ledger, unit.name));
  } else if (device.nvml_bytes && device.residual_bytes) {
    const int64_t residual = *device.residual_bytes;
    const bool explained = IsWithinTarget(residual, *device.nvml_bytes);
    std::string line = fmt::format("  NVML {} - ledger {} {} = residual ",
                                   InUnit(*device.nvml_bytes, unit.bytes), ledger, unit.name);
    line += Paint(fmt::format("{} ({})", util::FormatSignedBytes(residual),
                              ExactPercent(residual, *device.nvml_bytes)),
                  explained ? Ink::kGood : Ink::kWarning, out_.style());
    out_.Add(line);
  } else if (!query_.SelectsWholeDevices()) {
    AddSelected(device, unit);
  } else if (device.kind == tables::DeviceKind::kGpu) {
    out_.Add(fmt::format("  ledger {} {}; no NVML sample of this state, so no residual", ledger,
                         unit.name));
  } else {
    out_.Add(fmt::format("  ledger {} {}{}", ledger, unit.name,
                         device.kind == tables::DeviceKind::kCpu ? " of live tensors" : ""));
  }
  if (HasAllocated(device))
    AddAllocated(device, unit);
}

// What the conditions select of the device, and of their own peak.
void DeviceHeadline::AddSelected(const query::DeviceReport& device, const Unit& unit) {
  const std::string line =
      fmt::format("  {} {} of {}", InUnit(device.ledger_bytes, unit.bytes), unit.name, Asked());
  std::string own;
  if (device.own_peak && device.own_peak->bytes == device.ledger_bytes)
    own = "its own peak is the same";
  else if (device.own_peak)
    own = "its own peak: " + PeakText(*device.own_peak, unit) + " (--at own-peak)";
  const bool fits = util::DisplayWidth(line) + 2 + own.size() <= out_.columns();
  out_.AddCut(own.empty() || !fits ? line : line + "; " + own);
  if (!own.empty() && !fits)
    out_.Add("  " + own);
}

// The allocator's figures, where free memory in its segments makes them differ from the ledger's.
void DeviceHeadline::AddAllocated(const query::DeviceReport& device, const Unit& unit) {
  const std::string allocated = InUnit(device.allocated_bytes, unit.bytes);
  const std::string reserved =
      fmt::format("{} {} reserved", InUnit(device.reserved_bytes, unit.bytes), unit.name);
  if (device.allocated_peak->bytes == device.allocated_bytes)
    return out_.AddCut(fmt::format("  allocated {} {}, the highest of the run, of {}", allocated,
                                   unit.name, reserved));
  const std::string line = fmt::format("  allocated {} of {}", allocated, reserved);
  const std::string peak = "highest allocated: " + PeakText(*device.allocated_peak, unit);
  // --at takes the time, so it is whole.
  if (util::DisplayWidth(line) + 2 + peak.size() <= out_.columns())
    return out_.Add(line + "; " + peak);
  out_.Add(line + ";");
  out_.AddCut("  " + peak + " (--at allocated-peak)");
}

std::string DeviceHeadline::PeakText(const query::PeakFigure& peak, const Unit& unit) const {
  return fmt::format("{} {} at {}", InUnit(peak.bytes, unit.bytes), unit.name,
                     Seconds(peak.time_ns));
}

// "rank=1 and category=activation".
std::string DeviceHeadline::Asked() const {
  std::string asked;
  for (const query::ReportQuery::Where& where : query_.where)
    asked += fmt::format("{}{}={}", asked.empty() ? "" : " and ",
                         query::DimensionName(where.dimension), out_.Clean(where.value));
  return asked;
}

// What is live for an allocator and has no device memory: the sums above are without it.
void DeviceHeadline::AddUnbacked(const query::DeviceReport& device) {
  if (device.unbacked_count == 0)
    return;
  const bool one = device.unbacked_count == 1;
  out_.Add(fmt::format("  Asleep: {} in {} block{} no device memory now",
                       util::FormatBytes(device.unbacked_bytes),
                       util::FormatCount(device.unbacked_count), one ? " has" : "s have"));
  std::string largest;
  size_t named = 0;
  for (const query::CategoryEntry& entry : report_.unbacked_categories) {
    if (entry.device != device.device || entry.bytes == 0 || named == kMostAsleep)
      continue;
    ++named;
    largest += fmt::format("{}{} {}", largest.empty() ? "" : ", ", out_.Clean(entry.category),
                           util::FormatBytes(entry.bytes));
  }
  out_.AddCut("    " + largest);
  AddRemaining(device);
}

// What a sleeping engine keeps of the device, and what would return it.
void DeviceHeadline::AddRemaining(const query::DeviceReport& device) {
  const auto way_back = [](std::string_view category) -> std::string_view {
    if (category == format::CategoryName(format::Category::kDriver))
      return "contexts, code, graphs: until the process ends";
    if (category == format::CategoryName(format::Category::kWorkspace))
      return "torch._C._cuda_clearCublasWorkspaces()";
    if (category == format::CategoryName(format::Category::kCommunication))
      return "torch.distributed.destroy_process_group()";
    if (category == format::CategoryName(format::Category::kCached))
      return "torch.cuda.empty_cache()";
    if (category == format::CategoryName(format::Category::kGraphPool))
      return "delete the CUDA graphs";
    if (category == format::CategoryName(format::Category::kFragmentation) ||
        category == format::CategoryName(format::Category::kRounding))
      return "free the blocks beside it";
    return "outside of the regions that sleep: free the tensors";
  };
  out_.Add("  Remains: " + util::FormatBytes(device.ledger_bytes));
  size_t named = 0;
  uint64_t rest = device.ledger_bytes;
  for (const query::CategoryEntry& entry : report_.categories) {
    if (entry.device != device.device || entry.bytes == 0)
      continue;
    if (named++ == kMostAsleep)
      break;
    rest -= std::min(rest, entry.bytes);
    out_.AddCut(fmt::format("    {} {}: {}", out_.Clean(entry.category),
                            util::FormatBytes(entry.bytes), way_back(entry.category)));
  }
  if (rest != 0)
    out_.Add("    others " + util::FormatBytes(rest));
}

void DeviceHeadline::AddAbsence() {
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
    out_.Add("The recording was never started, so the program's memory is unknown.");
  } else if (query_.where.empty()) {
    for (const std::string& line : AbsenceLines(recording_))
      out_.Add(line);
  } else if (most != nullptr) {
    const Unit unit = TableUnit(most->own_peak->bytes);
    out_.Add(fmt::format("No memory had {} when the device peaked, at {}.", Asked(),
                         Seconds(most->at_ns)));
    out_.Add("Its highest: " + PeakText(*most->own_peak, unit) + " (--at own-peak)");
  } else {
    out_.Add(
        fmt::format("No memory has {} then: `--by {}` lists the values.", Asked(), dimensions));
  }
  out_.Add("");
}

}  // namespace vramscope::output
