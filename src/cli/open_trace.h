// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/query/report.h"
#include "util/status.h"

// What the commands that read recordings share.
namespace vramscope::cli {

// Opens a recording and reads it once, with progress on a terminal.
util::Result<std::unique_ptr<engine::Analysis>> OpenAnalysis(const std::string& path,
                                                             trace::OpenOptions options = {});

// Writes all of `text` to the standard output and flushes it: a full disk or a closed pipe is an
// error, not a shorter report.
util::Status PrintOut(std::string_view text);

// An error if writing to `output` would destroy the recording `input` (or a part of it).
util::Status CheckNotInput(const std::string& output, const std::string& input);

}  // namespace vramscope::cli
