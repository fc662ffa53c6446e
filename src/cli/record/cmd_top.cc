// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/options.h"
#include "top/follower.h"
#include "top/top_loop.h"

namespace vramscope::cli {
namespace {

constexpr int64_t kShortestLookNs = 100'000'000;
constexpr int64_t kLongestLookNs = 3'600'000'000'000;

struct TopArguments {
  std::string what;
  std::string period = "1s";
  bool once = false;
  bool json = false;
};

util::Status ShowOrPrint(const TopArguments& arguments) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const int64_t period_ns, ParsePeriod("--interval", arguments.period,
                                                                  kShortestLookNs, kLongestLookNs));
  VRAMSCOPE_ASSIGN_OR_RETURN(const TopTarget target, TopTarget::Make(arguments.what));
  if (arguments.once || arguments.json || isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0)
    return PrintTop(target, arguments.json);
  ShowTop(target, period_ns);
}

}  // namespace

void RegisterTop(CLI::App& app, int* exit_code) {
  CLI::App* const top =
      app.add_subcommand("top", "Show GPUs, their processes and what holds memory, live");
  auto arguments = std::make_shared<TopArguments>();
  top->add_option("WHAT", arguments->what,
                  "The ID of a process, a live recording (NAME.vram.d), or a folder of recordings "
                  "(default: all processes on the GPUs, and all recordings that you may see)");
  top->add_option("--interval", arguments->period, "Look every PERIOD: 500ms, 1s, 5s (default: 1s)")
      ->option_text("PERIOD");
  top->add_flag("--once", arguments->once,
                "Print one screen as text (default if there is no terminal)");
  top->add_flag("--json", arguments->json, "Print one screen as JSON");
  top->footer("Example: vramscope top --once");
  top->callback([arguments, exit_code] { *exit_code = ExitOf(ShowOrPrint(*arguments)); });
  // The process of top/follower.h. Its stderr is the file that it writes.
  CLI::App* const follow = app.add_subcommand("follow", "")->group("");
  auto directory = std::make_shared<std::string>();
  follow->add_option("DIR", *directory)->required();
  follow->callback([directory, exit_code] {
    const bool is_file = isatty(STDERR_FILENO) == 0 && lseek(STDERR_FILENO, 0, SEEK_CUR) >= 0;
    *exit_code = is_file && FollowRecording(*directory, STDERR_FILENO).ok() ? kExitOk : kExitError;
  });
}

}  // namespace vramscope::cli
