// SPDX-License-Identifier: Apache-2.0
#include "util/on_threads.h"

#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace vramscope::util {

Status OnThreads(size_t workers, const std::function<Status(size_t worker)>& work) {
  std::vector<Status> results(workers);
  // An exception of a thread (out of memory) is rethrown on the caller's thread: otherwise it would
  // end a process that may not be ours.
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
  for (const Status& result : results)
    VRAMSCOPE_RETURN_IF_ERROR(result);
  return {};
}

}  // namespace vramscope::util
