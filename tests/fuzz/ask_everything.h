// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tables/recording.h"

namespace vramscope::fuzz {

// Every kind of question, with its answer in every form but pictures. Errors are fine; what the
// sanitizers see is not.
enum class Extent {
  kBegin,  // the largest rows of a report, the first MiB of an export: what a fuzzer has time for
  kWhole,
};
struct Question {
  std::string name;
  // How many bytes were written.
  std::function<size_t(const tables::Recording&, Extent)> ask;
};
const std::vector<Question>& Questions();
// Asks them all for their begin.
void AskEverything(const tables::Recording& recording);

// Opens a live directory, makes a finished recording of it, and asks that.
void AskLive(const std::string& directory);

}  // namespace vramscope::fuzz
