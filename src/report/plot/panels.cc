// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "report/plot/figure.h"
#include "util/size_text.h"

namespace vramscope::report {
namespace {

std::string DeviceTitle(trace::DeviceKind kind, int32_t index, const std::string& name) {
  if (kind == trace::DeviceKind::kCpu)
    return "CPU tensors";
  if (kind == trace::DeviceKind::kHost)
    return "Pinned and registered host memory";
  return fmt::format("GPU {}{}{}", index, name.empty() ? "" : ", ", name);
}

std::string Joined(const std::string& name, const std::string& device) {
  return name.empty() ? device : name + " \u00b7 " + device;
}

StackedBar BarOf(const engine::KeywordTable& table, const engine::KeywordDictionary& dictionary) {
  StackedBar bar;
  bar.title = dictionary.title;
  bar.row_bytes = table.row_bytes;
  bar.whole_bytes = table.expected_bytes.value_or(table.row_bytes);
  for (const engine::KeywordCategory& category : table.categories) {
    if (category.bytes > 0) {
      bar.slices.push_back(
          {Slice::Kind::kCategory, category.name, static_cast<int64_t>(category.bytes)});
    }
  }
  if (table.others.bytes > 0) {
    bar.slices.push_back(
        {Slice::Kind::kOthers, engine::kOthers, static_cast<int64_t>(table.others.bytes)});
  }
  const int64_t untrackable = table.untrackable_bytes.value_or(0);
  if (untrackable != 0)
    bar.slices.push_back({Slice::Kind::kUntrackable, engine::kUntrackable, untrackable});
  return bar;
}

// Of (device, is a GPU, has bytes): the GPUs with bytes, else whatever has some, else all.
struct Candidate {
  trace::DeviceId device;
  bool is_gpu;
  bool has_bytes;
};
std::set<trace::DeviceId> Shown(const std::vector<Candidate>& candidates) {
  std::set<trace::DeviceId> gpus;
  std::set<trace::DeviceId> used;
  std::set<trace::DeviceId> all;
  for (const Candidate& candidate : candidates) {
    all.insert(candidate.device);
    if (candidate.has_bytes)
      used.insert(candidate.device);
    if (candidate.has_bytes && candidate.is_gpu)
      gpus.insert(candidate.device);
  }
  return !gpus.empty() ? gpus : !used.empty() ? used : all;
}

}  // namespace

std::vector<BarPanel> BarPanels(const engine::KeywordReport& report,
                                const trace::Trace& trace,
                                const std::string& name) {
  std::vector<Candidate> candidates;
  for (const engine::DeviceReport& device : report.report.devices) {
    candidates.push_back({device.device, device.kind == trace::DeviceKind::kGpu,
                          device.ledger_bytes > 0 || device.nvml_bytes.value_or(0) > 0});
  }
  const std::set<trace::DeviceId> shown = Shown(candidates);
  std::vector<BarPanel> panels;
  for (const engine::DeviceReport& device : report.report.devices) {
    if (!shown.contains(device.device))
      continue;
    BarPanel panel;
    panel.title = Joined(name, DeviceTitle(device.kind, device.index, device.name));
    panel.subtitle = fmt::format("{} {}", device.at_kind, util::FormatBytes(device.ledger_bytes));
    if (device.at_ns >= trace.session().start_ns)
      panel.subtitle += " at " + util::FormatDuration(device.at_ns - trace.session().start_ns);
    if (device.at_iteration)
      panel.subtitle += fmt::format(", iteration {}", *device.at_iteration);
    for (const engine::KeywordTable& table : report.tables) {
      if (table.device == device.device)
        panel.bars.push_back(BarOf(table, report.dictionaries[table.dictionary]));
    }
    panels.push_back(std::move(panel));
  }
  return panels;
}

std::vector<TimelinePanel> TimelinePanels(std::vector<engine::Timeline> timelines,
                                          const trace::Trace& trace,
                                          const std::string& name) {
  const auto device_of = [&](const engine::Timeline& timeline) -> const trace::Device& {
    return trace.devices()[static_cast<size_t>(timeline.device.value)];
  };
  const auto any_byte = [](const engine::Timeline& timeline) {
    return std::any_of(timeline.peak.begin(), timeline.peak.end(),
                       [](const auto& band) {
                         return std::any_of(band.begin(), band.end(),
                                            [](uint64_t bytes) { return bytes > 0; });
                       }) ||
           std::any_of(timeline.nvml.begin(), timeline.nvml.end(),
                       [](const auto& sample) { return sample.second > 0; });
  };
  std::vector<Candidate> candidates;
  for (const engine::Timeline& timeline : timelines) {
    candidates.push_back(
        {timeline.device, device_of(timeline).kind == trace::DeviceKind::kGpu, any_byte(timeline)});
  }
  const std::set<trace::DeviceId> shown = Shown(candidates);
  std::vector<TimelinePanel> panels;
  for (engine::Timeline& timeline : timelines) {
    if (!shown.contains(timeline.device))
      continue;
    const trace::Device& device = device_of(timeline);
    TimelinePanel panel;
    const std::string title = DeviceTitle(device.kind, device.index, device.name);
    // Lines of several recordings are told apart by their files; devices only where there are more.
    panel.title = shown.size() == 1 && !name.empty() ? name : Joined(name, title);
    panel.begin_ns = trace.session().start_ns;
    panel.end_ns = std::max(trace.session().end_ns, panel.begin_ns);
    if (!timeline.time_ns.empty())
      panel.end_ns = std::max(panel.end_ns, timeline.time_ns.back());
    if (!timeline.nvml.empty())
      panel.end_ns = std::max(panel.end_ns, timeline.nvml.back().first);
    panel.timeline = std::move(timeline);
    panels.push_back(std::move(panel));
  }
  return panels;
}

util::Result<std::string> RenderFigure(const Figure& figure, ImageFormat format) {
  util::Result<std::unique_ptr<CairoCanvas>> canvas = CairoCanvas::Create(format, figure.size);
  if (!canvas.ok())
    return canvas.status();
  figure.draw(**canvas);
  return (*canvas)->Finish();
}

}  // namespace vramscope::report
