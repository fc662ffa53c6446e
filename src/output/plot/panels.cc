// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "output/plot/figure.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

std::string DeviceTitle(tables::DeviceKind kind, int32_t index, const std::string& name) {
  if (kind == tables::DeviceKind::kCpu)
    return "CPU tensors";
  if (kind == tables::DeviceKind::kHost)
    return "Pinned and registered host memory";
  return fmt::format("GPU {}{}{}", index, name.empty() ? "" : ", ", name);
}

std::string Joined(const std::string& name, const std::string& device) {
  return name.empty() ? device : name + " \u00b7 " + device;
}

StackedBar BarOf(const query::KeywordTable& table, const query::KeywordDictionary& dictionary) {
  StackedBar bar;
  bar.title = dictionary.title;
  bar.row_bytes = table.row_bytes;
  bar.whole_bytes = table.expected_bytes.value_or(table.row_bytes);
  for (const query::KeywordCategory& category : table.categories) {
    if (category.bytes > 0) {
      bar.slices.push_back(
          {Slice::Kind::kCategory, category.name, static_cast<int64_t>(category.bytes)});
    }
  }
  if (table.others.bytes > 0) {
    bar.slices.push_back(
        {Slice::Kind::kOthers, query::kOthers, static_cast<int64_t>(table.others.bytes)});
  }
  const int64_t untrackable = table.untrackable_bytes.value_or(0);
  if (untrackable != 0)
    bar.slices.push_back({Slice::Kind::kUntrackable, query::kUntrackable, untrackable});
  return bar;
}

// Of (device, is a GPU, has bytes): the GPUs with bytes, else whatever has some, else all.
struct Candidate {
  tables::DeviceId device;
  bool is_gpu;
  bool has_bytes;
};
std::set<tables::DeviceId> Shown(const std::vector<Candidate>& candidates) {
  std::set<tables::DeviceId> gpus;
  std::set<tables::DeviceId> used;
  std::set<tables::DeviceId> all;
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

std::vector<BarPanel> BarPanels(const query::KeywordReport& report,
                                const tables::Recording& recording,
                                const std::string& name) {
  std::vector<Candidate> candidates;
  for (const query::DeviceReport& device : report.report.devices) {
    candidates.push_back({device.device, device.kind == tables::DeviceKind::kGpu,
                          device.ledger_bytes > 0 || device.nvml_bytes.value_or(0) > 0});
  }
  const std::set<tables::DeviceId> shown = Shown(candidates);
  std::vector<BarPanel> panels;
  for (const query::DeviceReport& device : report.report.devices) {
    if (!shown.contains(device.device))
      continue;
    BarPanel panel;
    panel.title = Joined(name, DeviceTitle(device.kind, device.index, device.name));
    panel.subtitle = fmt::format("{} {}", device.at_kind, util::FormatBytes(device.ledger_bytes));
    if (device.at_ns >= recording.tables().session.begin_ns)
      panel.subtitle +=
          " at " + util::FormatDuration(device.at_ns - recording.tables().session.begin_ns);
    if (device.at_iteration)
      panel.subtitle += fmt::format(", iteration {}", *device.at_iteration);
    for (const query::KeywordTable& table : report.tables) {
      if (table.device == device.device)
        panel.bars.push_back(BarOf(table, report.dictionaries[table.dictionary]));
    }
    panels.push_back(std::move(panel));
  }
  return panels;
}

std::vector<TimelinePanel> TimelinePanels(std::vector<query::Timeline> timelines,
                                          const tables::Recording& recording,
                                          const std::string& name) {
  const auto device_of = [&](const query::Timeline& timeline) -> const tables::DeviceRow& {
    return recording.tables().devices[timeline.device.value];
  };
  const auto any_byte = [](const query::Timeline& timeline) {
    return std::any_of(timeline.peak.begin(), timeline.peak.end(),
                       [](const auto& band) {
                         return std::any_of(band.begin(), band.end(),
                                            [](uint64_t bytes) { return bytes > 0; });
                       }) ||
           std::any_of(timeline.nvml.begin(), timeline.nvml.end(),
                       [](const auto& sample) { return sample.second > 0; });
  };
  std::vector<Candidate> candidates;
  for (const query::Timeline& timeline : timelines) {
    candidates.push_back(
        {timeline.device,
         device_of(timeline).kind == static_cast<uint8_t>(tables::DeviceKind::kGpu),
         any_byte(timeline)});
  }
  const std::set<tables::DeviceId> shown = Shown(candidates);
  std::vector<TimelinePanel> panels;
  for (query::Timeline& timeline : timelines) {
    if (!shown.contains(timeline.device))
      continue;
    const tables::DeviceRow& device = device_of(timeline);
    TimelinePanel panel;
    const std::string title = DeviceTitle(static_cast<tables::DeviceKind>(device.kind),
                                          device.index, std::string(recording.string(device.name)));
    // Lines of several recordings are told apart by their files; devices only where there are more.
    panel.title = shown.size() == 1 && !name.empty() ? name : Joined(name, title);
    panel.begin_ns = recording.tables().session.begin_ns;
    panel.end_ns = std::max(recording.tables().session.end_ns, panel.begin_ns);
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

}  // namespace vramscope::output
