// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/options.h"
#include "pipeline/open_recording.h"
#include "record/attach/attacher.h"
#include "record/watch/watches.h"
#include "util/status.h"

namespace vramscope::cli {
namespace {

struct AttachCommand {
  AttachArguments arguments;
  AttachOptions options;
  std::string duration;  // --for
  std::string ring;
  bool no_report = false;
};

util::Status ReadAttachOptions(AttachCommand* command) {
  AttachOptions& options = command->options;
  if (!command->duration.empty()) {
    VRAMSCOPE_ASSIGN_OR_RETURN(options.duration_ns, ParseTime("--for", command->duration));
  }
  if (!command->ring.empty()) {
    VRAMSCOPE_ASSIGN_OR_RETURN(options.recording.ring_bytes, ParseRing(command->ring));
  }
  return ReadAttachArguments(command->arguments, &options);
}

int Attach(AttachCommand command) {
  if (const util::Status status = ReadAttachOptions(&command); !status.ok())
    return Fail(status.message());
  Attacher attacher(command.options);
  const pid_t pid = command.options.pid;
  if (const util::Status status = attacher.Start(); !status.ok())
    return Fail(status.message());
  Note(fmt::format("recording {} into {}: Ctrl-C or `vramscope detach {}` ends the recording",
                   ProcessText(pid), ShortPath(attacher.place().shown_directory()), pid));
  attacher.AwaitEnd();
  const std::string who = ProcessText(pid);
  if (const util::Status status = attacher.End(); !status.ok())
    return Fail(status.message());
  attacher.Release();
  if (!attacher.has_ended())
    Note(fmt::format("{} continues", who));
  const ReportOptions report{.no_report = command.no_report, .html = command.options.html};
  return attacher.place().Finish(report, kExitError) ? kExitOk : kExitError;
}

}  // namespace

void AddAttachArguments(CLI::App& command, AttachArguments* arguments) {
  command.add_option("PID", arguments->pid, "The process to attach to")->required();
  command
      .add_option("--timeout", arguments->timeout,
                  "Give up if the process executes no Python for this long (default: 30s)")
      ->option_text("TIME");
}

util::Result<int64_t> ParseTime(const std::string& option, const std::string& text) {
  constexpr int64_t kMillisecondNs = 1'000'000;
  constexpr int64_t kLongestNs = int64_t{30} * 86'400 * 1000 * kMillisecondNs;
  return ParsePeriod(option, text, kMillisecondNs, kLongestNs);
}

util::Status ReadAttachArguments(const AttachArguments& arguments, AttachOptions* options) {
  VRAMSCOPE_ASSIGN_OR_RETURN(options->timeout_ns, ParseTime("--timeout", arguments.timeout));
  options->pid = arguments.pid;
  options->timeout = arguments.timeout;
  return {};
}

void RegisterAttach(CLI::App& app, int* exit_code) {
  CLI::App* const attach = app.add_subcommand("attach", "Record a process that already runs");
  auto command = std::make_shared<AttachCommand>();
  AddAttachArguments(*attach, &command->arguments);
  attach
      ->add_option("-o", command->options.output,
                   "Write the recording to FILE (default: COMMAND-PID.vram)")
      ->option_text("FILE");
  attach
      ->add_option("--for", command->duration,
                   "Record for this long (default: until Ctrl-C, `vramscope detach` or its end)")
      ->option_text("TIME");
  attach
      ->add_option("--steps", command->options.steps,
                   "End the recording after N iterations, or soon after")
      ->check(CheckCount)
      ->option_text("N");
  attach->add_flag("--native", command->options.recording.native,
                   "Record the C++ stack of every tensor too (default: only of driver calls)");
  attach->add_flag("--cpu", command->options.recording.cpu,
                   "Record CPU tensors too (default if there is no GPU)");
  attach
      ->add_option("--ring", command->ring,
                   "Limit the recording to SIZE: it keeps live memory, the peak and recent history")
      ->option_text("SIZE");
  attach->add_option("--html", command->options.html, "Also write the report as an HTML page")
      ->option_text("FILE");
  attach->add_flag("--no-report", command->no_report, "Print only the name of the recording");
  attach->footer("Example: vramscope attach 1234 --for 60s -o train.vram");
  attach->callback([command, exit_code] { *exit_code = Attach(*command); });
}

}  // namespace vramscope::cli
