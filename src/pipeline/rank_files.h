// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "query/diff/diff.h"
#include "util/status.h"

// The recordings of a program's ranks: files, and directories of such.
namespace vramscope::cli {

// A directory that is no recording under way: those in it are a program's ranks.
bool IsFolder(const std::string& path);

// The recordings of a folder; those that nobody finished have no NAME.vram beside them.
std::vector<std::string> RecordingsIn(const std::string& folder);

// The files that these paths name, those in folders among them. An error where a folder has none.
util::Result<std::vector<std::string>> RankFiles(const std::vector<std::string>& paths);

// All of them as one report, with the ranks' histories for a page. An error where none can be read.
util::Result<query::RankReport> ReadRanks(const std::vector<std::string>& files, bool histories);

}  // namespace vramscope::cli
