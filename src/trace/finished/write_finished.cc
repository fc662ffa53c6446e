// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "trace/finished/event_codec.h"
#include "trace/finished/frame_io.h"
#include "trace/finished/table_codec.h"
#include "trace/trace.h"

namespace vramscope::trace {
namespace finished {
namespace {

// A line longer than this is generated code; its beginning tells as much.
constexpr size_t kMaxLineBytes = 1024;

class Writer {
 public:
  Writer(Trace& trace, FrameWriter file, const std::function<void(double)>& progress)
      : trace_(trace), file_(std::move(file)), progress_(progress) {}

  util::Status Run();

 private:
  util::Status WriteTables();
  util::Status WriteSourceLines();
  util::Status WriteSessionAndLosses();
  util::Status WriteEvents();

  // One frame of rows [first, first + rows).
  util::Status Put(FrameType type, size_t first, size_t rows) {
    if (rows == 0)
      return {};
    return file_.Write(type, static_cast<uint32_t>(rows), static_cast<int64_t>(first),
                       static_cast<int64_t>(first + rows - 1), &columns_);
  }
  // Rows [*written, size) of a table, in frames of a bounded size. `encode(first, rows)` fills the
  // columns.
  template <class Encode>
  util::Status PutTable(FrameType type, size_t size, size_t* written, const Encode& encode) {
    while (*written < size) {
      const size_t rows = std::min(size - *written, kTableRowsPerFrame);
      encode(*written, rows);
      VRAMSCOPE_RETURN_IF_ERROR(Put(type, *written, rows));
      *written += rows;
    }
    return {};
  }
  util::Status PutStrings();

  Trace& trace_;
  FrameWriter file_;
  const std::function<void(double)>& progress_;
  ColumnSetWriter columns_;
  // Rows written of each table; row 0 of the last four is "none", which every reader has.
  size_t devices_ = 0;
  size_t processes_ = 0;
  size_t threads_ = 1;
  size_t strings_ = 1;
  size_t frames_ = 1;
  size_t stacks_ = 1;
};

util::Status Writer::PutStrings() {
  while (strings_ < trace_.string_count()) {
    std::vector<std::string_view> rows;
    size_t text_bytes = 0;
    while (strings_ + rows.size() < trace_.string_count() && rows.size() < kTableRowsPerFrame &&
           text_bytes < kTableTextPerFrame) {
      rows.push_back(trace_.string(StringId{static_cast<uint32_t>(strings_ + rows.size())}));
      text_bytes += rows.back().size();
    }
    EncodeStrings(rows, &columns_);
    VRAMSCOPE_RETURN_IF_ERROR(Put(FrameType::kStrings, strings_, rows.size()));
    strings_ += rows.size();
  }
  return {};
}

util::Status Writer::WriteTables() {
  VRAMSCOPE_RETURN_IF_ERROR(PutTable(FrameType::kDevices, trace_.devices().size(), &devices_,
                                     [&](size_t first, size_t n) {
                                       EncodeDevices(trace_.devices().subspan(first, n), &columns_);
                                     }));
  VRAMSCOPE_RETURN_IF_ERROR(PutTable(
      FrameType::kProcesses, trace_.processes().size(), &processes_, [&](size_t first, size_t n) {
        EncodeProcesses(trace_.processes().subspan(first, n), &columns_);
      }));
  VRAMSCOPE_RETURN_IF_ERROR(PutTable(FrameType::kThreads, trace_.threads().size(), &threads_,
                                     [&](size_t first, size_t n) {
                                       EncodeThreads(trace_.threads().subspan(first, n), &columns_);
                                     }));
  VRAMSCOPE_RETURN_IF_ERROR(PutStrings());
  VRAMSCOPE_RETURN_IF_ERROR(
      PutTable(FrameType::kFrames, trace_.frame_count(), &frames_, [&](size_t first, size_t n) {
        std::vector<Frame> rows;
        for (size_t i = first; i < first + n; ++i) {
          rows.push_back(trace_.frame(FrameId{static_cast<uint32_t>(i)}));
        }
        EncodeFrames(rows, &columns_);
      }));
  return PutTable(FrameType::kStacks, trace_.stack_count(), &stacks_, [&](size_t first, size_t n) {
    std::vector<Stack> rows;
    for (size_t i = first; i < first + n; ++i) {
      rows.push_back(trace_.stack(StackId{static_cast<uint32_t>(i)}));
    }
    EncodeStacks(rows, static_cast<uint32_t>(first), &columns_);
  });
}

util::Status Writer::WriteSourceLines() {
  std::vector<std::pair<uint32_t, uint32_t>> places;
  for (size_t i = 1; i < trace_.frame_count(); ++i) {
    const Frame& frame = trace_.frame(FrameId{static_cast<uint32_t>(i)});
    if (frame.file.value != 0 && frame.line != 0)
      places.emplace_back(frame.file.value, frame.line);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  std::vector<SourceLineRow> rows;
  size_t text_bytes = 0;
  size_t first = 0;
  const auto flush = [&]() -> util::Status {
    EncodeSourceLines(rows, &columns_);
    VRAMSCOPE_RETURN_IF_ERROR(Put(FrameType::kSourceLines, first, rows.size()));
    first += rows.size();
    rows.clear();
    text_bytes = 0;
    return {};
  };
  for (const auto& [file, line] : places) {
    const std::string_view text = trace_.SourceLine(StringId{file}, line);
    if (text.empty())
      continue;
    rows.push_back({StringId{file}, line, std::string(text.substr(0, kMaxLineBytes))});
    text_bytes += rows.back().text.size();
    if (rows.size() >= kTableRowsPerFrame || text_bytes >= kTableTextPerFrame) {
      VRAMSCOPE_RETURN_IF_ERROR(flush());
    }
  }
  return flush();
}

util::Status Writer::WriteSessionAndLosses() {
  EncodeSession(trace_.session(), &columns_);
  VRAMSCOPE_RETURN_IF_ERROR(Put(FrameType::kSession, 0, SessionRows(trace_.session())));
  EncodeLosses(trace_.losses(), &columns_);
  return Put(FrameType::kLosses, 0, trace_.losses().size());
}

util::Status Writer::WriteEvents() {
  EventEncoder encoder;
  std::vector<Event> pending;
  pending.reserve(kEventsPerFrame);
  util::Status status;
  uint64_t done = 0;
  const uint64_t expected = trace_.session().event_count;
  const auto flush = [&] {
    if (pending.empty() || !status.ok())
      return;
    encoder.Encode(pending, &columns_);
    status = file_.Write(FrameType::kEvents, static_cast<uint32_t>(pending.size()),
                         pending.front().time_ns, pending.back().time_ns, &columns_);
    done += pending.size();
    pending.clear();
    if (progress_ && expected != 0) {
      progress_(std::min(1.0, static_cast<double>(done) / static_cast<double>(expected)));
    }
  };
  const util::Status streamed = trace_.ForEachEvent([&](std::span<const Event> batch) {
    while (!batch.empty() && status.ok()) {
      const size_t take = std::min(batch.size(), kEventsPerFrame - pending.size());
      pending.insert(pending.end(), batch.begin(), batch.begin() + static_cast<ptrdiff_t>(take));
      batch = batch.subspan(take);
      if (pending.size() == kEventsPerFrame)
        flush();
    }
  });
  flush();
  return streamed.ok() ? status : streamed;
}

// Tables go before the events, so that a file whose end is lost still has its names. What the pass
// over the events added to them, and its losses, follow after.
util::Status Writer::Run() {
  VRAMSCOPE_RETURN_IF_ERROR(WriteSessionAndLosses());
  VRAMSCOPE_RETURN_IF_ERROR(WriteTables());
  VRAMSCOPE_RETURN_IF_ERROR(WriteSourceLines());
  VRAMSCOPE_RETURN_IF_ERROR(WriteEvents());
  VRAMSCOPE_RETURN_IF_ERROR(WriteTables());
  VRAMSCOPE_RETURN_IF_ERROR(WriteSessionAndLosses());
  return file_.Finish();
}

}  // namespace
}  // namespace finished

util::Status WriteFinished(Trace& trace,
                           const std::string& path,
                           const std::function<void(double)>& progress) {
  auto file = finished::FrameWriter::Create(path);
  if (!file.ok())
    return file.status();
  return finished::Writer(trace, std::move(*file), progress).Run();
}

}  // namespace vramscope::trace
