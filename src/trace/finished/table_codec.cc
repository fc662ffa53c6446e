// SPDX-License-Identifier: Apache-2.0
#include "trace/finished/table_codec.h"

#include <algorithm>
#include <charconv>

namespace vramscope::trace::finished {
namespace {

// A text is two columns: its length in one, its bytes in the next.
void PutText(ColumnSetWriter& out, size_t column, std::string_view text) {
  out[column].Put(text.size());
  out[column + 1].PutText(text);
}

// A reader of a text's two columns.
class TextReader {
 public:
  TextReader(const ColumnSetReader& in, size_t column)
      : sizes_(in.Column(column)), bytes_(in.Column(column + 1)) {}
  std::string_view Next() { return bytes_.NextText(sizes_.Next()); }
  bool ok() const { return sizes_.ok() && bytes_.ok(); }

 private:
  ColumnReader sizes_;
  ColumnReader bytes_;
};

StringId NextString(ColumnReader& column) {
  return StringId{static_cast<uint32_t>(column.Next())};
}

enum SessionColumn : size_t { kKey = 0, kText = 2, kIsNote = 4 };
enum DeviceColumn : size_t {
  kDeviceKind,
  kDeviceIndex,
  kDeviceTotal,
  kDeviceUuid,
  kDeviceName = 5
};
enum ProcessColumn : size_t {
  kPid,
  kParentPid,
  kRank,  // 0: none, else rank + 1
  kStart,
  kEnd,
  kClosed,
  kStatus,  // 0: none, else zigzag + 1
  kCommand,
  kExecutable = 9,
};
enum ThreadColumn : size_t { kThreadProcess, kThreadTid, kThreadName };
enum FrameColumn : size_t { kFrameKind, kFunction, kFile, kLine, kImage, kPc };
enum StackColumn : size_t { kParent, kFrame, kObject };
enum LossColumn : size_t { kLossName, kLossCount = 2, kLossBytes };
enum SourceColumn : size_t { kSourceFile, kSourceLine, kSourceText };

constexpr size_t kSessionKeys = 6;

}  // namespace

size_t SessionRows(const SessionInfo& session) {
  return kSessionKeys + session.notes.size();
}

void EncodeSession(const SessionInfo& session, ColumnSetWriter* out) {
  const auto put = [&](std::string_view key, std::string_view value, bool is_note) {
    PutText(*out, kKey, key);
    PutText(*out, kText, value);
    (*out)[kIsNote].Put(is_note ? 1 : 0);
  };
  put("name", session.name, false);
  put("version", session.version, false);
  put("start_ns", std::to_string(session.start_ns), false);
  put("end_ns", std::to_string(session.end_ns), false);
  put("start_wall_ns", std::to_string(session.start_wall_ns), false);
  put("event_count", std::to_string(session.event_count), false);
  for (const auto& [key, value] : session.notes)
    put(key, value, true);
}

bool DecodeSession(const ColumnSetReader& in, uint32_t rows, SessionInfo* session) {
  TextReader keys(in, kKey);
  TextReader values(in, kText);
  ColumnReader is_note = in.Column(kIsNote);
  const auto number = [](std::string_view text, auto* out) {
    std::from_chars(text.data(), text.data() + text.size(), *out);
  };
  for (uint32_t i = 0; i < rows; ++i) {
    const std::string_view key = keys.Next();
    const std::string_view value = values.Next();
    if (!keys.ok() || !values.ok())
      return false;
    if (is_note.Next() != 0) {
      session->notes.emplace_back(key, value);
    } else if (key == "name") {
      session->name = value;
    } else if (key == "version") {
      session->version = value;
    } else if (key == "start_ns") {
      number(value, &session->start_ns);
    } else if (key == "end_ns") {
      number(value, &session->end_ns);
    } else if (key == "start_wall_ns") {
      number(value, &session->start_wall_ns);
    } else if (key == "event_count") {
      number(value, &session->event_count);
    }
  }
  return is_note.ok();
}

void EncodeDevices(std::span<const Device> rows, ColumnSetWriter* out) {
  for (const Device& device : rows) {
    (*out)[kDeviceKind].Put(static_cast<uint64_t>(device.kind));
    (*out)[kDeviceIndex].PutSigned(device.index);
    (*out)[kDeviceTotal].Put(device.total_bytes);
    PutText(*out, kDeviceUuid, device.uuid);
    PutText(*out, kDeviceName, device.name);
  }
}

bool DecodeDevices(const ColumnSetReader& in, uint32_t rows, std::vector<Device>* out) {
  ColumnReader kind = in.Column(kDeviceKind);
  ColumnReader index = in.Column(kDeviceIndex);
  ColumnReader total = in.Column(kDeviceTotal);
  TextReader uuid(in, kDeviceUuid);
  TextReader name(in, kDeviceName);
  for (uint32_t i = 0; i < rows; ++i) {
    Device device;
    device.kind = static_cast<DeviceKind>(std::min<uint64_t>(kind.Next(), 2));
    device.index = static_cast<int32_t>(index.NextSigned());
    device.total_bytes = total.Next();
    device.uuid = uuid.Next();
    device.name = name.Next();
    if (!kind.ok() || !index.ok() || !total.ok() || !uuid.ok() || !name.ok())
      return false;
    out->push_back(std::move(device));
  }
  return true;
}

void EncodeProcesses(std::span<const Process> rows, ColumnSetWriter* out) {
  for (const Process& process : rows) {
    (*out)[kPid].Put(process.pid);
    (*out)[kParentPid].Put(process.parent_pid);
    (*out)[kRank].Put(process.rank ? static_cast<uint64_t>(*process.rank) + 1 : 0);
    (*out)[kStart].PutSigned(process.start_ns);
    (*out)[kEnd].PutSigned(process.end_ns);
    (*out)[kClosed].Put(process.closed_cleanly ? 1 : 0);
    (*out)[kStatus].Put(process.wait_status ? base::ZigZag(*process.wait_status) + 1 : 0);
    PutText(*out, kCommand, process.command);
    PutText(*out, kExecutable, process.executable);
  }
}

bool DecodeProcesses(const ColumnSetReader& in, uint32_t rows, std::vector<Process>* out) {
  ColumnReader pid = in.Column(kPid);
  ColumnReader parent = in.Column(kParentPid);
  ColumnReader rank = in.Column(kRank);
  ColumnReader start = in.Column(kStart);
  ColumnReader end = in.Column(kEnd);
  ColumnReader closed = in.Column(kClosed);
  ColumnReader status = in.Column(kStatus);
  TextReader command(in, kCommand);
  TextReader executable(in, kExecutable);
  for (uint32_t i = 0; i < rows; ++i) {
    Process process;
    process.pid = static_cast<uint32_t>(pid.Next());
    process.parent_pid = static_cast<uint32_t>(parent.Next());
    if (const uint64_t value = rank.Next(); value != 0) {
      process.rank = static_cast<int32_t>(value - 1);
    }
    process.start_ns = start.NextSigned();
    process.end_ns = end.NextSigned();
    process.closed_cleanly = closed.Next() != 0;
    if (const uint64_t value = status.Next(); value != 0) {
      process.wait_status = static_cast<int>(base::UnZigZag(value - 1));
    }
    process.command = command.Next();
    process.executable = executable.Next();
    if (!pid.ok() || !parent.ok() || !rank.ok() || !start.ok() || !end.ok() || !closed.ok() ||
        !status.ok() || !command.ok() || !executable.ok()) {
      return false;
    }
    out->push_back(std::move(process));
  }
  return true;
}

void EncodeThreads(std::span<const Thread> rows, ColumnSetWriter* out) {
  for (const Thread& thread : rows) {
    (*out)[kThreadProcess].Put(thread.process == kNoProcess ? 0
                                                            : thread.process.value + uint64_t{1});
    (*out)[kThreadTid].Put(thread.tid);
    PutText(*out, kThreadName, thread.name);
  }
}

bool DecodeThreads(const ColumnSetReader& in, uint32_t rows, std::vector<Thread>* out) {
  ColumnReader process = in.Column(kThreadProcess);
  ColumnReader tid = in.Column(kThreadTid);
  TextReader name(in, kThreadName);
  for (uint32_t i = 0; i < rows; ++i) {
    Thread thread;
    const uint64_t owner = process.Next();
    if (owner != 0 && owner <= kNoProcess.value) {
      thread.process = ProcessId{static_cast<uint16_t>(owner - 1)};
    }
    thread.tid = static_cast<uint32_t>(tid.Next());
    thread.name = name.Next();
    if (!process.ok() || !tid.ok() || !name.ok())
      return false;
    out->push_back(std::move(thread));
  }
  return true;
}

void EncodeStrings(std::span<const std::string_view> rows, ColumnSetWriter* out) {
  for (const std::string_view text : rows)
    PutText(*out, 0, text);
}

bool DecodeStrings(const ColumnSetReader& in, uint32_t rows, std::vector<std::string>* out) {
  TextReader text(in, 0);
  for (uint32_t i = 0; i < rows; ++i) {
    const std::string_view row = text.Next();
    if (!text.ok())
      return false;
    out->emplace_back(row);
  }
  return true;
}

void EncodeFrames(std::span<const Frame> rows, ColumnSetWriter* out) {
  uint64_t last_pc = 0;
  for (const Frame& frame : rows) {
    (*out)[kFrameKind].Put(static_cast<uint64_t>(frame.kind));
    (*out)[kFunction].Put(frame.function.value);
    (*out)[kFile].Put(frame.file.value);
    (*out)[kLine].Put(frame.line);
    (*out)[kImage].Put(frame.image.value);
    (*out)[kPc].PutSigned(static_cast<int64_t>(frame.pc - last_pc));
    last_pc = frame.pc;
  }
}

bool DecodeFrames(const ColumnSetReader& in, uint32_t rows, std::vector<Frame>* out) {
  ColumnReader kind = in.Column(kFrameKind);
  ColumnReader function = in.Column(kFunction);
  ColumnReader file = in.Column(kFile);
  ColumnReader line = in.Column(kLine);
  ColumnReader image = in.Column(kImage);
  ColumnReader pc = in.Column(kPc);
  uint64_t last_pc = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    Frame frame;
    frame.kind = kind.Next() == 0 ? FrameKind::kPython : FrameKind::kNative;
    frame.function = NextString(function);
    frame.file = NextString(file);
    frame.line = static_cast<uint32_t>(line.Next());
    frame.image = NextString(image);
    last_pc += static_cast<uint64_t>(pc.NextSigned());
    frame.pc = last_pc;
    if (!kind.ok() || !function.ok() || !file.ok() || !line.ok() || !image.ok() || !pc.ok()) {
      return false;
    }
    out->push_back(frame);
  }
  return true;
}

// A caller's stack is always entered before its callee's: the distance back is small, and whoever
// follows it comes to an end.
void EncodeStacks(std::span<const Stack> rows, uint32_t first, ColumnSetWriter* out) {
  uint32_t last_frame = 0;
  uint64_t last_object = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const uint32_t own = first + static_cast<uint32_t>(i);
    const uint32_t parent = rows[i].parent.value < own ? rows[i].parent.value : 0;
    (*out)[kParent].Put(own - parent);
    (*out)[kFrame].PutSigned(int64_t{rows[i].frame.value} - int64_t{last_frame});
    last_frame = rows[i].frame.value;
    (*out)[kObject].PutSigned(static_cast<int64_t>(rows[i].object - last_object));
    last_object = rows[i].object;
  }
}

bool DecodeStacks(const ColumnSetReader& in, uint32_t rows, std::vector<Stack>* out) {
  ColumnReader parent = in.Column(kParent);
  ColumnReader frame = in.Column(kFrame);
  ColumnReader object = in.Column(kObject);
  uint32_t last_frame = 0;
  uint64_t last_object = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    const uint64_t own = out->size();
    const uint64_t distance = parent.Next();
    last_frame += static_cast<uint32_t>(frame.NextSigned());
    last_object += static_cast<uint64_t>(object.NextSigned());
    if (!parent.ok() || !frame.ok() || !object.ok())
      return false;
    const uint64_t id = distance != 0 && distance <= own ? own - distance : 0;
    out->push_back({StackId{static_cast<uint32_t>(id)}, FrameId{last_frame}, last_object});
  }
  return true;
}

void EncodeLosses(std::span<const Loss> rows, ColumnSetWriter* out) {
  for (const Loss& loss : rows) {
    PutText(*out, kLossName, loss.name);
    (*out)[kLossCount].Put(loss.count);
    (*out)[kLossBytes].Put(loss.bytes);
  }
}

bool DecodeLosses(const ColumnSetReader& in, uint32_t rows, std::vector<Loss>* out) {
  TextReader name(in, kLossName);
  ColumnReader count = in.Column(kLossCount);
  ColumnReader bytes = in.Column(kLossBytes);
  for (uint32_t i = 0; i < rows; ++i) {
    Loss loss{std::string(name.Next()), count.Next(), bytes.Next()};
    if (!name.ok() || !count.ok() || !bytes.ok())
      return false;
    out->push_back(std::move(loss));
  }
  return true;
}

void EncodeSourceLines(std::span<const SourceLineRow> rows, ColumnSetWriter* out) {
  for (const SourceLineRow& row : rows) {
    (*out)[kSourceFile].Put(row.file.value);
    (*out)[kSourceLine].Put(row.line);
    PutText(*out, kSourceText, row.text);
  }
}

bool DecodeSourceLines(const ColumnSetReader& in, uint32_t rows, std::vector<SourceLineRow>* out) {
  ColumnReader file = in.Column(kSourceFile);
  ColumnReader line = in.Column(kSourceLine);
  TextReader text(in, kSourceText);
  for (uint32_t i = 0; i < rows; ++i) {
    SourceLineRow row;
    row.file = NextString(file);
    row.line = static_cast<uint32_t>(line.Next());
    row.text = text.Next();
    if (!file.ok() || !line.ok() || !text.ok())
      return false;
    out->push_back(std::move(row));
  }
  return true;
}

}  // namespace vramscope::trace::finished
