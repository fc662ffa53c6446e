// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "util/status.h"

// The environment that makes a program record itself.
namespace vramscope::cli {

struct RecordingOptions {
  bool cpu = false;
  bool native = false;
  bool no_python = false;
  bool paused = false;
  bool unpooled = false;
  bool await_report = false;  // a RefusalWatch is there, for which the first lack of memory waits
  std::string session;        // one of SessionsOf() the directory
  // Host memory where device memory is refused, so many bytes of it in each process at most.
  std::optional<uint64_t> overflow_bytes;
  uint64_t ring_bytes = 0;  // 0: there is no ring
};
inline constexpr uint64_t kNoOverflowBound = UINT64_MAX;

// As VRAMSCOPE_OPTIONS carries them: see src/probe/session/config.h.
std::string OptionsText(const RecordingOptions& options);

// Absolute path of libvramscope_probe.so: $VRAMSCOPE_PROBE, else ../lib beside this binary, which
// is right for a build tree, an installation and a wheel.
util::Result<std::string> FindProbe();

// Whether NVTX ranges can come to the probe: not where the user has put another tool there.
bool NvtxIsOurs();

using Variables = std::vector<std::pair<std::string, std::string>>;

// Variables to set for the program. Keeps what LD_PRELOAD holds already, behind the probe. The
// probe's path must suit LD_PRELOAD.
Variables RecordingVariables(const std::string& probe,
                             const std::string& live_directory,
                             const RecordingOptions& options);

// The same for a program whose loader must not see the probe.
Variables WithoutProbe(Variables variables);

// LD_PRELOAD takes spaces and colons for separators and has no way to quote them.
bool SuitsPreload(const std::string& path);

// A symbolic link to `probe` in a new directory whose path suits LD_PRELOAD.
util::Result<std::string> LinkProbe(const std::string& probe);
// Removes it again; "" is none.
void RemoveProbeLink(const std::string& link);

// Whether this machine can run CUDA programs at all: a driver library, and a GPU unless NVML is
// missing. `gpu_count` is NVML's, -1 without NVML.
bool HasCudaDriver(int gpu_count);

}  // namespace vramscope::cli
