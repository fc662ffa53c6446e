// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/managed.h"
#include "resolve/price/price.h"
#include "resolve/price/series.h"

namespace vramscope::resolve::price {

// The price of a process's calls by readings. It is kept until NVML's process figure agrees,
// because other processes' allocations and frees may be in it.
struct Estimate {
  int64_t begin_ns = 0;        // of the first call
  int64_t end_ns = 0;          // of the reading after them
  StepRef own;                 // the process's row, with 0 bytes if it got none
  std::vector<StepRef> taken;  // rows that gave memory back, or may have (0 bytes)
  bool sank = false;  // calls that only allocate showed no growth, or freed bytes were in no row
  bool is_context = false;
};

// Bytes of a process that may have changed at any moment of this time.
struct Loose {
  uint32_t process = kNone;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t bytes = 0;
};

// Divides memory among processes by NVML's process figures (see figures.cc).
class Figures {
 public:
  Figures(const DeviceInput& input, bool has_offset, Managed& managed, Book* book);

  // Times in which a process moves memory that no reading has priced yet.
  void AddBusy(uint32_t process, int64_t begin_ns, int64_t end_ns) {
    if (process < states_.size())
      states_[process].busy.Add(begin_ns, end_ns);
  }
  void Prepare();

  void OnContextCreate(uint32_t process) { states_[process].rm_wanted = true; }
  // From now on figures show less than was priced.
  void OnContextDestroy(uint32_t process, bool last);
  void OnGone(uint32_t process);
  void OnLeft(uint32_t process) {
    states_[process].Forget();
    states_[process].waiting = SIZE_MAX;
  }
  void OnLateStartSettled(uint32_t process) { states_[process].late = false; }
  void OnPriced(uint32_t process, Estimate estimate);
  // A row of 0 bytes for a process whose calls were priced together with the holder's.
  void OnPricedTogether(uint32_t process, Estimate estimate, StepRef holder);
  void OnFigure(size_t number, bool checkpointed);

  bool HasContext(uint32_t process) const { return states_[process].context.has_value(); }
  void OthersAre(uint32_t row) { others_ = row; }
  // By samples, the others' row changed by `bytes` while no recorded process called.
  void NoteOthers(int64_t bytes) { others_since_bytes_ += bytes; }
  // Whether unrecorded processes used the device at that time or later.
  bool HasOthers(int64_t since_ns) const;
  // The same, or the UVM driver, whose memory no process figure includes; and NVML lists recorded
  // processes separately.
  bool IsShared(int64_t since_ns) const {
    return tells_apart_ && (HasOthers(since_ns) || managed_.IsUsed());
  }
  const std::vector<Loose>& loose() const { return loose_; }

 private:
  // A figure that did not confirm the prices, usually because calls were under way, and the
  // explicit calls' bytes by then.
  struct Passing {
    size_t figure = 0;
    int64_t explicit_bytes = 0;
  };
  struct State {
    Spans busy;
    Spans moving;  // explicit calls among these
    std::vector<Estimate>
        estimates;                 // since a figure last agreed with the rows, except for this gap
    std::vector<Passing> passing;  // since then too
    int64_t gap = 0;
    int64_t agreed_ns = INT64_MIN;
    bool rm_wanted = false;  // whether the kernel module's memory for the last context is missing
    bool late = false;
    std::optional<StepRef> context;  // row of the last context
    uint32_t rm_row = kNone;
    std::optional<StepRef> holder;  // of prices that are shared
    StepRef share;
    size_t waiting = SIZE_MAX;  // a figure that waits for the others' shares of its row
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
  int64_t others_since_bytes_ = 0;      // bytes that they took since first seen
  int64_t seen_others_ns_ = INT64_MIN;  // when NVML last listed one
  bool tells_apart_ = false;            // NVML lists recorded processes too
  std::vector<Loose> loose_;
};

// The row of unrecorded processes. It follows their memory while no recorded process calls; Figures
// finds changes during calls.
class Others {
 public:
  Others(const DeviceInput& input, Book* book, Figures* figures);

  // NVML lists such processes at some time of the recording.
  bool are_listed() const { return are_listed_; }
  int64_t bytes() const { return row_ == kNone ? 0 : book_.row(row_).bytes; }
  void Change(const When& when, int64_t bytes);
  // At a sample without calls under way or unpriced, the device has `bytes` more than the rows.
  // Returns the others' part of it.
  int64_t OnQuiet(const DeviceSample& sample, int64_t bytes);

 private:
  bool IsListedAround(uint32_t process, int64_t time_ns) const;

  const DeviceInput& input_;
  Book& book_;
  Figures& figures_;
  std::vector<std::vector<size_t>> figures_of_;  // by process
  bool are_listed_ = false;
  uint32_t row_ = kNone;
};

}  // namespace vramscope::resolve::price
