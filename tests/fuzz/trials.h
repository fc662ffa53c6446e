// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace vramscope::fuzz {

// The result of an input, in memory shared by child and parent.
struct Answer {
  bool is_whole;  // the child came to the end
  bool is_refused;
  uint64_t hash;    // of everything that was said
  uint64_t events;  // events or allocations: a seed without any tests nothing
  char losses[4096];

  void SetLosses(const std::string& text);
};

// Reads inputs, each in a process of its own with 1 GiB of memory and 2 s of processor time, and
// keeps count of how that went.
class Trials {
 public:
  using Ask = std::function<void(Answer*)>;  // runs in the child

  Trials();
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;
  ~Trials();

  // The answer to an input that is not changed. Ends the program where that is not whole.
  Answer Whole(const std::string& name, const Ask& ask);
  // What is wrong with how a changed input was read; empty where nothing is. `whole`: the input is
  // damaged, and has to say what that answer says or that something is missing; null: it is forged,
  // and may say anything.
  std::string Try(uint64_t number, const Ask& ask, const Answer* whole);

  // One line.
  std::string Summary() const;

 private:
  Answer* const answer_;
  uint64_t inputs_ = 0, failures_ = 0, refused_ = 0, told_ = 0, same_ = 0;
  uint64_t slowest_ms_ = 0, largest_bytes_ = 0;
  uint64_t slowest_ = 0, largest_ = 0;  // which inputs those are
};

}  // namespace vramscope::fuzz
