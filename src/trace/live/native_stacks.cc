// SPDX-License-Identifier: Apache-2.0
#include "trace/live/native_stacks.h"

#include <cstdio>
#include <tuple>

namespace vramscope::trace {

bool NativeStacks::Image::operator<(const Image& other) const {
  return std::tie(begin, end, bias, path, build_id) <
         std::tie(other.begin, other.end, other.bias, other.path, other.build_id);
}

uint32_t NativeStacks::Add(uint32_t parent, uint64_t pc, Slot slot) {
  stacks_.push_back({parent, pc, slot});
  return static_cast<uint32_t>(stacks_.size());
}

void NativeStacks::AddImage(size_t stream, const format::Image& image) {
  Image described{image.begin, image.end, image.bias, std::string(image.path.data, image.path.size),
                  std::string(image.build_id.data, image.build_id.size)};
  const auto [known, is_new] =
      image_ids_.try_emplace(described, static_cast<uint32_t>(images_.size()));
  if (is_new)
    images_.push_back(std::move(described));
  mentions_.push_back({stream, known->second, stacks_.size()});
}

// The binary mapped at the stack's innermost address. Addresses are used anew after dlclose, so
// there can be several: then the one that the same stream described last before the stack, or in
// its next description, which a stream writes right after a stack that needs it.
uint32_t NativeStacks::FindImage(const Stack& stack, size_t index) {
  const uint64_t pc = stack.pc - 1;  // the call, not the instruction after it
  if (const auto cached = image_at_.find(pc); cached != image_at_.end())
    return cached->second;
  uint32_t found = kNoImage;
  size_t candidates = 0;
  for (uint32_t i = 0; i < images_.size(); ++i) {
    if (pc < images_[i].begin || pc >= images_[i].end)
      continue;
    found = i;
    ++candidates;
  }
  if (candidates <= 1) {
    image_at_.emplace(pc, found);
    return found;
  }
  size_t next_description = SIZE_MAX;
  for (const Mention& mention : mentions_) {
    if (mention.stream != stack.slot.stream || mention.stack_count > next_description)
      continue;
    if (mention.stack_count > index)
      next_description = mention.stack_count;
    const Image& image = images_[mention.image];
    if (pc >= image.begin && pc < image.end)
      found = mention.image;
  }
  return found;
}

FrameId NativeStacks::AddFrame(uint64_t pc,
                               uint32_t image_id,
                               const std::string& executable,
                               TableBuilder* tables,
                               NativeSymbols* symbols) {
  Frame frame{.kind = FrameKind::kNative, .pc = pc};
  std::string function;
  if (image_id != kNoImage) {
    const Image& image = images_[image_id];
    const std::string& path = image.path.empty() ? executable : image.path;
    frame.image = tables->AddString(path);
    if (symbols != nullptr) {
      const auto symbol = symbols->Find(path, image.build_id, pc - 1 - image.bias);
      frame.file = tables->AddString(symbol.file);
      frame.line = symbol.line;
      function = symbol.function;
    }
  }
  if (function.empty()) {
    char hex[24];
    std::snprintf(hex, sizeof hex, "0x%llx", static_cast<unsigned long long>(pc));
    function = hex;
  }
  frame.function = tables->AddString(function);
  return tables->AddFrame(frame);
}

void NativeStacks::Resolve(const std::string& executable,
                           TableBuilder* tables,
                           NativeSymbols* symbols,
                           std::vector<DefinitionLog>* logs) {
  std::map<std::pair<uint64_t, uint32_t>, FrameId> frames;
  std::vector<StackId> resolved(stacks_.size());
  for (size_t i = 0; i < stacks_.size(); ++i) {
    const Stack& stack = stacks_[i];
    const uint32_t image = FindImage(stack, i);
    const auto [frame, is_new] = frames.try_emplace({stack.pc, image});
    if (is_new)
      frame->second = AddFrame(stack.pc, image, executable, tables, symbols);
    const StackId parent = stack.parent != 0 ? resolved[stack.parent - 1] : StackId{};
    resolved[i] = tables->AddStack(parent, frame->second);
    (*logs)[stack.slot.stream][stack.slot.log_index] = resolved[i].value;
  }
}

}  // namespace vramscope::trace
