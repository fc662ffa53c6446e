// SPDX-License-Identifier: Apache-2.0
#include "trace/xla/hlo_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <optional>
#include <system_error>
#include <vector>

namespace vramscope::trace {

bool TakePrefix(std::string_view begin, std::string_view* text) {
  if (!text->starts_with(begin))
    return false;
  text->remove_prefix(begin.size());
  return true;
}

bool TakeCount(uint64_t* number, std::string_view* text) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (error != std::errc())
    return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

namespace {

constexpr size_t kMostTextBytes = 4096;  // of a name
constexpr size_t kMostStackFrames = 256;
constexpr std::string_view kModuleStart = "HloModule ";

// Instructions that compute nothing.
constexpr std::array<std::string_view, 5> kNoOperations = {"parameter", "constant", "tuple",
                                                           "get-tuple-element", "bitcast"};

std::string_view UpTo(std::string_view text, std::string_view ends) {
  return text.substr(0, text.find_first_of(ends));
}

// A text in quotes, with the escapes of C. `text` begins after the first quote.
std::string TakeQuoted(std::string_view* text) {
  std::string value;
  size_t at = 0;
  for (; at < text->size() && (*text)[at] != '"'; ++at) {
    char byte = (*text)[at];
    if (byte == '\\' && at + 1 < text->size()) {
      byte = (*text)[++at];
      byte = byte == 'n' ? '\n' : byte == 't' ? '\t' : byte;
    }
    if (value.size() < kMostTextBytes)
      value += byte;
  }
  text->remove_prefix(std::min(at + 1, text->size()));
  return value;
}

// The value of `key` in "{key=value key="value"}".
std::optional<std::string> ValueOf(std::string_view fields, std::string_view key) {
  while (!fields.empty() && fields.front() != '}') {
    if (fields.front() == ' ' || fields.front() == '{') {
      fields.remove_prefix(1);
      continue;
    }
    const size_t equals = fields.find('=');
    if (equals == std::string_view::npos)
      return std::nullopt;
    const bool is_it = fields.substr(0, equals) == key;
    fields.remove_prefix(equals + 1);
    std::string value;
    if (TakePrefix("\"", &fields)) {
      value = TakeQuoted(&fields);
    } else if (fields.starts_with('{')) {
      // Such as profile_type={1}.
      value = UpTo(fields, "}");
      fields.remove_prefix(std::min(value.size() + 1, fields.size()));
    } else {
      value = UpTo(fields, " }");
      fields.remove_prefix(value.size());
    }
    if (is_it)
      return value;
  }
  return std::nullopt;
}

uint64_t NumberOf(std::string_view fields, std::string_view key) {
  const std::optional<std::string> value = ValueOf(fields, key);
  std::string_view text = value ? std::string_view(*value) : std::string_view();
  uint64_t number = 0;
  return TakeCount(&number, &text) ? number : 0;
}

// The tables before the first computation. Older versions of XLA have none.
class StackTables {
 public:
  // Whether the line belongs to them.
  bool Add(std::string_view line) {
    if (line == "FileNames" || line == "FunctionNames" || line == "FileLocations" ||
        line == "StackFrames") {
      table_ = line;
      return true;
    }
    uint64_t id = 0;
    if (table_.empty() || !TakeCount(&id, &line) || !TakePrefix(" ", &line))
      return false;
    if (table_ == "FileNames" && TakePrefix("\"", &line)) {
      files_[id] = TakeQuoted(&line);
    } else if (table_ == "FunctionNames" && TakePrefix("\"", &line)) {
      functions_[id] = TakeQuoted(&line);
    } else if (table_ == "FileLocations") {
      locations_[id] = {NumberOf(line, "file_name_id"), NumberOf(line, "function_name_id"),
                        NumberOf(line, "line")};
    } else if (table_ == "StackFrames") {
      const uint64_t parent = NumberOf(line, "parent_frame_id");
      frames_[id] = {NumberOf(line, "file_location_id"), parent};
      // Callers come first, so a frame that is its own caller means numbers from 1, and 1 for none.
      from_one_ = from_one_ || parent == id;
    }
    return true;
  }

  HloPlace Find(uint64_t frame, IsOwnFile is_own) const {
    HloPlace innermost;
    for (size_t left = kMostStackFrames; frame != 0 && left > 0; --left) {
      const auto found = frames_.find(frame);
      if (found == frames_.end())
        break;
      HloPlace place = PlaceOf(found->second.location);
      if (place.line != 0 && is_own(place.file))
        return place;
      if (innermost.line == 0)
        innermost = std::move(place);
      const uint64_t parent = found->second.parent;
      frame = from_one_ && parent != 0 ? parent - 1 : parent;
    }
    return innermost;
  }

 private:
  struct Location {
    uint64_t file = 0, function = 0, line = 0;
  };
  struct Frame {
    uint64_t location = 0, parent = 0;
  };

  HloPlace PlaceOf(uint64_t location) const {
    HloPlace place;
    const auto found = locations_.find(location);
    if (found == locations_.end() || found->second.line > UINT32_MAX)
      return place;
    if (const auto file = files_.find(found->second.file); file != files_.end())
      place.file = file->second;
    if (const auto name = functions_.find(found->second.function); name != functions_.end())
      place.function = name->second;
    place.line = place.file.empty() ? 0 : static_cast<uint32_t>(found->second.line);
    return place;
  }

  std::string_view table_;
  bool from_one_ = false;
  std::unordered_map<uint64_t, std::string> files_, functions_;
  std::unordered_map<uint64_t, Location> locations_;
  std::unordered_map<uint64_t, Frame> frames_;
};

// "  ROOT %fusion.1 = f32[2,3]{1,0} fusion(%a, %b), kind=kLoop, calls=%c, metadata={...}"
struct InstructionLine {
  std::string_view name, opcode, calls, metadata;

  static std::optional<InstructionLine> Parse(std::string_view line) {
    while (TakePrefix(" ", &line)) {
    }
    TakePrefix("ROOT ", &line);
    TakePrefix("%", &line);
    InstructionLine found;
    found.name = UpTo(line, " ");
    line.remove_prefix(found.name.size());
    if (found.name.empty() || !TakePrefix(" = ", &line))
      return std::nullopt;
    SkipShape(&line);
    found.opcode = UpTo(line, "(");
    constexpr std::string_view kCalls = ", calls=", kMetadata = ", metadata={";
    if (const size_t at = line.find(kCalls); at != std::string_view::npos) {
      std::string_view calls = line.substr(at + kCalls.size());
      TakePrefix("%", &calls);
      found.calls = UpTo(calls, ", ");
    }
    if (const size_t at = line.find(kMetadata); at != std::string_view::npos)
      found.metadata = line.substr(at + kMetadata.size() - 1);
    return found;
  }

  bool has_name() const { return metadata.find("op_name=") != std::string_view::npos; }

 private:
  // Up to the blank after it: "f32[2]{0} " or "(f32[2]{0}, s32[]) ".
  static void SkipShape(std::string_view* line) {
    size_t depth = 0, at = 0;
    for (; at < line->size(); ++at) {
      const char byte = (*line)[at];
      depth += byte == '(' ? 1 : 0;
      depth -= byte == ')' && depth > 0 ? 1 : 0;
      if (byte == ' ' && depth == 0)
        break;
    }
    line->remove_prefix(std::min(at + 1, line->size()));
  }
};

struct Computation {
  uint32_t operations = 0;
  std::string_view metadata;  // of the last instruction with a name
};

bool IsRematerialized(std::string_view name, std::string_view op_name) {
  // "fusion.3.remat", "dot.remat2.1"
  const size_t at = name.find(".remat");
  if (at != std::string_view::npos && name.find_first_not_of("0123456789.", at + 6) == name.npos)
    return true;
  while (!op_name.empty()) {
    const std::string_view part = UpTo(op_name, "/()");
    if (part == "rematted_computation" || part == "remat")
      return true;
    op_name.remove_prefix(std::min(part.size() + 1, op_name.size()));
  }
  return false;
}

class HloReader {
 public:
  HloReader(const std::unordered_set<std::string_view>& wanted, IsOwnFile is_own)
      : wanted_(wanted), is_own_(is_own) {}

  void Add(std::string_view line) {
    if (computation_ != nullptr) {
      AddInstruction(line);
      return;
    }
    if (stacks_.Add(line))
      return;
    // "ENTRY %main.1 (p: f32[2]) -> f32[2] {"
    if (!line.ends_with("{") || line.starts_with(kModuleStart) || line.starts_with(" "))
      return;
    in_entry_ = TakePrefix("ENTRY ", &line);
    TakePrefix("%", &line);
    computation_ = &computations_[UpTo(line, " (")];
  }

  bool has_entry() const { return has_entry_; }

  std::unordered_map<std::string_view, HloInstruction> Take() const {
    std::unordered_map<std::string_view, HloInstruction> found;
    for (const auto& [name, line] : lines_) {
      HloInstruction& instruction = found[name];
      std::string_view metadata = line.metadata;
      if (line.opcode == "fusion") {
        const auto of = computations_.find(line.calls);
        if (of != computations_.end()) {
          instruction.fused = std::max(of->second.operations, 1U);
          if (!line.has_name() && !of->second.metadata.empty())
            metadata = of->second.metadata;
        }
      }
      instruction.op_name = ValueOf(metadata, "op_name").value_or("");
      // Of merged operations the first.
      instruction.op_name.resize(UpTo(instruction.op_name, ";").size());
      instruction.rematerialized = IsRematerialized(name, instruction.op_name);
      instruction.place = stacks_.Find(NumberOf(metadata, "stack_frame_id"), is_own_);
      if (instruction.place.line == 0) {
        instruction.place.file = ValueOf(metadata, "source_file").value_or("");
        const uint64_t number = NumberOf(metadata, "source_line");
        if (!instruction.place.file.empty() && number <= UINT32_MAX)
          instruction.place.line = static_cast<uint32_t>(number);
      }
    }
    return found;
  }

 private:
  void AddInstruction(std::string_view line) {
    if (line.starts_with("}")) {
      has_entry_ = has_entry_ || in_entry_;
      computation_ = nullptr;
      return;
    }
    const std::optional<InstructionLine> instruction = InstructionLine::Parse(line);
    if (!instruction)
      return;
    const bool computes = std::find(kNoOperations.begin(), kNoOperations.end(),
                                    instruction->opcode) == kNoOperations.end();
    computation_->operations += computes ? 1 : 0;
    if (instruction->has_name())
      computation_->metadata = instruction->metadata;
    if (wanted_.contains(instruction->name))
      lines_.try_emplace(instruction->name, *instruction);
  }

  const std::unordered_set<std::string_view>& wanted_;
  const IsOwnFile is_own_;
  StackTables stacks_;
  std::unordered_map<std::string_view, Computation> computations_;
  Computation* computation_ = nullptr;  // the one whose instructions follow
  bool in_entry_ = false;
  bool has_entry_ = false;
  std::unordered_map<std::string_view, InstructionLine> lines_;
};

}  // namespace

std::string_view HloModuleName(std::string_view text) {
  return TakePrefix(kModuleStart, &text) ? UpTo(text, ", \n") : std::string_view();
}

util::Result<std::unordered_map<std::string_view, HloInstruction>> ReadHlo(
    std::string_view text,
    const std::unordered_set<std::string_view>& wanted,
    IsOwnFile is_own) {
  HloReader reader(wanted, is_own);
  WholeLines lines(text);
  for (std::string_view line; lines.Next(&line);)
    reader.Add(line);
  if (!reader.has_entry())
    return util::Status::Error("its HLO is cut off, or none");
  return reader.Take();
}

}  // namespace vramscope::trace
