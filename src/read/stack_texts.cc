// SPDX-License-Identifier: Apache-2.0
#include "read/stack_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tables/row_of.h"
#include "util/containers/intern_table.h"

namespace vramscope::read {
namespace {

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

uint64_t HashText(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text)
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return util::Mix64(hash);
}

StackTexts::StackTexts(const tables::Recording& recording)
    : recording_(recording), tables_(recording.tables()), ids_(tables_.stacks.size()) {
  std::vector<uint64_t> hashes;
  for (const tables::FrameRow& frame : tables_.frames) {
    frames_.push_back(FrameText(frame));
    hashes.push_back(HashText(frames_.back()));
  }
  for (size_t i = 1; i < ids_.size(); ++i) {
    const tables::StackRow& stack = tables_.stacks[i];
    const uint64_t caller = ids_[stack.parent.value < i ? stack.parent.value : 0];
    const uint64_t hash = hashes[stack.frame.value < hashes.size() ? stack.frame.value : 0];
    ids_[i] = std::max<uint64_t>(1, util::Mix64(caller * 3 + hash) & kIdMask);
  }
}

std::string StackTexts::FrameText(const tables::FrameRow& frame) const {
  const std::string_view function = recording_.string(frame.function);
  if (frame.line != 0) {
    return fmt::format("{}:{}{}{}", BaseName(recording_.string(frame.file)), frame.line,
                       function.empty() ? "" : " in ", function);
  }
  const std::string_view image = BaseName(recording_.string(frame.image));
  return function.empty() ? fmt::format("{:#x} ({})", frame.pc, image)
                          : fmt::format("{} ({})", function, image);
}

tables::StackId StackTexts::CallerOf(tables::StackId stack) const {
  const tables::StackId caller = RowOf(tables_.stacks, stack).parent;
  return caller < stack ? caller : tables::StackId();
}

size_t StackTexts::LineOf(tables::StackId stack) const {
  const size_t innermost = RowOf(tables_.stacks, stack).frame.value;
  for (; stack.value != 0; stack = CallerOf(stack)) {
    const size_t frame = RowOf(tables_.stacks, stack).frame.value;
    if (RowOf(tables_.frames, frame).library == 0)
      return frame < frames_.size() ? frame : 0;
  }
  return innermost < frames_.size() ? innermost : 0;
}

uint64_t StackTexts::IdOf(tables::StackId stack) const {
  return stack.value < ids_.size() ? ids_[stack.value] : 0;
}

std::string StackTexts::TextOf(tables::StackId stack) const {
  std::vector<size_t> frames;
  for (; stack.value != 0; stack = CallerOf(stack))
    frames.push_back(RowOf(tables_.stacks, stack).frame.value);
  std::string text;
  for (size_t i = frames.size(); i-- > 0;) {
    text += frames[i] < frames_.size() ? frames_[frames[i]] : std::string();
    if (i > 0)
      text += '\n';
  }
  return text;
}

}  // namespace vramscope::read
