// SPDX-License-Identifier: Apache-2.0
#include "query/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace vramscope::query {
namespace {

// A thread costs some 20 us to start: as many rows do to read.
constexpr uint64_t kRowsWorthAThread = 32 * 1024;
constexpr size_t kMaxWorkers = 16;

}  // namespace

size_t WorkersFor(uint64_t rows) {
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  return std::clamp<size_t>(rows / kRowsWorthAThread, 1, std::min(cores, kMaxWorkers));
}

util::Status ForEachFrame(
    const tables::Recording& recording,
    const std::vector<size_t>& frames,
    uint32_t wanted,
    size_t workers,
    const std::function<void(size_t worker, const tables::AllocationFrame& frame)>& visit) {
  std::atomic<size_t> next{0};
  std::vector<util::Status> results(workers);
  const auto work = [&](size_t worker) {
    tables::AllocationFrame frame;
    for (size_t i = next++; i < frames.size(); i = next++) {
      results[worker] = recording.Read(frames[i], wanted, &frame);
      if (!results[worker].ok()) {
        next = frames.size();
        return;
      }
      visit(worker, frame);
    }
  };
  std::vector<std::thread> threads;
  for (size_t worker = 1; worker < workers; ++worker)
    threads.emplace_back(work, worker);
  work(0);
  for (std::thread& thread : threads)
    thread.join();
  for (const util::Status& result : results)
    VRAMSCOPE_RETURN_IF_ERROR(result);
  return {};
}

}  // namespace vramscope::query
