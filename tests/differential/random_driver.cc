// SPDX-License-Identifier: Apache-2.0
// A random program on the CUDA driver, for the fake driver of tests/fake_cuda:
//
//   random_driver --seed N [--operations N] [--threads N] [--only N,N-N,...] [--script FILE]
//                 [--without OPERATION] --truth FILE
//
// After every call, or at barriers if it has threads, it writes the fake driver's books to FILE and
// adds a name record with the number of the instant to the recording. tests/differential/compare
// reads both.
#include <vramscope/annotate.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "differential/program.h"
#include "differential/truth_log.h"

// PyTorch's report of a block: defined by the probe, or undefined.
extern "C" __attribute__((weak)) void ReportBlock(void*, int64_t, size_t, size_t, uint16_t) __asm__(
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

namespace differential {
namespace {

constexpr uint64_t kOperationsOfARound = 12;  // of each thread, between two barriers
constexpr uint64_t kAloneInARound = 6;

void ReportToPyTorch(uint64_t address, int64_t bytes, int device) {
  constexpr uint16_t kCuda = 1;
  if (ReportBlock != nullptr)
    ReportBlock(reinterpret_cast<void*>(address), bytes, 0, 0,
                static_cast<uint16_t>(kCuda | device << 8));
}

}  // namespace

uint64_t Rng::Next() {
  uint64_t value = state_ += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

uint64_t Rng::Size() {
  switch (Below(16)) {
    case 0:
      return Below(3);
    case 1:
      return kMiB - 1 + Below(3);  // where small requests end
    case 2:
      return kPage - 1 + Below(3);
    case 3:
      return OneIn(4) ? uint64_t{1} << (36 + Below(8)) : Below(900 * kMiB);
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
      return 1 + Below(kMiB);
    default:
      return 1 + Below(40 * kMiB);
  }
}

Program::Program(Options options) : options_(std::move(options)) {
  log_ = std::fopen(options_.truth_path.c_str(), "w");
  if (log_ == nullptr) {
    std::perror(options_.truth_path.c_str());
    std::exit(3);
  }
  hands.resize(options_.threads);
  Rng rng(options_.seed, UINT64_MAX - 1);
  // Half of the programs have no failures but those that they ask for.
  failing_one_in_ = rng.OneIn(2) ? 0 : 4 + rng.Below(40);
  calls.Find(rng.OneIn(2));
}

int Program::Run() {
  if (Do(calls.cuInit, 0u) != kSuccess)
    return 3;
  fake::Truth truth;
  calls.take_truth(&truth);
  devices = static_cast<int>(truth.device_count);
  if (options_.threads == 1)
    RunAlone();
  else
    RunThreads();
  std::fclose(log_);
  return 0;
}

void Program::RunAlone() {
  for (uint64_t i = 0; i < options_.operations; ++i)
    RunOperation(i, hands[0], false);
}

void Program::RunThreads() {
  uint64_t number = 0;
  while (number < options_.operations) {
    for (uint64_t i = 0; i < kAloneInARound; ++i)
      RunOperation(number++, hands[0], false);
    parallel_ = true;
    std::vector<std::thread> threads;
    for (Hand& hand : hands) {
      threads.emplace_back([this, number, &hand] {
        for (uint64_t i = 0; i < kOperationsOfARound; ++i)
          RunOperation(number + i, hand, true);
      });
      number += kOperationsOfARound;
    }
    for (std::thread& thread : threads)
      thread.join();
    parallel_ = false;
    Settle();
    std::rotate(hands.begin(), hands.begin() + 1, hands.end());
  }
}

// A reading that overlapped another thread's call says nothing for sure: the next one does.
void Program::Settle() {
  for (const Context& context : contexts) {
    if (Do(calls.cuCtxSetCurrent, context.handle) == kSuccess)
      vramscope_annotate_mark("barrier");
  }
  After("barrier", kSuccess);
}

void Program::RunOperation(uint64_t number, Hand& hand, bool parallel) {
  const auto scripted = options_.script.find(number);
  if ((!options_.only.empty() && options_.only.count(number) == 0) ||
      (!options_.script.empty() && scripted == options_.script.end()))
    return;
  Rng rng(options_.seed, number);
  const auto& operations = Operations();
  const auto is_chosen_from = [&](const Operation& operation) {
    return (!parallel || operation.parallel) && options_.without != operation.name;
  };
  uint64_t weights = 0;
  for (const Operation& operation : operations)
    weights += is_chosen_from(operation) ? operation.weight : 0;
  uint64_t at = rng.Below(weights);
  const Operation* chosen = nullptr;
  for (const Operation& operation : operations) {
    if (scripted != options_.script.end()) {
      if (scripted->second == operation.name)
        chosen = &operation;
      continue;
    }
    if (!is_chosen_from(operation))
      continue;
    if (at < operation.weight) {
      chosen = &operation;
      break;
    }
    at -= operation.weight;
  }
  if (chosen == nullptr) {
    std::fprintf(stderr, "no operation is called %s\n", scripted->second.c_str());
    std::exit(2);
  }
  {
    const std::lock_guard lock(log_mutex_);
    std::fprintf(log_, "%c %llu %s\n", kOperationLine, static_cast<unsigned long long>(number),
                 chosen->name);
  }
  if (!rng.OneIn(40))
    MakeCurrent(rng);
  const bool failing = failing_one_in_ != 0 && rng.OneIn(failing_one_in_);
  if (failing)
    calls.fail_next(rng.Below(2), rng.OneIn(2));
  chosen->run(*this, hand, rng);
  if (failing)
    calls.fail_next(fake::kFailNone, false);
}

CUcontext Program::Current() {
  CUcontext context = nullptr;
  return calls.cuCtxGetCurrent.function(&context) == kSuccess ? context : nullptr;
}

int Program::DeviceOf(CUcontext context) const {
  for (const Context& one : contexts) {
    if (one.handle == context)
      return one.device;
  }
  return 0;
}

// Most calls need a context; alone, the program makes one where there is none.
void Program::MakeCurrent(Rng& rng) {
  if (Current() != nullptr)
    return;
  if (contexts.empty() && !parallel_) {
    for (const Operation& operation : Operations()) {
      if (std::strcmp(operation.name, "retain primary") == 0)
        operation.run(*this, hands[0], rng);
    }
  }
  if (!contexts.empty())
    Do(calls.cuCtxSetCurrent, rng.Pick(contexts).handle);
}

// ---- blocks

bool Program::CutBlock(Rng& rng,
                       Region* region,
                       uint64_t begin,
                       uint64_t end,
                       int device,
                       bool in_range) {
  if (region->by == Region::By::kNobody)
    region->by = rng.OneIn(2) ? Region::By::kPyTorch : Region::By::kProgram;
  const auto last = region->blocks.empty() ? region->blocks.end() : std::prev(region->blocks.end());
  const uint64_t at = last == region->blocks.end() ? begin : last->first + last->second;
  if (at >= end || end - at < 512)
    return false;
  const uint64_t bytes = std::min(end - at, 512 * (1 + rng.Below((end - begin) / 1024 + 1)));
  region->blocks[at] = bytes;
  {
    const std::lock_guard lock(log_mutex_);
    blocks_[at] = {bytes, device, in_range};
  }
  if (region->by == Region::By::kPyTorch)
    ReportToPyTorch(at, static_cast<int64_t>(bytes), device);
  else
    vramscope_annotate_block_alloc(reinterpret_cast<void*>(at), bytes, bytes - rng.Below(100),
                                   "a block");
  After("block_alloc", kSuccess);
  return true;
}

void Program::EndBlock(Region* region, uint64_t address, int device) {
  const uint64_t bytes = region->blocks[address];
  region->blocks.erase(address);
  {
    const std::lock_guard lock(log_mutex_);
    // Memory of another device may be mapped there by now.
    const auto block = blocks_.find(address);
    device = block->second.device;
    blocks_.erase(block);
  }
  if (region->by == Region::By::kPyTorch)
    ReportToPyTorch(address, -static_cast<int64_t>(bytes), device);
  else
    vramscope_annotate_block_free(reinterpret_cast<void*>(address));
  After("block_free", kSuccess);
}

void Program::EndBlocks(Region* region, int device) {
  while (!region->blocks.empty())
    EndBlock(region, region->blocks.begin()->first, device);
}

void Program::EndBlocksOf(CUcontext context) {
  for (Hand& hand : hands) {
    for (Linear& memory : hand.linear) {
      if (memory.context == context)
        EndBlocks(&memory.region, memory.device);
    }
  }
}

bool Program::MayBeAllocated(uint64_t address) const {
  if (parallel_)
    return true;
  const auto is_it = [&](const auto& thing) { return thing.address == address; };
  return std::any_of(hands.begin(), hands.end(), [&](const Hand& hand) {
    return std::any_of(hand.linear.begin(), hand.linear.end(), is_it) ||
           std::any_of(hand.pool_memory.begin(), hand.pool_memory.end(), is_it) ||
           std::any_of(hand.arrays.begin(), hand.arrays.end(),
                       [&](const Array& array) {
                         return reinterpret_cast<uintptr_t>(array.handle) == address;
                       }) ||
           std::any_of(hand.reservations.begin(), hand.reservations.end(),
                       [&](const Reservation& range) {
                         return range.address <= address && address < range.address + range.size;
                       });
  });
}

bool Program::NoteMapped(CUmemGenericAllocationHandle handle,
                         uint64_t address,
                         uint64_t size,
                         int device) {
  const std::lock_guard lock(log_mutex_);
  mapped_[handle].push_back({address, size, device});
  return !once_mapped_.insert(handle).second;
}

void Program::NoteUnmapped(uint64_t address) {
  const std::lock_guard lock(log_mutex_);
  for (auto& [handle, mappings] : mapped_)
    std::erase_if(mappings, [&](const Mapping& mapping) { return mapping.address == address; });
}

uint64_t Program::BackedBytes(uint64_t address, const Block& block) const {
  if (!block.in_range)
    return block.size;
  uint64_t bytes = 0;
  for (const auto& [handle, mappings] : mapped_) {
    uint64_t covered = 0;
    for (const Mapping& mapping : mappings) {
      const uint64_t begin = std::max(address, mapping.address + covered);
      const uint64_t end = std::min(address + block.size, mapping.address + mapping.size);
      if (begin < end && mapping.device == block.device)
        bytes += end - begin;
      covered = std::max(covered, mapping.size);
    }
  }
  return bytes;
}

bool Program::EndPoolsBefore(CUcontext context) {
  const int device = DeviceOf(context);
  const auto on_device = [&](const Context& one) { return one.device == device; };
  if (std::count_if(contexts.begin(), contexts.end(), on_device) > 1)
    return true;
  for (size_t i = 0; i < pools.size();) {
    if (pools[i].device != device) {
      ++i;
      continue;
    }
    if (is_capturing)
      return false;
    if (Do(calls.cuMemPoolDestroy, pools[i].handle) != kSuccess)
      return false;
    pools.erase(pools.begin() + static_cast<ptrdiff_t>(i));
  }
  return true;
}

bool Program::EndContext(CUcontext context) {
  const auto found = std::find_if(contexts.begin(), contexts.end(),
                                  [&](const Context& one) { return one.handle == context; });
  if (found == contexts.end() || found->primary || !EndPoolsBefore(context))
    return false;
  EndBlocksOf(context);
  if (Do(calls.cuCtxDestroy_v2, context) != kSuccess)
    return false;
  Forget(context);
  return true;
}

void Program::Forget(CUcontext context) {
  std::erase_if(contexts, [&](const Context& one) { return one.handle == context; });
  const auto belongs = [&](const auto& thing) { return thing.context == context; };
  for (Hand& hand : hands) {
    for (const Linear& memory : hand.linear) {
      if (belongs(memory))
        hand.gone.push_back(memory.address);
    }
    std::erase_if(hand.linear, belongs);
    std::erase_if(hand.host, belongs);
    std::erase_if(hand.arrays, belongs);
    std::erase_if(hand.streams, belongs);
    std::erase_if(hand.modules, belongs);
  }
}

// ---- the log

void Program::After(const char* name, CUresult result) {
  const std::lock_guard lock(log_mutex_);
  if (parallel_) {
    std::fprintf(log_, "%c %s %d\n", kCallLine, name, result);
    return;
  }
  WriteTruth(name, result);
}

void Program::WriteTruth(const char* name, CUresult result) {
  static fake::Truth truth;
  calls.take_truth(&truth);
  InstantHeader header;
  header.number = ++instants_;
  header.call = name;
  header.result = result;
  std::map<int, BlockBytes> blocks;
  for (const auto& [address, block] : blocks_) {
    const uint64_t backed = BackedBytes(address, block);
    blocks[block.device].backed += backed;
    blocks[block.device].unbacked += block.size - backed;
  }
  WriteInstant(log_, header, truth, blocks);
  vramscope_annotate_name_pool(reinterpret_cast<void*>(kInstantBase + header.number), "truth");
}

}  // namespace differential

namespace {

[[noreturn]] void Usage() {
  std::fprintf(
      stderr,
      "random_driver --seed N [--operations N] [--threads N] [--only N,N-N,...] [--script FILE] "
      "[--without OPERATION] --truth FILE\n");
  std::exit(2);
}

// "3,7-12,40"
std::set<uint64_t> ParseNumbers(const char* text) {
  std::set<uint64_t> numbers;
  while (*text != '\0') {
    char* end = nullptr;
    const uint64_t first = std::strtoull(text, &end, 10);
    const uint64_t last = *end == '-' ? std::strtoull(end + 1, &end, 10) : first;
    for (uint64_t number = first; number <= last; ++number)
      numbers.insert(number);
    if (end == text || (*end != ',' && *end != '\0'))
      Usage();
    text = *end == ',' ? end + 1 : end;
  }
  return numbers;
}

// One "number operation" for each line, after other lines.
std::map<uint64_t, std::string> ReadScript(const char* path) {
  FILE* const file = std::fopen(path, "r");
  if (file == nullptr)
    Usage();
  std::map<uint64_t, std::string> script;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    char* name = nullptr;
    const uint64_t number = std::strtoull(line, &name, 10);
    if (name == line || *name != ' ')
      continue;
    script[number] = std::string(name + 1, std::strcspn(name + 1, "\n"));
  }
  std::fclose(file);
  return script;
}

}  // namespace

int main(int argc, char** argv) {
  differential::Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc)
      Usage();
    char* value = argv[i + 1];
    if (flag == "--seed")
      options.seed = std::strtoull(value, nullptr, 10);
    else if (flag == "--operations")
      options.operations = std::strtoull(value, nullptr, 10);
    else if (flag == "--threads")
      options.threads = static_cast<unsigned>(std::strtoul(value, nullptr, 10));
    else if (flag == "--truth")
      options.truth_path = value;
    else if (flag == "--script")
      options.script = ReadScript(value);
    else if (flag == "--without")
      options.without = value;
    else if (flag == "--only")
      options.only = ParseNumbers(value);
    else
      Usage();
  }
  if (options.truth_path.empty() || options.threads == 0)
    Usage();
  return differential::Program(std::move(options)).Run();
}
