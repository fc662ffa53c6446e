// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/price.h"

namespace vramscope::resolve::price {

// Finds when all memory of a process was moved to the host (see checkpoints.cc).
class Checkpoints {
 public:
  // A process's memory left or came back; or a call confirmed what figures had shown.
  struct Change {
    uint32_t process = kNone;
    When when;
    bool leaves = false;
    bool is_known = false;
  };

  Checkpoints(const DeviceInput& input, const Book& book)
      : input_(input), book_(book), states_(input.processes.size()) {}

  void OnCheckpoint(const CheckpointCall& call);
  // Its last context ended, or it has one again. NVML does not list processes without a context.
  void OnContexts(uint32_t process, bool has_some) {
    if (!std::exchange(states_[process].has_context, has_some))
      states_[process].figures.clear();
  }
  // Call before the rows change by them.
  void OnCall(uint32_t process, int64_t time_ns);
  void OnEnd(uint32_t process, int64_t time_ns);
  void OnSample(const DeviceSample& sample);
  void OnFigure(const ProcessSample& figure);

  bool IsCheckpointed(uint32_t process) const {
    return process < states_.size() && states_[process].is_checkpointed;
  }
  // Bytes of all processes that are not checkpointed.
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

// Memory needed to move a process to the host and back. Measured on an H200: during such a call the
// driver allocates 4 MiB more for the process, which NVML's process figure includes. The kernel
// module allocates up to 3.25 MiB, slightly longer, which no process figure includes.
class Moving {
 public:
  Moving(const DeviceInput& input, const Checkpoints& checkpoints, Book* book)
      : input_(input), checkpoints_(checkpoints), book_(*book) {}

  // At a sample without other calls than moves, the device has `bytes` more than the rows. Returns
  // the part that a move causes.
  int64_t OnSample(const When& sample, int64_t bytes);
  // A move ended, or no move was under way at the sample. Its memory may be freed from then on,
  // which only the next sample shows. Returns the change in bytes.
  int64_t End(const When& when);
  // A move was under way at the last sample.
  bool goes_on() const { return goes_on_; }

 private:
  // Finds the process that is moved at the sample; kNone if none or several.
  void FindMove(const When& sample);
  void Set(uint32_t* row, uint32_t process, const When& when, int64_t bytes);

  const DeviceInput& input_;
  const Checkpoints& checkpoints_;
  Book& book_;
  uint32_t moved_ = kNone;  // process that is moved at the last sample
  uint32_t row_ = kNone;    // of that process
  uint32_t rm_row_ = kNone;
  bool goes_on_ = false;
};

}  // namespace vramscope::resolve::price
