// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/answers.h"
#include "output/terminal.h"
#include "pipeline/open_recording.h"
#include "query/allocator/whatif.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

struct WhatIfArguments {
  std::string file;
  std::vector<std::string> settings;
  std::string card;
  bool json = false;
};

// The exit status.
util::Result<int> ShowWhatIf(const WhatIfArguments& arguments) {
  query::WhatIfOptions options;
  options.settings = arguments.settings;
  if (!arguments.card.empty()) {
    util::Result<uint64_t> size = util::ParseSize(arguments.card);
    if (!size.ok())
      return util::Status::Error("--card: " + size.status().message());
    options.card_bytes = *size;
  }
  util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(arguments.file);
  if (!recording.ok())
    return recording.status();
  const util::Result<query::WhatIf> what = query::MakeWhatIf(**recording, options);
  if (!what.ok())
    return util::Status::Error(arguments.file + ": " + what.status().message());
  VRAMSCOPE_RETURN_IF_ERROR(
      PrintOut(arguments.json
                   ? output::WhatIfJson(*what, **recording)
                   : output::FormatWhatIf(*what, **recording, output::DetectStyle(STDOUT_FILENO))));
  return what->IsReproduced() ? kExitOk : kExitLimitExceeded;
}

}  // namespace

void RegisterWhatIf(CLI::App& app, int* exit_code) {
  CLI::App* const command = app.add_subcommand(
      "whatif", "Show what other settings of PyTorch's allocator, or another card, would do");
  auto arguments = std::make_shared<WhatIfArguments>();
  command->add_option("FILE", arguments->file, kRecordingHelp)->required();
  command
      ->add_option("--set", arguments->settings,
                   "Try these settings too, as in PYTORCH_CUDA_ALLOC_CONF; may be repeated")
      ->option_text("CONF")
      ->allow_extra_args(false);
  command
      ->add_option("--card", arguments->card,
                   "Say whether it fits on a card of SIZE, such as 24GiB, or where it fails")
      ->option_text("SIZE");
  command->add_flag("--json", arguments->json,
                    "Print JSON with exact bytes (schema vramscope.whatif/1)");
  command->callback([arguments, exit_code] { *exit_code = ExitOf(ShowWhatIf(*arguments)); });
}

}  // namespace vramscope::cli
