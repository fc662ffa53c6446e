// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
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
  bool await_report = false;   // a RefusalWatch is there, for which the first lack of memory waits
  std::string session;         // one of SessionsOf() the directory
  std::string xla_flags = {};  // XLA_FLAGS for the program; "": as they are
  // Host memory that replaces refused device memory: at most this many bytes a process.
  std::optional<uint64_t> overflow_bytes;
  uint64_t ring_bytes = 0;  // 0: there is no ring
  pid_t pid = 0;            // the process's number here; 0: the same as its own
};
inline constexpr uint64_t kNoOverflowBound = UINT64_MAX;

// As VRAMSCOPE_OPTIONS carries them: see src/probe/session/session.h.
std::string OptionsText(const RecordingOptions& options);

// Absolute path of libvramscope_probe.so: $VRAMSCOPE_PROBE, else ../lib beside this binary, which
// is right for a build tree, an installation and a wheel.
util::Result<std::string> FindProbe();

// Absolute path of the folder of the Python package, "vramscope": in site-packages, or in python/
// of the source tree; "" for a program that was installed without it.
std::string FindPackage();

// Whether NVTX ranges can come to the probe: not where the user has put another tool there.
bool NvtxIsOurs();
// The same for Kokkos Tools.
bool KokkosIsOurs();

// XLA_FLAGS with which XLA writes its dumps as text, into `folder` unless XLA_FLAGS names another.
struct XlaDumpFlags {
  std::string flags;
  std::string folder;  // absolute
  bool is_users = false;
};
// `flags`: XLA_FLAGS as it is. An error if XLA could not write into a folder.
util::Result<XlaDumpFlags> AddXlaDump(std::string_view flags, const std::string& folder);

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

// Checks of a command before it is started.

inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

struct Program {
  std::string path;  // what to execute
  // Set when the command cannot be started: the exit status of a shell, and one line that says why.
  int exit_status = 0;
  std::string error;
  // Set when it can be started but the dynamic loader will not load the probe into it: why.
  std::string not_recordable;
  // Its loader would look at the probe all the same, and end the program or complain: LD_PRELOAD
  // must not name it.
  bool refuses_preload = false;
};

// Looks `command` up as execvp(3) does, and looks into the file: through `#!` to the interpreter.
Program FindProgram(const std::string& command);

// Why the dynamic loader does not load the probe into this program, or "": "is statically linked".
std::string WhyNotRecordable(const std::string& path);

// A name for the recording: the basename of the command without extension, or of the script where
// the command is an interpreter (`python -u train.py` is "train", `python -m pkg.tool` "pkg.tool").
std::string NameOfCommand(const std::vector<std::string>& command);

// The interpreter and its argument of a `#!` line (`text` is the beginning of a file), "" if
// there is none. A seam for tests.
std::string InterpreterOf(const std::string& text);

}  // namespace vramscope::cli
