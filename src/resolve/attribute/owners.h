// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

using OwnerId = util::StrongId<struct OwnerTag, uint16_t>;

// Owners that exist without looking at a stack, in the order of their ids.
inline constexpr OwnerId kNoOwner{0};  // rows without an owner, such as `before recording`
inline constexpr OwnerId kDriverOwned{1};
inline constexpr OwnerId kPyTorch{2};
inline constexpr OwnerId kApplication{3};
inline constexpr OwnerId kUnknownOwner{4};
inline constexpr OwnerId kCudaGraphs{5};

// Finds the library that requested a driver allocation: the first caller outside libcuda, libcudart
// and the probe. If that is an interpreter or the FFI, the innermost Python frame decides.
class Owners {
 public:
  explicit Owners(const trace::Trace& trace);

  OwnerId Find(tables::StackId native, tables::StackId python);
  const std::string& name(OwnerId id) const { return names_[id.value]; }
  size_t size() const { return names_.size(); }

 private:
  OwnerId Intern(std::string_view name);
  OwnerId OfNativeStack(tables::StackId native);
  OwnerId OfPythonStack(tables::StackId python);  // kUnknownOwner if no known package is found

  const trace::Trace& trace_;
  std::vector<std::string> names_;
  // Stack id -> owner id. Stacks repeat, so each is walked once.
  util::FlatMap native_;
  util::FlatMap python_;
};

// The category of all memory that an owner requests; kUnknown if it requests several kinds.
Category CategoryOfOwner(std::string_view owner);

// The owner of the image at `path`, by owners.def. "application" for an unknown image; "" for the
// driver, its runtime and the probe, which act for their callers.
std::string_view OwnerOfImage(std::string_view path);

// Whether a frame is the user's own code: Python files outside installed packages and the standard
// library, and native frames of the program's binaries except those of vramscope/annotate.h.
bool IsUserFrame(const trace::Trace& trace, const tables::FrameRow& frame);

}  // namespace vramscope::resolve
