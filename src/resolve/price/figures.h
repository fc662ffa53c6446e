// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/managed.h"
#include "resolve/price/price.h"
#include "resolve/price/spans.h"

namespace vramscope::resolve::price {

// What readings priced of a process's calls, until NVML's figure of the process agrees: somebody
// else's memory may be in it, or somebody's free.
struct Estimate {
  int64_t begin_ns = 0;        // of the first call
  int64_t end_ns = 0;          // of the reading behind them
  StepRef own;                 // the process's row, of no bytes where it got none
  std::vector<StepRef> taken;  // what went back from rows, or can have, of no bytes
  bool sank = false;           // nothing showed of calls that only take, or what went was in no row
  bool is_context = false;
};

// Bytes of a process that may have come, or gone, at any time of this one.
struct Loose {
  uint32_t process = kNone;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t bytes = 0;
};

// Lets NVML's figures of processes say what is whose (see figures.cc).
class Figures {
 public:
  Figures(const DeviceInput& input, bool has_offset, Managed& managed, Book* book);

  // Spans in which something of a process moves that no reading has priced yet.
  void AddBusy(uint32_t process, int64_t begin_ns, int64_t end_ns) {
    if (process < states_.size())
      states_[process].busy.Add(begin_ns, end_ns);
  }
  void Prepare();

  void OnContextCreate(uint32_t process) { states_[process].rm_wanted = true; }
  // Figures are now of less than was priced.
  void OnContextDestroy(uint32_t process, bool last);
  void OnGone(uint32_t process);
  void OnLeft(uint32_t process) {
    states_[process].Forget();
    states_[process].waiting = SIZE_MAX;
  }
  void OnLateStartSettled(uint32_t process) { states_[process].late = false; }
  void OnPriced(uint32_t process, Estimate estimate);
  // A row of no bytes, for a process whose calls were priced together with the holder's.
  void OnPricedTogether(uint32_t process, Estimate estimate, StepRef holder);
  void OnFigure(size_t number, bool checkpointed);

  bool HasContext(uint32_t process) const { return states_[process].context.has_value(); }
  void OthersAre(uint32_t row) { others_ = row; }
  // So much of their row's bytes came, or went, by samples while nobody called.
  void NoteOthers(int64_t bytes) { others_since_bytes_ += bytes; }
  // Whether others used the device at that time or later.
  bool HasOthers(int64_t since_ns) const;
  // Or the UVM driver, whose memory is in no figure of a process; and NVML tells recorded processes
  // from them.
  bool IsShared(int64_t since_ns) const {
    return tells_apart_ && (HasOthers(since_ns) || managed_.IsUsed());
  }
  const std::vector<Loose>& loose() const { return loose_; }

 private:
  // A figure that did not settle what was priced, of a moment in which calls were under way as a
  // rule, and what explicit calls had taken by then.
  struct Passing {
    size_t figure = 0;
    int64_t explicit_bytes = 0;
  };
  struct State {
    Spans busy;
    Spans moving;                     // of these, explicit calls
    std::vector<Estimate> estimates;  // since a figure last agreed with the rows, but for this gap
    std::vector<Passing> passing;     // since then, too
    int64_t gap = 0;
    int64_t agreed_ns = INT64_MIN;
    bool rm_wanted = false;  // of the kernel module's memory for the last context
    bool late = false;
    std::optional<StepRef> context;  // the last one's row
    uint32_t rm_row = kNone;
    std::optional<StepRef> holder;  // of what was priced together
    StepRef share;
    size_t waiting = SIZE_MAX;  // a figure, until the others have said what is theirs of its row
    int64_t last_call_ns = INT64_MIN;

    void Forget() {
      estimates.clear();
      passing.clear();
    }
  };

  void Settle(size_t number);
  bool GoesOn(const ProcessSample& figure) const;
  bool IsTelling(const ProcessSample& figure, int64_t growth) const;
  bool IsHolder(uint32_t process) const;
  bool TakeShare(const ProcessSample& figure);
  bool Agree(size_t number);
  int64_t MakeGood(uint32_t process, int64_t growth);
  void NotePassing(size_t number);
  void HoldToPassing(const ProcessSample& figure);
  int64_t MoveFromOthers(const Estimate& estimate, int64_t bytes);
  void FindRmInternal(const ProcessSample& figure);

  const DeviceInput& input_;
  Managed& managed_;
  Book& book_;
  bool has_offset_;
  std::vector<State> states_;
  uint32_t others_ = kNone;             // their row
  int64_t others_since_bytes_ = 0;      // what they took since they were first seen
  int64_t seen_others_ns_ = INT64_MIN;  // when NVML last listed one
  bool tells_apart_ = false;            // it lists recorded ones too
  std::vector<Loose> loose_;
};

}  // namespace vramscope::resolve::price
