// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "differential/driver_calls.h"

// A random driver program: its memory, and the log of the fake driver's books after each call.
namespace differential {

inline constexpr uint64_t kMiB = 1024 * 1024;
inline constexpr uint64_t kPage = 2 * kMiB;

// One for each operation, from the program's seed and the operation's number: without an operation
// the others stay what they are, so that a failing program can be made smaller.
class Rng {
 public:
  Rng(uint64_t seed, uint64_t number) : state_(seed * 0x9e3779b97f4a7c15u ^ (number + 1) << 20) {}
  uint64_t Next();
  uint64_t Below(uint64_t limit) { return limit == 0 ? 0 : Next() % limit; }
  bool OneIn(uint64_t times) { return Below(times) == 0; }
  // From nothing to more than there is; most often ordinary.
  uint64_t Size();
  template <class T>
  T& Pick(std::vector<T>& from) {
    return from[Below(from.size())];
  }

 private:
  uint64_t state_;
};

struct Options {
  uint64_t seed = 0;
  uint64_t operations = 300;
  unsigned threads = 1;
  std::set<uint64_t> only;  // operations; empty: all
  // A program that was written down: its operations by number. Other entries of the table do not
  // change it.
  std::map<uint64_t, std::string> script;
  std::string without;  // no operation of this name
  std::string truth_path;
};

// Memory that a caching allocator or the program's own pool cuts blocks out of.
struct Region {
  enum class By { kNobody, kPyTorch, kProgram } by = By::kNobody;
  std::map<uint64_t, uint64_t> blocks;  // address -> bytes
};

struct Linear {
  uint64_t address;
  uint64_t size;
  CUcontext context;
  int device;
  bool old_version = false;
  bool pitched = false;
  Region region;
};
struct HostMemory {
  enum class Kind { kPinned, kRegistered, kManaged } kind;
  uint64_t address;
  CUcontext context;
};
struct Array {
  CUarray handle;
  CUcontext context;
};
struct Physical {
  CUmemGenericAllocationHandle handle;
  uint64_t size;
  int device;
};
struct Reservation {
  uint64_t address;
  uint64_t size;
  int device;                             // of the first handle mapped into it
  std::map<uint64_t, uint64_t> mappings;  // address -> bytes
  bool has_alias = false;                 // something in it was mapped elsewhere before
  int cut_device = -1;                    // that blocks were cut out of it for
  Region region;
};
struct PoolMemory {
  uint64_t address;
};
struct Pool {
  CUmemoryPool handle;
  int device;
};
struct Stream {
  CUstream handle;
  CUcontext context;
};
struct Module {
  CUmodule module;
  CUlibrary library;
  CUcontext context;
  std::vector<CUfunction> functions;
  std::vector<CUkernel> kernels;
};
struct Graph {
  CUgraphExec handle;
  CUcontext context;
};
struct Context {
  CUcontext handle;
  int device;
  bool primary;
};

// What one thread works with. Hands change threads at every barrier, so that memory is freed by
// other threads than those that allocated it.
struct Hand {
  std::vector<Linear> linear;
  std::vector<HostMemory> host;
  std::vector<Array> arrays;
  std::vector<Physical> physical;
  std::vector<Reservation> reservations;
  std::vector<PoolMemory> pool_memory;
  std::vector<Stream> streams;
  std::vector<Module> modules;
  std::vector<Graph> graphs;
  std::vector<uint64_t> gone;  // addresses that were freed
};

class Program {
 public:
  explicit Program(Options options);
  int Run();

  // Calls the driver, and writes down what is true afterwards.
  template <class Function, class... Args>
  CUresult Do(const Call<Function>& call, Args... args) {
    const CUresult result = call.function(args...);
    After(call.name, result);
    return result;
  }
  void After(const char* name, CUresult result);

  CUcontext Current();
  int DeviceOf(CUcontext context) const;
  void EndBlocks(Region* region, int device);
  void EndBlocksOf(CUcontext context);
  // With whatever it holds. False where it is a primary one, or could not be ended.
  bool EndContext(CUcontext context);
  // Before a device's last context ends. What becomes of its pools then is nowhere said, so the
  // probe asks them nothing any more. What was allocated from them stays. False where one could not
  // be ended, or not be read before its end.
  bool EndPoolsBefore(CUcontext context);
  // The context is gone, with all that belonged to it.
  void Forget(CUcontext context);
  // False if there is no room after the last one.
  bool CutBlock(Rng& rng,
                Region* region,
                uint64_t begin,
                uint64_t end,
                int device,
                bool in_range = false);
  void EndBlock(Region* region, uint64_t address, int device);

  Calls calls;
  int devices = 1;
  std::vector<Hand> hands;
  // The address was given out again, or other threads may do that.
  bool MayBeAllocated(uint64_t address) const;
  // True where the handle was mapped before.
  bool NoteMapped(CUmemGenericAllocationHandle handle, uint64_t address, uint64_t size, int device);
  void NoteUnmapped(uint64_t address);

  // Changed by one thread while the others wait.
  std::vector<Context> contexts;
  std::vector<Pool> pools;
  // A stream is captured, so the contents of pools cannot be queried.
  bool is_capturing = false;

 private:
  void RunOperation(uint64_t number, Hand& hand, bool parallel);
  void MakeCurrent(Rng& rng);
  void RunAlone();
  void RunThreads();
  void Settle();
  void WriteTruth(const char* name, CUresult result);

  Options options_;
  FILE* log_ = nullptr;
  std::mutex log_mutex_;
  bool parallel_ = false;
  uint64_t failing_one_in_ = 0;
  uint64_t instants_ = 0;
  struct Block {
    uint64_t size = 0;
    int device = 0;
    bool in_range = false;  // of addresses, so that its memory may be gone
  };
  struct Mapping {
    uint64_t address = 0;
    uint64_t size = 0;
    int device = 0;
  };
  // The bytes of a block with memory. Each byte of a handle counts at the oldest of its mappings.
  uint64_t BackedBytes(uint64_t address, const Block& block) const;
  std::map<uint64_t, Block> blocks_;                                     // by address
  std::map<CUmemGenericAllocationHandle, std::vector<Mapping>> mapped_;  // the oldest first
  std::set<CUmemGenericAllocationHandle> once_mapped_;
};

// ---- operations
struct Operation {
  const char* name;
  unsigned weight;
  bool parallel;  // other threads may do anything meanwhile
  void (*run)(Program& program, Hand& hand, Rng& rng);
};
const std::vector<Operation>& Operations();

}  // namespace differential
