// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tables/rows.h"
#include "trace/trace.h"

namespace vramscope::resolve {

inline constexpr size_t kMostCaptures = size_t{1} << 16;

// When each CUDA graph was captured and made executable.
class Captures {
 public:
  explicit Captures(const trace::Trace& trace) : trace_(trace) {}

  void On(const trace::EventContext& at, const trace::Capture& e);
  // The driver's memory for the executable graph is the capture's, if its thread makes it before
  // it captures another.
  void On(const trace::EventContext& at, const trace::Implicit& e);

  // In the order in which they began. An end of 0: not known.
  struct Entry {
    trace::ProcessId process;
    tables::StringId size;
    tables::StackId stack;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  const std::vector<Entry>& all() const { return all_; }
  uint64_t unlisted() const { return unlisted_; }

 private:
  const trace::Trace& trace_;
  std::vector<Entry> all_;
  uint64_t unlisted_ = 0;
  // By process and thread: its latest capture.
  std::map<std::pair<uint32_t, uint32_t>, size_t> latest_;
};

}  // namespace vramscope::resolve
