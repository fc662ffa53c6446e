// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tables/recording.h"
#include "trace/trace.h"
#include "util/status.h"

// What the commands that read recordings share.
namespace vramscope::cli {

// Opens a finished recording, or resolves a live directory, with progress on a terminal. NAME.vram
// stands for NAME.vram.d where only that is there.
util::Result<std::unique_ptr<tables::Recording>> OpenRecording(const std::string& path,
                                                               trace::OpenOptions options = {});

// Writes the finished form of a recording to `fd`, an empty file open for reading and writing.
// `make` hands over the allocations and returns the other tables but `peaks`. `path` is what errors
// call the file.
using TablesMaker = std::function<util::Result<tables::Tables>(tables::AllocationSink& sink)>;
util::Status WriteFinished(int fd, const std::string& path, const TablesMaker& make);

// Resolves a recording and writes its finished form to `fd`, an empty file open for reading and
// writing. `path` is what errors call it; `progress` is called with the share done, 0 to 1.
util::Status WriteResolved(trace::Trace& trace,
                           int fd,
                           const std::string& path,
                           const std::function<void(double)>& progress);

// Ends this process: nobody reads its standard output any more, and that is no failure.
[[noreturn]] void EndQuietly();

// Writes all of `text` to the standard output and flushes it: a full disk is an error, not a
// shorter report. Where nobody reads it any more, the process ends.
util::Status PrintOut(std::string_view text);

// An error if writing to `output` would destroy the recording `input` (or a part of it).
util::Status CheckNotInput(const std::string& output, const std::string& input);

}  // namespace vramscope::cli
