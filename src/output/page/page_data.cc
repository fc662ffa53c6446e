// SPDX-License-Identifier: Apache-2.0
#include "output/page/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "output/answers.h"
#include "output/names.h"
#include "output/page/page_tables.h"
#include "output/results/json_parts.h"
#include "query/dimensions/frames.h"
#include "tables/imported.h"
#include "tables/row_of.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

// "2026-01-15T10:24:31Z", or "" where the wall clock is not known.
std::string IsoTime(int64_t wall_ns) {
  if (wall_ns <= 0)
    return {};
  const std::time_t seconds = wall_ns / 1'000'000'000;
  std::tm utc{};
  if (gmtime_r(&seconds, &utc) == nullptr)
    return {};
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

// The largest product of bytes and duration first.
double Weight(uint64_t bytes, int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(bytes) * static_cast<double>(end_ns - begin_ns);
}

class PageData {
 public:
  PageData(const tables::Recording& recording, const PageLimits& limits, JsonWriter& json)
      : recording_(recording),
        tables_(recording.tables()),
        limits_(limits),
        start_ns_(tables_.session.begin_ns),
        json_(json),
        stacks_(recording, strings_),
        sites_(recording, stacks_, names_, limits.layers) {}

  util::Status Write();

 private:
  struct Listed {
    tables::AllocationRow row;
    uint32_t site;
    uint32_t rounding_site;
  };

  size_t MostListed() const;
  util::Status ReadAllocations();
  template <class Visit>
  util::Status ForEachAllocation(uint32_t columns, const Visit& visit) const;
  int64_t EndNs() const;
  std::set<int64_t> Places() const;
  std::vector<int64_t> StatedInstants() const;
  void WriteHead();
  void WriteDevices();
  void WriteProcesses();
  void WriteTimelines();
  void WriteAllocations();
  void WriteSegments();
  void WriteCounters();
  void WriteSamples();
  void WriteModuleTypes();
  void WriteIterations();
  void WriteMarks();
  // A figure over time beside the ledger.
  struct Line {
    std::string name;
    int64_t process = -1;         // -1: all of the program's
    std::vector<size_t> devices;  // on the page
    std::vector<std::pair<int64_t, int64_t>> samples;
  };
  std::vector<size_t> DevicesOf(tables::ProcessId process) const;
  void AddHostLines(std::vector<Line>* lines) const;
  void WriteLines();
  template <class Samples>
  void WriteHighest(std::string_view key, const Samples& samples, size_t limit);

  int DeviceOf(tables::DeviceId device) const;  // -1: the page does not show it
  int64_t Since(int64_t time_ns) const { return time_ns - start_ns_; }
  int64_t Until(int64_t time_ns) const { return time_ns == tables::kNever ? -1 : Since(time_ns); }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const PageLimits& limits_;
  int64_t start_ns_;
  JsonWriter& json_;
  PageTexts strings_, names_;
  PageStacks stacks_;
  PageSites sites_;
  query::Report report_;
  query::Iterations iterations_;
  std::optional<query::EnginePhases> phases_;
  std::vector<query::Timeline> timelines_;
  std::vector<query::Timeline> stretches_;  // where allocations are left out: finer than a picture
  std::vector<Listed> listed_;
  std::optional<LeftOut> left_out_;
};

template <class Visit>
util::Status PageData::ForEachAllocation(uint32_t columns, const Visit& visit) const {
  tables::AllocationFrame frame;
  for (size_t i = 0; i < recording_.frame_count(); ++i) {
    VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(i, columns, &frame));
    for (size_t at = 0; at < frame.rows; ++at)
      visit(frame, at);
  }
  return {};
}

// The session's end, or the last thing known of it where a recording was cut off.
int64_t PageData::EndNs() const {
  int64_t end_ns = std::max(tables_.session.end_ns, start_ns_);
  for (const tables::ProcessRow& process : tables_.processes)
    end_ns = std::max(end_ns, process.end_ns);
  for (const query::Timeline& timeline : timelines_) {
    if (!timeline.time_ns.empty())
      end_ns = std::max(end_ns, timeline.time_ns.back());
  }
  return end_ns;
}

// Where a click on the page leads: the peaks of devices, also of what is allocated, of iterations
// and of phases, marks, refusals, and the ends of the recording.
std::set<int64_t> PageData::Places() const {
  std::set<int64_t> instants_ns = {start_ns_, EndNs()};
  for (const query::DeviceReport& device : report_.devices)
    instants_ns.insert(device.at_ns);
  for (const query::DeviceReport& device : report_.devices) {
    if (device.allocated_peak)
      instants_ns.insert(device.allocated_peak->time_ns);
  }
  const auto add = [&](const auto& rows, const auto& time_of) {
    for (size_t i = 0; i < std::min(rows.size(), limits_.places); ++i)
      instants_ns.insert(time_of(rows[i]));
  };
  add(iterations_.iterations, [](const query::Iteration& row) { return row.peak_ns; });
  if (phases_) {
    for (const auto* const entries : {&phases_->phases, &phases_->graphs})
      add(*entries, [](const query::EnginePhase& row) { return row.peak_ns; });
  }
  add(tables_.out_of_memory, [](const tables::OutOfMemoryRow& row) { return row.time_ns; });
  add(tables_.marks, [](const tables::MarkRow& row) { return row.time_ns; });
  return instants_ns;
}

// The instants at which people look: what the timelines' buckets show, also of a window that is
// zoomed into, and where its tables lead.
std::vector<int64_t> PageData::StatedInstants() const {
  const std::set<int64_t> places = Places();
  std::vector<int64_t> instants_ns(places.begin(), places.end());
  for (const std::vector<query::Timeline>* timelines : {&timelines_, &stretches_}) {
    for (const query::Timeline& timeline : *timelines)
      instants_ns.insert(instants_ns.end(), timeline.peak_ns.begin(), timeline.peak_ns.end());
  }
  std::sort(instants_ns.begin(), instants_ns.end());
  instants_ns.erase(std::unique(instants_ns.begin(), instants_ns.end()), instants_ns.end());
  return instants_ns;
}

size_t PageData::MostListed() const {
  if (tables_.sites.size() > limits_.sites)
    return std::min(limits_.allocations, limits_.sites);
  return tables_.session.allocation_count <= limits_.whole ? limits_.whole : limits_.allocations;
}

util::Status PageData::ReadAllocations() {
  const int64_t end_ns = EndNs();
  const auto weight = [&](const tables::AllocationFrame& frame, size_t at) {
    return Weight(frame.bytes[at], frame.begin_ns[at], std::min(frame.end_ns[at], end_ns));
  };
  const auto is_backing = [&](const tables::AllocationFrame& frame, size_t at) {
    return sites_.Row(tables::SiteId{frame.site[at]}).backing != 0;
  };
  const size_t most = MostListed();
  Heaviest heaviest(most);
  const bool choose = tables_.session.allocation_count > most;
  if (choose) {
    VRAMSCOPE_RETURN_IF_ERROR(
        ForEachAllocation(tables::kBytes | tables::kBeginNs | tables::kEndNs | tables::kSite,
                          [&](const tables::AllocationFrame& frame, size_t at) {
                            if (!is_backing(frame, at))
                              heaviest.Add(weight(frame, at));
                          }));
    heaviest.Close();
  }
  left_out_.emplace(StatedInstants(), Places());
  VRAMSCOPE_RETURN_IF_ERROR(
      ForEachAllocation(tables::kAllColumns, [&](const tables::AllocationFrame& frame, size_t at) {
        const tables::SiteId site{frame.site[at]};
        const uint64_t rounding = frame.rounding_bytes[at];
        // What a segment is made of is always listed: others are cut out of it.
        if (choose && !is_backing(frame, at) && !heaviest.Has(weight(frame, at))) {
          left_out_->Count();
          left_out_->Add(sites_.Of(site), frame.segment[at], frame.bytes[at] - rounding, 1,
                         frame.begin_ns[at], frame.end_ns[at]);
          if (rounding > 0) {
            left_out_->Add(sites_.OfRounding(site), frame.segment[at], rounding, 0,
                           frame.begin_ns[at], frame.end_ns[at]);
          }
          return;
        }
        Listed& listed = listed_.emplace_back();
        listed.row.begin_ns = frame.begin_ns[at];
        listed.row.end_ns = frame.end_ns[at];
        listed.row.address = frame.address[at];
        listed.row.bytes = frame.bytes[at];
        listed.row.rounding_bytes = rounding;
        listed.row.segment = tables::SegmentId{frame.segment[at]};
        listed.site = sites_.Of(site);
        listed.rounding_site = rounding > 0 ? sites_.OfRounding(site) : 0;
      }));
  left_out_->Thin(limits_.left_out_changes);
  std::stable_sort(listed_.begin(), listed_.end(), [](const Listed& a, const Listed& b) {
    return a.row.begin_ns < b.row.begin_ns;
  });
  return {};
}

int PageData::DeviceOf(tables::DeviceId device) const {
  for (size_t i = 0; i < report_.devices.size(); ++i) {
    if (report_.devices[i].device == device)
      return static_cast<int>(i);
  }
  return -1;
}

void PageData::WriteHead() {
  const tables::Session& session = tables_.session;
  json_.Field("schema", kPageSchema);
  json_.Field("title",
              session.name.empty() ? std::string(query::Basename(session.path)) : session.name);
  json_.Field("file", session.path);
  json_.Field("command", tables_.processes.size() > 1
                             ? recording_.string(tables_.processes[1].command)
                             : std::string_view());
  json_.Field("recorded_at", IsoTime(session.begin_wall_ns));
  json_.Field("version", session.version);
  json_.Field("duration_ns", EndNs() - start_ns_);
  // As text: a browser's numbers end at 104 days of uptime.
  json_.Field("start_ns", std::to_string(start_ns_));
  json_.Field("finished", session.finished);
  // "events": the data has no clock, and its seconds count these.
  json_.Field("counted", tables::NoteOf(recording_, tables::kCountedNote));
  // The data is of a single instant, without any time.
  json_.Field("instant", !tables::NoteOf(recording_, tables::kInstantNote).empty());
  json_.Field("folded_layers", uint64_t{sites_.folded_layers()});
}

void PageData::WriteDevices() {
  json_.Key("devices");
  json_.BeginArray();
  for (const query::DeviceReport& device : report_.devices) {
    json_.BeginObject();
    json_.Field("index", device.index);
    json_.Field("kind", DeviceKindName(device.kind));
    json_.Field("name", device.name);
    NumberOrNull(json_, "total_bytes", device.total_bytes);
    json_.Field("peak_at", Since(device.at_ns));
    std::optional<int64_t> allocated_peak_at;
    if (device.allocated_peak && device.reserved_bytes > 0)
      allocated_peak_at = Since(device.allocated_peak->time_ns);
    NumberOrNull(json_, "allocated_peak_at", allocated_peak_at);
    json_.EndObject();
  }
  json_.EndArray();
}

// Row 0 of each is "none", as in the tables.
void PageData::WriteProcesses() {
  json_.Key("processes");
  json_.BeginArray();
  for (const tables::ProcessRow& process : tables_.processes) {
    json_.BeginObject();
    json_.Field("pid", process.pid);
    NumberOrNull(json_, "rank", process.rank < 0 ? std::nullopt : std::optional(process.rank));
    json_.Field("command", recording_.string(process.command));
    json_.EndObject();
  }
  json_.EndArray();
  json_.Key("accounts");
  json_.BeginObject();
  WriteColumn(json_, "device", tables_.accounts,
              [&](const tables::AccountRow& account) { return DeviceOf(account.device); });
  WriteColumn(json_, "process", tables_.accounts,
              [](const tables::AccountRow& account) { return account.process.value; });
  json_.EndObject();
  json_.Key("checkpointed");
  json_.BeginObject();
  const auto& rows = tables_.checkpointed;
  WriteColumn(json_, "account", rows, [](const auto& row) { return row.account.value; });
  WriteColumn(json_, "begin", rows, [&](const auto& row) { return Since(row.begin_ns); });
  WriteColumn(json_, "end", rows, [&](const auto& row) { return Until(row.end_ns); });
  json_.EndObject();
}

void PageData::WriteTimelines() {
  json_.Key("timelines");
  json_.BeginArray();
  for (const query::Timeline& timeline : timelines_) {
    const int device = DeviceOf(timeline.device);
    if (device < 0)
      continue;
    json_.BeginObject();
    json_.Field("device", device);
    TextList(json_, "groups", timeline.groups);
    WriteColumn(json_, "t", timeline.time_ns, [&](int64_t time_ns) { return Since(time_ns); });
    NumberLists(json_, "peak", timeline.peak);
    NumberList(json_, "unbacked", timeline.unbacked);
    WriteHighest("nvml", timeline.nvml, limits_.nvml_samples);
    json_.EndObject();
  }
  json_.EndArray();
}

// Pairs of time and bytes. Where there are more than fit, the highest of each stretch.
template <class Samples>
void PageData::WriteHighest(std::string_view key, const Samples& samples, size_t limit) {
  limit = std::max<size_t>(limit, 1);
  const size_t step = std::max<size_t>(1, (samples.size() + limit - 1) / limit);
  json_.Key(key);
  json_.BeginArray();
  for (size_t first = 0; first < samples.size(); first += step) {
    const auto begin = samples.begin() + static_cast<ptrdiff_t>(first);
    const auto end = begin + static_cast<ptrdiff_t>(std::min(step, samples.size() - first));
    const auto highest = std::max_element(
        begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
    WriteTuple(json_, Since(highest->first), highest->second);
  }
  json_.EndArray();
}

// The page's devices that a process used.
std::vector<size_t> PageData::DevicesOf(tables::ProcessId process) const {
  std::vector<size_t> used;
  for (size_t device = 0; device < report_.devices.size(); ++device) {
    const auto is_here = [&](const tables::AccountRow& account) {
      return account.device == report_.devices[device].device && account.process == process;
    };
    if (std::any_of(tables_.accounts.begin(), tables_.accounts.end(), is_here))
      used.push_back(device);
  }
  return used;
}

// Counters, one without a device for all that its process used, and the memory of the host.
void PageData::WriteLines() {
  const size_t count = std::min(report_.nvtx_counters.size(), limits_.nvtx_counters);
  std::vector<Line> lines(count);
  std::vector<size_t> places(tables_.nvtx_counters.size(), count);
  for (size_t i = 0; i < count; ++i) {
    const tables::NvtxCounterId id = report_.nvtx_counters[i].id;
    const tables::NvtxCounterRow& row = tables_.nvtx_counters[id.value];
    lines[i] = {report_.nvtx_counters[i].name, row.process.value, DevicesOf(row.process), {}};
    if (row.device.value != 0) {
      std::erase_if(lines[i].devices,
                    [&](size_t device) { return report_.devices[device].device != row.device; });
    }
    places[id.value] = i;
  }
  for (const tables::NvtxSampleRow& sample : tables_.nvtx_samples) {
    if (places[sample.counter.value] != count)
      lines[places[sample.counter.value]].samples.emplace_back(sample.time_ns, sample.bytes);
  }
  AddHostLines(&lines);
  json_.Key("lines");
  json_.BeginArray();
  for (const Line& line : lines) {
    json_.BeginObject();
    json_.Field("name", line.name);
    json_.Field("process", line.process);
    NumberList(json_, "devices", line.devices);
    WriteHighest("samples", line.samples, limits_.nvml_samples / lines.size());
    json_.EndObject();
  }
  json_.EndArray();
}

// Beside each device: the host's memory can be what limits a program.
void PageData::AddHostLines(std::vector<Line>* lines) const {
  using Row = tables::HostSampleRow;
  constexpr std::pair<const char*, uint64_t Row::*> kLines[] = {
      {"host: resident", &Row::resident_bytes},
      {"host: pinned", &Row::pinned_bytes},
      {"host: control group", &Row::used_bytes},
      {"host: its limit", &Row::limit_bytes}};
  for (const auto& [name, column] : kLines) {
    Line line{.name = name};
    for (size_t device = 0; device < report_.devices.size(); ++device)
      line.devices.push_back(device);
    bool has_any = false;
    for (const Row& sample : tables_.host_samples) {
      has_any |= sample.*column != 0;
      line.samples.emplace_back(sample.time_ns, static_cast<int64_t>(sample.*column));
    }
    if (has_any)
      lines->push_back(std::move(line));
  }
}

void PageData::WriteAllocations() {
  json_.Key("allocations");
  json_.BeginObject();
  WriteColumn(json_, "site", listed_, [](const Listed& listed) { return listed.site; });
  WriteColumn(json_, "rounding_site", listed_,
              [](const Listed& listed) { return listed.rounding_site; });
  WriteColumn(json_, "segment", listed_,
              [](const Listed& listed) { return listed.row.segment.value; });
  WriteDeltas(json_, "begin", listed_,
              [&](const Listed& listed) { return Since(listed.row.begin_ns); });
  WriteColumn(json_, "duration", listed_, [](const Listed& listed) {
    return listed.row.end_ns == tables::kNever ? -1 : listed.row.end_ns - listed.row.begin_ns;
  });
  WriteColumn(json_, "bytes", listed_, [](const Listed& listed) { return listed.row.bytes; });
  WriteColumn(json_, "rounding", listed_,
              [](const Listed& listed) { return listed.row.rounding_bytes; });
  json_.Key("address");
  json_.BeginArray();
  for (const Listed& listed : listed_)
    json_.String(fmt::format("{:x}", listed.row.address));
  json_.EndArray();
  json_.EndObject();
  left_out_->Write(start_ns_, json_);
}

void PageData::WriteSegments() {
  std::vector<std::pair<uint32_t, uint32_t>> sites(1);
  for (size_t i = 1; i < tables_.segments.size(); ++i)
    sites.emplace_back(sites_.OfRow(query::FreeSite(recording_, tables_.segments[i], false)),
                       sites_.OfRow(query::FreeSite(recording_, tables_.segments[i], true)));
  json_.Key("segments");
  json_.BeginObject();
  const auto& segments = tables_.segments;
  json_.Key("address");
  json_.BeginArray();
  for (const tables::SegmentRow& segment : segments)
    json_.String(fmt::format("{:x}", segment.address));
  json_.EndArray();
  WriteColumn(json_, "size", segments, [](const auto& segment) { return segment.size_bytes; });
  WriteColumn(json_, "free_site", sites, [](const auto& site) { return site.first; });
  WriteColumn(json_, "free_site_in_use", sites, [](const auto& site) { return site.second; });
  json_.EndObject();
}

void PageData::WriteCounters() {
  const auto& counters = tables_.counters;
  json_.Key("counters");
  json_.BeginObject();
  WriteColumn(json_, "site", counters, [&](const auto& counter) {
    return counter.site.value == 0 ? 0 : sites_.Of(counter.site);
  });
  WriteColumn(json_, "segment", counters,
              [](const auto& counter) { return counter.segment.value; });
  json_.EndObject();
  const auto& steps = tables_.steps;
  json_.Key("steps");
  json_.BeginObject();
  WriteColumn(json_, "counter", steps, [](const auto& step) { return step.counter.value; });
  WriteDeltas(json_, "t", steps, [&](const auto& step) { return Since(step.time_ns); });
  WriteColumn(json_, "bytes", steps, [](const auto& step) { return step.bytes; });
  json_.EndObject();
}

// NVML's figures beside what the ledger said, and when the driver changed what a device has in use:
// by them the page knows what was in transit, by the rule of query::DeviceSamples::At().
void PageData::WriteSamples() {
  const auto& samples = tables_.samples;
  json_.Key("samples");
  json_.BeginObject();
  WriteColumn(json_, "device", samples, [&](const auto& row) { return DeviceOf(row.device); });
  WriteDeltas(json_, "t", samples, [&](const auto& row) { return Since(row.time_ns); });
  WriteColumn(json_, "lasted", samples, [](const auto& row) { return row.end_ns - row.time_ns; });
  WriteColumn(json_, "used", samples, [](const auto& row) { return row.used_bytes; });
  WriteColumn(json_, "ledger", samples, [](const auto& row) { return row.ledger_bytes; });
  WriteColumn(json_, "low", samples, [](const auto& row) { return row.low_bytes; });
  WriteColumn(json_, "high", samples, [](const auto& row) { return row.high_bytes; });
  json_.EndObject();
  tables::SiteRow in_transit;
  in_transit.part = format::Part::kInTransit;
  in_transit.category = format::PartCategory(format::Part::kInTransit);
  json_.Field("in_transit_site", sites_.OfRow(in_transit));
  const auto& changes = tables_.changes;
  json_.Key("changes");
  json_.BeginObject();
  WriteColumn(json_, "device", changes, [&](const auto& row) { return DeviceOf(row.device); });
  WriteDeltas(json_, "t", changes, [&](const auto& row) { return Since(row.time_ns); });
  json_.EndObject();
}

// Classes of modules by name: what a person sees beside a layer.
void PageData::WriteModuleTypes() {
  json_.Key("module_types");
  json_.BeginObject();
  std::unordered_set<std::string> written;
  for (const tables::SiteRow& site : tables_.sites) {
    if (site.module.value == 0 || site.module_class.value == 0)
      continue;
    const std::string name = sites_.LayerName(site.module);
    if (written.insert(name).second)
      json_.Field(name, recording_.string(site.module_class));
  }
  json_.EndObject();
}

void PageData::WriteIterations() {
  json_.Key("iterations");
  json_.BeginArray();
  for (const tables::IterationRow& iteration : tables_.iterations)
    WriteTuple(json_, iteration.process.value, iteration.number, Since(iteration.begin_ns),
               Since(iteration.end_ns));
  json_.EndArray();
}

void PageData::WriteMarks() {
  json_.Key("marks");
  json_.BeginArray();
  const auto write = [&](int64_t time_ns, std::string_view name) {
    json_.BeginArray();
    json_.Int(Since(time_ns));
    json_.String(name);
    json_.EndArray();
  };
  for (const tables::MarkRow& mark : tables_.marks)
    write(mark.time_ns, recording_.string(mark.name));
  // A process leaves all its devices at one time.
  std::set<std::pair<int64_t, std::string>> moves;
  for (const tables::CheckpointRow& row : tables_.checkpointed) {
    const tables::ProcessId of = RowOf(tables_.accounts, row.account).process;
    const std::string process = fmt::format("pid {}", PidOf(recording_, of));
    moves.emplace(row.begin_ns, process + " was checkpointed");
    if (row.end_ns != tables::kNever)
      moves.emplace(row.end_ns, process + " was restored");
  }
  for (const auto& [time_ns, name] : moves)
    write(time_ns, name);
  json_.EndArray();
}

util::Status PageData::Write() {
  auto report = query::MakeReport(recording_, {});
  if (!report.ok())
    return report.status();
  report_ = std::move(*report);
  if (auto iterations = query::MakeIterations(recording_); iterations.ok())
    iterations_ = std::move(*iterations);
  if (auto phases = query::MakePhases(recording_); phases.ok())
    phases_ = std::move(*phases);
  VRAMSCOPE_ASSIGN_OR_RETURN(timelines_, query::MakeTimelines(recording_, limits_.buckets));
  if (tables_.session.allocation_count > MostListed()) {
    const size_t devices = std::max<size_t>(timelines_.size(), 1);
    VRAMSCOPE_ASSIGN_OR_RETURN(
        stretches_,
        query::MakeTimelines(recording_, std::max(limits_.buckets, limits_.instants / devices)));
  }
  VRAMSCOPE_RETURN_IF_ERROR(ReadAllocations());
  json_.BeginObject();
  WriteHead();
  json_.Key("report");
  WriteReportJson(report_, recording_, json_);
  WriteDevices();
  WriteProcesses();
  WriteTimelines();
  WriteAllocations();
  WriteSegments();
  WriteCounters();
  WriteSamples();
  WriteModuleTypes();
  WriteIterations();
  WriteMarks();
  WriteLines();
  WriteFindings(
      {recording_, iterations_, phases_, EndNs(),
       tables_.session.allocation_count <= limits_.advised},
      [&](tables::DeviceId device) { return DeviceOf(device); }, stacks_, json_);
  // Last: everything above adds to them.
  sites_.Write(json_);
  stacks_.Write(json_);
  names_.Write("names", json_);
  strings_.Write("strings", json_);
  json_.EndObject();
  json_.Finish();
  return {};
}

}  // namespace

util::Status WritePageData(const tables::Recording& recording,
                           const PageLimits& limits,
                           util::JsonWriter& json) {
  return PageData(recording, limits, json).Write();
}

}  // namespace vramscope::output
