// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "engine/query/report.h"
#include "util/json_writer.h"
#include "util/status.h"

// What the HTML page is drawn from: one JSON object, which viewer/src/types.js describes.
namespace vramscope::report {

inline constexpr char kPageSchema[] = "vramscope.page/1";

struct PageLimits {
  size_t buckets = 600;        // of a device's timeline
  size_t lives = 100'000;      // allocations listed one by one
  size_t nvml_samples = 6000;  // of a device; beyond that the highest of each stretch stands for it
};

// Tables hold only what the page's lives use.
util::Status WritePageData(engine::Analysis& analysis,
                           const PageLimits& limits,
                           util::JsonWriter& json);

}  // namespace vramscope::report
