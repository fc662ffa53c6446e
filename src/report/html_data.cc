// SPDX-License-Identifier: Apache-2.0
#include "report/html_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <limits>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/model/parts.h"
#include "report/devices.h"
#include "report/json.h"
#include "report/places.h"

namespace vramscope::report {
namespace {

using util::JsonWriter;

constexpr int64_t kNeverFreed = std::numeric_limits<int64_t>::max();
constexpr uint32_t kNativeFrame = 1;
constexpr uint32_t kLibraryFrame = 2;

template <class T>
void OptionalField(JsonWriter& json, const char* key, const std::optional<T>& value) {
  json.Key(key);
  if (value) {
    json.Int(static_cast<int64_t>(*value));
  } else {
    json.Null();
  }
}

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

// The strings, frames and stacks that the page's lives use, renumbered densely.
class Tables {
 public:
  explicit Tables(const trace::Trace& trace) : trace_(trace) { Text(""); }

  // The page's number of a stack; 0: none.
  uint32_t Stack(trace::StackId id) {
    // Outwards until a stack that is known; a damaged table may lead round in a circle.
    std::vector<trace::StackId> missing;
    uint32_t parent = 0;
    while (id.value != 0 && missing.size() < trace_.stack_count()) {
      const auto known = stack_ids_.find(id.value);
      if (known != stack_ids_.end()) {
        parent = known->second;
        break;
      }
      missing.push_back(id);
      id = trace_.stack(id).parent;
    }
    for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
      const uint32_t frame = Frame(trace_.stack(*at).frame);
      stacks_.emplace_back(parent, frame);
      parent = static_cast<uint32_t>(stacks_.size());
      stack_ids_.emplace(at->value, parent);
    }
    return parent;
  }

  void Write(JsonWriter& json) const {
    json.Key("strings");
    json.BeginArray();
    for (const std::string& text : strings_)
      json.String(text);
    json.EndArray();
    json.Key("frames");
    json.BeginArray();
    WriteTuple(json, {0, 0, 0, 0});
    for (const FrameEntry& frame : frames_)
      WriteTuple(json, {frame.function, frame.file, frame.line, frame.kind});
    json.EndArray();
    json.Key("stacks");
    json.BeginArray();
    WriteTuple(json, {0, 0});
    for (const auto& [parent, frame] : stacks_)
      WriteTuple(json, {parent, frame});
    json.EndArray();
    json.Key("sources");
    json.BeginObject();
    for (const auto& [place, text] : sources_)
      json.Field(place, text);
    json.EndObject();
  }

 private:
  struct FrameEntry {
    uint32_t function;
    uint32_t file;
    uint32_t line;
    uint32_t kind;
  };

  static void WriteTuple(JsonWriter& json, std::initializer_list<uint32_t> values) {
    json.BeginArray();
    for (const uint32_t value : values)
      json.Uint(value);
    json.EndArray();
  }

  uint32_t Text(std::string_view text) {
    const auto [found, added] =
        string_ids_.emplace(std::string(text), static_cast<uint32_t>(strings_.size()));
    if (added)
      strings_.emplace_back(text);
    return found->second;
  }

  uint32_t Frame(trace::FrameId id) {
    const auto known = frame_ids_.find(id.value);
    if (known != frame_ids_.end())
      return known->second;
    const trace::Frame& frame = trace_.frame(id);
    const bool native = frame.kind == trace::FrameKind::kNative;
    std::string_view file = trace_.string(frame.file);
    if (file.empty())
      file = trace_.string(frame.image);
    FrameEntry entry{Text(trace_.string(frame.function)), Text(file), frame.line,
                     native ? kNativeFrame : 0};
    if (!IsUserFrame(trace_, id))
      entry.kind |= kLibraryFrame;
    frames_.push_back(entry);
    const auto number = static_cast<uint32_t>(frames_.size());
    frame_ids_.emplace(id.value, number);
    const std::string_view source = trace_.SourceLine(frame.file, frame.line);
    if (frame.line != 0 && !source.empty()) {
      std::string place = fmt::format("{}:{}", entry.file, frame.line);
      if (places_.emplace(place, 0).second)
        sources_.emplace_back(std::move(place), source);
    }
    return number;
  }

  const trace::Trace& trace_;
  std::vector<std::string> strings_;
  std::vector<FrameEntry> frames_;                     // the page's number less 1
  std::vector<std::pair<uint32_t, uint32_t>> stacks_;  // the same
  std::vector<std::pair<std::string, std::string>> sources_;
  std::unordered_map<std::string, uint32_t> string_ids_;
  std::unordered_map<uint32_t, uint32_t> frame_ids_;
  std::unordered_map<uint32_t, uint32_t> stack_ids_;
  std::unordered_map<std::string, int> places_;
};

// The modules, parameters and tags that the page's lives use, renumbered densely; 0: none.
class Names {
 public:
  explicit Names(const std::vector<std::string>& all) : all_(all), numbers_(all.size(), 0) {}

  uint32_t Of(uint32_t name) {
    if (name == 0 || name >= all_.size())
      return 0;
    if (numbers_[name] == 0) {
      used_.push_back(name);
      numbers_[name] = static_cast<uint32_t>(used_.size());
    }
    return numbers_[name];
  }

  void Write(JsonWriter& json) const {
    json.Key("names");
    json.BeginArray();
    json.String("");
    for (const uint32_t name : used_)
      json.String(all_[name]);
    json.EndArray();
  }

 private:
  const std::vector<std::string>& all_;
  std::vector<uint32_t> numbers_;  // by index of `all_`
  std::vector<uint32_t> used_;     // the page's number less 1
};

// The devices of the report are the page's; -1: the page does not show it.
class PageDevices {
 public:
  explicit PageDevices(const engine::Report& report) : report_(report) {}

  int Of(trace::DeviceId device) const {
    for (size_t i = 0; i < report_.devices.size(); ++i) {
      if (report_.devices[i].device == device)
        return static_cast<int>(i);
    }
    return -1;
  }

 private:
  const engine::Report& report_;
};

template <class T, class Value>
void WriteColumn(JsonWriter& json,
                 const char* key,
                 const std::vector<T>& items,
                 const Value& value) {
  json.Key(key);
  json.BeginArray();
  for (const T& item : items)
    json.Int(value(item));
  json.EndArray();
}

// The session's end, or the last thing known of it where a recording was cut off.
int64_t EndOf(const trace::SessionInfo& session,
              const std::vector<engine::Timeline>& timelines,
              const engine::Lives& lives) {
  int64_t end_ns = std::max(session.end_ns, session.start_ns);
  for (const engine::Timeline& timeline : timelines) {
    if (!timeline.time_ns.empty())
      end_ns = std::max(end_ns, timeline.time_ns.back());
  }
  for (const engine::Life& life : lives.lives)
    end_ns = std::max(end_ns, life.free_ns == kNeverFreed ? life.alloc_ns : life.free_ns);
  return end_ns;
}

void WriteHead(const engine::Analysis& analysis, int64_t end_ns, JsonWriter& json) {
  const trace::SessionInfo& session = analysis.trace().session();
  const auto processes = analysis.trace().processes();
  json.Field("schema", kPageSchema);
  json.Field("title", session.name.empty() ? std::string(Basename(session.path)) : session.name);
  json.Field("command", processes.empty() ? std::string() : processes.front().command);
  json.Field("recorded_at", IsoTime(session.start_wall_ns));
  json.Field("version", session.version);
  json.Field("duration_ns", end_ns - session.start_ns);
  json.Field("start_ns", session.start_ns);
  json.Field("finished", session.finished);
}

void WriteDevices(const engine::Report& report, JsonWriter& json) {
  json.Key("devices");
  json.BeginArray();
  for (const engine::DeviceReport& device : report.devices) {
    json.BeginObject();
    json.Field("index", device.index);
    json.Field("kind", DeviceKindName(device.kind));
    json.Field("name", device.name);
    OptionalField(json, "total_bytes", device.total_bytes);
    json.EndObject();
  }
  json.EndArray();
}

void WriteResiduals(const engine::Report& report, const PageDevices& devices, JsonWriter& json) {
  json.Key("residuals");
  json.BeginArray();
  for (const engine::ResidualSummary& residual : report.residuals) {
    const int device = devices.Of(residual.device);
    if (device < 0)
      continue;
    json.BeginObject();
    json.Field("device", device);
    json.Field("samples", residual.samples);
    json.Field("samples_in_transit", residual.samples_in_transit);
    json.Field("worst_bytes", residual.worst_bytes);
    json.Field("p99_bytes", residual.p99_bytes);
    json.Field("bracketed_bytes", residual.bracketed_bytes);
    json.Field("ledger_peak_bytes", residual.ledger_peak_bytes);
    json.EndObject();
  }
  json.EndArray();
}

void WriteProcesses(const trace::Trace& trace, JsonWriter& json) {
  json.Key("processes");
  json.BeginArray();
  for (const trace::Process& process : trace.processes()) {
    json.BeginObject();
    json.Field("pid", process.pid);
    OptionalField(json, "rank", process.rank);
    json.Field("command", process.command);
    json.EndObject();
  }
  json.EndArray();
}

// At most `limit` samples: where there are more, the highest of each stretch.
void WriteSamples(const std::vector<std::pair<int64_t, uint64_t>>& samples,
                  size_t limit,
                  int64_t start_ns,
                  JsonWriter& json) {
  const size_t step = limit == 0 ? 1 : std::max<size_t>(1, (samples.size() + limit - 1) / limit);
  json.Key("nvml");
  json.BeginArray();
  for (size_t first = 0; first < samples.size(); first += step) {
    size_t best = first;
    for (size_t i = first + 1; i < std::min(first + step, samples.size()); ++i) {
      if (samples[i].second > samples[best].second)
        best = i;
    }
    json.BeginArray();
    json.Int(samples[best].first - start_ns);
    json.Uint(samples[best].second);
    json.EndArray();
  }
  json.EndArray();
}

void WriteTimelines(const std::vector<engine::Timeline>& timelines,
                    const PageDevices& devices,
                    const PageLimits& limits,
                    int64_t start_ns,
                    JsonWriter& json) {
  json.Key("timelines");
  json.BeginArray();
  for (const engine::Timeline& timeline : timelines) {
    const int device = devices.Of(timeline.device);
    if (device < 0)
      continue;
    json.BeginObject();
    json.Field("device", device);
    json.Key("groups");
    json.BeginArray();
    for (const std::string& group : timeline.groups)
      json.String(group);
    json.EndArray();
    WriteColumn(json, "t", timeline.time_ns, [&](int64_t time) { return time - start_ns; });
    json.Key("peak");
    json.BeginArray();
    for (const std::vector<uint64_t>& row : timeline.peak) {
      json.BeginArray();
      for (const uint64_t bytes : row)
        json.Uint(bytes);
      json.EndArray();
    }
    json.EndArray();
    WriteSamples(timeline.nvml, limits.nvml_samples, start_ns, json);
    json.EndObject();
  }
  json.EndArray();
}

void WriteLives(engine::Lives& lives,
                const PageDevices& devices,
                int64_t start_ns,
                Tables& tables,
                JsonWriter& json) {
  std::erase_if(lives.lives, [&](const engine::Life& life) { return devices.Of(life.device) < 0; });
  // In order of allocation neighbours share digits, which compresses well.
  std::stable_sort(lives.lives.begin(), lives.lives.end(),
                   [](const auto& a, const auto& b) { return a.alloc_ns < b.alloc_ns; });
  using engine::Life;
  json.Key("lives");
  json.BeginObject();
  const std::vector<Life>& all = lives.lives;
  WriteColumn(json, "device", all, [&](const Life& life) { return devices.Of(life.device); });
  WriteColumn(json, "process", all, [](const Life& life) { return life.process.value; });
  WriteColumn(json, "bytes", all,
              [](const Life& life) { return static_cast<int64_t>(life.bytes); });
  WriteColumn(json, "alloc", all, [&](const Life& life) { return life.alloc_ns - start_ns; });
  WriteColumn(json, "free", all, [&](const Life& life) {
    return life.free_ns == kNeverFreed ? -1 : std::max<int64_t>(0, life.free_ns - start_ns);
  });
  WriteColumn(json, "stack", all, [&](const Life& life) { return tables.Stack(life.stack); });
  // The stack that people name it by, where that is another one.
  WriteColumn(json, "place", all, [&](const Life& life) {
    return life.place == life.stack ? 0 : tables.Stack(life.place);
  });
  WriteColumn(json, "path", all, [](const Life& life) { return life.path; });
  WriteColumn(json, "category", all, [](const Life& life) { return life.category; });
  Names names(lives.names);
  WriteColumn(json, "module", all, [&](const Life& life) { return names.Of(life.module); });
  WriteColumn(json, "name", all, [&](const Life& life) { return names.Of(life.name); });
  json.Key("address");
  json.BeginArray();
  for (const Life& life : all)
    json.String(fmt::format("{:x}", life.address));
  json.EndArray();
  json.EndObject();
  json.Key("paths");
  json.BeginArray();
  for (const std::vector<std::string>& path : lives.paths) {
    json.BeginArray();
    for (const std::string& level : path)
      json.String(level);
    json.EndArray();
  }
  json.EndArray();
  json.Key("categories");
  json.BeginArray();
  for (size_t category = 0; category < engine::kCategories; ++category)
    json.String(engine::CategoryName(static_cast<engine::Category>(category)));
  json.EndArray();
  names.Write(json);
  tables.Write(json);
  json.Key("left_out");
  json.BeginObject();
  json.Field("count", lives.left_out_count);
  json.Field("peak_bytes", lives.left_out_peak_bytes);
  json.EndObject();
}

// Classes of modules by name: what a person sees beside a layer.
void WriteModuleTypes(const engine::Report& report, JsonWriter& json) {
  json.Key("module_types");
  json.BeginObject();
  std::set<std::string_view> written;
  for (const engine::ModuleEntry& module : report.top_modules) {
    if (!module.type.empty() && written.insert(module.module).second)
      json.Field(module.module, module.type);
  }
  json.EndObject();
}

// Each iteration of each process once, whatever the number of its devices.
void WriteIterations(engine::Analysis& analysis, int64_t start_ns, JsonWriter& json) {
  json.Key("iterations");
  json.BeginArray();
  // A recording without iterations is no error of the page.
  if (const auto found = analysis.MakeIterations(); found.ok()) {
    std::set<std::pair<uint16_t, int64_t>> written;
    for (const engine::Iteration& iteration : found->iterations) {
      if (!written.insert({iteration.process.value, iteration.number}).second)
        continue;
      json.BeginArray();
      json.Uint(iteration.process.value);
      json.Int(iteration.number);
      json.Int(iteration.begin_ns - start_ns);
      json.Int(iteration.end_ns - start_ns);
      json.EndArray();
    }
  }
  json.EndArray();
}

void WriteMarks(const engine::Analysis& analysis, int64_t start_ns, JsonWriter& json) {
  json.Key("marks");
  json.BeginArray();
  const auto write = [&](int64_t time_ns, const std::string& name) {
    json.BeginArray();
    json.Int(time_ns - start_ns);
    json.String(name);
    json.EndArray();
  };
  for (const engine::Mark& mark : analysis.Marks())
    write(mark.time_ns, mark.name);
  for (const engine::TimeAway& time : analysis.TimesAway()) {
    const std::string process =
        fmt::format("pid {}", analysis.trace().processes()[time.process.value].pid);
    write(time.from_ns, process + " gave its memory back");
    if (time.to_ns != INT64_MAX)
      write(time.to_ns, process + " has its memory again");
  }
  json.EndArray();
}

}  // namespace

util::Status WritePageData(engine::Analysis& analysis,
                           const PageLimits& limits,
                           util::JsonWriter& json) {
  auto report = analysis.MakeReport({});
  if (!report.ok())
    return report.status();
  auto timelines = analysis.MakeTimelines(limits.buckets);
  if (!timelines.ok())
    return timelines.status();
  auto lives = analysis.MakeLives(limits.lives);
  if (!lives.ok())
    return lives.status();
  const PageDevices devices(*report);
  const int64_t start_ns = analysis.trace().session().start_ns;
  Tables tables(analysis.trace());
  json.BeginObject();
  WriteHead(analysis, EndOf(analysis.trace().session(), *timelines, *lives), json);
  json.Key("report");
  WriteReportJson(*report, json);
  WriteResiduals(*report, devices, json);
  WriteDevices(*report, json);
  WriteProcesses(analysis.trace(), json);
  WriteTimelines(*timelines, devices, limits, start_ns, json);
  WriteLives(*lives, devices, start_ns, tables, json);
  WriteModuleTypes(*report, json);
  WriteIterations(analysis, start_ns, json);
  WriteMarks(analysis, start_ns, json);
  json.EndObject();
  json.Finish();
  return {};
}

}  // namespace vramscope::report
