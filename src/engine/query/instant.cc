// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "engine/query/report.h"

namespace vramscope::engine {
namespace {

bool ParseWhole(std::string_view text, int64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return !text.empty() && error == std::errc() && stop == end && *value >= 0;
}

}  // namespace

util::Result<Instant> ParseInstant(const std::string& text) {
  Instant instant;
  const std::string_view view = text;
  if (text == "peak")
    return instant;
  if (text == "end") {
    instant.kind = Instant::Kind::kEnd;
    return instant;
  }
  if (view.starts_with("mark:") && view.size() > 5) {
    instant.kind = Instant::Kind::kMark;
    instant.mark = text.substr(5);
    return instant;
  }
  if (view.starts_with("iter:") && ParseWhole(view.substr(5), &instant.iteration)) {
    instant.kind = Instant::Kind::kIteration;
    return instant;
  }
  if (view.starts_with("@") && ParseWhole(view.substr(1), &instant.time_ns)) {
    instant.kind = Instant::Kind::kMonotonic;
    return instant;
  }
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  if (!text.empty() && error == std::errc() && stop == end && seconds >= 0 && seconds < 1e9) {
    instant.kind = Instant::Kind::kSeconds;
    instant.time_ns = std::llround(seconds * 1e9);
    return instant;
  }
  return util::Status::Error("unknown instant '" + text +
                             "'; use peak, end, SECONDS, @NANOSECONDS, iter:N or mark:NAME");
}

}  // namespace vramscope::engine
