// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "resolve/attribute/owners.h"
#include "resolve/attribute/parts.h"
#include "resolve/attribute/progress.h"
#include "resolve/driver/price_inputs.h"
#include "resolve/ledger/accounts.h"
#include "tables/rows.h"
#include "trace/event.h"

namespace vramscope::resolve {

// A row whose bytes change by readings and not by allocations: driver-owned memory, what pools
// hold, other processes. Few.
struct Counter {
  trace::DeviceId device = trace::kNoDevice;
  uint32_t account = kNoIndex;  // kNoIndex: of no recorded process
  tables::SegmentId segment;    // not 0: what this segment holds; the rest but `bytes` is its
  OwnerId owner;
  Part part = Part::kOtherDriver;
  tables::Estimated estimated = tables::Estimated::kExact;
  std::string trigger;  // "cuLaunchKernel name": who caused it
  tables::StringId api;
  tables::StackId stack;
  tables::StackId native;
  tables::ThreadId thread;
  uint64_t context = 0;
  int64_t alloc_ns = 0;
  int64_t bytes = 0;  // the sum of its steps
};

struct CounterStep {
  uint32_t counter = 0;
  int64_t time_ns = 0;
  int64_t bytes = 0;
};

class Counters {
 public:
  Counters(Accounts& accounts, PriceInputs& prices, const Progress& progress)
      : accounts_(accounts), prices_(prices), progress_(progress) {}

  uint32_t Add(Counter counter) {
    counters_.push_back(std::move(counter));
    return static_cast<uint32_t>(counters_.size() - 1);
  }
  // Of what an account has; its owner and part are for the caller to fill in.
  Counter CounterOf(uint32_t account) const {
    Counter counter;
    counter.device = accounts_[account].device;
    counter.account = account;
    return counter;
  }
  uint32_t AddOfSegment(uint32_t account, tables::SegmentId segment) {
    Counter counter = CounterOf(account);
    counter.segment = segment;
    return Add(std::move(counter));
  }
  // By the event under way. What a segment holds moves by the segment's doing.
  void Step(uint32_t counter, int64_t bytes) { Step(counter, bytes, progress_.now_ns); }
  void StepAndMove(uint32_t counter, int64_t bytes) {
    if (bytes == 0)
      return;
    Step(counter, bytes);
    const Account& account = accounts_[counters_[counter].account];
    prices_.Move(account.process, account.device, bytes);
  }

  // What an account had before the recording. It starts at what is known and sinks with each
  // unknown free; where it would sink below zero, more must have been there throughout.
  uint32_t Before(uint32_t account);
  int64_t BytesBefore(uint32_t account) const {
    const BeforeRecording* before = before_.Find(account);
    return before == nullptr || before->counter == kNoIndex ? 0 : counters_[before->counter].bytes;
  }
  // So much more must have been there from the start.
  void RaiseBefore(uint32_t account, int64_t bytes) {
    before_[account].missing = std::max(before_[account].missing, bytes);
  }
  int64_t MissingBefore(uint32_t account) const {
    const BeforeRecording* before = before_.Find(account);
    return before == nullptr ? 0 : before->missing;
  }

  // The process is gone: what it had before goes with it.
  void EndBefore(uint32_t account) {
    if (BytesBefore(account) != 0)
      StepAndMove(Before(account), -BytesBefore(account));
  }

  // What the pricer found of a device, once all is read, and then what was there before.
  void AddPriced(trace::DeviceId device, const price::DevicePrices& prices);
  void Finish();

  const Counter& operator[](uint32_t counter) const { return counters_[counter]; }
  const std::vector<Counter>& all() const { return counters_; }
  const std::vector<CounterStep>& steps() const { return steps_; }

 private:
  struct BeforeRecording {
    uint32_t counter = kNoIndex;
    int64_t missing = 0;
  };

  void Step(uint32_t counter, int64_t bytes, int64_t time_ns) {
    if (bytes == 0)
      return;
    counters_[counter].bytes += bytes;
    steps_.push_back({counter, time_ns, bytes});
  }
  uint32_t AddPriced(trace::DeviceId device, const price::Counter& priced, int64_t begin_ns);
  void NameNear(const price::When& came, Counter* counter);

  Accounts& accounts_;
  PriceInputs& prices_;
  const Progress& progress_;
  std::vector<Counter> counters_;
  std::vector<CounterStep> steps_;
  PerAccount<BeforeRecording> before_;
};

}  // namespace vramscope::resolve
