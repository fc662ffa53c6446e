// SPDX-License-Identifier: Apache-2.0
#include "output/frames.h"

#include <fmt/format.h>

namespace vramscope::output {
namespace {

// "GPT.forward.<locals>.step" -> "step"; C++ names lose their arguments, not their scope.
std::string_view ShortFunction(std::string_view name, tables::FrameKind kind) {
  if (kind == tables::FrameKind::kPython) {
    const size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? name : name.substr(dot + 1);
  }
  const size_t arguments = name.find('(');
  // "(anonymous namespace)::f(int)" begins with a parenthesis that is part of the scope.
  return arguments == 0 || arguments == std::string_view::npos ? name : name.substr(0, arguments);
}

}  // namespace

std::string ShortFrame(const tables::Recording& recording, tables::FrameId frame) {
  const std::vector<tables::FrameRow>& frames = recording.tables().frames;
  if (frame.value >= frames.size())
    return "?";
  const tables::FrameRow& row = frames[frame.value];
  const std::string_view function = ShortFunction(recording.string(row.function), row.kind);
  const std::string_view file = query::Basename(recording.string(row.file));
  if (file.empty()) {
    const std::string_view image = query::Basename(recording.string(row.image));
    return image.empty() ? std::string(function) : fmt::format("{} {}", image, function);
  }
  if (row.line == 0)
    return fmt::format("{} {}", file, function);
  return fmt::format("{}:{} {}", file, row.line, function);
}

std::vector<std::string> Callers(const tables::Recording& recording,
                                 tables::StackId stack,
                                 size_t limit) {
  std::vector<std::string> callers;
  bool innermost = true;
  for (const tables::FrameId frame : query::StackFrames(recording, stack)) {
    if (!query::IsUserFrame(recording, frame))
      continue;
    if (!innermost)
      callers.push_back(ShortFrame(recording, frame));
    innermost = false;
    if (callers.size() == limit)
      break;
  }
  return callers;
}

std::string Joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty())
      text += separator;
    text += item;
  }
  return text;
}

}  // namespace vramscope::output
