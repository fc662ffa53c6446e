// SPDX-License-Identifier: Apache-2.0
// https://www.speedscope.app/file-format-schema.json: a profile of type "sampled" for each device
// and process, whose weights are bytes.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "output/devices.h"
#include "output/export/export.h"
#include "output/export/live_stacks.h"
#include "query/frames.h"
#include "util/json_writer.h"

namespace vramscope::output {
namespace {

class Frames {
 public:
  explicit Frames(const tables::Recording& recording) : recording_(recording) {}

  // Numbers of a stack's frames, outermost first.
  std::vector<uint32_t> Of(const LiveStack& live) {
    std::vector<uint32_t> numbers;
    for (const tables::FrameId frame : query::StackFrames(recording_, live.stack, kMaxStackFrames))
      numbers.push_back(Number("f" + std::to_string(frame.value), frame, {}));
    std::reverse(numbers.begin(), numbers.end());
    for (size_t from = 0; from < live.below.size();) {
      const size_t to = std::min(live.below.find(';', from), live.below.size());
      const std::string name = live.below.substr(from, to - from);
      numbers.push_back(Number("b" + name, {}, name));
      from = to + 1;
    }
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
  uint32_t Number(const std::string& key, tables::FrameId frame, const std::string& name) {
    const auto [found, added] = numbers_.try_emplace(key, static_cast<uint32_t>(frames_.size()));
    if (added)
      frames_.emplace_back(frame, name);
    return found->second;
  }

  const tables::Recording& recording_;
  std::map<std::string, uint32_t> numbers_;
  std::vector<std::pair<tables::FrameId, std::string>> frames_;
};

}  // namespace

util::Status ExportSpeedscope(const tables::Recording& recording,
                              const ExportOptions& options,
                              const ExportSink& sink) {
  const util::Result<LiveStacks> live = ReadLiveStacks(recording, options.at);
  if (!live.ok())
    return live.status();
  Frames frames(recording);
  using Owner = std::pair<tables::DeviceId, tables::ProcessId>;
  struct Sample {
    std::vector<uint32_t> frames;
    uint64_t bytes = 0;
  };
  std::map<Owner, std::vector<Sample>> profiles;
  for (const LiveStack& stack : live->stacks)
    profiles[{stack.device, stack.process}].push_back({frames.Of(stack), stack.bytes});

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
  json.Key("shared");
  json.BeginObject();
  json.Key("frames");
  json.BeginArray();
  frames.Write(json);
  json.EndArray();
  json.EndObject();
  json.Key("profiles");
  json.BeginArray();
  for (const auto& [owner, samples] : profiles) {
    uint64_t total = 0;
    for (const Sample& sample : samples)
      total += sample.bytes;
    json.BeginObject();
    json.Field("type", "sampled");
    std::string name = DeviceMark(recording, owner.first);
    if (owner.second.value != 0)
      name += ", " + ProcessLabel(recording, owner.second);
    json.Field("name", name);
    json.Field("unit", "bytes");
    json.Field("startValue", 0);
    json.Field("endValue", total);
    json.Key("samples");
    json.BeginArray();
    for (const Sample& sample : samples) {
      json.BeginArray();
      for (const uint32_t frame : sample.frames)
        json.Uint(frame);
      json.EndArray();
    }
    json.EndArray();
    json.Key("weights");
    json.BeginArray();
    for (const Sample& sample : samples)
      json.Uint(sample.bytes);
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  json.Finish();
  return status;
}

}  // namespace vramscope::output
