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

// Other tools' data become the tables of a recording, and with them every question that can be put
// to one. What the data does not hold is said in the note `not in it`, what of it could not be used
// in `losses`: every byte is counted once, and nothing is left out in silence.
namespace vramscope::imports {

struct Options {
  // How far apart the readings of a log without a clock were.
  std::optional<int64_t> period_ns;
  // Called with the share done, 0 to 1; may be empty.
  std::function<void(double)> progress;
};

// A foreign format: one file of this folder each, listed in formats.def.
struct Format {
  const char* name;   // for --from: "nvidia-smi"
  const char* title;  // "a log of nvidia-smi"
  bool takes_period;
  // Whether the input looks so; of the formats the first that does is it.
  bool (*matches)(const Input& input);
  util::Status (*read)(const Input& input, const Options& options, Builder* builder);
};
std::span<const Format> Formats();
std::string FormatNames();  // "nvidia-smi, tbd"
// An error that lists the names where there is none of that name.
util::Result<const Format*> FindFormat(const std::string& name);
// What the input looks like; nullptr: nothing that is known here.
const Format* Recognize(const Input& input);

// Why the input is none of the formats: what it is instead, if that is known, or the formats.
std::string WhyUnknown(const Input& input);

// Allocations go to `sink`, everything else is returned, but for `peaks`, which are a question to
// the rest.
util::Result<tables::Tables> Import(const Input& input,
                                    const Format& format,
                                    const Options& options,
                                    tables::AllocationSink& sink);

}  // namespace vramscope::imports
