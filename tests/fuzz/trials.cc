// SPDX-License-Identifier: Apache-2.0
#include "trials.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

namespace vramscope::fuzz {
namespace {

constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;
constexpr uint64_t kProcessorSeconds = 2;
constexpr int kMeasurements = 4;

struct Outcome {
  int status = 0;
  uint64_t processor_ms = 0;
  uint64_t memory_bytes = 0;
};

Outcome InOneChild(const Trials::Ask& ask, Answer* answer) {
  *answer = {};
  const pid_t child = fork();
  if (child == 0) {
    const rlimit memory{kMemoryBytes, kMemoryBytes};
    const rlimit processor{kProcessorSeconds, kProcessorSeconds};
    const rlimit core{0, 0};
    setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CPU, &processor);
    setrlimit(RLIMIT_CORE, &core);
    ask(answer);
    answer->is_whole = true;
    _exit(0);
  }
  Outcome outcome;
  rusage usage{};
  if (child < 0 || wait4(child, &outcome.status, 0, &usage) != child) {
    std::perror("trials: fork");
    std::exit(2);
  }
  outcome.processor_ms =
      static_cast<uint64_t>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
      static_cast<uint64_t>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  outcome.memory_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  return outcome;
}

// What an input costs is the least of a few measurements where one is over the limit: a virtual
// machine counts what its host gave to others as time of its own processes, and 3 ms were seen as
// 4.7 s. An input that is slow is slow each time.
Outcome InChild(const Trials::Ask& ask, Answer* answer) {
  Outcome outcome = InOneChild(ask, answer);
  for (int again = 1; again < kMeasurements && WIFSIGNALED(outcome.status) &&
                      outcome.processor_ms >= kProcessorSeconds * 900;
       ++again) {
    outcome = InOneChild(ask, answer);
  }
  return outcome;
}

std::string TextOf(const Outcome& outcome) {
  if (WIFSIGNALED(outcome.status))
    return std::string("killed by ") + strsignal(WTERMSIG(outcome.status));
  return "exit status " + std::to_string(WEXITSTATUS(outcome.status));
}

}  // namespace

void Answer::SetLosses(const std::string& text) {
  std::strncpy(losses, text.c_str(), sizeof losses - 1);
}

Trials::Trials()
    : answer_(static_cast<Answer*>(mmap(nullptr,
                                        sizeof(Answer),
                                        PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS,
                                        -1,
                                        0))) {
  if (answer_ == MAP_FAILED) {
    std::perror("trials: mmap");
    std::exit(2);
  }
}

Trials::~Trials() {
  munmap(answer_, sizeof(Answer));
}

Answer Trials::Whole(const std::string& name, const Ask& ask) {
  InChild(ask, answer_);
  if (!answer_->is_whole || answer_->is_refused || answer_->events == 0 ||
      answer_->losses[0] != '\0') {
    std::cerr << "trials: the seed " << name << " is not whole: " << answer_->events
              << " events, losses: " << answer_->losses << '\n';
    std::exit(2);
  }
  return *answer_;
}

std::string Trials::Try(uint64_t number, const Ask& ask, const Answer* whole) {
  const Outcome outcome = InChild(ask, answer_);
  ++inputs_;
  if (outcome.processor_ms > slowest_ms_) {
    slowest_ms_ = outcome.processor_ms;
    slowest_ = number;
  }
  if (outcome.memory_bytes > largest_bytes_) {
    largest_bytes_ = outcome.memory_bytes;
    largest_ = number;
  }
  std::string wrong;
  if (outcome.status != 0 || !answer_->is_whole) {
    wrong = TextOf(outcome);
  } else if (answer_->is_refused) {
    ++refused_;
  } else if (whole != nullptr) {
    const bool is_told = std::strcmp(answer_->losses, whole->losses) != 0;
    const bool is_same = answer_->hash == whole->hash;
    told_ += is_told;
    same_ += is_same;
    if (!is_told && !is_same)
      wrong = "says otherwise, and no loss";
  }
  failures_ += !wrong.empty();
  return wrong;
}

std::string Trials::Summary() const {
  const auto number = [](uint64_t value) { return std::to_string(value); };
  return number(inputs_) + " inputs: " + number(failures_) + " failures, " + number(refused_) +
         " refused; of the damaged ones " + number(told_) + " tell it, " + number(same_) +
         " say what the whole one says; at most " + number(slowest_ms_) + " ms (input " +
         number(slowest_) + ") and " + number(largest_bytes_ >> 20) + " MiB (input " +
         number(largest_) + ")";
}

}  // namespace vramscope::fuzz
