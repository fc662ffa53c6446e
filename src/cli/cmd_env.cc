// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "cli/commands.h"
#include "pipeline/live_directory.h"
#include "record/environment.h"
#include "record/sample/nvml.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

namespace fs = std::filesystem;

struct EnvOptions {
  std::string directory;
  bool injection = false;
  RecordingOptions recording;
};

// One word for a POSIX shell.
std::string ShellQuoted(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

util::Result<util::OwnedDirectory> PrepareDirectory(const std::string& wanted) {
  std::error_code error;
  const std::string directory = fs::absolute(wanted, error).lexically_normal().string();
  if (directory.ends_with("/"))
    return PrepareDirectory(directory.substr(0, directory.size() - 1));
  // Several ranks may call this at once.
  util::Result<util::OwnedDirectory> live = util::OwnedDirectory::Create(directory);
  struct stat info {};
  if (!live && lstat(directory.c_str(), &info) == 0)
    live = util::OwnedDirectory::Open(directory);
  if (!live) {
    return util::Status::Error(
        fmt::format("{}: choose another place with -o", live.status().message()));
  }
  if (const std::string why = ForeignEntry(*live); !why.empty()) {
    return util::Status::Error(
        fmt::format("{} exists and is not a vramscope recording ({}): choose another name with -o",
                    directory, why));
  }
  if (access(directory.c_str(), W_OK | X_OK) != 0) {
    return util::Status::Error(fmt::format("cannot write {}: {}: choose another place with -o",
                                           directory, util::ErrnoText(errno)));
  }
  return live;
}

int PrintEnvironment(EnvOptions options) {
  util::Result<std::string> probe = FindProbe();
  if (!probe)
    return Fail(probe.status().message());
  if (!options.injection && !SuitsPreload(*probe)) {
    return Fail(
        fmt::format("the path {} has a space or a colon, which LD_PRELOAD cannot contain: "
                    "set VRAMSCOPE_PROBE to a link without them",
                    *probe));
  }
  if (options.directory.empty())
    options.directory = fmt::format("session-{}.vram.d", getpid());
  const util::Result<util::OwnedDirectory> live = PrepareDirectory(options.directory);
  if (!live)
    return Fail(live.status().message());
  const std::string& directory = live->path();
  if (!options.recording.cpu) {
    util::Result<std::unique_ptr<Nvml>> nvml = Nvml::Load();
    options.recording.cpu = !HasCudaDriver(nvml ? static_cast<int>((*nvml)->gpus().size()) : -1);
  }
  SessionRecord record;
  record.name = fs::path(OutputOf(directory)).stem().string();
  record.options = OptionsText(options.recording);
  // Another rank may write the same at this moment.
  const util::Status status = WriteSessionRecord(*live, record);
  if (!status.ok() && !live->Has(format::kSessionFile))
    return Fail(status.message());
  (void)WriteManifest(*live);
  if (const auto ids = SessionsOf(directory); !ids.empty())
    options.recording.session = ids[0];
  Variables variables = RecordingVariables(*probe, directory, options.recording);
  if (options.injection) {
    // The driver opens the probe itself; nothing may bring it in before.
    variables = WithoutProbe(std::move(variables));
    variables.emplace_back("CUDA_INJECTION64_PATH", *probe);
  }
  for (const auto& [name, value] : variables) {
    fmt::print("export {}={}\n", name, ShellQuoted(value));
  }
  fmt::print("# when the programs have ended: vramscope finish {}\n", ShellQuoted(directory));
  return kExitOk;
}

}  // namespace

void RegisterEnv(CLI::App& app, int* exit_code) {
  CLI::App* const env =
      app.add_subcommand("env", "Print environment variables that record without `run`");
  auto options = std::make_shared<EnvOptions>();
  env->add_option("-o", options->directory,
                  "Record into this directory (default: session-PID.vram.d)")
      ->option_text("DIR");
  env->add_flag("--cpu", options->recording.cpu,
                "Record CPU tensors too (default if there is no GPU)");
  env->add_flag(
      "--injection", options->injection,
      "Use CUDA_INJECTION64_PATH, for programs that ignore LD_PRELOAD; records from cuInit on");
  env->footer(
      "For schedulers and containers. In the job's script:\n"
      "  eval \"$(vramscope env -o job.vram.d)\"\n"
      "  python train.py\n"
      "  vramscope finish job.vram.d");
  env->callback([options, exit_code] { *exit_code = PrintEnvironment(*options); });
}

}  // namespace vramscope::cli
