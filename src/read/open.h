// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::read {

struct OpenOptions {
  std::chrono::milliseconds limit{0};  // 0: none
  bool native_names = true;
  std::string program;  // "": ../bin/vramscope beside this library
};

// Opens a finished recording, or a live directory, or the one beside a name that is not there.
//
// Events become tables in the program `vramscope`, which writes them to memory that has no name:
// whose process this is should not pay with its own for what a recording costs to resolve or does
// to a reader. (Nor can Debian's libdw.a be linked into a library.)
util::Result<std::unique_ptr<tables::Recording>> Open(const std::string& path,
                                                      const OpenOptions& options);

}  // namespace vramscope::read
