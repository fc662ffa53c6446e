// SPDX-License-Identifier: Apache-2.0
#include "import/import.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "tables/imported.h"
#include "util/budget.h"

namespace vramscope::imports {
namespace {

constexpr Format kFormats[] = {
#define VRAMSCOPE_IMPORT(Function, name, title, takes_period) \
  {name, title, takes_period, Is##Function, Read##Function},
#include "import/formats.def"
};

}  // namespace

std::span<const Format> Formats() {
  return kFormats;
}

std::string FormatNames() {
  std::string names;
  for (const Format& format : kFormats)
    names += names.empty() ? format.name : std::string(", ") + format.name;
  return names;
}

util::Result<const Format*> FindFormat(const std::string& name) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const Format& format) { return name == format.name; });
  if (found != std::end(kFormats))
    return found;
  return util::Status::Error(
      fmt::format("unknown format '{}' of --from: the formats are {}", name, FormatNames()));
}

const Format* Recognize(const Input& input) {
  const auto found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                  [&](const Format& format) { return format.matches(input); });
  return found == std::end(kFormats) ? nullptr : found;
}

std::string WhyUnknown(const Input& input) {
  struct NearMiss {
    std::string_view text, why;
  };
  constexpr NearMiss kNearMisses[] = {
#define VRAMSCOPE_IMPORT(Function, name, title, takes_period)
#define VRAMSCOPE_NOT_IMPORTED(text, why) {text, why},
#include "import/formats.def"
  };
  constexpr size_t kLooked = 1024;
  const std::string head = input.text_head().substr(0, kLooked);
  for (const NearMiss& miss : kNearMisses) {
    if (head.find(miss.text) != std::string::npos)
      return std::string(miss.why);
  }
  return "unknown format: the known formats are " + FormatNames();
}

util::Result<tables::Tables> Import(const Input& input,
                                    const Format& format,
                                    const Options& options,
                                    tables::AllocationSink& sink) {
  if (options.period_ns && !format.takes_period) {
    return util::Status::Error(
        fmt::format("{}: --period is for logs without times, and {} has times: leave it out",
                    input.path(), format.title));
  }
  util::Budget budget(input.file_bytes());
  Builder builder(sink, budget);
  builder.SetName(std::filesystem::path(input.path()).stem().string());
  builder.Note(tables::kImportedNote, fmt::format("{} ({})", input.name(), format.name));
  VRAMSCOPE_RETURN_IF_ERROR(format.read(input, options, &builder));
  return builder.Finish(input.path());
}

}  // namespace vramscope::imports
