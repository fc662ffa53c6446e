// SPDX-License-Identifier: Apache-2.0
#include "trace/finished/finished_trace.h"

#include <utility>

#include "format/enums.h"
#include "trace/finished/event_codec.h"
#include "trace/finished/table_codec.h"

namespace vramscope::trace::finished {
namespace {

// Tables may unpack to so many times the file's size, and no more: a few kilobytes must not fill
// the memory of whoever opens them.
constexpr uint64_t kMaxTableRatio = 64;
constexpr uint64_t kTableAllowance = 16u << 20;
// Rows that a damaged frame may have held.
constexpr int64_t kMaxGapRows = 4 * kMaxRows;

uint64_t LineKey(StringId file, uint32_t line) {
  return (uint64_t{file.value} << 32) | line;
}

// Makes the next row of `table` the row `first`, over the gap that a damaged frame left.
template <class Row>
bool AlignTo(int64_t first, std::vector<Row>* table) {
  const auto size = static_cast<int64_t>(table->size());
  if (first < size || first - size > kMaxGapRows)
    return false;
  table->resize(static_cast<size_t>(first));
  return true;
}

}  // namespace

util::Result<std::unique_ptr<Trace>> FinishedTrace::Open(const std::string& path) {
  auto mapped = util::MappedFile::Open(path);
  if (!mapped.ok())
    return mapped.status();
  std::unique_ptr<FinishedTrace> trace(new FinishedTrace);
  trace->mapped_ = std::move(*mapped);
  VRAMSCOPE_RETURN_IF_ERROR(trace->Load(trace->mapped_.bytes(), path));
  return std::unique_ptr<Trace>(std::move(trace));
}

util::Result<std::unique_ptr<Trace>> FinishedTrace::FromBytes(std::span<const uint8_t> bytes,
                                                              const std::string& name) {
  std::unique_ptr<FinishedTrace> trace(new FinishedTrace);
  VRAMSCOPE_RETURN_IF_ERROR(trace->Load(bytes, name));
  return std::unique_ptr<Trace>(std::move(trace));
}

util::Status FinishedTrace::Load(std::span<const uint8_t> bytes, const std::string& name) {
  VRAMSCOPE_RETURN_IF_ERROR(reader_.Open(bytes, name));
  session_.path = name;
  session_.finished = true;
  session_.file_bytes = bytes.size();
  ReadTables();
  CheckReferences();
  session_.event_count = 0;
  for (const FrameRef& frame : event_frames_)
    session_.event_count += frame.rows;
  damage_counted_.resize(event_frames_.size());
  if (reader_.frames().empty()) {
    return util::Status::Error(name + ": is damaged: none of its " + std::to_string(bytes.size()) +
                               " bytes can be read");
  }
  CountDamage(reader_.damaged_places(), reader_.damaged_bytes());
  return {};
}

void FinishedTrace::ReadTables() {
  uint64_t places = 0;
  uint64_t damaged = 0;
  uint64_t budget = kTableAllowance + kMaxTableRatio * session_.file_bytes;
  ColumnSetReader columns;
  for (const FrameRef& frame : reader_.frames()) {
    if (frame.type == FrameType::kEvents) {
      event_frames_.push_back(frame);
      continue;
    }
    const bool affordable = frame.raw_bytes <= budget && frame.rows <= frame.raw_bytes;
    if (affordable)
      budget -= frame.raw_bytes;
    if (!affordable || !reader_.Read(frame, &columns) || !ReadTable(frame, columns)) {
      ++places;
      damaged += frame.stored_bytes;
    }
  }
  CountDamage(places, damaged);
}

bool FinishedTrace::ReadTable(const FrameRef& frame, const ColumnSetReader& columns) {
  switch (frame.type) {
    case FrameType::kSession:
      session_.notes.clear();
      return DecodeSession(columns, frame.rows, &session_);
    case FrameType::kDevices:
      return AlignTo(frame.first, &devices_) && DecodeDevices(columns, frame.rows, &devices_);
    case FrameType::kProcesses:
      return AlignTo(frame.first, &processes_) && DecodeProcesses(columns, frame.rows, &processes_);
    case FrameType::kThreads:
      return AlignTo(frame.first, &threads_) && DecodeThreads(columns, frame.rows, &threads_);
    case FrameType::kStrings:
      return AlignTo(frame.first, &strings_) && DecodeStrings(columns, frame.rows, &strings_);
    case FrameType::kFrames:
      return AlignTo(frame.first, &frames_) && DecodeFrames(columns, frame.rows, &frames_);
    case FrameType::kStacks:
      return AlignTo(frame.first, &stacks_) && DecodeStacks(columns, frame.rows, &stacks_);
    case FrameType::kSourceLines: {
      std::vector<SourceLineRow> rows;
      const bool whole = DecodeSourceLines(columns, frame.rows, &rows);
      for (SourceLineRow& row : rows) {
        source_lines_.insert_or_assign(LineKey(row.file, row.line), std::move(row.text));
      }
      return whole;
    }
    case FrameType::kLosses: {
      // The last list is the complete one, and says again what the earlier ones said.
      std::vector<Loss> rows;
      if (!DecodeLosses(columns, frame.rows, &rows))
        return false;
      losses_ = std::move(rows);
      return true;
    }
    default:
      return true;  // of a newer minor version
  }
}

void FinishedTrace::CheckReferences() {
  if (devices_.size() > INT16_MAX)
    devices_.resize(INT16_MAX);
  if (processes_.size() > kNoProcess.value)
    processes_.resize(kNoProcess.value);
  for (Thread& thread : threads_) {
    if (thread.process.value >= processes_.size())
      thread.process = kNoProcess;
  }
  const auto check = [](auto* id, size_t size) {
    if (id->value >= size)
      *id = {};
  };
  for (Frame& frame : frames_) {
    check(&frame.function, strings_.size());
    check(&frame.file, strings_.size());
    check(&frame.image, strings_.size());
  }
  for (Stack& stack : stacks_)
    check(&stack.frame, frames_.size());
}

void FinishedTrace::CountDamage(uint64_t places, uint64_t bytes) {
  if (places == 0)
    return;
  const std::string name = format::LossName(static_cast<uint64_t>(format::Loss::kDamagedBytes));
  for (Loss& loss : losses_) {
    if (loss.name != name)
      continue;
    loss.count += places;
    loss.bytes += bytes;
    return;
  }
  losses_.push_back({name, places, bytes});
}

std::string_view FinishedTrace::SourceLine(StringId file, uint32_t line) const {
  const auto found = source_lines_.find(LineKey(file, line));
  return found != source_lines_.end() ? std::string_view(found->second) : std::string_view();
}

util::Status FinishedTrace::ForEachEvent(const EventSink& sink) {
  EventDecoder decoder({.strings = strings_.size(),
                        .stacks = stacks_.size(),
                        .threads = threads_.size(),
                        .processes = processes_.size(),
                        .devices = devices_.size()});
  std::vector<Event> events;
  int64_t last_ns = INT64_MIN;
  for (size_t i = 0; i < event_frames_.size(); ++i) {
    const FrameRef& frame = event_frames_[i];
    ColumnSetReader columns;
    events.clear();
    const bool whole = frame.rows <= frame.raw_bytes && reader_.Read(frame, &columns) &&
                       decoder.Decode(columns, frame.rows, frame.first, &events);
    if (!whole && !damage_counted_[i]) {
      damage_counted_[i] = true;
      CountDamage(1, frame.stored_bytes);
    }
    // Time order is a promise even where the file breaks it.
    for (Event& event : events) {
      if (event.time_ns < last_ns)
        event.time_ns = last_ns;
      last_ns = event.time_ns;
    }
    if (!events.empty())
      sink(events);
  }
  return {};
}

}  // namespace vramscope::trace::finished
