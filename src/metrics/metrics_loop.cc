// SPDX-License-Identifier: Apache-2.0
#include "metrics/metrics_loop.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/console.h"
#include "pipeline/open_recording.h"
#include "record/watch/onlooker.h"
#include "record/watch/worker.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

constexpr int kPausePerReading = 9;
constexpr int kNiceness = 10;

// The thread that reads, and the text that it read last.
class Readings {
 public:
  Readings(Collector* collector, int64_t period_ns)
      : collector_(*collector), period_(period_ns), news_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    worker_.Start([this] { Read(); });
  }

  // Can be read when there is a new text.
  int news() const { return news_.get(); }

  std::string Take() {
    eventfd_t count = 0;
    (void)eventfd_read(news_.get(), &count);
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

 private:
  void Read() {
    using Clock = std::chrono::steady_clock;
    // The programs need the processor more. It is the niceness of this thread and of those it
    // starts.
    [[maybe_unused]] const int niceness = nice(kNiceness);
    std::chrono::nanoseconds pause{0};
    do {
      const Clock::time_point began = Clock::now();
      Publish();
      const std::chrono::nanoseconds took = Clock::now() - began;
      pause = std::max(period_ - took, kPausePerReading * took);
    } while (worker_.Rest(pause));
  }

  // The last text stays where memory runs out.
  void Publish() {
    try {
      std::string text = collector_.Collect();
      const std::lock_guard<std::mutex> lock(mutex_);
      text_ = std::move(text);
    } catch (const std::exception& error) {
      return Note(fmt::format("no new metrics: {}", error.what()));
    }
    (void)eventfd_write(news_.get(), 1);
  }

  Collector& collector_;
  const std::chrono::nanoseconds period_;
  util::UniqueFd news_;
  std::mutex mutex_;
  std::string text_;  // under the mutex
  Worker worker_;
};

// Waits until one of the descriptors is ready, or for `timeout_ms`.
void Wait(std::vector<pollfd>* polls, int timeout_ms) {
  if (poll(polls->data(), polls->size(), timeout_ms) <= 0) {
    for (pollfd& one : *polls)
      one.revents = 0;
  }
}

}  // namespace

void ServeMetrics(Collector* collector, HttpServer* server, int64_t period_ns) {
  const StopSignals stops;
  Readings readings(collector, period_ns);
  std::string text;
  for (;;) {
    std::vector<pollfd> polls = {{stops.fd(), POLLIN, 0}, {readings.news(), POLLIN, 0}};
    const size_t first = polls.size();
    if (!text.empty())
      server->AddPolls(&polls);
    Wait(&polls, text.empty() ? -1 : server->TimeoutMs());
    if (polls[0].revents != 0)
      EndQuietly();
    if (polls[1].revents != 0)
      text = readings.Take();
    if (polls.size() > first)
      server->Serve(&polls[first], text);
  }
}

void WriteMetrics(Collector* collector, const Textfile& file, int64_t period_ns) {
  const StopSignals stops;
  Readings readings(collector, period_ns);
  std::string last_error;
  for (;;) {
    std::vector<pollfd> polls = {{stops.fd(), POLLIN, 0}, {readings.news(), POLLIN, 0}};
    Wait(&polls, -1);
    if (polls[0].revents != 0) {
      file.Remove();
      EndQuietly();
    }
    if (polls[1].revents == 0)
      continue;
    const util::Status written = file.Write(readings.Take());
    // A full disk is reported once, and may have space again.
    if (written.message() != last_error && !written.ok())
      Note(written.message());
    last_error = written.message();
  }
}

}  // namespace vramscope::cli
