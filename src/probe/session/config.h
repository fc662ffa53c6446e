// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The variables that configure the probe, as `vramscope env` prints them:
//
//   VRAMSCOPE_DIR      absolute path of the live directory; without it nothing is recorded
//   VRAMSCOPE_OPTIONS  comma list of
//                        cpu         record CPU tensors too
//                        no-python   no Python stacks
//                        native      native stacks on tensor events as well as on driver calls
//                        paused      tensor events begin with vramscope_start()
//                        await-report
//                                    a lack of memory that a framework raises waits for the
//                                    launcher to report it (AwaitReport())
//                        overflow    host memory where device memory is refused; overflow=BYTES:
//                                    so much of it at most
//                        session=ID  the recording that the directory must be of (layout.h)
//                        ring=BYTES  the recording is to stay below that size: threads take less
//                                    space at once
//                        unpooled    noted in the trace: the frameworks' caches were switched off
namespace vramscope::probe {

inline constexpr size_t kMaxPathBytes = 4096;
inline constexpr size_t kMaxSessionBytes = 64;

struct Config {
  char directory[kMaxPathBytes] = {};
  char session[kMaxSessionBytes] = {};  // "": whatever is there
  bool cpu = false;
  bool python = true;
  bool native = false;
  bool paused = false;
  bool unpooled = false;
  bool await_report = false;
  uint64_t overflow_bytes = 0;  // UINT64_MAX: without a bound of its own
  uint64_t ring_bytes = 0;      // 0: there is no ring
};

// Reads both variables. False if no directory is set.
bool ReadConfig(const char* directory, const char* options, Config* config);

// How much of the file a busy thread takes at once at most, by what the session is configured to.
uint32_t MostSpaceBytes();

}  // namespace vramscope::probe
