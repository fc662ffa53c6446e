// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "output/export/export.h"
#include "output/export/live_stacks.h"
#include "output/names.h"
#include "query/dimensions/frames.h"
#include "util/budget.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

// The outermost frames of a line: device and process, if there are several.
class Roots {
 public:
  Roots(const tables::Recording& recording, const LiveStacks& live) : recording_(recording) {
    for (const LiveStack& stack : live.stacks) {
      devices_.insert(stack.device);
      if (stack.process.value != 0)
        processes_.insert(stack.process);
    }
  }

  std::string Of(const LiveStack& stack) const {
    std::string root;
    if (devices_.size() > 1)
      root += InBrackets(DeviceMark(recording_, stack.device)) + ";";
    if (processes_.size() > 1 && stack.process.value != 0)
      root += InBrackets(ProcessLabel(recording_, stack.process)) + ";";
    return root;
  }

 private:
  const tables::Recording& recording_;
  std::set<tables::DeviceId> devices_;
  std::set<tables::ProcessId> processes_;
};

}  // namespace

util::Status ExportCollapsed(const tables::Recording& recording,
                             const ExportOptions& options,
                             const ExportSink& sink) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const LiveStacks live, ReadLiveStacks(recording, options.at));
  const Roots roots(recording, live);
  const query::ShownStacks stacks(recording);
  const tables::Session& session = recording.tables().session;
  util::Budget budget(session.file_bytes, query::kTextBaseBytes, query::kTextBytesPerFileByte);
  std::map<std::string, uint64_t> lines;
  for (const LiveStack& stack : live.stacks) {
    std::vector<std::string> frames = stacks.Texts(stack.stack);
    for (std::string& below : BelowStack(recording, stack))
      frames.push_back(std::move(below));
    const auto [line, added] =
        lines.try_emplace(roots.Of(stack) + util::OneLine(Joined(frames, ";")));
    if (added && !budget.Charge("bytes of stacks", line->first.size()))
      return budget.Refusal(session.path);
    line->second += stack.bytes;
  }
  ExportPieces pieces(sink);
  for (const auto& [frames, bytes] : lines) {
    pieces.text() += fmt::format("{} {}\n", frames, bytes);
    pieces.LineDone();
  }
  return pieces.Finish();
}

}  // namespace vramscope::output
