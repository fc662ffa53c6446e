// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "resolve/ledger/records.h"
#include "trace/event.h"

namespace vramscope::resolve {

// Memory that several processes hold. Its bytes stand with the process that made it while that has
// it; when it frees it or ends, the memory lives on, and stands with the import that came first.
//
// Which import is of which export: both processes pass on the same content (an IPC handle, a fabric
// handle), of which both recorded a hash. A descriptor has no content: there, the first export of
// the same size that this process has not imported yet is taken. Which of several equal ones it is
// makes no difference to the sum.
class SharedMemory {
 public:
  struct Holder {
    trace::ProcessId process;
    uint32_t object = kNoIndex;  // of its driver objects
    friend bool operator==(const Holder&, const Holder&) = default;
  };

  // A number for what is exported or imported under that key; 0: for a descriptor of its own.
  uint32_t OfKey(uint64_t key);
  // The memory of that size which this process does not hold yet, of those without a key; or
  // kNoIndex.
  uint32_t FindWithoutKey(trace::ProcessId process, trace::DeviceId device, uint64_t bytes) const;
  // `known`: the number that the object has already, or kNoIndex. Returns the one that it has from
  // now on: what one object is exported as twice is one memory. `bytes`: 0, it does not pay.
  uint32_t Join(uint32_t number,
                uint32_t known,
                Holder holder,
                trace::DeviceId device,
                uint64_t bytes);
  // Returns who holds it from now on, if anybody does.
  std::optional<Holder> Leave(uint32_t number, Holder holder);
  trace::DeviceId DeviceOf(uint32_t number) const { return shared_[Find(number)].device; }

 private:
  struct Shared {
    uint32_t is = kNoIndex;  // the same as this one; kNoIndex: itself
    trace::DeviceId device = trace::kNoDevice;
    uint64_t bytes = 0;
    std::vector<Holder> holders;  // in the order in which they came
  };

  uint32_t Find(uint32_t number) const {
    while (shared_[number].is != kNoIndex)
      number = shared_[number].is;
    return number;
  }

  std::vector<Shared> shared_;
  std::unordered_map<uint64_t, uint32_t> by_key_;
  std::vector<uint32_t> without_key_;
};

}  // namespace vramscope::resolve
