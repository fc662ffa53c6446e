// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "trace/trace.h"

namespace differential {

// The times at which a device's figures are known. A call that moves memory without a known size is
// attributed at the next reading without another call. From the call to that reading the figures
// are unknown. Made of the events alone: what is called known does not depend on who prices it.
//
//   calls     --[module]----[alloc]-------------[launch]----
//   readings    |      |      |   |             |    |     |
//   known     ..         .............................     .
class SettledTimes {
 public:
  explicit SettledTimes(const vramscope::trace::Trace& trace);

  // In order, with the event's own time: see resolve::Ledger.
  void Apply(const vramscope::trace::Event& event, int64_t time_ns);
  void Finish();
  bool IsSettled(size_t device, int64_t time_ns) const;

 private:
  struct Entry {
    enum class Kind : uint8_t { kReading, kImplicit, kArray, kArrayFree } kind;
    int64_t time_ns;
    int64_t begin_ns;
    int64_t end_ns;
    std::pair<uint16_t, uint64_t> array;  // its process and handle
  };
  struct Device {
    std::vector<Entry> entries;
    std::vector<std::pair<int64_t, int64_t>> calls;  // that spoil a reading during them
    std::vector<std::pair<int64_t, int64_t>> unsettled;
  };
  bool HasManaged(uint16_t process) const;
  // [*first, *last) becomes the device that the array is on, and nothing is known of it any more.
  void TakeArray(const std::pair<uint16_t, uint64_t>& array, size_t* first, size_t* last);
  void FinishDevice(Device& device) const;

  std::vector<bool> is_gpu_;
  std::vector<Device> devices_;
  std::map<std::pair<uint16_t, uint64_t>, size_t> device_of_array_;
  std::set<std::pair<uint16_t, uint64_t>> managed_;  // by process and address
};

}  // namespace differential
