// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/open_recording.h"
#include "output/devices.h"
#include "output/diff.h"
#include "output/terminal.h"
#include "query/diff.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

struct DiffArguments {
  std::string a;
  std::string b;
  std::string fail_above;
  size_t top = 10;
  bool json = false;
  bool no_native_names = false;
};

// By how much B may exceed A: bytes, or a share of A's peak.
struct GrowthLimit {
  uint64_t bytes = 0;
  std::optional<double> percent;

  double BytesOf(const query::Diff& diff) const {
    return percent ? *percent / 100 * static_cast<double>(diff.a_bytes)
                   : static_cast<double>(bytes);
  }
  std::string Text() const {
    return percent ? fmt::format("{:g} %", *percent) : util::FormatBytes(bytes);
  }
};

// "64 MiB", "5%", "0.5 %".
util::Result<GrowthLimit> ParseLimit(const std::string& text) {
  GrowthLimit limit;
  if (!text.ends_with('%')) {
    const util::Result<uint64_t> size = util::ParseSize(text);
    if (!size.ok()) {
      return util::Status::Error(fmt::format(
          "--fail-above {}: use a size, as in 64MiB, or a share of A's peak, as in 5%", text));
    }
    limit.bytes = *size;
    return limit;
  }
  const std::string number = text.substr(0, text.find_last_not_of("% ") + 1);
  double percent = 0;
  const char* const end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, percent);
  if (number.empty() || error != std::errc() || stop != end || !std::isfinite(percent) ||
      percent < 0)
    return util::Status::Error(fmt::format("--fail-above {}: '{}' is no percentage", text, number));
  limit.percent = percent;
  return limit;
}

// The exit status.
util::Result<int> ShowDiff(const DiffArguments& arguments) {
  std::optional<GrowthLimit> limit;
  if (!arguments.fail_above.empty()) {
    const util::Result<GrowthLimit> parsed = ParseLimit(arguments.fail_above);
    if (!parsed.ok())
      return parsed.status();
    limit = *parsed;
  }
  const trace::OpenOptions options{.native_names = !arguments.no_native_names};
  util::Result<std::unique_ptr<tables::Recording>> a = OpenRecording(arguments.a, options);
  if (!a.ok())
    return a.status();
  util::Result<std::unique_ptr<tables::Recording>> b = OpenRecording(arguments.b, options);
  if (!b.ok())
    return b.status();
  const util::Result<query::Diff> diff = query::MakeDiff(**a, **b);
  if (!diff.ok())
    return diff.status();
  const output::DiffSource source_a{arguments.a, output::RecordedCommand(**a)};
  const output::DiffSource source_b{arguments.b, output::RecordedCommand(**b)};
  if (arguments.json) {
    VRAMSCOPE_RETURN_IF_ERROR(PrintOut(output::DiffJson(*diff, source_a, source_b)));
  } else {
    output::DiffTextOptions text;
    text.style = output::DetectStyle(STDOUT_FILENO);
    text.top = arguments.top;
    VRAMSCOPE_RETURN_IF_ERROR(PrintOut(output::FormatDiff(*diff, source_a, source_b, text)));
  }
  if (!limit || static_cast<double>(diff->delta_bytes()) <= limit->BytesOf(*diff))
    return kExitOk;
  Note(fmt::format("the peak of B exceeds that of A by {}, more than the {} of --fail-above",
                   util::FormatBytes(static_cast<uint64_t>(diff->delta_bytes())), limit->Text()));
  return kExitLimitExceeded;
}

}  // namespace

void RegisterDiff(CLI::App& app, int* exit_code) {
  CLI::App* const command =
      app.add_subcommand("diff", "What changed between two recordings, and why");
  auto arguments = std::make_shared<DiffArguments>();
  command
      ->add_option("A", arguments->a,
                   "The recording to compare with: NAME.vram, or NAME.vram.d of an unfinished one")
      ->required();
  command->add_option("B", arguments->b, "The recording to explain")->required();
  command
      ->add_option("--fail-above", arguments->fail_above,
                   "Exit with 1 where the peak of B exceeds that of A by more: a size, or a share "
                   "of A's as in 5%")
      ->option_text("SIZE|PERCENT");
  command->add_option("--top", arguments->top, "Rows of the table of changes; 0: all (default: 10)")
      ->check(CheckCount)
      ->option_text("N");
  command->add_flag("--json", arguments->json, "The schema vramscope.diff/1, exact bytes");
  command->add_flag("--no-native-names", arguments->no_native_names,
                    "Do not look up native functions in a live recording: faster");
  command->callback([arguments, exit_code] {
    const util::Result<int> status = ShowDiff(*arguments);
    *exit_code = status.ok() ? *status : Fail(status.status().message());
  });
}

}  // namespace vramscope::cli
