// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "output/terminal.h"
#include "query/diff/diff.h"
#include "tables/recording.h"
#include "trace/trace.h"
#include "util/status.h"

// Functions that the commands on recordings share.
namespace vramscope::cli {

// Opens a finished recording, or resolves a live directory, with progress on a terminal. NAME.vram
// means NAME.vram.d if only that exists.
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

// Ends this process without an error, because its stdout was closed.
[[noreturn]] void EndQuietly();

// Writes all of `text` to stdout and flushes it. A full disk is an error, not a shorter report.
// Ends the process if the reader has closed the pipe.
util::Status PrintOut(std::string_view text);

// An error if writing to `output` would destroy the recording `input` (or a part of it).
util::Status CheckNotInput(const std::string& output, const std::string& input);

// Makes the finished file `output` of a live directory, showing progress on a terminal. An existing
// file of the same recording with as many events stays. On an error the directory stays as it was.
// When it is interrupted by a signal, this process exits with `interrupted_status`.
util::Status FinishRecording(const std::string& live_directory,
                             const std::string& output,
                             int interrupted_status);

// Writes what a running program has recorded up to now as a finished recording `output`.
util::Status WriteSnapshot(const std::string& live_directory, const std::string& output);

// A path as people would type it from here.
std::string ShortPath(const std::string& path);

struct ReportOptions {
  bool no_report = false;    // only the file's name
  std::string html;          // also write this page
  size_t refusals_told = 0;  // of memory, while the program ran
};
// Says on stderr what the finished recording at `path` holds. Errors are said there too; false
// then.
bool PrintRecording(const std::string& path, const ReportOptions& options);

// The recordings of a program's ranks: files, and directories of such.

// A directory that is not a live recording: the recordings in it are a program's ranks.
bool IsFolder(const std::string& path);

// The recordings of a folder. Unfinished ones have only NAME.vram.d.
std::vector<std::string> RecordingsIn(const std::string& folder);

// The files that these paths name, those in folders among them. An error if a folder has none.
util::Result<std::vector<std::string>> RankFiles(const std::vector<std::string>& paths);

// All of them as one report, with the ranks' histories for a page. An error if none can be read.
util::Result<query::RankReport> ReadRanks(const std::vector<std::string>& files, bool histories);

struct OutOfMemoryReports {
  size_t refusals = 0;             // for good
  std::vector<std::string> lines;  // why the last was, and where the files are
};

// Saves why allocations failed, beside the recording NAME.vram at `path`: the first failures and
// the last, as NAME.oom-1 and so on. Replaces the files of an older run. If the number of failures
// is at most `told`, the result has no lines and nothing is saved.
OutOfMemoryReports SaveOutOfMemoryReports(const tables::Recording& recording,
                                          const std::string& path,
                                          const output::Style& style,
                                          size_t told = 0);

}  // namespace vramscope::cli
