// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "trace/tables.h"
#include "trace/trace.h"

namespace vramscope::trace::testing {

// A Trace made by hand, for tests: tables and events are whatever the test puts in.
class MemoryTrace : public Trace {
 public:
  MemoryTrace() : tables(&strings_, &frames_, &stacks_) {}

  std::string_view SourceLine(StringId file, uint32_t line) const override {
    const auto found = source_lines.find({file.value, line});
    return found != source_lines.end() ? std::string_view(found->second) : std::string_view();
  }
  util::Status ForEachEvent(const EventSink& sink) override {
    for (size_t at = 0; at < events.size(); at += batch) {
      sink(std::span<const Event>(events).subspan(at, std::min(batch, events.size() - at)));
    }
    return {};
  }

  SessionInfo& mutable_session() { return session_; }
  std::vector<Device>& mutable_devices() { return devices_; }
  std::vector<Process>& mutable_processes() { return processes_; }
  std::vector<Thread>& mutable_threads() { return threads_; }
  std::vector<Loss>& mutable_losses() { return losses_; }
  // A stack of Python frames, outermost first: (file, function, line).
  StackId AddPythonStack(
      const std::vector<std::tuple<std::string, std::string, uint32_t>>& frames) {
    StackId stack;
    for (const auto& [file, function, line] : frames) {
      stack = tables.AddStack(stack, tables.AddFrame({.kind = FrameKind::kPython,
                                                      .function = tables.AddString(function),
                                                      .file = tables.AddString(file),
                                                      .line = line}));
    }
    return stack;
  }

  TableBuilder tables;
  std::vector<Event> events;
  size_t batch = 1000;
  std::map<std::pair<uint32_t, uint32_t>, std::string> source_lines;  // by file (string id), line
};

}  // namespace vramscope::trace::testing
