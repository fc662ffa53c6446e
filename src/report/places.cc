// SPDX-License-Identifier: Apache-2.0
#include "report/places.h"

#include <fmt/format.h>

#include <algorithm>

namespace vramscope::report {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "GPT.forward.<locals>.step" -> "step"; C++ names lose their arguments, not their scope.
std::string_view ShortFunction(std::string_view name, trace::FrameKind kind) {
  if (kind == trace::FrameKind::kPython) {
    const size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? name : name.substr(dot + 1);
  }
  const size_t arguments = name.find('(');
  // "(anonymous namespace)::f(int)" begins with a parenthesis that is part of the scope.
  return arguments == 0 || arguments == std::string_view::npos ? name : name.substr(0, arguments);
}

}  // namespace

std::string_view Basename(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::vector<trace::FrameId> StackFrames(const trace::Trace& trace,
                                        trace::StackId stack,
                                        size_t limit) {
  std::vector<trace::FrameId> frames;
  // A damaged table could link a stack to itself: no stack has more frames than there are stacks.
  limit = std::min(limit, trace.stack_count());
  while (stack.value != 0 && frames.size() < limit) {
    const trace::Stack& entry = trace.stack(stack);
    frames.push_back(entry.frame);
    stack = entry.parent;
  }
  return frames;
}

bool IsUserFrame(const trace::Trace& trace, trace::FrameId frame_id) {
  const trace::Frame& frame = trace.frame(frame_id);
  const std::string_view file = trace.string(frame.file);
  if (frame.kind == trace::FrameKind::kPython) {
    return !file.empty() && file[0] != '<' && !Contains(file, "/site-packages/") &&
           !Contains(file, "/dist-packages/") && !Contains(file, "/lib/python3");
  }
  // Every program's first frame is the C library's, linked into the program.
  return !Contains(Basename(trace.string(frame.image)), ".so") &&
         trace.string(frame.function) != "_start";
}

std::string ShortFrame(const trace::Trace& trace, trace::FrameId frame_id) {
  const trace::Frame& frame = trace.frame(frame_id);
  const std::string_view function = ShortFunction(trace.string(frame.function), frame.kind);
  const std::string_view file = Basename(trace.string(frame.file));
  if (file.empty()) {
    const std::string_view image = Basename(trace.string(frame.image));
    return image.empty() ? std::string(function) : fmt::format("{} {}", image, function);
  }
  if (frame.line == 0)
    return fmt::format("{} {}", file, function);
  return fmt::format("{}:{} {}", file, frame.line, function);
}

std::vector<std::string> Callers(const trace::Trace& trace, trace::StackId stack, size_t limit) {
  std::vector<std::string> callers;
  bool innermost = true;
  for (const trace::FrameId frame : StackFrames(trace, stack)) {
    if (!IsUserFrame(trace, frame))
      continue;
    if (!innermost)
      callers.push_back(ShortFrame(trace, frame));
    innermost = false;
    if (callers.size() == limit)
      break;
  }
  return callers;
}

}  // namespace vramscope::report
