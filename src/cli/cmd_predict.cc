// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/answers.h"
#include "output/names.h"
#include "output/terminal.h"
#include "pipeline/open_recording.h"
#include "query/predict/predict.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

struct PredictArguments {
  std::vector<std::string> files;
  std::optional<std::string> size;
  std::string card;
  bool json = false;
};

util::Result<uint64_t> ParseWholeSize(const std::string& option, const std::string& text) {
  const auto size = util::WholeNumber<uint64_t>(text);
  if (!size || *size == 0 || *size > query::kLargestSize)
    return util::Status::Error(
        fmt::format("{}: '{}' is not a whole number from 1 on", option, text));
  return *size;
}

struct SizedFile {
  std::string file;
  std::optional<uint64_t> size;
};

// "a.vram=4". A file may have such a name itself.
util::Result<SizedFile> ParseSizedFile(const std::string& text) {
  const size_t equals = text.rfind('=');
  std::error_code error;
  if (equals == text.npos || std::filesystem::exists(text, error))
    return SizedFile{text, std::nullopt};
  VRAMSCOPE_ASSIGN_OR_RETURN(const uint64_t size, ParseWholeSize(text, text.substr(equals + 1)));
  return SizedFile{text.substr(0, equals), size};
}

util::Status ShowPrediction(const PredictArguments& arguments) {
  query::PredictOptions options;
  if (arguments.size) {
    VRAMSCOPE_ASSIGN_OR_RETURN(options.size, ParseWholeSize("--batch", *arguments.size));
  }
  if (!arguments.card.empty()) {
    const util::Result<uint64_t> card = util::ParseSize(arguments.card);
    if (!card.ok())
      return util::Status::Error("--card: " + card.status().message());
    options.card_bytes = *card;
  }
  std::vector<SizedFile> files;
  for (const std::string& text : arguments.files) {
    VRAMSCOPE_ASSIGN_OR_RETURN(SizedFile file, ParseSizedFile(text));
    files.push_back(std::move(file));
  }
  std::vector<std::unique_ptr<tables::Recording>> recordings;
  std::vector<query::PredictInput> inputs;
  for (SizedFile& file : files) {
    VRAMSCOPE_ASSIGN_OR_RETURN(auto recording, OpenRecording(file.file, {.native_names = false}));
    inputs.push_back(
        {recording.get(), std::move(file.file), output::RecordedCommand(*recording), file.size});
    recordings.push_back(std::move(recording));
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::Prediction prediction,
                             query::MakePrediction(std::move(inputs), options));
  if (arguments.json)
    return PrintOut(output::PredictionJson(prediction));
  return PrintOut(output::FormatPrediction(prediction, output::DetectStyle(STDOUT_FILENO)));
}

}  // namespace

void RegisterPredict(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("predict", "Predict the peak at another batch or sequence length");
  auto arguments = std::make_shared<PredictArguments>();
  command
      ->add_option("FILE", arguments->files,
                   "Recordings of one program at two or more small sizes. Their commands differ in "
                   "that number; otherwise FILE=N says it")
      ->required();
  command
      ->add_option("--batch,--size", arguments->size,
                   "Predict for N, in the unit of the number that differs (default: the largest "
                   "that fits --card, or twice the largest recorded)")
      ->option_text("N");
  command
      ->add_option("--card", arguments->card,
                   "Say whether it fits in SIZE, as 24GiB, and the largest N that does")
      ->option_text("SIZE");
  command->add_flag("--json", arguments->json,
                    "Print JSON with exact bytes (schema vramscope.predict/1)");
  command->callback([arguments, exit_code] { *exit_code = ExitOf(ShowPrediction(*arguments)); });
}

}  // namespace vramscope::cli
