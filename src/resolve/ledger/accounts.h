// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "resolve/ledger/records.h"
#include "tables/ids.h"
#include "trace/trace.h"

namespace vramscope::resolve {

// A process on a device.
struct Account {
  trace::ProcessId process;
  trace::DeviceId device;
  tables::DeviceKind kind = tables::DeviceKind::kGpu;
  int64_t begin_ns = 0;
  int64_t end_ns = INT64_MAX;
};

// Accounts by number, in the order of the first event of a process on a device.
class Accounts {
 public:
  explicit Accounts(const trace::Trace& trace)
      : trace_(trace),
        device_count_(trace.devices().size()),
        process_count_(trace.processes().size()),
        numbers_(device_count_ * process_count_, kNoIndex),
        host_(DeviceOf(tables::DeviceKind::kHost)),
        cpu_(DeviceOf(tables::DeviceKind::kCpu)) {}

  bool HasDevice(trace::DeviceId device) const {
    return device.value >= 0 && static_cast<size_t>(device.value) < device_count_;
  }
  bool HasProcess(trace::ProcessId process) const { return process.value < process_count_; }
  // The devices of pinned memory and of CPU tensors; kNoDevice if the recording has none.
  trace::DeviceId host() const { return host_; }
  trace::DeviceId cpu() const { return cpu_; }

  // kNoIndex: the process never used the device.
  uint32_t Find(trace::ProcessId process, trace::DeviceId device) const {
    return numbers_[NumberAt(process, device)];
  }
  uint32_t FindOrAdd(trace::ProcessId process, trace::DeviceId device, int64_t time_ns) {
    uint32_t& number = numbers_[NumberAt(process, device)];
    if (number == kNoIndex) [[unlikely]] {
      number = static_cast<uint32_t>(accounts_.size());
      const tables::DeviceKind kind = trace_.devices()[static_cast<size_t>(device.value)].kind;
      accounts_.push_back({process, device, kind, time_ns, INT64_MAX});
    }
    return number;
  }
  Account& operator[](uint32_t number) { return accounts_[number]; }
  const Account& operator[](uint32_t number) const { return accounts_[number]; }
  const std::vector<Account>& all() const { return accounts_; }
  uint32_t count() const { return static_cast<uint32_t>(accounts_.size()); }

  // Rows of the table: first one a device for memory of unrecorded processes, then the accounts.
  static tables::AccountId RowOfDevice(trace::DeviceId device) {
    return tables::AccountId{static_cast<uint32_t>(device.value) + 1};
  }
  // The row of its device.
  uint32_t DeviceRowOf(uint32_t number) const {
    return static_cast<uint32_t>(accounts_[number].device.value) + 1;
  }
  tables::AccountId RowOf(uint32_t number) const {
    return tables::AccountId{static_cast<uint32_t>(device_count_) + number + 1};
  }

 private:
  size_t NumberAt(trace::ProcessId process, trace::DeviceId device) const {
    return process.value * device_count_ + static_cast<size_t>(device.value);
  }
  trace::DeviceId DeviceOf(tables::DeviceKind kind) const {
    for (size_t i = 0; i < trace_.devices().size(); ++i) {
      if (trace_.devices()[i].kind == kind)
        return trace::DeviceId{static_cast<int16_t>(i)};
    }
    return trace::kNoDevice;
  }

  const trace::Trace& trace_;
  size_t device_count_;  // read at each event; size() of a vector would divide
  size_t process_count_;
  std::vector<uint32_t> numbers_;  // [process][device]
  std::vector<Account> accounts_;
  trace::DeviceId host_;
  trace::DeviceId cpu_;
};

// State of a part of the ledger for each account. A new account invalidates references.
template <class T>
class PerAccount {
 public:
  T& operator[](uint32_t account) {
    if (account >= of_.size()) [[unlikely]]
      of_.resize(account + 1);
    return of_[account];
  }
  // nullptr if the account has no state.
  const T* Find(uint32_t account) const { return account < of_.size() ? &of_[account] : nullptr; }

 private:
  std::vector<T> of_;
};

}  // namespace vramscope::resolve
