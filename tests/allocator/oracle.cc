// SPDX-License-Identifier: Apache-2.0
// Runs programs of allocator calls on stdin through the allocator of a released
// libc10_cuda.so, and prints what each line did, in the words of
// src/query/testing/allocator_program.h. It is built by differential.py against that release's
// headers, over stub_runtime.cc. TORCH_MINOR is 9 for 2.9.
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <unistd.h>
#if TORCH_MINOR >= 13
#include <c10/cuda/PeerToPeerAccess.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <sstream>
#include <string>

extern "C" uint64_t stub_used_bytes;
extern "C" uint64_t stub_capacity_bytes;
extern "C" void stub_finish(uint64_t stream);

namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(signed char));
}

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

constexpr uint64_t kMebibyte = uint64_t{1} << 20;
constexpr uint64_t kFirstAddress = uint64_t{0x7000} << 32;

std::string events;
std::map<std::string, void*> blocks;

std::string SizeText(uint64_t bytes) {
  return bytes % kMebibyte == 0 ? std::to_string(bytes / kMebibyte) + "M" : std::to_string(bytes);
}

uint64_t SizeOf(const std::string& text) {
  const double unit = !text.empty() && text.back() == 'M' ? static_cast<double>(kMebibyte) : 1;
  return static_cast<uint64_t>(std::llround(std::strtod(text.c_str(), nullptr) * unit));
}

void OnTrace(const allocator::TraceEntry& entry) {
  using Entry = allocator::TraceEntry;
  char letter = '?';
  switch (entry.action_) {
    case Entry::ALLOC:
      letter = 'A';
      break;
    case Entry::FREE_REQUESTED:
      letter = 'R';
      break;
    case Entry::FREE_COMPLETED:
      letter = 'C';
      break;
    case Entry::SEGMENT_ALLOC:
      letter = 'S';
      break;
    case Entry::SEGMENT_FREE:
      letter = 'F';
      break;
    case Entry::SEGMENT_MAP:
      letter = 'M';
      break;
    case Entry::SEGMENT_UNMAP:
      letter = 'U';
      break;
    case Entry::OOM:
      letter = 'O';
      break;
    default:
      break;
  }
  if (!events.empty())
    events += ' ';
  events += letter + SizeText(entry.size_);
  if (letter != 'O')
    events += "@" + SizeText(static_cast<uint64_t>(entry.addr_) - kFirstAddress);
  if (entry.stream_ != nullptr)
    events += "/" + std::to_string(reinterpret_cast<uint64_t>(entry.stream_));
}

void Use(allocator::CUDAAllocator* real, void* address, uint64_t stream) {
  const c10::cuda::CUDAStream of =
      stream == 0 ? c10::cuda::getDefaultCUDAStream(0)
                  : c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(stream), 0);
  c10::DataPtr data(address, address, real->raw_deleter(), c10::Device(c10::kCUDA, 0));
  real->recordStream(data, of);
  data.release_context();
}

void RunPool(allocator::CUDAAllocator* real, uint64_t number, const std::string& what) {
  const c10::MempoolId_t id = {0, number};
  if (what == "create") {
    real->createOrIncrefPool(0, id, nullptr);
  } else if (what == "open") {
    real->beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
  } else if (what == "close") {
    real->endAllocateToPool(0, id);
  } else if (what == "release") {
    real->releasePool(0, id);
  } else if (what == "empty") {
    real->emptyCache(id);
  } else if (what == "fallback") {
#if TORCH_MINOR >= 13
    real->setUseOnOOM(0, id, true);
#else
    real->setUseOnOOM(0, id);
#endif
  } else if (what == "nosplit") {
#if TORCH_MINOR >= 13
    real->setNoSplit(0, id);
#endif
  }
}

void Run(allocator::CUDAAllocator* real, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  std::string name;
  std::string what;
  words >> command >> name >> what;
  uint64_t stream = 0;
  words >> stream;
  if (command == "alloc") {
    if (blocks.count(name) == 0) {
      void* const address =
          real->raw_alloc_with_stream(SizeOf(what), reinterpret_cast<cudaStream_t>(stream));
      blocks[name] = address;
    }
  } else if (command == "free") {
    if (const auto it = blocks.find(name); it != blocks.end()) {
      real->raw_delete(it->second);
      blocks.erase(it);
    }
  } else if (command == "use") {
    if (const auto it = blocks.find(name); it != blocks.end())
      Use(real, it->second, std::strtoull(what.c_str(), nullptr, 10));
  } else if (command == "pool") {
    RunPool(real, std::strtoull(name.c_str(), nullptr, 10), what);
  } else if (command == "capacity") {
    stub_capacity_bytes = SizeOf(name);
  } else if (command == "fraction") {
    real->setMemoryFraction(std::strtod(name.c_str(), nullptr), 0);
  } else if (command == "finish") {
    stub_finish(std::strtoull(name.c_str(), nullptr, 10));
  } else if (command == "set") {
    allocator::setAllocatorSettings(name);
  } else if (command == "empty") {
    real->emptyCache();
  } else if (command == "stat") {
    const auto stats = real->getDeviceStats(0);
    const auto text = [](const auto& stat) {
      return SizeText(static_cast<uint64_t>(stat[0].current));
    };
    events = "allocated " + text(stats.allocated_bytes) + " active " + text(stats.active_bytes) +
             " reserved " + text(stats.reserved_bytes) + " driver " + SizeText(stub_used_bytes) +
             " retries " + std::to_string(stats.num_alloc_retries);
  }
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  allocator::CUDAAllocator* const real = allocator::get();
  c10::cuda::_internal::setHasPrimaryContext([](signed char) { return true; });
  real->init(1);
#if TORCH_MINOR >= 13
  c10::cuda::detail::init_p2p_access_cache(1);
#endif
  real->attachAllocatorTraceTracker(OnTrace);
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty() || line.front() == '#')
      continue;
    events.clear();
    try {
      Run(real, line);
    } catch (const std::exception& error) {
      // Out of memory is an event too.
      if (events.empty())
        events = "refused";
      if (std::getenv("ORACLE_ERRORS") != nullptr)
        std::cerr << error.what() << '\n';
    }
    std::cout << (events.empty() ? "-" : events) << '\n';
  }
  std::cout.flush();
  _exit(0);
}
