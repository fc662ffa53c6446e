// SPDX-License-Identifier: Apache-2.0
// https://www.speedscope.app/file-format-schema.json: a profile of type "sampled" for each device
// and process, whose weights are bytes.
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "output/export/export.h"
#include "output/export/live_stacks.h"
#include "output/names.h"
#include "query/dimensions/frames.h"
#include "util/json.h"

namespace vramscope::output {
namespace {

class Frames {
 public:
  explicit Frames(const tables::Recording& recording) : recording_(recording), stacks_(recording) {}

  // Numbers of a stack's frames, outermost first.
  std::vector<uint32_t> Of(const LiveStack& live) {
    const query::ShownStacks::Stack shown = stacks_.Of(live.stack);
    std::vector<uint32_t> numbers;
    if (shown.left_out != 0)
      numbers.push_back(Number(query::FramesLeftOut(shown.left_out)));
    for (auto frame = shown.frames.rbegin(); frame != shown.frames.rend(); ++frame)
      numbers.push_back(Number(*frame));
    for (const std::string& below : BelowStack(recording_, live))
      numbers.push_back(Number(below));
    return numbers;
  }

  void Write(util::JsonWriter& json) const {
    for (const auto& [frame, name] : frames_) {
      json.BeginObject();
      if (!name.empty()) {
        json.Field("name", name);
      } else {
        const tables::FrameRow& row = recording_.tables().frames[frame.value];
        json.Field("name", query::FormatFrame(recording_, frame));
        if (const std::string_view file = recording_.string(row.file); !file.empty())
          json.Field("file", file);
        if (row.line != 0)
          json.Field("line", row.line);
      }
      json.EndObject();
    }
  }

 private:
  uint32_t Number(tables::FrameId frame) {
    const auto [found, added] = of_frame_.try_emplace(frame.value, Next());
    if (added)
      frames_.emplace_back(frame, "");
    return found->second;
  }
  // For names that are not frames.
  uint32_t Number(const std::string& name) {
    const auto [found, added] = of_name_.try_emplace(name, Next());
    if (added)
      frames_.emplace_back(tables::FrameId{}, name);
    return found->second;
  }
  uint32_t Next() const { return static_cast<uint32_t>(frames_.size()); }

  const tables::Recording& recording_;
  query::ShownStacks stacks_;
  std::unordered_map<uint32_t, uint32_t> of_frame_;
  std::map<std::string, uint32_t> of_name_;
  std::vector<std::pair<tables::FrameId, std::string>> frames_;
};

std::string ProfileName(const tables::Recording& recording, const LiveStack& live) {
  std::string name = DeviceMark(recording, live.device);
  if (live.process.value != 0)
    name += ", " + ProcessLabel(recording, live.process);
  return name;
}

}  // namespace

util::Status ExportSpeedscope(const tables::Recording& recording,
                              const ExportOptions& options,
                              const ExportSink& sink) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const LiveStacks live, ReadLiveStacks(recording, options.at));
  const std::vector<LiveStack>& stacks = live.stacks;

  util::Status status;
  util::JsonWriter json([&](std::string_view piece) {
    if (status.ok())
      status = sink(piece);
  });
  json.BeginObject();
  json.Field("$schema", "https://www.speedscope.app/file-format-schema.json");
  json.Field("exporter", "vramscope");
  json.Field("name", recording.tables().session.name);
  json.Field("activeProfileIndex", 0);
  json.Key("profiles");
  json.BeginArray();
  Frames frames(recording);
  for (size_t first = 0, next = 0; first < stacks.size() && status.ok(); first = next) {
    uint64_t total = 0;
    for (next = first; next < stacks.size() && stacks[next].device == stacks[first].device &&
                       stacks[next].process == stacks[first].process;
         ++next)
      total += stacks[next].bytes;
    json.BeginObject();
    json.Field("type", "sampled");
    json.Field("name", ProfileName(recording, stacks[first]));
    json.Field("unit", "bytes");
    json.Field("startValue", 0);
    json.Field("endValue", total);
    json.Key("samples");
    json.BeginArray();
    for (size_t i = first; i < next && status.ok(); ++i) {
      json.BeginArray();
      for (const uint32_t frame : frames.Of(stacks[i]))
        json.Uint(frame);
      json.EndArray();
    }
    json.EndArray();
    json.Key("weights");
    json.BeginArray();
    for (size_t i = first; i < next && status.ok(); ++i)
      json.Uint(stacks[i].bytes);
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
  // Last, since only now all of them have been seen.
  json.Key("shared");
  json.BeginObject();
  json.Key("frames");
  json.BeginArray();
  if (status.ok())
    frames.Write(json);
  json.EndArray();
  json.EndObject();
  json.EndObject();
  json.Finish();
  return status;
}

}  // namespace vramscope::output
