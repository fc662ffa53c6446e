// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "pipeline/open_recording.h"
#include "pipeline/session.h"
#include "tables/reader.h"
#include "trace/live/live_trace.h"

// What libvramscope_read.so opens a live directory with: its events become tables in this process
// and not in whoever's that is.
namespace vramscope::cli {
namespace {

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
  // What whoever started us has open is nothing of ours to keep open.
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

}  // namespace

void RegisterResolve(CLI::App& app, int* exit_code) {
  CLI::App* const resolve = app.add_subcommand("resolve", "")->group("");
  auto arguments = std::make_shared<ResolveArguments>();
  resolve->add_flag("--no-native-names", arguments->no_native_names);
  resolve->add_option("DIR", arguments->path)->required();
  resolve->callback(
      [arguments, exit_code] { *exit_code = ExitOf(ResolveTo(STDOUT_FILENO, *arguments)); });
}

}  // namespace vramscope::cli
