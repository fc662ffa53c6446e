// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "pipeline/live_directory.h"
#include "pipeline/session.h"
#include "record/live_file_writer.h"
#include "record/nvml.h"
#include "record/sampled_processes.h"
#include "record/sampler.h"
#include "util/owned_file.h"

// What `vramscope run` does beside a program, for one that records itself from within Python: says
// what the session is of, and samples NVML. It never outlives the process or the recording.
namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kLookEveryMs = 20;
constexpr int kNice = 10;

struct SidecarOptions {
  uint32_t pid = 0;
  std::string recording;  // VRAMSCOPE_OPTIONS
  std::string directory;
};

// Until the process has ended, or the recording, or its directory is gone.
void Wait(int process, const std::string& directory) {
  const std::string stop = directory + "/" + kStopFile;
  const std::string own = directory + "/" + kLauncherFile;
  for (;;) {
    pollfd ended{.fd = process, .events = POLLIN, .revents = 0};
    if (poll(&ended, 1, kLookEveryMs) != 0 || access(stop.c_str(), F_OK) == 0 ||
        access(own.c_str(), F_OK) != 0) {
      return;
    }
  }
}

// Whoever started us waits for the end of our output: by then the first samples are written.
void SayReady() {
  const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nothing, STDOUT_FILENO);
}

int Accompany(const SidecarOptions& options) {
  // A number can be used again, this cannot.
  const int process = static_cast<int>(syscall(SYS_pidfd_open, options.pid, 0));
  if (process < 0)
    return kExitError;
  [[maybe_unused]] const int niceness = nice(kNice);
  SessionRecord record;
  record.name = fs::path(OutputOf(options.directory)).stem().string();
  record.command = CommandLineOf(static_cast<pid_t>(options.pid));
  record.options = options.recording;
  const util::Result<util::OwnedDirectory> live = util::OwnedDirectory::Open(options.directory);
  if (!live || !WriteSessionRecord(*live, record).ok())
    return kExitError;
  [[maybe_unused]] const int changed = chdir("/");
  util::Result<std::unique_ptr<Nvml>> nvml = Nvml::Load();
  if (!nvml || (*nvml)->gpus().empty()) {
    (void)WriteManifest(*live);
    return kExitOk;
  }
  util::Result<std::unique_ptr<LiveFileWriter>> file =
      LiveFileWriter::Create(live->CreateFile(kLauncherFile), record.command);
  if (!file)
    return kExitError;
  (void)WriteManifest(*live);
  Sampler sampler(**nvml, **file, {});
  sampler.Start();
  SayReady();
  Wait(process, options.directory);
  sampler.Stop();
  return kExitOk;
}

int Detach(SidecarOptions options) {
  std::error_code error;
  options.directory = fs::absolute(options.directory, error).lexically_normal().string();
  const pid_t child = fork();
  if (child < 0)
    return kExitError;
  // Nobody waits for the one that stays.
  return child == 0 ? Accompany(options) : kExitOk;
}

}  // namespace

void RegisterSidecar(CLI::App& app, int* exit_code) {
  // For vramscope.start() and record() of the Python package.
  CLI::App* const sidecar = app.add_subcommand("sidecar", "")->group("");
  auto options = std::make_shared<SidecarOptions>();
  sidecar->add_option("--pid", options->pid)->required();
  sidecar->add_option("--options", options->recording);
  sidecar->add_option("DIR", options->directory)->required();
  sidecar->callback([options, exit_code] { *exit_code = Detach(*options); });
}

}  // namespace vramscope::cli
