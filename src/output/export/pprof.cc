// SPDX-License-Identifier: Apache-2.0
// https://github.com/google/pprof/blob/main/proto/profile.proto. As Go's heap profiles, it has both
// what is in use at the instant and what was allocated in the whole recording.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "output/export/export.h"
#include "output/export/live_stacks.h"
#include "output/export/proto.h"
#include "output/names.h"
#include "query/dimensions/frames.h"
#include "tables/row_of.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

// Numbers of fields.
namespace profile {
constexpr uint32_t kSampleType = 1, kSample = 2, kLocation = 4, kFunction = 5, kStringTable = 6,
                   kTimeNanos = 9, kDurationNanos = 10, kComment = 13, kDefaultSampleType = 14;
}
namespace value_type {
constexpr uint32_t kType = 1, kUnit = 2;
}
namespace sample {
constexpr uint32_t kLocationId = 1, kValue = 2, kLabel = 3;
}
namespace label {
constexpr uint32_t kKey = 1, kText = 2;
}
namespace location {
constexpr uint32_t kId = 1, kAddress = 3, kLine = 4;
}
namespace line {
constexpr uint32_t kFunctionId = 1, kLine = 2;
}
namespace function {
constexpr uint32_t kId = 1, kName = 2, kSystemName = 3, kFilename = 4;
}

class PprofWriter {
 public:
  PprofWriter(const tables::Recording& recording, const ExportSink& sink)
      : recording_(recording), stacks_(recording), pieces_(sink) {
    Text("");
  }

  util::Status Write(const LiveStacks& live) {
    for (const auto& [type, unit] : {std::pair{"alloc_objects", "count"},
                                     {"alloc_space", "bytes"},
                                     {"inuse_objects", "count"},
                                     {"inuse_space", "bytes"}}) {
      ProtoMessage message;
      message.Number(value_type::kType, Text(type));
      message.Number(value_type::kUnit, Text(unit));
      Add(profile::kSampleType, message);
    }
    for (const LiveStack& stack : live.stacks) {
      if (pieces_.status().ok())
        AddSample(stack, {0, 0, stack.count, stack.bytes});
    }
    for (const tables::SiteRow& site : recording_.tables().sites) {
      if (site.backing == 0 && site.allocated_bytes != 0 && pieces_.status().ok())
        AddAllocated(site);
    }
    const tables::Session& session = recording_.tables().session;
    if (session.begin_wall_ns > 0)
      AddNumber(profile::kTimeNanos, static_cast<uint64_t>(session.begin_wall_ns));
    if (session.end_ns > session.begin_ns)
      AddNumber(profile::kDurationNanos, static_cast<uint64_t>(session.end_ns - session.begin_ns));
    for (const query::DeviceReport& device : live.devices) {
      AddNumber(profile::kComment, Text(DeviceMark(recording_, device.device) + ": in use at " +
                                        std::to_string(device.at_ns) + " ns of CLOCK_MONOTONIC"));
    }
    AddNumber(profile::kDefaultSampleType, Text("inuse_space"));
    for (const std::string* text : texts_in_order_) {
      ProtoMessage message;
      message.Bytes(profile::kStringTable, *text);
      Append(message);
    }
    return pieces_.Finish();
  }

 private:
  void Append(const ProtoMessage& message) {
    pieces_.text() += message.bytes();
    pieces_.LineDone();
  }
  void Add(uint32_t field, const ProtoMessage& inner) {
    ProtoMessage message;
    message.Bytes(field, inner.bytes());
    Append(message);
  }
  void AddNumber(uint32_t field, uint64_t value) {
    ProtoMessage message;
    message.Number(field, value);
    Append(message);
  }

  uint64_t Text(std::string_view text) {
    const auto [found, added] = numbers_.try_emplace(util::ValidUtf8(text), texts_in_order_.size());
    if (added)
      texts_in_order_.push_back(&found->first);
    return found->second;
  }

  void AddLabel(const char* key, std::string_view text, ProtoMessage* to) {
    if (text.empty())
      return;
    ProtoMessage message;
    message.Number(label::kKey, Text(key));
    message.Number(label::kText, Text(text));
    to->Bytes(sample::kLabel, message.bytes());
  }

  void AddSample(const LiveStack& stack, const std::vector<uint64_t>& values) {
    ProtoMessage message;
    std::vector<uint64_t> locations;
    const std::vector<std::string> below = BelowStack(recording_, stack);
    for (auto name = below.rbegin(); name != below.rend(); ++name)
      locations.push_back(OfName(*name));
    const query::ShownStacks::Stack shown = stacks_.Of(stack.stack);
    for (const tables::FrameId frame : shown.frames)
      locations.push_back(OfFrame(frame));
    if (shown.left_out != 0)
      locations.push_back(OfName(query::FramesLeftOut(shown.left_out)));
    message.Packed(sample::kLocationId, locations);
    message.Packed(sample::kValue, values);
    AddLabel("device", DeviceMark(recording_, stack.device), &message);
    if (stack.process.value != 0)
      AddLabel("process", ProcessLabel(recording_, stack.process), &message);
    AddLabel("category", format::CategoryName(stack.category), &message);
    AddLabel("module", stack.module.value == 0 ? "(none)" : recording_.string(stack.module),
             &message);
    Add(profile::kSample, message);
  }

  void AddAllocated(const tables::SiteRow& site) {
    const tables::AccountRow& account = RowOf(recording_.tables().accounts, site.account);
    const LiveStack stack = LiveStackOf(account.device, account.process, site);
    AddSample(stack, {site.allocated_count, site.allocated_bytes, 0, 0});
  }

  // For names that are not frames.
  uint64_t OfName(const std::string& name) {
    const auto [found, added] = of_name_.try_emplace(name, 0);
    if (added)
      found->second = NewLocation(name, "", 0, 0);
    return found->second;
  }

  uint64_t OfFrame(tables::FrameId frame) {
    const auto [found, added] = of_frame_.try_emplace(frame.value, 0);
    if (added) {
      const tables::FrameRow& row = recording_.tables().frames[frame.value];
      const std::string_view file = recording_.string(row.file);
      const std::string_view name = recording_.string(row.function);
      found->second =
          NewLocation(name.empty() ? query::FormatFrame(recording_, frame) : std::string(name),
                      file.empty() ? recording_.string(row.image) : file, row.line, row.pc);
    }
    return found->second;
  }

  uint64_t NewLocation(std::string_view name,
                       std::string_view file,
                       uint64_t line_number,
                       uint64_t pc) {
    const auto [found, added] =
        functions_.try_emplace({Text(name), Text(file)}, functions_.size() + 1);
    if (added) {
      ProtoMessage message;
      message.Number(function::kId, found->second);
      message.Number(function::kName, found->first.first);
      message.Number(function::kSystemName, found->first.first);
      message.Number(function::kFilename, found->first.second);
      Add(profile::kFunction, message);
    }
    ProtoMessage of_line;
    of_line.Number(line::kFunctionId, found->second);
    of_line.Number(line::kLine, line_number);
    ProtoMessage message;
    message.Number(location::kId, ++locations_);
    message.Number(location::kAddress, pc);
    message.Bytes(location::kLine, of_line.bytes());
    Add(profile::kLocation, message);
    return locations_;
  }

  const tables::Recording& recording_;
  query::ShownStacks stacks_;
  ExportPieces pieces_;
  std::unordered_map<std::string, uint64_t> numbers_;
  std::vector<const std::string*> texts_in_order_;  // keys of numbers_
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> functions_;
  std::unordered_map<uint32_t, uint64_t> of_frame_;
  std::map<std::string, uint64_t> of_name_;
  uint64_t locations_ = 0;
};

}  // namespace

util::Status ExportPprof(const tables::Recording& recording,
                         const ExportOptions& options,
                         const ExportSink& sink) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const LiveStacks live, ReadLiveStacks(recording, options.at));
  return PprofWriter(recording, sink).Write(live);
}

}  // namespace vramscope::output
