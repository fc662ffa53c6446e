// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "resolve/attribute/owners.h"
#include "resolve/attribute/progress.h"
#include "resolve/driver/price_inputs.h"
#include "resolve/ledger/accounts.h"
#include "tables/rows.h"
#include "trace/event.h"

namespace vramscope::resolve {

// A row whose bytes change by readings, not by allocations: driver-owned memory, memory held by
// pools, other processes. There are few.
struct Counter {
  trace::DeviceId device = trace::kNoDevice;
  uint32_t account = kNoIndex;  // kNoIndex: not of a recorded process
  tables::SegmentId segment;    // not 0: counts what this segment holds; only `bytes` is used then
  Owner owner = Owner::kNone;
  Part part = Part::kOtherDriver;
  tables::Estimated estimated = tables::Estimated::kExact;
  std::string trigger;  // the call that caused it: "cuLaunchKernel name"
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
  // A counter of that account. The caller sets its owner and part.
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
  // Changes the counter at the current event. The segment itself reports what it holds to the
  // account.
  void Step(uint32_t counter, int64_t bytes) { Step(counter, bytes, progress_.now_ns); }
  void StepAndMove(uint32_t counter, int64_t bytes) {
    if (bytes == 0)
      return;
    Step(counter, bytes);
    const Account& account = accounts_[counters_[counter].account];
    prices_.Move(account.process, account.device, bytes);
  }

  // Memory that an account had before recording. It starts at the known bytes and decreases with
  // each unknown free. If it would become negative, more must have been allocated from the start.
  uint32_t Before(uint32_t account);
  int64_t BytesBefore(uint32_t account) const {
    const BeforeRecording* before = before_.Find(account);
    return before == nullptr || before->counter == kNoIndex ? 0 : counters_[before->counter].bytes;
  }
  // At least `bytes` more must have been allocated from the start.
  void RaiseBefore(uint32_t account, int64_t bytes) {
    before_[account].missing = std::max(before_[account].missing, bytes);
  }
  int64_t MissingBefore(uint32_t account) const {
    const BeforeRecording* before = before_.Find(account);
    return before == nullptr ? 0 : before->missing;
  }

  // The process ended, and with it its memory from before recording.
  void EndBefore(uint32_t account) {
    if (BytesBefore(account) != 0)
      StepAndMove(Before(account), -BytesBefore(account));
  }

  // After all events: adds the attributed driver memory of a device. Finish() then adds memory from
  // before recording.
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
