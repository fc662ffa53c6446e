// SPDX-License-Identifier: Apache-2.0
#include "engine/query/moments.h"

#include <algorithm>
#include <string>
#include <utility>

namespace vramscope::engine {
namespace {

// Of a damaged recording the end can lie before its begin.
std::string SecondsText(int64_t time_ns) {
  const int64_t ms = std::max<int64_t>(time_ns, 0) / 1'000'000;
  std::string fraction = std::to_string(ms % 1000);
  fraction.insert(0, 3 - fraction.size(), '0');
  return std::to_string(ms / 1000) + "." + fraction + " s";
}

util::Result<CaptureRequest> WithinIteration(const Ledger& ledger, int64_t number) {
  const std::string option = "--at iter:" + std::to_string(number);
  const size_t processes = ledger.processes().size();
  const std::pair<int64_t, int64_t> nothing{INT64_MAX, INT64_MIN};
  const auto widen = [](std::pair<int64_t, int64_t>& window, const ProcessIterations& iterations,
                        int64_t at) {
    window.first = std::min(window.first, iterations.BeginOf(at));
    window.second = std::max(window.second, iterations.EndOf(at));
  };
  CaptureRequest request;
  request.windows.assign(ledger.devices().size(), nothing);
  std::pair<int64_t, int64_t> all = nothing;
  int64_t count = 0;
  for (uint16_t i = 0; i < processes; ++i) {
    const trace::ProcessId process{i};
    const ProcessIterations& iterations = ledger.iterations().of(process);
    count = std::max(count, iterations.count());
    if (number >= iterations.count())
      continue;
    widen(all, iterations, number);
    for (const Space& space : ledger.spaces()) {
      if (space.process == process)
        widen(request.windows[static_cast<size_t>(space.device.value)], iterations, number);
    }
  }
  if (count == 0) {
    return util::Status::Error(option +
                               ": the recording has no iterations: no optimizer stepped, and no "
                               "mark is named 'iteration'");
  }
  if (number >= count) {
    return util::Status::Error(option + ": the recording has " +
                               (count == 1 ? std::string("one iteration, 0")
                                           : "iterations 0 to " + std::to_string(count - 1)));
  }
  for (std::pair<int64_t, int64_t>& window : request.windows) {
    if (window == nothing)
      window = all;
  }
  return request;
}

}  // namespace

util::Result<CaptureRequest> RequestFor(const Ledger& ledger, const Instant& instant) {
  CaptureRequest request;
  const int64_t start_ns = ledger.first_ns();
  const int64_t end_ns = std::max(ledger.last_ns(), ledger.trace().session().end_ns);
  switch (instant.kind) {
    case Instant::Kind::kSeconds:
    case Instant::Kind::kMonotonic: {
      const bool relative = instant.kind == Instant::Kind::kSeconds;
      const int64_t time_ns = relative ? start_ns + instant.time_ns : instant.time_ns;
      if (time_ns < start_ns || time_ns > end_ns) {
        const std::string text =
            relative ? SecondsText(instant.time_ns) : "@" + std::to_string(instant.time_ns);
        const std::string range =
            relative ? "lasts " + SecondsText(static_cast<int64_t>(static_cast<uint64_t>(end_ns) -
                                                                   static_cast<uint64_t>(start_ns)))
                     : "runs from @" + std::to_string(start_ns) + " to @" + std::to_string(end_ns);
        return util::Status::Error("--at " + text + " is outside the recording, which " + range);
      }
      request.time_ns = time_ns;
      return request;
    }
    case Instant::Kind::kMark: {
      std::string names;
      for (const MarkRecord& mark : ledger.marks()) {
        if (mark.name == instant.mark) {
          request.event_ordinal = mark.event_ordinal;
          return request;
        }
        if (names.find("'" + mark.name + "'") == std::string::npos && names.size() < 400)
          names += (names.empty() ? "'" : ", '") + mark.name + "'";
      }
      return util::Status::Error("no mark '" + instant.mark + "' in the trace; " +
                                 (names.empty() ? "it has no marks" : "it has: " + names));
    }
    case Instant::Kind::kIteration:
      return WithinIteration(ledger, instant.iteration);
    case Instant::Kind::kPeak:
    case Instant::Kind::kEnd:
      break;
  }
  return request;
}

const char* InstantKindName(Instant::Kind kind) {
  switch (kind) {
    case Instant::Kind::kPeak:
      return "peak";
    case Instant::Kind::kEnd:
      return "end";
    case Instant::Kind::kSeconds:
    case Instant::Kind::kMonotonic:
      return "time";
    case Instant::Kind::kIteration:
      return "iteration";
    case Instant::Kind::kMark:
      break;
  }
  return "mark";
}

std::optional<int64_t> IterationAt(const Ledger& ledger, trace::DeviceId device, int64_t time_ns) {
  std::optional<int64_t> found;
  for (const Space& space : ledger.spaces()) {
    const ProcessIterations& iterations = ledger.iterations().of(space.process);
    if (space.device != device || iterations.empty())
      continue;
    const int64_t number = iterations.NumberAt(time_ns);
    if (number < 0 || number >= iterations.count() || (found && *found != number))
      return std::nullopt;
    found = number;
  }
  return found;
}

}  // namespace vramscope::engine
