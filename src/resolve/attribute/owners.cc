// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/owners.h"

#include <string_view>

#include "util/text.h"

namespace vramscope::resolve {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The Python package that an installed file belongs to, or "".
std::string_view PackageOf(std::string_view file) {
  for (const std::string_view marker : {"/site-packages/", "/dist-packages/"}) {
    const size_t at = file.rfind(marker);
    if (at == std::string_view::npos)
      continue;
    const std::string_view rest = file.substr(at + marker.size());
    return rest.substr(0, rest.find('/'));
  }
  return {};
}

}  // namespace

std::string_view OwnerOfImage(std::string_view path) {
  const std::string_view base = path.substr(path.rfind('/') + 1);
  for (const std::string_view plumbing : {"libcuda.", "libcudart", "libvramscope"}) {
    if (base.starts_with(plumbing))
      return {};
  }
  if (base == "libcuda")
    return {};
  const std::string_view package = PackageOf(path);
#define VRAMSCOPE_IMAGE_PREFIX(prefix, owner) \
  if (base.starts_with(prefix))               \
    return owner;
#define VRAMSCOPE_PYTHON_PACKAGE(name, owner) \
  if (package == name)                        \
    return owner;
#include "resolve/attribute/owners.def"
  return "application";
}

Category CategoryOfOwner(std::string_view owner) {
  if (owner == "NCCL" || owner == "NVSHMEM")
    return Category::kCommunication;
  for (const std::string_view library : {"cuBLAS", "cuDNN", "cuFFT", "cuSOLVER", "cuSPARSE"}) {
    if (owner == library)
      return Category::kWorkspace;
  }
  return Category::kUnknown;
}

Owners::Owners(const trace::Trace& trace)
    : trace_(trace), names_{"",           "driver-owned", "PyTorch", "application", "unknown owner",
                            "CUDA graphs"} {}

OwnerId Owners::Intern(std::string_view name) {
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name)
      return OwnerId{static_cast<uint16_t>(i)};
  }
  names_.emplace_back(name);
  return OwnerId{static_cast<uint16_t>(names_.size() - 1)};
}

OwnerId Owners::Find(tables::StackId native, tables::StackId python) {
  OwnerId owner = kUnknownOwner;
  if (native.value != 0) {
    uint32_t& known = native_.FindOrAdd(native.value);
    if (known == util::FlatMap::kNone)
      known = OfNativeStack(native).value;
    owner = OwnerId{static_cast<uint16_t>(known)};
  }
  if ((owner == kUnknownOwner || owner == kApplication) && python.value != 0) {
    uint32_t& known = python_.FindOrAdd(python.value);
    if (known == util::FlatMap::kNone)
      known = OfPythonStack(python).value;
    const OwnerId package{static_cast<uint16_t>(known)};
    if (package != kUnknownOwner)
      return package;
  }
  return owner;
}

OwnerId Owners::OfNativeStack(tables::StackId native) {
  // A damaged trace may hold a cycle: no chain is longer than the table.
  size_t left = trace_.dictionaries().stack_count();
  for (tables::StackId at = native; at.value != 0 && left > 0; --left) {
    const tables::StackRow& stack = trace_.stack(at);
    const std::string_view image = trace_.string(trace_.frame(stack.frame).image);
    if (!image.empty()) {
      const std::string_view owner = OwnerOfImage(image);
      if (!owner.empty())
        return Intern(owner);
    }
    at = stack.parent;
  }
  return kUnknownOwner;
}

OwnerId Owners::OfPythonStack(tables::StackId python) {
  const tables::FrameRow& frame = trace_.frame(trace_.stack(python).frame);
  const std::string_view package = PackageOf(trace_.string(frame.file));
#define VRAMSCOPE_PYTHON_PACKAGE(name, owner) \
  if (package == name)                        \
    return Intern(owner);
#include "resolve/attribute/owners.def"
  return kUnknownOwner;
}

bool IsUserFrame(const trace::Trace& trace, const tables::FrameRow& frame) {
  const std::string_view file = trace.string(frame.file);
  if (frame.kind == tables::FrameKind::kNative) {
    const std::string_view image = trace.string(frame.image);
    // The first frame of every program is C library code linked into the program.
    return OwnerOfImage(image) == "application" && !image.starts_with("/lib/") &&
           !image.starts_with("/lib64/") && !image.starts_with("/usr/lib") &&
           !file.ends_with("/vramscope/annotate.h") && trace.string(frame.function) != "_start";
  }
  // Code without a file ("<string>", a notebook cell) is the user's. Code that PyTorch generates is
  // not; the user's call of it is further out.
  return !file.empty() && !Contains(file, "/site-packages/") &&
         !Contains(file, "/dist-packages/") && !Contains(file, "/lib/python3") &&
         !file.starts_with("<frozen") && !util::IsGeneratedCode(file);
}

}  // namespace vramscope::resolve
