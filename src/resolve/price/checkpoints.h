// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// Finds out when the driver had moved all memory of a process to the host (see checkpoints.cc).
class Checkpoints {
 public:
  // A process's memory went or came back; or a call did what figures had told already.
  struct Change {
    uint32_t process = kNone;
    When when;
    bool leaves = false;
    bool is_known = false;
  };

  Checkpoints(const DeviceInput& input, const Book& book)
      : input_(input), book_(book), states_(input.processes.size()) {}

  void OnCheckpoint(const CheckpointCall& call);
  // Its last context ended, or it has one again: NVML lists no process without.
  void OnContexts(uint32_t process, bool has_some) {
    if (!std::exchange(states_[process].has_context, has_some))
      states_[process].figures.clear();
  }
  // Before the rows change by them.
  void OnCall(uint32_t process, int64_t time_ns);
  void OnEnd(uint32_t process, int64_t time_ns);
  void OnSample(const DeviceSample& sample);
  void OnFigure(const ProcessSample& figure);

  bool IsCheckpointed(uint32_t process) const {
    return process < states_.size() && states_[process].is_checkpointed;
  }
  // Of all that is there.
  int64_t DeviceTotal() const;
  const std::vector<Checkpointed>& found() const { return found_; }
  const std::vector<Change>& changes() const { return changes_; }

 private:
  struct State {
    bool is_checkpointed = false;
    bool has_context = true;
    size_t latest = 0;            // in found_
    int64_t back_ns = INT64_MIN;  // when it last came back
    std::vector<size_t> figures;  // so far
  };
  struct Seen {
    int64_t begin_ns;
    int64_t used_bytes;
    int64_t ledger_bytes;
  };

  bool IsBack(const DeviceSample& sample, uint32_t process) const;
  int64_t LeftAt(uint32_t process) const { return found_[states_[process].latest].begin_ns; }
  void Leave(uint32_t process, const When& when);
  void Return(uint32_t process, const When& when);
  void LookFor(uint32_t process, const When& when);
  int64_t LastAgreeing(int64_t not_before_ns) const;

  const DeviceInput& input_;
  const Book& book_;
  std::vector<State> states_;
  std::vector<Seen> samples_;
  std::vector<Checkpointed> found_;
  std::vector<Change> changes_;
};

}  // namespace vramscope::resolve::price
