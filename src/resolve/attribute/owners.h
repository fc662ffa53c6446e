// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "format/enums.h"
#include "format/memory_words.h"
#include "trace/trace.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

using format::Category;
using format::CategoryName;
using format::Part;
using format::PartCategory;
using format::PartName;

enum class Owner : uint8_t {
#define VRAMSCOPE_OWNER(id, name, category) id,
#include "resolve/attribute/owners.def"
};

const char* OwnerName(Owner owner);

// The category of all memory that an owner requests; kUnknown if it requests several kinds.
Category CategoryOfOwner(Owner owner);

// Finds the library that requested a driver allocation: the first caller outside libcuda, libcudart
// and the probe. If that is an interpreter or the FFI, the innermost Python frame decides.
class Owners {
 public:
  explicit Owners(const trace::Trace& trace) : trace_(trace) {}

  Owner Find(tables::StackId native, tables::StackId python);

 private:
  Owner OfNativeStack(tables::StackId native);
  Owner OfPythonStack(tables::StackId python);  // kUnknown if no known package is found

  const trace::Trace& trace_;
  // Stack id -> owner. Stacks repeat, so each is walked once.
  util::FlatMap native_;
  util::FlatMap python_;
};

// The owner of the image at `path`, by owners.def. kApplication for an unknown image; kNone for the
// driver, its runtime and the probe, which act for their callers.
Owner OwnerOfImage(std::string_view path);

// Whether a Python file is the user's own code: outside installed packages and the standard
// library.
bool IsUserFile(std::string_view file);
// Whether a frame is the user's own code: Python files outside installed packages and the standard
// library, and native frames of the program's binaries except those of vramscope/annotate.h.
bool IsUserFrame(const trace::Trace& trace, const tables::FrameRow& frame);

}  // namespace vramscope::resolve
