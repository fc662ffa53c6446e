// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "cli/commands.h"
#include "output/terminal.h"
#include "pipeline/compact/compaction.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "record/live_file_writer.h"
#include "record/sample/nvml.h"
#include "record/sample/sampler.h"
#include "tables/reader.h"
#include "trace/live/live_trace.h"
#include "util/file.h"
#include "util/owned_file.h"

// The commands that vramscope itself starts; --help does not show them.
namespace vramscope::cli {
namespace {

// libvramscope_read.so opens a live directory with this command: its events become tables in this
// process and not in the reader's.

struct ResolveArguments {
  std::string path;
  bool no_native_names = false;
};

// It is written to and read again.
bool IsEmptyFileForBoth(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0 &&
         (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

util::Status ResolveTo(int fd, const ResolveArguments& arguments) {
  if (!IsEmptyFileForBoth(fd)) {
    return util::Status::Error(
        "resolve is for libvramscope_read.so, and writes to an empty file: use `vramscope finish`");
  }
  // Descriptors of the process that started this one must not stay open here.
  (void)syscall(SYS_close_range, STDERR_FILENO + 1, UINT_MAX, 0);
  const std::string live = tables::LiveFormOf(arguments.path);
  if (live.empty())
    return util::Status::Error(arguments.path + ": no such live recording");
  util::Result<std::unique_ptr<trace::Trace>> trace = trace::LiveTrace::Open(
      arguments.path, live, UpToNow(live, {.native_names = !arguments.no_native_names}));
  if (!trace)
    return trace.status();
  return WriteResolved(**trace, fd, arguments.path, {});
}

// What `run` starts when memory was refused to the program: reads the recording in a process of its
// own, which the program's end or a lack of memory ends without harm to the recording.

constexpr int kReportNice = 10;

struct RefusedArguments {
  std::string live_directory;
  std::string output;
  size_t told = 0;
};

util::Status TellOfRefusals(const RefusedArguments& arguments) {
  [[maybe_unused]] const int niceness = nice(kReportNice);
  util::Result<std::unique_ptr<tables::Recording>> recording =
      OpenRecording(arguments.live_directory);
  if (!recording)
    return recording.status();
  const OutOfMemoryReports saved = SaveOutOfMemoryReports(
      **recording, arguments.output, output::DetectStyle(STDERR_FILENO), arguments.told);
  std::string text = fmt::format("{}\n", saved.refusals);
  for (const std::string& line : saved.lines)
    text += fmt::format("vramscope: {}\n", line);
  return PrintOut(text);
}

// What `vramscope run` does beside a program, for one that records itself from within Python: says
// what the session is of, and samples NVML. It never outlives the process or the recording.

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

// The starting process begins to record when there is output, and ends our input when it does.
// Samples from before would count its memory as another process's.
void AwaitRecording() {
  constexpr char kReady = '\n';
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, &kReady, 1);
  (void)util::ReadToEnd(STDIN_FILENO, 1);
}

// It waits for the end of the output: the first samples are then written.
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
  AwaitRecording();
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
  // No process waits for the child that remains.
  return child == 0 ? Accompany(options) : kExitOk;
}

}  // namespace

void RegisterResolve(CLI::App& app, int* exit_code) {
  CLI::App* const resolve = app.add_subcommand("resolve", "")->group("");
  auto arguments = std::make_shared<ResolveArguments>();
  resolve->add_flag("--no-native-names", arguments->no_native_names);
  resolve->add_option("DIR", arguments->path)->required();
  resolve->callback(
      [arguments, exit_code] { *exit_code = ExitOf(ResolveTo(STDOUT_FILENO, *arguments)); });
}

void RegisterCompact(CLI::App& app, int* exit_code) {
  // For the launcher.
  CLI::App* const compact = app.add_subcommand("compact", "")->group("");
  auto options = std::make_shared<compact::CompactOptions>();
  auto niceness = std::make_shared<int>(0);
  compact->add_option("--to", options->to_bytes)->required();
  compact->add_option("--nice", *niceness);
  compact->add_flag("--drop", options->drop);
  compact->add_option("--instant", options->instants);
  compact->add_option("DIR", options->directory)->required();
  compact->callback([options, niceness, exit_code] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // the directory is the launcher's
    [[maybe_unused]] const int now = nice(*niceness);
    *exit_code = ExitOf(compact::Compact(*options));
  });
}

void RegisterRefused(CLI::App& app, int* exit_code) {
  CLI::App* const refused = app.add_subcommand("refused", "")->group("");
  auto arguments = std::make_shared<RefusedArguments>();
  refused->add_option("DIR", arguments->live_directory)->required();
  refused->add_option("FILE", arguments->output)->required();
  refused->add_option("TOLD", arguments->told)->required();
  refused->callback([arguments, exit_code] { *exit_code = ExitOf(TellOfRefusals(*arguments)); });
}

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
