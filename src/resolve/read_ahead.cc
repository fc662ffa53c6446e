// SPDX-License-Identifier: Apache-2.0
#include "resolve/read_ahead.h"

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace vramscope::resolve {
namespace {

using Batch = std::vector<trace::Event>;

constexpr size_t kBatchEvents = 2048;
// 8 MB: enough for when the packing thread occupies one of two cores. The reader continues when
// half of them are processed, so it does not wake for each.
constexpr size_t kBatchesWaiting = 32;
constexpr size_t kBatchesToGoOn = kBatchesWaiting / 2;

// A queue of batches from the reading thread to the caller's.
class BatchQueue {
 public:
  // An empty batch, which reuses the memory of a processed one if possible.
  Batch TakeEmpty() {
    const std::lock_guard lock(mutex_);
    if (empty_.empty())
      return {};
    Batch batch = std::move(empty_.back());
    empty_.pop_back();
    return batch;
  }
  // Waits for room. False: the consumer has stopped.
  bool Put(Batch batch) {
    std::unique_lock lock(mutex_);
    if (waiting_.size() >= kBatchesWaiting)
      changed_.wait(lock, [this] { return waiting_.size() <= kBatchesToGoOn || is_cancelled_; });
    if (is_cancelled_)
      return false;
    waiting_.push_back(std::move(batch));
    const bool first = waiting_.size() == 1;
    lock.unlock();
    if (first)
      changed_.notify_one();
    return true;
  }
  // No more batches follow.
  void Close() {
    {
      const std::lock_guard lock(mutex_);
      is_closed_ = true;
    }
    changed_.notify_one();
  }
  // The next batch; false after the last. Takes back the previous one, `seen`.
  bool Take(Batch* batch) {
    std::unique_lock lock(mutex_);
    if (batch->capacity() != 0) {
      batch->clear();
      empty_.push_back(std::move(*batch));
    }
    changed_.wait(lock, [this] { return !waiting_.empty() || is_closed_; });
    if (waiting_.empty())
      return false;
    *batch = std::move(waiting_.front());
    waiting_.pop_front();
    const bool goes_on = waiting_.size() == kBatchesToGoOn;
    lock.unlock();
    if (goes_on)
      changed_.notify_one();
    return true;
  }
  void Cancel() {
    {
      const std::lock_guard lock(mutex_);
      is_cancelled_ = true;
    }
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;  // only one side waits at a time
  std::deque<Batch> waiting_;
  std::vector<Batch> empty_;
  bool is_closed_ = false;
  bool is_cancelled_ = false;
};

// The reading thread.
class Reader {
 public:
  Reader(trace::Trace& trace, BatchQueue& queue) : trace_(trace), queue_(queue) {}

  void Run() noexcept {
    try {
      status_ = trace_.ForEachEvent([this](Batch& events) { Add(events); });
      Hand(&batch_);
    } catch (...) {
      thrown_ = std::current_exception();
    }
    queue_.Close();
  }
  // Call after the thread ended.
  util::Status Result() const {
    if (thrown_)
      std::rethrow_exception(thrown_);
    return status_;
  }

 private:
  void Add(Batch& events) {
    if (is_cancelled_)
      return;
    if (batch_.empty() && events.size() >= kBatchEvents) {
      Hand(&events);
      return;
    }
    batch_.insert(batch_.end(), events.begin(), events.end());
    if (batch_.size() >= kBatchEvents)
      Hand(&batch_);
  }
  // Leaves an empty batch.
  void Hand(Batch* batch) {
    if (batch->empty())
      return;
    is_cancelled_ = !queue_.Put(std::move(*batch));
    *batch = queue_.TakeEmpty();
  }

  trace::Trace& trace_;
  BatchQueue& queue_;
  Batch batch_;
  bool is_cancelled_ = false;
  util::Status status_;
  std::exception_ptr thrown_;
};

// Joins the thread even when an exception leaves the scope.
class Joined {
 public:
  Joined(std::thread thread, BatchQueue& queue) : thread_(std::move(thread)), queue_(queue) {}
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;
  ~Joined() {
    queue_.Cancel();
    thread_.join();
  }

 private:
  std::thread thread_;
  BatchQueue& queue_;
};

}  // namespace

util::Status ForEachEventReadAhead(trace::Trace& trace, const trace::Trace::EventSink& sink) {
  if (trace.IsFollowed())
    return trace.ForEachEvent(sink);
  BatchQueue queue;
  Reader reader(trace, queue);
  std::thread thread;
  try {
    thread = std::thread([&reader] { reader.Run(); });
  } catch (const std::system_error&) {
    return trace.ForEachEvent(sink);  // the system has no more threads
  }
  {
    const Joined joined(std::move(thread), queue);
    for (Batch batch; queue.Take(&batch);)
      sink(batch);
  }
  return reader.Result();
}

}  // namespace vramscope::resolve
