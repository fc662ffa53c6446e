// SPDX-License-Identifier: Apache-2.0
// The input is what a frame of a finished file unpacks to, after a byte that says of which kind:
// the way past zstd, which a fuzzer would not find.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "trace/finished/event_codec.h"
#include "trace/finished/layout.h"
#include "trace/finished/table_codec.h"

namespace {

using namespace vramscope::trace;
using namespace vramscope::trace::finished;

template <class Row, class Decode>
void DecodeRows(const ColumnSetReader& columns, uint32_t count, const Decode& decode) {
  std::vector<Row> rows(1);
  if (!decode(columns, count, &rows))
    return;
  // A whole frame has all its rows.
  if (rows.size() != count + size_t{1})
    std::abort();
}

void DecodeEvents(const ColumnSetReader& columns, uint32_t count) {
  const TableSizes sizes{.strings = 9, .stacks = 8, .threads = 3, .processes = 2, .devices = 2};
  EventDecoder decoder(sizes);
  std::vector<Event> events;
  (void)decoder.Decode(columns, count, 1000, &events);
  for (const Event& event : events) {
    if (event.stack.value >= sizes.stacks || event.native_stack.value >= sizes.stacks ||
        event.name.value >= sizes.strings || event.api.value >= sizes.strings ||
        event.thread.value >= sizes.threads ||
        (event.process != kNoProcess && event.process.value >= sizes.processes) ||
        event.device.value < -1 || event.device.value >= static_cast<int>(sizes.devices)) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2)
    return 0;
  ColumnSetReader columns;
  if (!columns.Parse(std::span<const uint8_t>(data + 2, size - 2)))
    return 0;
  const uint32_t count = data[1];
  switch (static_cast<FrameType>(data[0])) {
    case FrameType::kSession: {
      SessionInfo session;
      (void)DecodeSession(columns, count, &session);
      break;
    }
    case FrameType::kDevices:
      DecodeRows<Device>(columns, count, DecodeDevices);
      break;
    case FrameType::kProcesses:
      DecodeRows<Process>(columns, count, DecodeProcesses);
      break;
    case FrameType::kThreads:
      DecodeRows<Thread>(columns, count, DecodeThreads);
      break;
    case FrameType::kStrings:
      DecodeRows<std::string>(columns, count, DecodeStrings);
      break;
    case FrameType::kFrames:
      DecodeRows<Frame>(columns, count, DecodeFrames);
      break;
    case FrameType::kStacks:
      DecodeRows<Stack>(columns, count, DecodeStacks);
      break;
    case FrameType::kSourceLines:
      DecodeRows<SourceLineRow>(columns, count, DecodeSourceLines);
      break;
    case FrameType::kLosses:
      DecodeRows<Loss>(columns, count, DecodeLosses);
      break;
    default:
      DecodeEvents(columns, count);
  }
  return 0;
}
