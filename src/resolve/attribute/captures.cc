// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/captures.h"

#include <string_view>

namespace vramscope::resolve {

void Captures::On(const trace::EventContext& at, const trace::Capture& e) {
  const std::pair<uint32_t, uint32_t> thread{at.process.value, at.thread.value};
  const auto latest = latest_.find(thread);
  if (e.begins == 0) {
    if (latest != latest_.end() && all_[latest->second].end_ns == 0)
      all_[latest->second].end_ns = at.time_ns;
    return;
  }
  if (all_.size() == kMostCaptures) {
    ++unlisted_;
    latest_.erase(thread);
    return;
  }
  latest_[thread] = all_.size();
  all_.push_back({at.process, e.size, e.stack, at.time_ns, 0});
}

void Captures::On(const trace::EventContext& at, const trace::Implicit& e) {
  if (e.kind != format::ImplicitKind::kGraph || trace_.string(e.name) != "instantiate")
    return;
  const auto latest = latest_.find({at.process.value, at.thread.value});
  if (latest == latest_.end() || all_[latest->second].end_ns == 0)
    return;
  all_[latest->second].end_ns = at.time_ns;
  latest_.erase(latest);
}

}  // namespace vramscope::resolve
