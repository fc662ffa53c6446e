// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/terminal.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "record/attach/attacher.h"
#include "record/attach/holders.h"
#include "record/attach/shared_folder.h"
#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

constexpr char kUsualHolders[] = "10";
constexpr char kHoldersFile[] = "holders.json";

struct DumpCommand {
  AttachArguments arguments;
  AttachOptions options;
  bool json = false;
  std::string html;
  bool with_holders = false;
  std::string holders;  // --holders, "" without a number
  std::string walk = "1s";
};

// Runs this program again.
int RunReport(std::vector<std::string> words) {
  words.insert(words.begin(), "/proc/self/exe");
  std::vector<char*> arguments;
  for (std::string& word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execv(arguments[0], arguments.data());
    _exit(kExitError);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : kExitError;
}

// The memory of this instant.
class Dump {
 public:
  // `folder`: for what this process makes of it. The target's own can be in a container.
  Dump(const DumpCommand& command, const std::string& folder)
      : command_(command),
        attacher_(command.options),
        recording_(folder + "/" + kPassingRecording),
        holders_file_(folder + "/" + kHoldersFile) {}

  util::Status Take();
  int Print() const;

 private:
  util::Status Look();

  const DumpCommand& command_;
  Attacher attacher_;
  const std::string recording_;
  const std::string holders_file_;
  Holders holders_;
};

util::Status Dump::Take() {
  VRAMSCOPE_RETURN_IF_ERROR(attacher_.Start());
  const util::Status looked = command_.with_holders ? Look() : util::Status();
  VRAMSCOPE_RETURN_IF_ERROR(attacher_.End());
  attacher_.Release();
  const std::string live = attacher_.place().live_directory();
  VRAMSCOPE_RETURN_IF_ERROR(FinishRecording(live, recording_, kExitError));
  VRAMSCOPE_ASSIGN_OR_RETURN(util::OwnedDirectory directory, util::OwnedDirectory::Open(live));
  VRAMSCOPE_RETURN_IF_ERROR(RemoveLiveDirectory(directory));
  return looked;
}

// The walk, while the process records.
util::Status Dump::Look() {
  VRAMSCOPE_ASSIGN_OR_RETURN(const int64_t walk_ns, ParseTime("--walk", command_.walk));
  const SharedFolder& folder = attacher_.folder();
  VRAMSCOPE_RETURN_IF_ERROR(
      attacher_.CallPackage("holders", {folder.there() + "/" + kHoldersFile,
                                        command_.holders.empty() ? kUsualHolders : command_.holders,
                                        std::to_string(static_cast<double>(walk_ns) / 1e9),
                                        attacher_.options().recording.cpu ? "1" : "0"}));
  constexpr size_t kMostBytes = size_t{64} << 20;
  VRAMSCOPE_ASSIGN_OR_RETURN(
      const std::string json,
      util::ReadFile(folder.here() + "/" + kHoldersFile, kMostBytes, util::Links::kRefuse));
  VRAMSCOPE_ASSIGN_OR_RETURN(holders_, ParseHolders(json));
  VRAMSCOPE_ASSIGN_OR_RETURN(const util::UniqueFd file, util::CreateFile(holders_file_));
  return util::ReplaceContents(file, json);
}

int Dump::Print() const {
  std::vector<std::string> words = {"report", recording_, "--at", "end", "--temporary"};
  if (!command_.html.empty())
    words.insert(words.end(), {"--html", command_.html});
  if (command_.json)
    words.emplace_back("--json");
  if (command_.json && command_.with_holders)
    words.insert(words.end(), {"--holders", holders_file_});
  const int status = RunReport(std::move(words));
  if (!command_.with_holders || command_.json || status != kExitOk)
    return status;
  return ExitOf(PrintOut(HoldersText(holders_, output::DetectStyle(STDOUT_FILENO))));
}

int DumpProcess(DumpCommand command) {
  if (const util::Status status = ReadAttachArguments(command.arguments, &command.options);
      !status.ok())
    return Fail(status.message());
  if (const util::Status status = BecomeUserOf(command.options.pid); !status.ok())
    return Fail(status.message());
  const util::Result<SharedFolder> folder = SharedFolder::Make(getpid());
  if (!folder)
    return Fail(folder.status().message());
  command.options.output = folder->here() + "/" + kPassingRecording;
  Dump dump(command, folder->here());
  const util::Status taken = dump.Take();
  return taken.ok() ? dump.Print() : Fail(taken.message());
}

}  // namespace

void RegisterDump(CLI::App& app, int* exit_code) {
  CLI::App* const dump =
      app.add_subcommand("dump", "Show what holds a running process's memory now");
  auto command = std::make_shared<DumpCommand>();
  AddAttachArguments(*dump, &command->arguments);
  dump->add_flag("--cpu", command->options.recording.cpu,
                 "Show CPU tensors too (default if there is no GPU)");
  dump->add_flag("--json", command->json, "Print JSON");
  dump->add_option("--html", command->html, "Write an HTML page")->option_text("FILE");
  CLI::Option* const holders =
      dump->add_option("--holders", command->holders,
                       "Show what keeps the N largest groups of tensors alive (default: 10)")
          ->expected(0, 1)
          ->check(CheckCount)
          ->option_text("[N]");
  dump->add_option("--walk", command->walk,
                   "With --holders: look at objects for at most so long (default: 1s)")
      ->option_text("TIME");
  dump->callback([command, holders, exit_code] {
    command->with_holders = holders->count() != 0;
    *exit_code = DumpProcess(*command);
  });
}

}  // namespace vramscope::cli
