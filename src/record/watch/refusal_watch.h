// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "record/watch/worker.h"

namespace vramscope::cli {

// Says while the program runs why memory was refused to it, and saves that. It looks at the headers
// of the live files; another process reads the recording, and no more than a few times. A driver's
// refusal that an allocator may still be answering, by giving back what it has cached, is left
// until nothing more has come for a second. The first failure of a process that its framework
// raises waits for the report, which comes at once.
class RefusalWatch {
 public:
  RefusalWatch(std::string live_directory, std::string output);
  ~RefusalWatch();
  RefusalWatch(const RefusalWatch&) = delete;
  RefusalWatch& operator=(const RefusalWatch&) = delete;

  void Start();
  // A report that is not finished is given up: there is one after the run. Idempotent.
  void Stop() { worker_.Stop(); }
  // Failed allocations that were reported. After Stop().
  size_t told() const { return told_; }
  // "" or why it ended early. After Stop().
  const std::string& failure() const { return worker_.failure(); }

 private:
  void Loop();
  void Tell();

  const std::string live_directory_;
  const std::string output_;
  Worker worker_;
  size_t told_ = 0;
};

}  // namespace vramscope::cli
