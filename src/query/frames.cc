// SPDX-License-Identifier: Apache-2.0
#include "query/frames.h"

#include <algorithm>

namespace vramscope::query {
namespace {

// The Python package that an installed file belongs to, or "".
std::string_view PackageOf(std::string_view file) {
  for (const std::string_view marker : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(marker);
    if (at == std::string_view::npos)
      continue;
    const std::string_view rest = file.substr(at + marker.size());
    const std::string_view first = rest.substr(0, rest.find('/'));
    // A package of one file.
    return first.ends_with(".py") ? first.substr(0, first.size() - 3) : first;
  }
  return {};
}

}  // namespace

std::string_view Basename(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::vector<tables::FrameId> StackFrames(const tables::Recording& recording,
                                         tables::StackId stack,
                                         size_t limit) {
  const std::vector<tables::StackRow>& stacks = recording.tables().stacks;
  std::vector<tables::FrameId> frames;
  // A damaged table could link a stack to itself: no stack has more frames than there are stacks.
  limit = std::min(limit, stacks.size());
  while (stack.value != 0 && stack.value < stacks.size() && frames.size() < limit) {
    frames.push_back(stacks[stack.value].frame);
    stack = stacks[stack.value].parent;
  }
  return frames;
}

bool IsUserFrame(const tables::Recording& recording,
                 tables::FrameId frame,
                 const std::vector<std::string>& own) {
  const std::vector<tables::FrameRow>& frames = recording.tables().frames;
  if (frame.value == 0 || frame.value >= frames.size())
    return false;
  const tables::FrameRow& row = frames[frame.value];
  if (row.library == 0)
    return true;
  if (own.empty())
    return false;
  const std::string_view package = PackageOf(recording.string(row.file));
  return !package.empty() && std::find(own.begin(), own.end(), package) != own.end();
}

tables::FrameId UserFrame(const tables::Recording& recording,
                          tables::StackId stack,
                          const std::vector<std::string>& own) {
  const std::vector<tables::FrameId> frames = StackFrames(recording, stack);
  for (const tables::FrameId frame : frames) {
    if (IsUserFrame(recording, frame, own))
      return frame;
  }
  return frames.empty() ? tables::FrameId{} : frames.front();
}

tables::FrameId UserFrames::Of(tables::StackId stack) {
  const size_t count = recording_.tables().stacks.size();
  if (stack.value == 0 || stack.value >= count)
    return {};
  known_.resize(count);
  uint32_t& known = known_[stack.value];
  if (known == 0)
    known = UserFrame(recording_, stack, own_).value + 1;
  return tables::FrameId{known - 1};
}

std::string FormatFrame(const tables::Recording& recording, tables::FrameId frame) {
  const std::vector<tables::FrameRow>& frames = recording.tables().frames;
  if (frame.value == 0 || frame.value >= frames.size())
    return "(no stack)";
  const tables::FrameRow& row = frames[frame.value];
  const std::string_view function = recording.string(row.function);
  const std::string_view file = recording.string(row.file);
  std::string text;
  if (!file.empty()) {
    text = Basename(file);
    if (row.line != 0)
      text += ":" + std::to_string(row.line);
    if (!function.empty())
      text += " in " + std::string(function);
    return text;
  }
  text = function.empty() ? "(unknown function)" : std::string(function);
  const std::string_view image = recording.string(row.image);
  if (!image.empty())
    text += " (" + std::string(Basename(image)) + ")";
  return text;
}

std::string_view SourceOf(const tables::Recording& recording, tables::FrameId frame) {
  const tables::Tables& tables = recording.tables();
  if (frame.value >= tables.frames.size() || tables.frames[frame.value].line == 0)
    return {};
  const tables::FrameRow& row = tables.frames[frame.value];
  const auto found = std::lower_bound(
      tables.sources.begin(), tables.sources.end(), row,
      [](const tables::SourceRow& source, const auto& wanted) {
        return source.file != wanted.file ? source.file < wanted.file : source.line < wanted.line;
      });
  const bool known =
      found != tables.sources.end() && found->file == row.file && found->line == row.line;
  return known ? recording.string(found->text) : std::string_view{};
}

}  // namespace vramscope::query
