// SPDX-License-Identifier: Apache-2.0 Reads the output of
// jax.profiler.save_device_memory_profile(): a gzip pprof profile
// (github.com/google/pprof/blob/main/proto/profile.proto) of live memory. Its values are
// `allocations` and `space`, its labels `kind` (buffer, executable) and `device`. Any other heap
// profile with a value in bytes (Go, tcmalloc) is host memory.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <protozero/exception.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/varint.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/import.h"

namespace vramscope::imports {
namespace {

constexpr size_t kMostPprofFrames = 1024;

// Reads the fields of a message in file order.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;      // of a varint
  std::string_view bytes;  // of a string, a message or packed numbers
};

class Message {
 public:
  explicit Message(std::string_view bytes) : reader_(bytes.data(), bytes.size()) {}

  // False at the end or if the message is damaged.
  bool Next(Field* field) {
    *field = {};
    try {
      if (!ok_ || !reader_.next())
        return false;
      field->number = reader_.tag();
      switch (reader_.wire_type()) {
        case protozero::pbf_wire_type::varint:
          field->value = reader_.get_uint64();
          return true;
        case protozero::pbf_wire_type::length_delimited: {
          const protozero::data_view view = reader_.get_view();
          field->bytes = {view.data(), view.size()};
          return true;
        }
        default:
          reader_.skip();
          return true;
      }
    } catch (const protozero::exception&) {
      return ok_ = false;
    }
  }
  bool ok() const { return ok_; }

 private:
  protozero::pbf_reader reader_;
  bool ok_ = true;
};

// Numbers of a repeated field, packed or not.
bool AddNumbers(const Field& field, std::vector<uint64_t>* out) {
  if (field.bytes.empty()) {
    out->push_back(field.value);
    return true;
  }
  const char* at = field.bytes.data();
  const char* const end = at + field.bytes.size();
  try {
    while (at != end)
      out->push_back(protozero::decode_varint(&at, end));
  } catch (const protozero::exception&) {
    return false;
  }
  return true;
}

class Profile {
 public:
  Profile(const Input& input, Builder* builder) : input_(input), builder_(*builder) {}

  util::Status Read(std::string_view content);

 private:
  struct Line {
    uint64_t function = 0, line = 0;
  };
  struct Function {
    uint64_t name = 0, file = 0;
  };
  struct Labels {
    std::string kind, device;
  };

  bool Index(std::string_view content);
  bool AddLocation(std::string_view bytes);
  bool AddFunction(std::string_view bytes);
  bool AddSample(std::string_view bytes);
  bool AddLabel(std::string_view bytes, Labels* labels) const;
  std::string_view TextAt(uint64_t index) const {
    return index < texts_.size() ? texts_[index] : std::string_view();
  }
  size_t BytesColumn() const;
  bool IsJax() const;
  tables::StackId StackOf(const std::vector<uint64_t>& locations);
  tables::AccountId AccountOf(const std::string& device);
  util::Status Damaged() const {
    return util::Status::Error(fmt::format("{}: is not a complete pprof profile", input_.path()));
  }

  const Input& input_;
  Builder& builder_;
  std::vector<std::string_view> texts_, samples_, value_types_;
  std::map<uint64_t, std::vector<Line>> locations_;
  std::map<uint64_t, Function> functions_;
  size_t bytes_column_ = 0;
  bool is_jax_ = false;
  int64_t now_ns_ = 0;
  uint64_t time_ns_ = 0;
};

bool Profile::Index(std::string_view content) {
  Message message(content);
  bool whole = true;
  for (Field field; whole && message.Next(&field) && !builder_.IsOver();) {
    switch (field.number) {
      case 1:
        value_types_.push_back(field.bytes);
        break;
      case 2:
        samples_.push_back(field.bytes);
        break;
      case 4:
        whole = AddLocation(field.bytes);
        break;
      case 5:
        whole = AddFunction(field.bytes);
        break;
      case 6:
        texts_.push_back(field.bytes);
        break;
      case 9:
        time_ns_ = field.value;
        break;
      default:
        break;
    }
    (void)builder_.budget().Charge("entries", 1, 64);
  }
  return whole && message.ok();
}

bool Profile::AddLocation(std::string_view bytes) {
  Message message(bytes);
  uint64_t id = 0;
  std::vector<Line> lines;
  for (Field field; message.Next(&field);) {
    if (field.number == 1)
      id = field.value;
    if (field.number != 4)
      continue;
    Message line(field.bytes);
    Line& to = lines.emplace_back();
    for (Field part; line.Next(&part);)
      (part.number == 1 ? to.function : part.number == 2 ? to.line : part.value) = part.value;
    if (!line.ok())
      return false;
  }
  (void)builder_.budget().Charge("locations", lines.size() + 1, 64);
  locations_[id] = std::move(lines);
  return message.ok();
}

bool Profile::AddFunction(std::string_view bytes) {
  Message message(bytes);
  uint64_t id = 0;
  Function function;
  for (Field field; message.Next(&field);) {
    if (field.number == 1)
      id = field.value;
    else if (field.number == 2)
      function.name = field.value;
    else if (field.number == 4)
      function.file = field.value;
  }
  functions_[id] = function;
  return message.ok();
}

// The first value in bytes; if several are, the last one for memory in use.
size_t Profile::BytesColumn() const {
  size_t found = value_types_.size();
  for (size_t i = 0; i < value_types_.size(); ++i) {
    std::string_view type, unit;
    Message message(value_types_[i]);
    for (Field field; message.Next(&field);)
      (field.number == 1 ? type : unit) = TextAt(field.value);
    if (unit == "bytes" && (found == value_types_.size() || type.find("inuse") == 0))
      found = i;
  }
  return found;
}

// Only JAX's values are `allocations` and `space`.
bool Profile::IsJax() const {
  std::string names;
  for (const std::string_view bytes : value_types_) {
    Message message(bytes);
    for (Field field; message.Next(&field);)
      names += field.number == 1 ? std::string(TextAt(field.value)) + " " : "";
  }
  return names == "allocations space ";
}

bool Profile::AddLabel(std::string_view bytes, Labels* labels) const {
  Message message(bytes);
  std::string_view key, text;
  for (Field field; message.Next(&field);) {
    if (field.number == 1)
      key = TextAt(field.value);
    else if (field.number == 2)
      text = TextAt(field.value);
  }
  if (key == "kind")
    labels->kind = text;
  else if (key == "device")
    labels->device = text;
  return message.ok();
}

// "cuda:1", "gpu:1", "StreamExecutorGpuDevice(id=1)", "TFRT_CPU_0": the last number is the
// device's.
tables::AccountId Profile::AccountOf(const std::string& device) {
  const tables::ProcessId process = builder_.Process(0);
  const bool is_cpu =
      device.find("cpu") != std::string::npos || device.find("CPU") != std::string::npos;
  if (!is_jax_ && device.empty())
    return builder_.Account(process, builder_.Device(tables::DeviceKind::kHost, -2));
  if (is_cpu)
    return builder_.Account(process, builder_.Device(tables::DeviceKind::kCpu, -1));
  const size_t end = device.find_last_of("0123456789");
  const size_t before = end == std::string::npos ? end : device.find_last_not_of("0123456789", end);
  int32_t index = 0;
  if (end != std::string::npos) {
    const size_t begin = before == std::string::npos ? 0 : before + 1;
    std::from_chars(device.data() + begin, device.data() + end + 1, index);
  }
  return builder_.Account(process, builder_.Gpu(index & 0x3ff));
}

// The first location is the innermost one. The last of its lines is the caller of the others.
tables::StackId Profile::StackOf(const std::vector<uint64_t>& locations) {
  std::vector<tables::FrameId> frames;  // innermost first
  for (const uint64_t id : locations) {
    const auto location = locations_.find(id);
    if (location == locations_.end())
      continue;
    for (const Line& line : location->second) {
      if (frames.size() == kMostPprofFrames)
        break;
      const auto function = functions_.find(line.function);
      const Function named = function == functions_.end() ? Function() : function->second;
      tables::FrameRow row;
      const std::string_view file = TextAt(named.file);
      row.kind = tables::FrameKind::kPython;
      row.function = builder_.Text(TextAt(named.name));
      row.file = builder_.Text(file);
      row.line = static_cast<uint32_t>(std::min<uint64_t>(line.line, UINT32_MAX));
      row.library = file.find("site-packages/") != std::string_view::npos ||
                            file.find("dist-packages/") != std::string_view::npos
                        ? 1
                        : 0;
      frames.push_back(builder_.Frame(row));
    }
  }
  tables::StackId stack;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame)
    stack = builder_.Stack(stack, *frame);
  return stack;
}

bool Profile::AddSample(std::string_view bytes) {
  Message message(bytes);
  std::vector<uint64_t> locations, values;
  Labels labels;
  for (Field field; message.Next(&field);) {
    const bool whole = field.number == 1   ? AddNumbers(field, &locations)
                       : field.number == 2 ? AddNumbers(field, &values)
                       : field.number == 3 ? AddLabel(field.bytes, &labels)
                                           : true;
    if (!whole)
      return false;
  }
  if (!message.ok())
    return false;
  builder_.Event();
  const uint64_t size = bytes_column_ < values.size() ? values[bytes_column_] : UINT64_MAX;
  if (size > kMostBytes) {
    builder_.Lose("samples without a size", 1);
    return true;
  }
  if (size == 0)
    return true;
  tables::SiteRow site = Builder::SiteOf(AccountOf(labels.device));
  if (is_jax_)
    site.owner = site.allocator = builder_.Text("JAX");
  site.tag = builder_.Text(labels.kind);
  site.stack = site.place = StackOf(locations);
  tables::AllocationRow row;
  row.begin_ns = row.alloc_ns = now_ns_;
  row.end_ns = tables::kNever;
  row.bytes = size;
  row.site = builder_.Site(site);
  builder_.Add(row);
  return true;
}

util::Status Profile::Read(std::string_view content) {
  now_ns_ = builder_.Tick(0);
  builder_.process(builder_.Process(0)).command = builder_.Text(input_.name());
  if (!Index(content))
    return Damaged();
  is_jax_ = IsJax();
  bytes_column_ = BytesColumn();
  if (bytes_column_ == value_types_.size()) {
    return util::Status::Error(fmt::format(
        "{}: is not a memory profile: this pprof profile has no value in bytes", input_.path()));
  }
  for (const std::string_view sample : samples_) {
    if (builder_.IsOver())
      break;
    if (!AddSample(sample))
      return Damaged();
  }
  if (time_ns_ <= INT64_MAX / 2)
    builder_.SetWallTime(static_cast<int64_t>(time_ns_));
  builder_.IsOfOneInstant("profile");
  builder_.Lacks("what was freed before it, and the peak");
  builder_.Lacks("single allocations: those of one stack are one row");
  if (is_jax_)
    builder_.Lacks("free memory of JAX's pool");
  return {};
}

// Reads the whole content, because names may be at its end.
util::Result<std::string> ReadAll(const Input& input, Builder* builder) {
  const std::unique_ptr<ByteStream> stream = input.Content();
  std::string content;
  for (std::string part(ByteStream::kPieceBytes, '\0');;) {
    const util::Result<size_t> bytes = stream->Read(part);
    if (!bytes)
      return bytes.status();
    if (*bytes == 0)
      return content;
    if (!builder->budget().Charge("content", 1, 2 * *bytes))
      return builder->budget().Refusal(input.path());
    content.append(part, 0, *bytes);
  }
}

}  // namespace

// A profile begins with a value type: field 1, a message of at most two small numbers.
bool IsPprof(const Input& input) {
  const std::string_view head = input.head();
  Message message(head);
  Field field;
  if (!head.starts_with("\x0a") || !message.Next(&field) || field.bytes.size() > 32)
    return false;
  Message type(field.bytes);
  for (Field part; type.Next(&part);) {
    if (part.number != 1 && part.number != 2)
      return false;
  }
  return type.ok() && !field.bytes.empty();
}

util::Status ReadPprof(const Input& input, const Options&, Builder* builder) {
  const util::Result<std::string> content = ReadAll(input, builder);
  if (!content)
    return content.status();
  return Profile(input, builder).Read(*content);
}

}  // namespace vramscope::imports
