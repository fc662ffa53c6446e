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
// The program `vramscope` makes tables of events, and writes them to unnamed memory. So resolving a
// recording costs the reading process no memory and cannot crash it. (Debian's libdw.a cannot be
// linked into a library either.)
util::Result<std::unique_ptr<tables::Recording>> Open(const std::string& path,
                                                      const OpenOptions& options);

// Of a recording's rows only those by which an export orders its recordings.
struct Head {
  std::string run;
  int32_t rank = -1;  // the lowest of its processes
};
util::Result<Head> ReadHead(const std::string& path, const OpenOptions& options);

}  // namespace vramscope::read
