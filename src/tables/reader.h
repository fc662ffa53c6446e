// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::tables {

// Opens a finished file (file_layout.h) and reads its tables; allocations are read as needed. An
// error where it is none, was cut off, is damaged where all of it is, or would take more memory
// than a file of its size can need. Frames of allocations that are damaged are left out, and a row
// of `losses` says how many allocations they had.
util::Result<std::unique_ptr<Recording>> Open(const std::string& path);
// Only the session and the processes, without the checks of the other tables.
util::Result<std::unique_ptr<Recording>> OpenHead(const std::string& path);
// As Open(), of an open file (such as one that never had a name), which stays the caller's: it is
// duplicated. `path` is what errors call it.
util::Result<std::unique_ptr<Recording>> OpenDescriptor(int fd, const std::string& path);

// Keeps the frames of a small recording that are read, for a caller with several questions. Has no
// effect on a recording that was not opened here.
void KeepFrames(const Recording& recording);

// The live directory to read for `path`: `path` itself, or NAME.vram.d if NAME.vram is missing or
// of an earlier recording. "" if a reader opens the file `path`.
std::string LiveFormOf(const std::string& path);

}  // namespace vramscope::tables
