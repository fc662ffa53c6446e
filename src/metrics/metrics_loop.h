// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "metrics/collector.h"
#include "metrics/http_server.h"
#include "metrics/textfile.h"

// Reads again and again, and publishes what was read, until SIGINT or SIGTERM.
namespace vramscope::cli {

// Reading takes at most a tenth of the time, whatever the period. The first answers wait for the
// first reading. Ends the process.
[[noreturn]] void ServeMetrics(Collector* collector, HttpServer* server, int64_t period_ns);
[[noreturn]] void WriteMetrics(Collector* collector, const Textfile& file, int64_t period_ns);

}  // namespace vramscope::cli
