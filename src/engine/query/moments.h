// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "engine/query/report.h"
#include "engine/replay/ledger.h"

// Instants in the words of `--at`, on a recording that was replayed once.
namespace vramscope::engine {

// What to capture for an instant other than peak and end. An error says what the recording has.
util::Result<CaptureRequest> RequestFor(const Ledger& ledger, const Instant& instant);

// "peak", "end", "time", "iteration" or "mark".
const char* InstantKindName(Instant::Kind kind);

// The iteration that an instant is in for those who use the device; nothing where they have none,
// or not the same.
std::optional<int64_t> IterationAt(const Ledger& ledger, trace::DeviceId device, int64_t time_ns);

}  // namespace vramscope::engine
