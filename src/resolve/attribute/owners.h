// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "resolve/attribute/parts.h"
#include "trace/trace.h"
#include "util/containers/flat_map.h"

namespace vramscope::resolve {

using OwnerId = util::StrongId<struct OwnerTag, uint16_t>;

// Owners that exist without looking at a stack, in the order of their ids.
inline constexpr OwnerId kNoOwner{0};  // rows that belong to nobody, such as `before recording`
inline constexpr OwnerId kDriverOwned{1};
inline constexpr OwnerId kPyTorch{2};
inline constexpr OwnerId kApplication{3};
inline constexpr OwnerId kUnknownOwner{4};
inline constexpr OwnerId kCudaGraphs{5};

// Which library asked for a driver allocation: the first caller outside libcuda, libcudart and the
// probe. Where that is an interpreter or the FFI, the innermost Python frame may know better.
class Owners {
 public:
  explicit Owners(const trace::Trace& trace);

  OwnerId Find(tables::StackId native, tables::StackId python);
  const std::string& name(OwnerId id) const { return names_[id.value]; }
  size_t size() const { return names_.size(); }

 private:
  OwnerId Intern(std::string_view name);
  OwnerId OfNativeStack(tables::StackId native);
  OwnerId OfPythonStack(tables::StackId python);  // kUnknownOwner where no known package is there

  const trace::Trace& trace_;
  std::vector<std::string> names_;
  // By stack id: an owner's id. Stacks repeat, so each is walked once.
  util::FlatMap native_;
  util::FlatMap python_;
};

// The category of all that an owner asks for, kUnknown where it asks for many things.
Category CategoryOfOwner(std::string_view owner);

// The owner that the image's path tells, "application" for anything that is not in the table, ""
// for the driver, its runtime and the probe, who ask for others.
std::string_view OwnerOfImage(std::string_view path);

}  // namespace vramscope::resolve
