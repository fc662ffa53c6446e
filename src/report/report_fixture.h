// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/query/report.h"
#include "trace/trace.h"

// A trace and reports made by hand, and the comparison with files of expected text.
namespace vramscope::report {

class FakeTrace : public trace::Trace {
 public:
  FakeTrace();

  trace::StringId Intern(const std::string& text);
  trace::StackId PythonStack(trace::StackId parent,
                             const std::string& function,
                             const std::string& file,
                             uint32_t line);
  trace::StackId NativeStack(trace::StackId parent,
                             const std::string& function,
                             const std::string& file,
                             uint32_t line,
                             const std::string& image);
  trace::SessionInfo& session() { return session_; }
  std::vector<trace::Process>& processes() { return processes_; }
  std::vector<trace::Thread>& threads() { return threads_; }
  std::vector<trace::Device>& devices() { return devices_; }
  std::vector<trace::Loss>& losses() { return losses_; }

  std::string_view SourceLine(trace::StringId, uint32_t) const override { return {}; }
  util::Status ForEachEvent(const EventSink&) override { return {}; }

 private:
  trace::StackId Push(trace::StackId parent, const trace::Frame& frame);
};

// A training on one GPU with pinned host memory: what most reports look like.
engine::Report TrainingReport(FakeTrace& trace);
// Four ranks on four GPUs, residuals out of bounds, losses, broken invariants, hostile names.
engine::Report TroubledReport(FakeTrace& trace);

// The text of testdata/NAME. With VRAMSCOPE_BLESS set in the environment, `actual` is written there
// first.
std::string Expected(const std::string& name, const std::string& actual);

}  // namespace vramscope::report
