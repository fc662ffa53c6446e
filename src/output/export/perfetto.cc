// SPDX-License-Identifier: Apache-2.0
// https://perfetto.dev/docs/reference/trace-packet-proto: a counter for each category of a device,
// NVML's figure beside them, and a slice for each allocation from its begin to its end.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "output/export/export.h"
#include "output/export/live_stacks.h"
#include "output/export/proto.h"
#include "output/names.h"
#include "query/core/sweep.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/frames.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

// Numbers of fields.
constexpr uint32_t kPacket = 1;  // of Trace
namespace packet {
constexpr uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInterned = 12,
                   kSequenceFlags = 13, kTrackDescriptor = 60;
}
namespace track {
constexpr uint32_t kUuid = 1, kName = 2, kParent = 5, kCounter = 8;
}
namespace counter {
constexpr uint32_t kUnit = 3;
}
namespace event {
constexpr uint32_t kCategoryIid = 3, kAnnotation = 4, kType = 9, kNameIid = 10, kTrack = 11,
                   kCounterValue = 30;
}
namespace annotation {
constexpr uint32_t kNameIid = 1, kNumber = 3, kPointer = 7, kTextIid = 17;
}
namespace interned {
constexpr uint32_t kCategories = 1, kNames = 2, kAnnotationNames = 3, kTexts = 29;
constexpr uint32_t kIid = 1, kText = 2;
}  // namespace interned
constexpr uint64_t kSliceBegin = 1, kSliceEnd = 2, kCounterType = 4;
constexpr uint64_t kSizeBytes = 3;
constexpr uint64_t kStateCleared = 1, kNeedsState = 2;
constexpr uint64_t kSequenceId = 1;

// Slices of a track may not overlap, so allocations that overlap have lanes, which viewers show as
// one track. When all lanes are taken, later allocations get no slice.
constexpr size_t kMostLanes = 2000;
// Slices are written in order of time, which takes memory for each; a viewer can show no more.
constexpr uint64_t kMostSlices = 4'000'000;
constexpr size_t kMaxKnownTexts = size_t{64} << 20;

class TraceWriter {
 public:
  explicit TraceWriter(const ExportSink& sink) : pieces_(sink) {}

  bool ok() const { return pieces_.status().ok(); }
  util::Status Finish() { return pieces_.Finish(); }

  uint64_t AddTrack(uint64_t parent, std::string_view name, bool is_counter = false) {
    ProtoMessage descriptor;
    descriptor.Number(track::kUuid, ++tracks_);
    descriptor.Number(track::kParent, parent);
    descriptor.Bytes(track::kName, util::ValidUtf8(name));
    if (is_counter) {
      ProtoMessage of_counter;
      of_counter.Number(counter::kUnit, kSizeBytes);
      descriptor.Bytes(track::kCounter, of_counter.bytes());
    }
    ProtoMessage message;
    message.Bytes(packet::kTrackDescriptor, descriptor.bytes());
    Add(std::move(message));
    return tracks_;
  }

  void AddCounter(uint64_t track, int64_t time_ns, uint64_t value) {
    ProtoMessage of_event;
    of_event.Number(event::kType, kCounterType);
    of_event.Number(event::kTrack, track);
    // Its zero says something.
    of_event.NumberOrZero(event::kCounterValue, value);
    AddEvent(time_ns, of_event);
  }
  void AddEvent(int64_t time_ns, const ProtoMessage& of_event) {
    ProtoMessage message;
    message.Number(packet::kTimestamp, static_cast<uint64_t>(std::max<int64_t>(time_ns, 0)));
    message.Bytes(packet::kTrackEvent, of_event.bytes());
    Add(std::move(message));
  }

  // Stacks can be deep and their names long: what is forgotten is written again.
  bool Forget() {
    if (known_bytes_ <= kMaxKnownTexts)
      return false;
    iids_.clear();
    known_bytes_ = 0;
    is_first_ = true;
    return true;
  }
  // The number of a text among those of its kind, until Forget(); 0 for none.
  uint64_t Intern(uint32_t kind, std::string_view text) {
    if (text.empty())
      return 0;
    const auto [found, added] = iids_.try_emplace({kind, util::ValidUtf8(text)}, iids_.size() + 1);
    if (added) {
      known_bytes_ += found->first.second.size();
      ProtoMessage entry;
      entry.Number(interned::kIid, found->second);
      entry.Bytes(interned::kText, found->first.second);
      ProtoMessage data;
      data.Bytes(kind, entry.bytes());
      ProtoMessage message;
      message.Bytes(packet::kInterned, data.bytes());
      Add(std::move(message));
    }
    return found->second;
  }

 private:
  void Add(ProtoMessage message) {
    message.Number(packet::kSequence, kSequenceId);
    message.Number(packet::kSequenceFlags, is_first_ ? kStateCleared | kNeedsState : kNeedsState);
    is_first_ = false;
    ProtoMessage of_trace;
    of_trace.Bytes(kPacket, message.bytes());
    pieces_.text() += of_trace.bytes();
    pieces_.LineDone();
  }

  ExportPieces pieces_;
  std::map<std::pair<uint32_t, std::string>, uint64_t> iids_;
  size_t known_bytes_ = 0;
  uint64_t tracks_ = 0;
  bool is_first_ = true;
};

struct CategoryCounter {
  uint64_t device;  // its track
  const char* name;
  uint64_t track;
  int64_t bytes;
  bool changed;
};

// The bytes of each category of each device, whenever they change.
class Counters : query::SweepSums<CategoryCounter> {
 public:
  Counters(const query::Cells& cells, const std::vector<uint64_t>& devices, TraceWriter* writer)
      : writer_(*writer) {
    std::map<std::pair<uint32_t, format::Category>, uint32_t> found;
    for (const query::Cell& cell : cells.all()) {
      const uint32_t device = cell.device.value < devices.size() ? cell.device.value : 0;
      const auto [at, added] =
          found.try_emplace({device, cell.category}, static_cast<uint32_t>(items_.size()));
      if (added)
        items_.push_back({devices[device], format::CategoryName(cell.category), 0, 0, false});
      of_cell_.push_back(at->second);
    }
    StartUnchanged();
  }

  void OnMove(uint32_t cell, int64_t bytes) {
    const uint32_t index = of_cell_[cell];
    items_[index].bytes += bytes;
    Changed(index);
  }
  void OnState(int64_t first_ns, int64_t) {
    LookAtChanged([&](CategoryCounter& counter) {
      if (counter.track == 0)
        counter.track = writer_.AddTrack(counter.device, counter.name, true);
      if (writer_.ok())
        writer_.AddCounter(counter.track, first_ns,
                           static_cast<uint64_t>(std::max<int64_t>(counter.bytes, 0)));
      return true;
    });
  }

 private:
  TraceWriter& writer_;
  std::vector<uint32_t> of_cell_;
};

class PerfettoExporter {
 public:
  PerfettoExporter(const tables::Recording& recording, const ExportSink& sink)
      : recording_(recording),
        tables_(recording.tables()),
        texts_(recording),
        stacks_(recording),
        writer_(sink),
        of_site_(tables_.sites.size()) {}

  util::Status Run() {
    for (uint32_t i = 0; i < tables_.devices.size(); ++i) {
      const tables::DeviceId device{i};
      const std::string_view name = recording_.string(tables_.devices[i].name);
      std::string text = i == 0 ? "no device" : DeviceMark(recording_, device);
      if (!name.empty() && name != text)
        text.append(", ").append(name);
      devices_.push_back(writer_.AddTrack(0, text));
    }
    AddSamples();
    const query::Cells cells(recording_);
    Counters counters(cells, devices_, &writer_);
    VRAMSCOPE_RETURN_IF_ERROR(query::Sweep(recording_, cells, {}, &counters));
    if (tables_.session.allocation_count <= kMostSlices)
      VRAMSCOPE_RETURN_IF_ERROR(AddSlices());
    else
      writer_.AddTrack(0, "no slices: more than 4 million allocations");
    return writer_.Finish();
  }

 private:
  struct Slice {
    int64_t begin_ns;
    int64_t end_ns;
    uint64_t address;
    uint64_t bytes;
    uint32_t site;
  };
  // What all slices of a site have: numbers of interned texts.
  struct OfSite {
    bool known = false;
    uint64_t name = 0;
    uint64_t category = 0;
    std::vector<std::pair<uint64_t, uint64_t>> annotations;  // of a name and of a text
  };
  // What lives at the same time, of one process on one device.
  struct Group {
    uint64_t parent = 0;
    std::string name;
    std::vector<uint64_t> lanes;
    // When each is free again, the earliest first.
    std::priority_queue<std::pair<int64_t, size_t>,
                        std::vector<std::pair<int64_t, size_t>>,
                        std::greater<>>
        busy;
    uint64_t left_out = 0;
  };

  void AddSamples() {
    std::map<uint32_t, uint64_t> found;
    for (const tables::SampleRow& sample : tables_.samples) {
      uint64_t& of_device = found[sample.device.value];
      if (of_device == 0 && sample.device.value < devices_.size())
        of_device = writer_.AddTrack(devices_[sample.device.value], "NVML used", true);
      if (of_device != 0 && writer_.ok())
        writer_.AddCounter(of_device, sample.time_ns, sample.used_bytes);
    }
  }

  util::Status AddSlices() {
    std::vector<Slice> slices;
    const int64_t last_ns = query::LastInstant(recording_);
    tables::AllocationFrame frame;
    for (size_t i = 0; i < recording_.frame_count(); ++i) {
      VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(i, tables::kAllColumns, &frame));
      for (size_t at = 0; at < frame.rows; ++at) {
        const int64_t end_ns = std::min(frame.end_ns[at], std::max(last_ns, frame.begin_ns[at]));
        if (frame.site[at] < of_site_.size() && tables_.sites[frame.site[at]].unbacked == 0)
          slices.push_back(
              {frame.begin_ns[at], end_ns, frame.address[at], frame.bytes[at], frame.site[at]});
      }
    }
    std::stable_sort(slices.begin(), slices.end(),
                     [](const Slice& a, const Slice& b) { return a.begin_ns < b.begin_ns; });
    std::map<std::pair<uint32_t, bool>, Group> groups;  // by account, and whether of segments
    for (const Slice& slice : slices) {
      if (!writer_.ok())
        return writer_.Finish();
      const tables::SiteRow& site = tables_.sites[slice.site];
      const bool is_segment = site.backing != 0;
      Group& group = groups[{site.account.value, is_segment}];
      if (group.parent == 0)
        Begin(site, is_segment, &group);
      AddSlice(slice, &group);
    }
    for (const auto& [key, group] : groups) {
      if (group.left_out != 0)
        writer_.AddTrack(group.parent, std::to_string(group.left_out) + " " + group.name +
                                           " without a slice: more than " +
                                           std::to_string(kMostLanes) + " at once");
    }
    return {};
  }

  void Begin(const tables::SiteRow& site, bool is_segment, Group* group) {
    const uint32_t number = site.account.value < tables_.accounts.size() ? site.account.value : 0;
    const tables::AccountRow& account = tables_.accounts[number];
    uint64_t& process = processes_[number];
    if (process == 0) {
      const uint32_t device = account.device.value < devices_.size() ? account.device.value : 0;
      process = writer_.AddTrack(devices_[device], account.process.value == 0
                                                       ? "no recorded process"
                                                       : ProcessLabel(recording_, account.process));
    }
    group->parent = process;
    group->name = is_segment ? "segments" : "allocations";
  }

  void AddSlice(const Slice& slice, Group* group) {
    size_t lane = group->lanes.size();
    if (!group->busy.empty() && group->busy.top().first <= slice.begin_ns) {
      lane = group->busy.top().second;
      group->busy.pop();
    } else if (lane == kMostLanes) {
      ++group->left_out;
      return;
    } else {
      group->lanes.push_back(writer_.AddTrack(group->parent, group->name));
    }
    group->busy.emplace(slice.end_ns, lane);
    if (writer_.Forget())
      std::fill(of_site_.begin(), of_site_.end(), OfSite());
    const OfSite& of_site = Of(slice.site);
    ProtoMessage begin;
    begin.Number(event::kType, kSliceBegin);
    begin.Number(event::kTrack, group->lanes[lane]);
    begin.Number(event::kNameIid, of_site.name);
    begin.Number(event::kCategoryIid, of_site.category);
    const auto annotate = [&](uint64_t name, uint32_t field, uint64_t value) {
      ProtoMessage message;
      message.Number(annotation::kNameIid, name);
      message.NumberOrZero(field, value);
      begin.Bytes(event::kAnnotation, message.bytes());
    };
    annotate(Word("bytes"), annotation::kNumber, slice.bytes);
    annotate(Word("address"), annotation::kPointer, slice.address);
    for (const auto& [name, text] : of_site.annotations)
      annotate(name, annotation::kTextIid, text);
    writer_.AddEvent(slice.begin_ns, begin);
    ProtoMessage end;
    end.Number(event::kType, kSliceEnd);
    end.Number(event::kTrack, group->lanes[lane]);
    writer_.AddEvent(slice.end_ns, end);
  }

  uint64_t Word(const char* word) { return writer_.Intern(interned::kAnnotationNames, word); }

  const OfSite& Of(uint32_t number) {
    OfSite& known = of_site_[number];
    if (std::exchange(known.known, true))
      return known;
    const tables::SiteRow& site = tables_.sites[number];
    std::string name;
    for (const auto& [dimension, word] : {std::pair{query::Dimension::kParameter, "parameter"},
                                          {query::Dimension::kTag, "tag"},
                                          {query::Dimension::kModule, "module"},
                                          {query::Dimension::kLine, "line"},
                                          {query::Dimension::kOwner, "owner"}}) {
      const uint64_t id = texts_.Id(dimension, site, nullptr);
      if (dimension != query::Dimension::kLine && !query::DimensionValues::IsName(dimension, id))
        continue;
      const std::string text = texts_.Text(dimension, id);
      known.annotations.emplace_back(Word(word), writer_.Intern(interned::kTexts, text));
      if (name.empty())
        name = text;
    }
    if (const std::string stack = StackText(site); !stack.empty())
      known.annotations.emplace_back(Word("stack"), writer_.Intern(interned::kTexts, stack));
    const char* const category = format::CategoryName(site.category);
    known.category = writer_.Intern(interned::kCategories, category);
    known.name = writer_.Intern(interned::kNames, name.empty() ? category : name);
    return known;
  }

  // A frame a line, innermost first.
  std::string StackText(const tables::SiteRow& site) const {
    const std::vector<std::string> frames = stacks_.Texts(StackOf(site));
    std::string text;
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame)
      text.append(text.empty() ? "" : "\n").append(*frame);
    return text;
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  query::DimensionValues texts_;
  query::ShownStacks stacks_;
  TraceWriter writer_;
  std::vector<uint64_t> devices_;           // tracks
  std::map<uint32_t, uint64_t> processes_;  // by account: tracks
  std::vector<OfSite> of_site_;
};

}  // namespace

util::Status ExportPerfetto(const tables::Recording& recording,
                            const ExportOptions&,
                            const ExportSink& sink) {
  return PerfettoExporter(recording, sink).Run();
}

}  // namespace vramscope::output
