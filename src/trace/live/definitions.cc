// SPDX-License-Identifier: Apache-2.0

#include "trace/live/definitions.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <span>
#include <tuple>

namespace vramscope::trace {

void LocalIds::Set(uint64_t local, uint32_t global) {
  if (local == 0)
    return;
  ++count_;
  if (local >= dense_.size()) {
    const uint64_t limit = 4096 + 16 * static_cast<uint64_t>(count_);
    if (local > limit) {
      sparse_[local] = global;
      return;
    }
    // Doubling keeps growth cheap.
    dense_.resize(std::min<uint64_t>(limit, 2 * local) + 1, kUndefined);
    for (auto it = sparse_.begin(); it != sparse_.end();) {
      if (it->first < dense_.size()) {
        dense_[it->first] = it->second;
        it = sparse_.erase(it);
      } else {
        ++it;
      }
    }
  }
  dense_[local] = global;
}

uint32_t LocalIds::FindSparse(uint64_t local) const {
  const auto it = sparse_.find(local);
  return it != sparse_.end() ? it->second : kUndefined;
}

void PythonStacks::AddCode(const format::PyCode& code, const LocalIds& strings) {
  const StringId file{strings.FindOrNone(code.file)}, name{strings.FindOrNone(code.name)};
  // Where a class is called often, the interpreter has a frame of its own between the caller's and
  // that of `__init__`, from 3.12 on (_Py_InitCleanup).
  constexpr std::string_view kOfInterpreter = "__init__";
  if (dictionaries_->text(file) == kOfInterpreter && dictionaries_->text(name) == kOfInterpreter)
    return;
  const auto first_line = static_cast<uint32_t>(code.first_line);
  const auto kind = static_cast<format::LineTableKind>(code.table_kind);
  const std::span table(reinterpret_cast<const uint8_t*>(code.line_table.data),
                        code.line_table.size);
  code_ids_.Set(code.id, static_cast<uint32_t>(codes_.size()));
  codes_.push_back({file, name, PythonLineTable(kind, first_line, table)});
}

StackId PythonStacks::AddStack(StackId parent, const format::PyStack& stack) {
  const uint32_t index = code_ids_.FindOrNone(stack.code);
  if (index == 0)
    return parent;
  const Code& known = codes_[index];
  const FrameId frame = dictionaries_->AddFrame({.kind = tables::FrameKind::kPython,
                                                 .function = known.name,
                                                 .file = known.file,
                                                 .line = known.lines.LineAt(stack.instruction)});
  return dictionaries_->AddStack(parent, frame, stack.object);
}

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
  mentions_[stream].push_back({known->second, stacks_.size()});
}

void NativeStacks::AddressMap::Cover(const Image& image, uint32_t id) {
  if (image.begin >= image.end)
    return;
  auto next = pieces_.lower_bound(image.begin);
  if (next != pieces_.begin()) {
    const auto before = std::prev(next);
    const Piece piece = before->second;
    if (piece.end > image.begin) {
      before->second.end = image.begin;
      if (piece.end > image.end)
        next = pieces_.emplace_hint(next, image.end, piece);
    }
  }
  while (next != pieces_.end() && next->first < image.end) {
    const Piece piece = next->second;
    next = pieces_.erase(next);
    if (piece.end > image.end) {
      pieces_.emplace_hint(next, image.end, piece);
      break;
    }
  }
  pieces_[image.begin] = {image.end, id};
}

uint32_t NativeStacks::AddressMap::At(uint64_t address) const {
  const auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin())
    return kNoImage;
  const Piece& piece = std::prev(after)->second;
  return address < piece.end ? piece.image : kNoImage;
}

// The binary mapped at each stack's innermost address. Addresses are reused after dlclose, so there
// can be several binaries. The stream's own last description before the stack counts, or its next
// one: a stream writes it right after a stack that needs it. If the stream described none, the last
// description of any stream counts. Each description is laid down once, whatever there is of them.
std::vector<uint32_t> NativeStacks::FindImages() const {
  AddressMap all;
  for (uint32_t i = 0; i < images_.size(); ++i)
    all.Cover(images_[i], i);
  std::unordered_map<size_t, std::vector<size_t>> stacks_of;  // by stream
  for (size_t i = 0; i < stacks_.size(); ++i)
    stacks_of[stacks_[i].slot.stream].push_back(i);

  std::vector<uint32_t> found(stacks_.size(), kNoImage);
  for (const auto& [stream, stacks] : stacks_of) {
    const auto described = mentions_.find(stream);
    static const std::vector<Mention> kNone;
    const std::vector<Mention>& mentions = described != mentions_.end() ? described->second : kNone;
    AddressMap known;
    size_t next = 0;
    size_t until = 0;
    for (const size_t index : stacks) {
      // Up to the stack, and the first description after it as a whole.
      until = std::max(until, index);
      for (; next < mentions.size(); ++next) {
        const Mention& mention = mentions[next];
        if (mention.stack_count > until) {
          if (until > index)
            break;
          until = mention.stack_count;
        }
        known.Cover(images_[mention.image], mention.image);
      }
      const uint64_t pc = stacks_[index].pc - 1;  // the call, not the instruction after it
      found[index] = known.At(pc);
      if (found[index] == kNoImage)
        found[index] = all.At(pc);
    }
  }
  return found;
}

FrameId NativeStacks::AddFrame(uint64_t pc,
                               uint32_t image_id,
                               const std::string& executable,
                               tables::Dictionaries* dictionaries,
                               NativeSymbols* symbols) {
  tables::FrameRow frame{.kind = tables::FrameKind::kNative, .pc = pc};
  std::string function;
  if (image_id != kNoImage) {
    const Image& image = images_[image_id];
    const std::string& path = image.path.empty() ? executable : image.path;
    frame.image = dictionaries->AddText(path);
    if (symbols != nullptr) {
      const auto symbol = symbols->Find(path, image.build_id, pc - 1 - image.bias);
      frame.file = dictionaries->AddText(symbol.file);
      frame.line = symbol.line;
      function = symbol.function;
    }
  }
  if (function.empty()) {
    char hex[24];
    std::snprintf(hex, sizeof hex, "0x%llx", static_cast<unsigned long long>(pc));
    function = hex;
  }
  frame.function = dictionaries->AddText(function);
  return dictionaries->AddFrame(frame);
}

void NativeStacks::Resolve(const std::string& executable,
                           tables::Dictionaries* dictionaries,
                           NativeSymbols* symbols,
                           std::vector<DefinitionLog>* logs) {
  if (resolved_.size() == stacks_.size())
    return;
  const std::vector<uint32_t> images = FindImages();
  for (size_t i = resolved_.size(); i < stacks_.size(); ++i) {
    const Stack& stack = stacks_[i];
    const uint32_t image = images[i];
    const auto [frame, is_new] = frames_.try_emplace({stack.pc, image});
    if (is_new)
      frame->second = AddFrame(stack.pc, image, executable, dictionaries, symbols);
    const StackId parent = stack.parent != 0 ? resolved_[stack.parent - 1] : StackId{};
    resolved_.push_back(dictionaries->AddStack(parent, frame->second));
    (*logs)[stack.slot.stream][stack.slot.log_index] = resolved_[i].value;
  }
}

}  // namespace vramscope::trace
