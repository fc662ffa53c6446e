// SPDX-License-Identifier: Apache-2.0
// The processor time of `vramscope finish` for each event, by stage: each run adds one stage.
//
//   bench_finish_stages NAME.vram.d [ROUNDS]     the minimum of this many rounds, default 3
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "query/core/peaks.h"
#include "resolve/resolve.h"
#include "tables/reader.h"
#include "tables/writer.h"
#include "trace/trace.h"

namespace {

using namespace vramscope;

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "bench_finish_stages: %s\n", message.c_str());
  std::exit(2);
}

template <class T>
T Must(util::Result<T> result) {
  if (!result)
    Die(result.status().message());
  return std::move(*result);
}
void Must(const util::Status& status) {
  if (!status.ok())
    Die(status.message());
}

class Nowhere : public tables::AllocationSink {
 public:
  util::Status Add(const tables::AllocationRow& row) override {
    bytes_ += row.bytes;
    return {};
  }

 private:
  uint64_t bytes_ = 0;
};

double SecondsOn(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Stage {
  const char* name;
  double cpu_s = 1e9;
  double wall_s = 1e9;

  void Time(const std::function<void()>& work) {
    const double cpu = SecondsOn(CLOCK_PROCESS_CPUTIME_ID);
    const double wall = SecondsOn(CLOCK_MONOTONIC);
    work();
    cpu_s = std::min(cpu_s, SecondsOn(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    wall_s = std::min(wall_s, SecondsOn(CLOCK_MONOTONIC) - wall);
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2)
    Die("bench_finish_stages NAME.vram.d [ROUNDS]");
  const std::string path = argv[1];
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  Stage open{"open: checksums, first pass"};
  Stage read{"read: events in order"};
  Stage resolve{"read and resolve"};
  Stage write{"read, resolve and write"};
  Stage peaks{"peaks of what was written"};
  uint64_t events = 0;
  for (int round = 0; round < rounds; ++round) {
    std::unique_ptr<trace::Trace> trace;
    open.Time([&] { trace = Must(trace::OpenTrace(path)); });
    read.Time([&] {
      events = 0;
      Must(trace->ForEachEvent(
          [&](std::span<const trace::Event> batch) { events += batch.size(); }));
    });
    resolve.Time([&] {
      Nowhere nowhere;
      (void)Must(resolve::Resolve(*trace, nowhere));
    });
    const int fd = memfd_create("bench", MFD_CLOEXEC);
    write.Time([&] {
      tables::Writer writer(fd, "memory");
      Must(writer.Finish(Must(resolve::Resolve(*trace, writer))));
    });
    const auto recording = Must(tables::OpenDescriptor(fd, "memory"));
    peaks.Time([&] { (void)Must(query::FindPeaks(*recording)); });
    close(fd);
  }
  std::printf("%-30s %8s %8s   of %llu events\n", "ns an event", "CPU", "wall",
              static_cast<unsigned long long>(events));
  for (const Stage& stage : {open, read, resolve, write, peaks}) {
    std::printf("%-30s %8.1f %8.1f\n", stage.name, stage.cpu_s * 1e9 / static_cast<double>(events),
                stage.wall_s * 1e9 / static_cast<double>(events));
  }
  return 0;
}
