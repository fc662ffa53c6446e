// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "books.h"
#include "probe/hooks/cuda/hook_table.h"

// A fake libcuda.so.1: the entry points of cuda_hooks.def with the costs measured on an H200,
// deterministic addresses, and books (books.h) that list every byte.
//
//   VRAMSCOPE_FAKE_BOOKS      file of the books, shared with the fake NVML and other processes
//   VRAMSCOPE_FAKE_DEVICES    number of devices (1)
//   VRAMSCOPE_FAKE_TOTAL_MIB  memory of each (143771)
//   VRAMSCOPE_FAKE_FAIL       "cuMemAlloc_v2:3,cuMemCreate:1": the third call, the first call says
//                             CUDA_ERROR_OUT_OF_MEMORY; ":*" every call
//   VRAMSCOPE_FAKE_DELAY_US   "cuMemAlloc_v2:200": each call takes 200 us, outside of every lock
//   VRAMSCOPE_FAKE_NO_HOST_NUMA  a driver that has no physical memory of the host to map
//   VRAMSCOPE_FAKE_SECRET     "cuMemAlloc_v2:3": the third call takes 7 MiB more in secret
//   VRAMSCOPE_FAKE_BREAK      "cuCheckpointProcessCheckpoint", or ...Restore: the process is lost
//
// Images of modules are text: "FAKE code=N global=N kernel=NAME:LOCAL_BYTES:LAZY_CODE_BYTES ...".
// Kernels whose names begin with "touch" touch all managed memory.
namespace fake {

using namespace vramscope::probe::cuda;

inline constexpr CUresult kInvalidValue = 1;
inline constexpr CUresult kOutOfMemory = kOutOfMemoryError;
inline constexpr CUresult kNotInitialised = 3;
inline constexpr CUresult kInvalidDevice = 101;
inline constexpr CUresult kInvalidContext = 201;
inline constexpr CUresult kInvalidHandle = 400;
inline constexpr CUresult kIllegalState = 401;
inline constexpr CUresult kAlreadyRegistered = 712;
inline constexpr CUresult kNotSupported = 801;
inline constexpr CUresult kCaptureUnsupported = 900;
inline constexpr CUresult kCaptureInvalidated = 901;

inline constexpr uint64_t kMiB = 1024 * 1024;
inline constexpr uint64_t kPage = 2 * kMiB;
inline constexpr uint64_t kPoolStep = 32 * kMiB;
inline constexpr uint64_t kSecretBytes = 7 * kMiB;
inline constexpr uint64_t kLargestHostBytes = uint64_t{1} << 36;
inline constexpr int64_t kInitDeviceBytes = 3 * 1048576 + 262144;     // cuInit: 3.25 MiB
inline constexpr int64_t kContextBytes = 518 * 1048576;               // in the process's figure
inline constexpr int64_t kContextDeviceBytes = 5 * 1048576 + 587203;  // and beside it
inline constexpr uint64_t kThreads = 132ull * 2048;  // resident threads: local memory is for all
inline constexpr uint64_t kFreeLocalBytes =
    264 * kMiB;  // local memory that the context has already

inline uint64_t RoundUp(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

// The books' figures of each kind of memory (truth.h).
struct KindBytes {
  uint64_t bytes = 0;
  uint64_t count = 0;
};
KindBytes PhysicalBytes(int device);
// Of the physical memory that is mapped at the address; -1 where there is none.
int DeviceOfMapping(uint64_t address);
std::set<struct Pool*>& CreatedPools();

// First-fit allocator of addresses; freed addresses come back first.
class AddressSpace {
 public:
  AddressSpace(uint64_t begin, uint64_t end) : next_(begin), end_(end) {}
  uint64_t Take(uint64_t size, uint64_t alignment);
  void Give(uint64_t address, uint64_t size);

 private:
  uint64_t next_;
  uint64_t end_;
  std::map<uint64_t, uint64_t> holes_;
};

struct Context;

// Memory that several processes hold (sharing.cc), as it is passed on between them.
struct SharedId {
  int32_t device = 0;
  int32_t slot = -1;  // none
  uint64_t nonce = 0;
  uint64_t size = 0;  // as asked for
};
// Makes this many bytes of this process shared.
SharedId BeginSharing(int device, uint64_t bytes, uint64_t size);
// One more process holds it. Its bytes, 0 where it is gone.
uint64_t HoldShared(const SharedId& id);
// This process does not hold it any more. An exporter then takes its bytes off its own account.
void LeaveShared(const SharedId& id, bool exporter);

enum class BlockKind { kLinear, kArray, kPool, kGraph, kImported };

struct Block {
  uint64_t size = 0;     // as asked for
  uint64_t charged = 0;  // bytes of its own; 0 when it lies in a slab
  uint64_t slab = 0;
  Context* context = nullptr;  // whose end ends it; pools and graphs outlive contexts
  struct Pool* pool = nullptr;
  BlockKind kind = BlockKind::kLinear;
  int device = 0;
  SharedId shared;  // held by other processes too
};

enum class HostKind { kPinned, kRegistered, kManaged };

struct HostBlock {
  uint64_t size = 0;
  HostKind kind = HostKind::kPinned;
  Context* context = nullptr;
  int device = 0;         // of managed memory: where it was on a device last
  uint64_t resident = 0;  // bytes of it there
};

struct Slab {
  uint64_t used = 0;
  AddressSpace space;
};

struct Pool {
  int device = 0;
  bool is_default = false;
  uint64_t reserved = 0;
  uint64_t used = 0;
  uint64_t threshold = 0;
  uint64_t allocations = 0;
  bool destroyed = false;  // goes with its last allocation
};

struct Function {
  std::string name;
  uint64_t local_bytes = 0;
  uint64_t lazy_bytes = 0;
  bool loaded = false;
  Context* context = nullptr;
};

struct Module {
  uint64_t bytes = 0;
  Context* context = nullptr;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Graph {
  uint64_t alloc_bytes = 0;
  uint64_t free_bytes = 0;
  bool invalid = false;
};

struct GraphExec {
  Graph graph;
  uint64_t held_bytes = 0;  // allocated by launches, not freed yet
};

struct Stream {
  Context* context = nullptr;
  std::unique_ptr<Graph> capture;
};

struct Context {
  int device = 0;
  bool primary = false;
  int references = 0;
  uint64_t stack_limit = 1024;
  uint64_t heap_limit = 8 * kMiB;
  uint64_t local_bytes = kFreeLocalBytes;
  uint64_t charged = 0;  // local memory, streams, modules beyond kContextBytes
  unsigned streams = 0;
  std::map<uint64_t, Slab> slabs;
};

// What the UVM driver has of a device: chunks of 2 MiB for the pages of managed memory that kernels
// touch, taken 64 MiB at a time. It is in no process's figure.
struct Uvm {
  uint64_t used = 0;     // of the device
  uint64_t spare = 0;    // of that
  bool touches = false;  // kernels were launched that touch all managed memory, and are not done
};

struct Device {
  FakeDevice* books = nullptr;
  FakeProcess* row = nullptr;
  Context* primary = nullptr;
  // What the last primary one left: a real driver keeps it for the next, or the process's end.
  bool keeps_primary = false;
  uint64_t kept_local_bytes = 0;
  Pool* default_pool = nullptr;
  Pool* current_pool = nullptr;
  uint64_t graph_reserved = 0;
  uint64_t graph_used = 0;
  Uvm uvm;
};

struct Driver {
  std::recursive_mutex mutex;
  uint32_t init_pid = 0;
  FakeBooks* books = nullptr;
  FakeCheckpoint* checkpoint = nullptr;  // this process's
  std::vector<Device> devices;
  AddressSpace addresses{0x302000000, 0x7f0000000000};
  AddressSpace low_addresses{0x10000000, 0xf0000000};  // of the 32-bit entry points
  AddressSpace& SpaceOf(uint64_t address) { return address >> 32 == 0 ? low_addresses : addresses; }
  std::map<uint64_t, Block> blocks;
  std::map<uint64_t, HostBlock> host_blocks;
  std::set<Context*> contexts;
  std::map<const Context*, CUdevice> released;  // primary ones, which stay current in name
  std::set<Stream*> streams;
  uint64_t fail_after = UINT64_MAX;  // see truth.h
  bool fail_late = false;
  bool failing_late = false;  // the call under way
};
Driver& TheDriver();

// A figure was asked for: stricter than the real driver, which only may mind.
void InvalidateCaptures();

// The calling thread's stack of current contexts.
std::vector<Context*>& ContextStack();
Context* CurrentContext();

// Puts bytes on this process's account. False if the device has less free memory.
bool Charge(int device, uint64_t bytes);
void Refund(int device, uint64_t bytes);
bool ChargeContext(Context* context, uint64_t bytes);

CUresult AllocateLinear(Context* context, uint64_t size, AddressSpace* space, uint64_t* address);
CUresult FreeLinear(uint64_t address, BlockKind kind = BlockKind::kLinear);
// What a context takes with it besides its device memory.
void EndHostBlocksOf(const Context* context);
void EndModulesOf(const Context* context);
void EndStreamsOf(const Context* context);
bool IsDevice(CUdevice device);
void EndContext(Context* context);
void FreePoolBlock(uint64_t address);
// What every pool beyond its threshold gives back when the program synchronises.
void SynchronisePools();
// A kernel that touches all managed memory was launched: it does once the program synchronises.
void LaunchTouching(int device);
void FinishTouching();
void EndResidency(HostBlock* block);

// A call of this process under way: it waits while the process is locked (checkpoint.cc), and
// locking waits for it. Calls within calls do neither.
class CallUnderWay {
 public:
  CallUnderWay();
  ~CallUnderWay();
  CallUnderWay(const CallUnderWay&) = delete;
  CallUnderWay& operator=(const CallUnderWay&) = delete;

 private:
  FakeCheckpoint* entry_ = nullptr;
};
// From its cuInit on this process can be checkpointed. False when all places are taken.
bool BeginCheckpoints();

// Exported functions by name. Their own addresses, whatever is done to the symbol table.
bool Register(const char* name, void* function);
void* FindRegistered(const std::string& name);
const char* NameOfRegistered(const void* function);

// Counts the call and says whether it is to fail; sleeps where a delay was asked for.
bool EnterCall(const char* name);
// Whether the call under way is to fail although it has succeeded so far.
bool FailsLate();

}  // namespace fake

// Opens the definition of an entry point, whose prototype cuda_hooks.def says, and puts it into the
// list that cuGetProcAddress looks names up in.
#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))
#define FAKE_HOOK(name)                                                                  \
  FAKE_EXPORT HookTraits<HookId::name>::Function name;                                   \
  static const bool registered_##name = Register(#name, reinterpret_cast<void*>(&name)); \
  FAKE_EXPORT CUresult name
#define FAKE_CALL(name)                                                                  \
  FAKE_EXPORT CallTraits<CallId::name>::Function name;                                   \
  static const bool registered_##name = Register(#name, reinterpret_cast<void*>(&name)); \
  FAKE_EXPORT CUresult name
// An entry point that cuda_hooks.def gives no prototype for.
#define FAKE_OTHER(name, ...)                                                            \
  FAKE_EXPORT CUresult name(__VA_ARGS__);                                                \
  static const bool registered_##name = Register(#name, reinterpret_cast<void*>(&name)); \
  FAKE_EXPORT CUresult name(__VA_ARGS__)
// First statement of an entry point that needs cuInit.
#define FAKE_ENTER(name)                                       \
  const CallUnderWay call_under_way;                           \
  const bool injected_failure = EnterCall(#name);              \
  const std::lock_guard lock(TheDriver().mutex);               \
  if (TheDriver().init_pid != static_cast<uint32_t>(getpid())) \
    return kNotInitialised;                                    \
  if (injected_failure)                                        \
  return kOutOfMemory
