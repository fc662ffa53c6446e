// SPDX-License-Identifier: Apache-2.0
#include "query/core/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "util/on_threads.h"

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
  std::atomic<bool> failed{false};
  return util::OnThreads(workers, [&](size_t worker) -> util::Status {
    tables::AllocationFrame frame;
    try {
      for (size_t i = next++; i < frames.size() && !failed; i = next++) {
        const util::Status status = recording.Read(frames[i], wanted, &frame);
        if (!status.ok()) {
          failed = true;
          return status;
        }
        visit(worker, frame);
      }
    } catch (...) {
      failed = true;
      throw;
    }
    return {};
  });
}

}  // namespace vramscope::query
