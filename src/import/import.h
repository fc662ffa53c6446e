// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "import/builder.h"
#include "import/input.h"
#include "tables/recording.h"
#include "util/status.h"

// Turns other tools' data into the tables of a recording, so that all queries work on them. The
// note `not in it` lists what the data lacks, and `losses` counts unusable rows. Every byte is
// counted once, and nothing is dropped silently.
namespace vramscope::imports {

struct Options {
  // The interval of readings in a log without a clock.
  std::optional<int64_t> period_ns;
  // Called with the share done, 0 to 1; may be empty.
  std::function<void(double)> progress;
};

// A foreign format. Each has a file in this folder and an entry in formats.def.
struct Format {
  const char* name;   // for --from: "nvidia-smi"
  const char* title;  // "a log of nvidia-smi"
  bool takes_period;
  // Whether the input looks like this format. The first match is taken.
  bool (*matches)(const Input& input);
  util::Status (*read)(const Input& input, const Options& options, Builder* builder);
};
std::span<const Format> Formats();
std::string FormatNames();  // "nvidia-smi, tbd"
// The error for an unknown name lists the names.
util::Result<const Format*> FindFormat(const std::string& name);
// The format of the input, or nullptr if unknown.
const Format* Recognize(const Input& input);

// Explains why no format matches: what the input is instead, if known, or the list of formats.
std::string WhyUnknown(const Input& input);

// Allocations go to `sink`. Returns all other tables except `peaks`, which are queried from the
// rest.
util::Result<tables::Tables> Import(const Input& input,
                                    const Format& format,
                                    const Options& options,
                                    tables::AllocationSink& sink);

// Declares each format's two functions.
#define VRAMSCOPE_IMPORT(Function, name, title, takes_period) \
  bool Is##Function(const Input& input);                      \
  util::Status Read##Function(const Input& input, const Options& options, Builder* builder);
#include "import/formats.def"

}  // namespace vramscope::imports
