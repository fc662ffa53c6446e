// SPDX-License-Identifier: Apache-2.0
#include "query/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
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

util::Status OnThreads(size_t workers, const std::function<util::Status(size_t worker)>& work) {
  std::vector<util::Status> results(workers);
  // What a thread throws (its memory may run out) is thrown where the question was asked: left to
  // the thread, it would end a process that may not be ours.
  std::vector<std::exception_ptr> thrown(workers);
  const auto run = [&](size_t worker) noexcept {
    try {
      results[worker] = work(worker);
    } catch (...) {
      thrown[worker] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(workers);
  size_t begun = 1;
  try {
    for (; begun < workers; ++begun)
      threads.emplace_back(run, begun);
  } catch (const std::system_error&) {
    // No more threads to be had: what is left is done here.
  }
  run(0);
  for (size_t worker = begun; worker < workers; ++worker)
    run(worker);
  for (std::thread& thread : threads)
    thread.join();
  for (const std::exception_ptr& exception : thrown) {
    if (exception)
      std::rethrow_exception(exception);
  }
  for (const util::Status& result : results)
    VRAMSCOPE_RETURN_IF_ERROR(result);
  return {};
}

util::Status ForEachFrame(
    const tables::Recording& recording,
    const std::vector<size_t>& frames,
    uint32_t wanted,
    size_t workers,
    const std::function<void(size_t worker, const tables::AllocationFrame& frame)>& visit) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  return OnThreads(workers, [&](size_t worker) -> util::Status {
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
