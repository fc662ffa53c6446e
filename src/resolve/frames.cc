// SPDX-License-Identifier: Apache-2.0
#include "resolve/frames.h"

#include <string_view>

#include "resolve/owners.h"

namespace vramscope::resolve {
namespace {

std::string_view Basename(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::string DescribeFrame(const trace::Trace& trace, trace::FrameId id) {
  if (id.value == 0)
    return "(no stack)";
  const trace::Frame& frame = trace.frame(id);
  const std::string_view function = trace.string(frame.function);
  const std::string_view file = trace.string(frame.file);
  std::string text;
  if (!file.empty()) {
    text = Basename(file);
    if (frame.line != 0)
      text += ":" + std::to_string(frame.line);
    if (!function.empty())
      text += " in " + std::string(function);
    return text;
  }
  text = function.empty() ? "(unknown function)" : std::string(function);
  const std::string_view image = trace.string(frame.image);
  if (!image.empty())
    text += " (" + std::string(Basename(image)) + ")";
  return text;
}

bool IsUserFrame(const trace::Trace& trace, const trace::Frame& frame) {
  if (frame.kind == trace::FrameKind::kNative) {
    const std::string_view image = trace.string(frame.image);
    return OwnerOfImage(image) == "application" && !image.starts_with("/lib/") &&
           !image.starts_with("/lib64/") && !image.starts_with("/usr/lib");
  }
  const std::string_view file = trace.string(frame.file);
  return !Contains(file, "/site-packages/") && !Contains(file, "/dist-packages/") &&
         !Contains(file, "/lib/python3") && !file.starts_with("<frozen");
}

trace::FrameId UserFrames::Innermost(trace::StackId stack) {
  if (stack.value == 0 || stack.value >= trace_.stack_count())
    return trace::FrameId{};
  if (known_.size() <= stack.value)
    known_.resize(trace_.stack_count());
  if (known_[stack.value] != 0)
    return trace::FrameId{known_[stack.value] - 1};
  trace::FrameId found = trace_.stack(stack).frame;
  // A damaged trace may hold a cycle: no chain is longer than the table.
  size_t left = trace_.stack_count();
  for (trace::StackId at = stack; at.value != 0 && left > 0; --left) {
    const trace::Stack& entry = trace_.stack(at);
    if (IsUserFrame(trace_, trace_.frame(entry.frame))) {
      found = entry.frame;
      break;
    }
    at = entry.parent;
  }
  known_[stack.value] = found.value + 1;
  return found;
}

}  // namespace vramscope::resolve
