// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "resolve/ledger/base.h"
#include "resolve/ledger/pools.h"
#include "resolve/ledger/rows.h"
#include "resolve/ledger/segments.h"
#include "resolve/ledger/shared_memory.h"
#include "util/containers/address_ranges.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

// For differences of bytes.
inline int64_t Signed(uint64_t bytes) {
  return static_cast<int64_t>(bytes);
}

// Memory from the driver: allocations, physical handles and their mappings.
class DriverObjects {
 public:
  DriverObjects(LedgerBase& base, Segments& segments, Slabs& slabs, Pools& pools, RowMaker& rows);

  // driver_objects.cc: allocations and handles
  void On(const trace::EventContext& at, const trace::Alloc& e);
  void On(const trace::EventContext& at, const trace::Free& e);
  void On(const trace::EventContext& at, const trace::HandleCreate& e);
  void On(const trace::EventContext& at, const trace::HandleRelease& e);
  void On(const trace::EventContext& at, const trace::HandleRetain& e);
  void On(const trace::EventContext& at, const trace::Share& e);
  // Adds a PyTorch segment that was allocated before recording; kNoIndex if it is already known.
  uint32_t AddPriorSegment(const trace::EventContext& at, const trace::Prior& e);
  // Adds another allocation of the driver from before recording, unless it is known.
  void AddPriorAllocation(const trace::EventContext& at, const trace::Prior& e);
  // The segment at that address is in a private pool of PyTorch. It always was, because PyTorch
  // never moves segments between pools.
  void NamePrivatePool(trace::ProcessId process, uint64_t address, const MemoryName& name);
  // What is mapped at that address is of a region of torch_memory_saver.
  void NameRegion(const trace::EventContext& at, uint64_t address, const MemoryName& name);
  // Memory that NCCL allocated while it worked on a communicator belongs to that communicator.
  void On(const trace::EventContext& at, const trace::Communicator& e);
  // False if the address has no object.
  bool Name(const trace::EventContext& at, uint64_t address, const MemoryName& name);
  void EndContext(trace::ProcessId process, uint64_t context);
  // The process ended, and with it its memory on that device.
  void End(uint32_t account);
  // All events are read: live objects were never freed.
  void Finish();

  // driver_mappings.cc: address ranges and their mappings
  void On(const trace::EventContext& at, const trace::Reserve& e);
  void On(const trace::EventContext& at, const trace::Unreserve& e);
  void On(const trace::EventContext& at, const trace::Map& e);
  void On(const trace::EventContext& at, const trace::Unmap& e);
  // The first block shows that an allocator divides this segment. From now on its free bytes are
  // cached or fragments, not an allocation of the program.
  void Suballocate(uint32_t segment, bool of_program);
  // An autograd thread made that segment. Its call site is that of the forward operator whose
  // gradient the first block is, not an address in the CUDA runtime.
  void Place(uint32_t segment, tables::StackId forward);

  // Whether driver calls of an account are recorded.
  bool HasCalls(uint32_t account) const {
    const OfAccount* known = accounts_.Find(account);
    return known != nullptr && known->has_calls;
  }
  void NoteCalls(uint32_t account) { accounts_[account].has_calls = true; }
  // PyTorch divided a segment, so it divides all its segments of that account.
  void NoteBlocks(uint32_t account) { accounts_[account].has_blocks = true; }
  // util::FlatMap::kNone if unknown.
  uint32_t SegmentAt(trace::ProcessId process, uint64_t address) const {
    return processes_[process.value].pages.Find(address);
  }
  // Makes a segment of the small allocation that begins there; util::FlatMap::kNone: there is none.
  uint32_t SegmentOfSmall(trace::ProcessId process, uint64_t address);
  // XLA divides a segment, so it divides all its segments of that account, existing and new ones.
  void NoteXlaBlocks(uint32_t account);
  // The account's largest segment of XLA with so many bytes left; kNoIndex: none.
  uint32_t XlaSegmentWithRoom(uint32_t account, uint64_t bytes) const;
  // The account's segment that reserves the address, mapped or not; kNoIndex if unknown.
  uint32_t ReservedAt(trace::ProcessId process, uint64_t address, uint32_t account) const;
  // The object that is exported or imported; null if unknown.
  const DriverObject* SharedBy(trace::ProcessId process, const trace::Share& share) const;
  const SharedMemory& shared() const { return shared_; }
  // Calls visit(const DriverObject&) for each that is live.
  template <class Visitor>
  void ForEach(trace::ProcessId process, Visitor visit) const {
    processes_[process.value].objects.ForEach(
        [&](uint32_t, const DriverObject& object) { visit(object); });
  }

 private:
  // Objects have unique numbers within a process and a space.
  enum NumberSpace : size_t { kAddresses, kArrays, kHandles, kRegistered, kNumberSpaces };

  struct Reservation {
    uint64_t size = 0;
    std::vector<uint32_t> segments;  // one a device whose memory was mapped into it
    bool implicit = false;           // derived from mappings; its reservation was not recorded
  };
  struct Recent {
    uint32_t object = 0;
    uint64_t number = 0;
    int64_t alloc_ns = 0;
  };
  struct OfProcess {
    util::Slab<DriverObject> objects;
    std::array<util::FlatMap, kNumberSpaces> numbers;
    util::FlatMap mappings;  // by address
    // The mappings of each handle, oldest first: handle, number, mapping.
    std::set<std::tuple<uint32_t, uint64_t, uint32_t>> mappings_of;
    util::PageIndex pages;
    std::map<uint64_t, Reservation> reservations;
    std::vector<Recent> recent;  // ring of the last allocations and handles
    size_t recent_count = 0;
  };
  struct OfAccount {
    bool has_calls = false;
    bool has_blocks = false;
    bool has_xla_blocks = false;
  };

  static NumberSpace NumberSpaceOf(format::MemoryKind kind);
  static bool IsOfXlaPool(const DriverObject& object) {
    return object.owner == Owner::kXla && object.segment != kNoIndex &&
           object.kind != ObjectKind::kHandle && object.memory == format::MemoryKind::kDevice;
  }
  void DivideByXla(const DriverObject& object);
  OfProcess& ProcessOf(const trace::EventContext& at) { return processes_[at.process.value]; }
  trace::DeviceId DeviceOf(const DriverObject& object) const {
    return base_.accounts[object.account].device;
  }
  void GiveTo(const trace::EventContext& at,
              const trace::Communicator& communicator,
              DriverObject* object);
  uint32_t FindShared(trace::ProcessId process, const trace::Share& share) const;
  // `object` has the values of its event and its account.
  uint32_t Start(const trace::EventContext& at, DriverObject object);
  uint32_t StartPrior(const trace::EventContext& at, const trace::Prior& e);
  uint32_t AddSegment(OfProcess& process, uint32_t object);
  void Count(const DriverObject& object, bool add);
  void JoinShared(const trace::EventContext& at,
                  OfProcess& process,
                  uint32_t index,
                  uint32_t number);
  void End(OfProcess& process, uint32_t object, bool freed);
  void EndMapping(OfProcess& process, uint32_t mapping, bool freed);
  void UnmapPrior(OfProcess& process, uint64_t address);
  void AccountMappings(OfProcess& process, uint32_t handle);
  void AccountMapping(OfProcess& process, uint32_t mapping, uint64_t from, uint64_t end);
  void EndHandleIfUnused(OfProcess& process, uint32_t handle, bool freed);
  void Release(OfProcess& process, uint32_t segment);
  void Inherit(SharedMemory::Holder heir, trace::DeviceId device, uint64_t bytes);
  uint32_t ReservationFor(OfProcess& process, uint32_t account, uint64_t begin, uint64_t size);

  LedgerBase& base_;
  Segments& segments_;
  Slabs& slabs_;
  Pools& pools_;
  RowMaker& rows_;
  std::vector<OfProcess> processes_;
  uint64_t last_number_ = 0;
  PerAccount<OfAccount> accounts_;
  SharedMemory shared_;
};

}  // namespace vramscope::resolve
