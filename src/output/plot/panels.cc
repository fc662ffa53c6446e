// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "output/plot/chart_parts.h"
#include "output/plot/figure.h"
#include "query/dimensions/fold_names.h"
#include "tables/imported.h"
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

std::string PanelTitle(const std::string& name, const std::string& device) {
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

// Selects GPUs with bytes; otherwise devices with bytes; otherwise all.
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

// "blocks.[0-11].attn" for what repeats from layer to layer.
class LayerNames {
 public:
  void Add(const std::string& name) {
    query::NumberedName split = query::SplitNumbers(name);
    if (!split.numbers.empty())
      numbers_[split.shape].insert(split.numbers[0]);
  }
  std::string Of(const std::string& name) const {
    const query::NumberedName split = query::SplitNumbers(name);
    const auto found = numbers_.find(split.shape);
    if (found == numbers_.end() || found->second.size() < 2)
      return name;
    std::string folded = split.shape;
    folded.replace(folded.find('#'), 1, query::RangeText(found->second));
    return folded;
  }

 private:
  std::map<std::string, std::set<uint32_t>> numbers_;
};

}  // namespace

std::vector<BarPanel> BarPanels(const query::KeywordReport& report,
                                const tables::Recording& recording,
                                const std::string& name,
                                const std::string& unit) {
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
    panel.title = PanelTitle(name, DeviceTitle(device.kind, device.index, device.name));
    panel.subtitle = fmt::format("{} {}", device.at_kind, BytesIn(device.ledger_bytes, unit));
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

namespace {

// Bands in the order of the page's timeline.
void StackBands(query::Timeline* timeline) {
  std::vector<size_t> order(timeline->groups.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return StackRank(timeline->groups[a]) < StackRank(timeline->groups[b]);
  });
  std::vector<std::string> groups;
  std::vector<std::vector<uint64_t>> peak;
  for (const size_t band : order) {
    groups.push_back(std::move(timeline->groups[band]));
    peak.push_back(std::move(timeline->peak[band]));
  }
  timeline->groups = std::move(groups);
  timeline->peak = std::move(peak);
}

}  // namespace

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
    candidates.push_back({timeline.device, device_of(timeline).kind == tables::DeviceKind::kGpu,
                          any_byte(timeline)});
  }
  const std::set<tables::DeviceId> shown = Shown(candidates);
  std::vector<TimelinePanel> panels;
  for (query::Timeline& timeline : timelines) {
    if (!shown.contains(timeline.device))
      continue;
    const tables::DeviceRow& device = device_of(timeline);
    TimelinePanel panel;
    const std::string title =
        DeviceTitle(device.kind, device.index, std::string(recording.string(device.name)));
    // Files name the lines of several recordings. Devices are named only if there are several.
    panel.title = shown.size() == 1 && !name.empty() ? name : PanelTitle(name, title);
    panel.begin_ns = recording.tables().session.begin_ns;
    panel.end_ns = std::max(recording.tables().session.end_ns, panel.begin_ns);
    if (!timeline.time_ns.empty())
      panel.end_ns = std::max(panel.end_ns, timeline.time_ns.back());
    if (!timeline.nvml.empty())
      panel.end_ns = std::max(panel.end_ns, timeline.nvml.back().first);
    const auto& samples = recording.tables().samples;
    const auto first = std::find_if(
        samples.begin(), samples.end(),
        [&](const tables::SampleRow& sample) { return sample.device == timeline.device; });
    if (first != samples.end())
      panel.baseline_bytes = first->used_bytes;
    for (const tables::PeakRow& peak : recording.tables().peaks) {
      if (peak.device == timeline.device)
        panel.peak_ns = peak.time_ns;
    }
    panel.sampled = tables::IsSampled(recording);
    const bool is_instant = !tables::NoteOf(recording, tables::kInstantNote).empty();
    panel.counted = is_instant ? kOneInstant : tables::NoteOf(recording, tables::kCountedNote);
    StackBands(&timeline);
    // A device whose every sample is 0 has an NVML that does not count.
    if (std::all_of(timeline.nvml.begin(), timeline.nvml.end(),
                    [](const auto& sample) { return sample.second == 0; }))
      timeline.nvml.clear();
    panel.timeline = std::move(timeline);
    panels.push_back(std::move(panel));
  }
  return panels;
}

std::vector<StackedBar> PeakBars(const query::Report& report, const std::string& name) {
  std::vector<Candidate> candidates;
  for (const query::DeviceReport& device : report.devices) {
    candidates.push_back({device.device, device.kind == tables::DeviceKind::kGpu,
                          device.ledger_bytes > 0 || device.nvml_bytes.value_or(0) > 0});
  }
  const std::set<tables::DeviceId> shown = Shown(candidates);
  std::vector<StackedBar> bars;
  for (const query::DeviceReport& device : report.devices) {
    if (!shown.contains(device.device))
      continue;
    StackedBar bar;
    const std::string title = DeviceTitle(device.kind, device.index, "");
    bar.title = shown.size() == 1 && !name.empty() ? name : PanelTitle(name, title);
    bar.row_bytes = bar.whole_bytes = device.ledger_bytes;
    // The same words of several processes are one slice.
    std::map<std::string, int64_t> slices;
    for (const query::ReportRow& row : report.rows) {
      if (row.device == device.device && row.bytes > 0)
        slices[row.path.empty() ? "" : row.path[0]] += static_cast<int64_t>(row.bytes);
    }
    for (const auto& [slice, bytes] : slices)
      bar.slices.push_back({Slice::Kind::kCategory, slice, bytes});
    std::stable_sort(bar.slices.begin(), bar.slices.end(),
                     [](const Slice& a, const Slice& b) { return a.bytes > b.bytes; });
    bars.push_back(std::move(bar));
  }
  return bars;
}

void OmitBelow(double share, std::vector<BarPanel>* panels) {
  for (BarPanel& panel : *panels) {
    for (StackedBar& bar : panel.bars) {
      const double limit = share * static_cast<double>(bar.whole_bytes);
      int64_t smaller = 0;
      std::erase_if(bar.slices, [&](const Slice& slice) {
        const bool small =
            slice.kind == Slice::Kind::kCategory && static_cast<double>(slice.bytes) <= limit;
        smaller += small ? slice.bytes : 0;
        return small;
      });
      if (smaller == 0)
        continue;
      const auto end = std::find_if(bar.slices.begin(), bar.slices.end(), [](const Slice& slice) {
        return slice.kind != Slice::Kind::kCategory;
      });
      bar.slices.insert(end, {Slice::Kind::kOthers, kSmaller, smaller});
    }
  }
}

void OmitBelow(double share, std::vector<TimelinePanel>* panels) {
  for (TimelinePanel& panel : *panels) {
    query::Timeline& timeline = panel.timeline;
    uint64_t highest = 0;
    for (size_t bucket = 0; bucket < timeline.time_ns.size(); ++bucket) {
      uint64_t sum = 0;
      for (const std::vector<uint64_t>& band : timeline.peak)
        sum += band[bucket];
      highest = std::max(highest, sum);
    }
    const double limit = share * static_cast<double>(highest);
    const auto is_small = [&](const std::vector<uint64_t>& band) {
      const auto most = std::max_element(band.begin(), band.end());
      return most == band.end() || static_cast<double>(*most) <= limit;
    };
    if (std::none_of(timeline.peak.begin(), timeline.peak.end(), is_small))
      continue;
    query::Timeline kept;
    std::vector<uint64_t> smaller(timeline.time_ns.size());
    for (size_t i = 0; i < timeline.peak.size(); ++i) {
      std::vector<uint64_t>& band = timeline.peak[i];
      if (is_small(band)) {
        for (size_t bucket = 0; bucket < band.size(); ++bucket)
          smaller[bucket] += band[bucket];
        continue;
      }
      kept.groups.push_back(std::move(timeline.groups[i]));
      kept.peak.push_back(std::move(band));
    }
    kept.groups.emplace_back(kSmaller);
    kept.peak.push_back(std::move(smaller));
    timeline.groups = std::move(kept.groups);
    timeline.peak = std::move(kept.peak);
  }
}

void FoldLayers(std::vector<TimelinePanel>* panels) {
  for (TimelinePanel& panel : *panels) {
    query::Timeline& timeline = panel.timeline;
    LayerNames names;
    for (const std::string& group : timeline.groups)
      names.Add(group);
    std::map<std::string, size_t> known;
    query::Timeline folded;
    for (size_t i = 0; i < timeline.peak.size(); ++i) {
      const std::string name = names.Of(timeline.groups[i]);
      const auto [place, is_new] = known.try_emplace(name, folded.groups.size());
      if (is_new) {
        folded.groups.push_back(name);
        folded.peak.push_back(std::move(timeline.peak[i]));
        continue;
      }
      std::vector<uint64_t>& sum = folded.peak[place->second];
      for (size_t bucket = 0; bucket < sum.size(); ++bucket)
        sum[bucket] += timeline.peak[i][bucket];
    }
    timeline.groups = std::move(folded.groups);
    timeline.peak = std::move(folded.peak);
  }
}

void FoldLayers(std::vector<StackedBar>* bars) {
  // One name for the layers of all bars, whichever of them each has.
  LayerNames names;
  for (const StackedBar& bar : *bars) {
    for (const Slice& slice : bar.slices)
      names.Add(slice.name);
  }
  for (StackedBar& bar : *bars) {
    std::vector<Slice> folded;
    for (const Slice& slice : bar.slices) {
      const std::string name = names.Of(slice.name);
      const auto known = std::find_if(folded.begin(), folded.end(),
                                      [&](const Slice& other) { return other.name == name; });
      if (known == folded.end())
        folded.push_back({slice.kind, name, slice.bytes});
      else
        known->bytes += slice.bytes;
    }
    bar.slices = std::move(folded);
  }
}

namespace {

void NameNumber(const std::string& dimension, std::string* name) {
  const bool is_number =
      !name->empty() && name->find_first_not_of("0123456789") == std::string::npos;
  if (is_number)
    name->insert(0, dimension + " ");
}

}  // namespace

void NameNumbers(const std::string& dimension, std::vector<TimelinePanel>* panels) {
  for (TimelinePanel& panel : *panels) {
    for (std::string& group : panel.timeline.groups)
      NameNumber(dimension, &group);
  }
}

void NameNumbers(const std::string& dimension, std::vector<StackedBar>* bars) {
  for (StackedBar& bar : *bars) {
    for (Slice& slice : bar.slices)
      NameNumber(dimension, &slice.name);
  }
}

util::Result<std::string> RenderFigure(const Figure& figure, ImageFormat format) {
  VRAMSCOPE_ASSIGN_OR_RETURN(std::unique_ptr<CairoCanvas> canvas,
                             CairoCanvas::Create(format, figure.size));
  figure.draw(*canvas);
  return canvas->Finish();
}

}  // namespace vramscope::output
