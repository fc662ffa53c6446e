// SPDX-License-Identifier: Apache-2.0
#include "query/dimensions/frames.h"

#include <algorithm>

#include "util/text.h"

namespace vramscope::query {

std::string_view Basename(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // all of it where there is none
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

std::string FramesLeftOut(size_t count) {
  return "(" + std::to_string(count) + (count == 1 ? " more frame)" : " more frames)");
}

size_t ShownStacks::Depth(tables::StackId stack) const {
  const std::vector<tables::StackRow>& stacks = recording_.tables().stacks;
  if (depths_.empty()) {
    depths_.resize(stacks.size());
    for (uint32_t i = 1; i < stacks.size(); ++i) {
      const uint32_t parent = stacks[i].parent.value;
      depths_[i] = parent < i ? depths_[parent] + 1 : 1;
    }
  }
  return stack.value < depths_.size() ? depths_[stack.value] : 0;
}

ShownStacks::Stack ShownStacks::Of(tables::StackId stack) const {
  Stack shown;
  shown.frames = StackFrames(recording_, stack, kMaxStackFrames);
  if (shown.frames.size() == kMaxStackFrames) {
    const size_t depth = Depth(stack);
    shown.left_out = depth > kMaxStackFrames ? depth - kMaxStackFrames : 0;
  }
  return shown;
}

const std::string& ShownStacks::FrameText(tables::FrameId frame) const {
  constexpr size_t kMaxKnownBytes = size_t{16} << 20;
  if (texts_bytes_ > kMaxKnownBytes) {
    texts_.clear();
    texts_bytes_ = 0;
  }
  const auto [found, added] = texts_.try_emplace(frame.value);
  if (added) {
    found->second = FormatFrame(recording_, frame);
    texts_bytes_ += found->second.size();
  }
  return found->second;
}

std::vector<std::string> ShownStacks::Texts(tables::StackId stack) const {
  Stack shown = Of(stack);
  std::vector<std::string> texts;
  texts.reserve(shown.frames.size() + 1);
  size_t bytes = 0;
  for (const tables::FrameId frame : shown.frames) {
    const std::string& text = FrameText(frame);
    bytes += text.size();
    if (bytes > kMaxStackBytes && !texts.empty()) {
      shown.left_out += shown.frames.size() - texts.size();
      break;
    }
    texts.push_back(text);
  }
  if (shown.left_out != 0)
    texts.push_back(FramesLeftOut(shown.left_out));
  std::reverse(texts.begin(), texts.end());
  return texts;
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
  const std::string_view package = util::PackageOf(recording.string(row.file));
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
  const std::vector<tables::StackRow>& stacks = recording_.tables().stacks;
  if (stack.value == 0 || stack.value >= stacks.size())
    return {};
  known_.resize(stacks.size());
  asked_.clear();
  uint32_t found = 0;  // frame + 1
  for (uint32_t at = stack.value; found == 0;) {
    if (at == 0 || at >= stacks.size()) {
      found = 1;
    } else if (known_[at] != 0) {
      found = known_[at];
    } else {
      asked_.push_back(at);
      if (IsUserFrame(recording_, stacks[at].frame, own_))
        found = stacks[at].frame.value + 1;
      // A damaged table could link a stack to itself.
      at = stacks[at].parent.value < at ? stacks[at].parent.value : 0;
    }
  }
  for (const uint32_t at : asked_)
    known_[at] = found;
  return found == 1 ? stacks[stack.value].frame : tables::FrameId{found - 1};
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

bool StackQuestion::Of(tables::StackId stack) {
  const auto [found, is_new] = known_.try_emplace(stack.value, false);
  if (!is_new)
    return found->second;
  for (const tables::FrameId frame : StackFrames(recording_, stack)) {
    const tables::FrameRow& row = RowOf(recording_.tables().frames, frame);
    if (says_(recording_.string(row.function), recording_.string(row.file)))
      return found->second = true;
  }
  return false;
}

bool IsComputedAgain(std::string_view function, std::string_view file) {
  return file.find("torch/utils/checkpoint.py") != std::string_view::npos ||
         file.find("torch/_dynamo/") != std::string_view::npos ||
         file.find("torch/_inductor/") != std::string_view::npos ||
         file.find("torch/_functorch/") != std::string_view::npos || function == "recompute_fn";
}

}  // namespace vramscope::query
