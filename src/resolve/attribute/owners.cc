// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/owners.h"

#include <string_view>

#include "util/text.h"

namespace vramscope::resolve {

const char* OwnerName(Owner owner) {
  constexpr const char* kNames[] = {
#define VRAMSCOPE_OWNER(id, name, category) name,
#include "resolve/attribute/owners.def"
  };
  return kNames[static_cast<size_t>(owner)];
}

Category CategoryOfOwner(Owner owner) {
  constexpr Category kCategories[] = {
#define VRAMSCOPE_OWNER(id, name, category) Category::category,
#include "resolve/attribute/owners.def"
  };
  return kCategories[static_cast<size_t>(owner)];
}

Owner OwnerOfImage(std::string_view path) {
  const std::string_view base = path.substr(path.rfind('/') + 1);
  for (const std::string_view plumbing : {"libcuda.", "libcudart", "libvramscope"}) {
    if (base.starts_with(plumbing))
      return Owner::kNone;
  }
  if (base == "libcuda")
    return Owner::kNone;
  const std::string_view package = util::PackageOf(path);
#define VRAMSCOPE_IMAGE_PREFIX(prefix, owner) \
  if (base.starts_with(prefix))               \
    return Owner::owner;
#define VRAMSCOPE_PYTHON_PACKAGE(name, owner) \
  if (package == name)                        \
    return Owner::owner;
#include "resolve/attribute/owners.def"
  return Owner::kApplication;
}

Owner Owners::Find(tables::StackId native, tables::StackId python) {
  Owner owner = Owner::kUnknown;
  if (native.value != 0) {
    uint32_t& known = native_.FindOrAdd(native.value);
    if (known == util::FlatMap::kNone)
      known = static_cast<uint32_t>(OfNativeStack(native));
    owner = static_cast<Owner>(known);
  }
  if ((owner == Owner::kUnknown || owner == Owner::kApplication) && python.value != 0) {
    uint32_t& known = python_.FindOrAdd(python.value);
    if (known == util::FlatMap::kNone)
      known = static_cast<uint32_t>(OfPythonStack(python));
    const auto package = static_cast<Owner>(known);
    if (package != Owner::kUnknown)
      return package;
  }
  return owner;
}

Owner Owners::OfNativeStack(tables::StackId native) {
  // A damaged trace may hold a cycle: no chain is longer than the table.
  size_t left = trace_.dictionaries().stack_count();
  for (tables::StackId at = native; at.value != 0 && left > 0; --left) {
    const tables::StackRow& stack = trace_.stack(at);
    const std::string_view image = trace_.string(trace_.frame(stack.frame).image);
    if (!image.empty()) {
      const Owner owner = OwnerOfImage(image);
      if (owner != Owner::kNone)
        return owner;
    }
    at = stack.parent;
  }
  return Owner::kUnknown;
}

Owner Owners::OfPythonStack(tables::StackId python) {
  const tables::FrameRow& frame = trace_.frame(trace_.stack(python).frame);
  const std::string_view package = util::PackageOf(trace_.string(frame.file));
#define VRAMSCOPE_PYTHON_PACKAGE(name, owner) \
  if (package == name)                        \
    return Owner::owner;
#include "resolve/attribute/owners.def"
  return Owner::kUnknown;
}

bool IsUserFrame(const trace::Trace& trace, const tables::FrameRow& frame) {
  const std::string_view file = trace.string(frame.file);
  if (frame.kind == tables::FrameKind::kNative) {
    const std::string_view image = trace.string(frame.image);
    // The first frame of every program is C library code linked into the program.
    return OwnerOfImage(image) == Owner::kApplication && !image.starts_with("/lib/") &&
           !image.starts_with("/lib64/") && !image.starts_with("/usr/lib") &&
           !file.ends_with("/vramscope/annotate.h") && trace.string(frame.function) != "_start";
  }
  return IsUserFile(file);
}

bool IsUserFile(std::string_view file) {
  // Code without a file ("<string>", a notebook cell) is the user's. Code that PyTorch generates is
  // not; the user's call of it is further out.
  return !file.empty() && !util::Contains(file, "/site-packages/") &&
         !util::Contains(file, "/dist-packages/") && !util::Contains(file, "/lib/python3") &&
         !file.starts_with("<frozen") && !util::IsGeneratedCode(file);
}

}  // namespace vramscope::resolve
