// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trace/xla/peak_split.h"
#include "util/status.h"

namespace vramscope::trace {

// A folder into which XLA dumped the programs of a recording, and perhaps others.
//
//   module_0006.jit_train_step.sm_9.0_gpu_after_optimizations.txt
//   module_0006.jit_train_step.sm_9.0_gpu_after_optimizations-buffer-assignment.txt,
//   -live-range.txt
//
// Links are not followed, only regular files are read, and only up to a size.
class XlaDumpFolder {
 public:
  struct Found {
    std::string file;  // the same for the same dump
    XlaPeak peak;
  };

  // Files from before `since_wall_ns` (CLOCK_REALTIME) belong to other runs.
  XlaDumpFolder(std::string path, int64_t since_wall_ns, IsOwnFile is_own);

  // The dump of a program that ran with so much temporary memory, which may be up to a quarter more
  // than it asked for; 0: not known. Errors say why there is none.
  util::Result<Found> Find(const std::string& program, uint64_t recorded_bytes);

 private:
  struct Dump {
    std::string stem;  // without "-buffer-assignment.txt"
    int64_t time_ns = 0;
    bool is_known = false;  // the next two
    std::string error = {};
    uint64_t temp_bytes = 0;
  };

  util::Result<std::string> Read(const std::string& name, size_t limit_bytes);
  util::Result<XlaPeak> Split(const Dump& dump, const std::string& program);
  // The dumps of a program, the latest first.
  std::vector<Dump*> DumpsOf(const std::string& program);

  std::string path_;
  IsOwnFile is_own_;
  std::vector<Dump> dumps_;
  uint64_t left_bytes_;
};

}  // namespace vramscope::trace
