// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/frames.h"

#include <string_view>

#include "resolve/attribute/owners.h"
#include "util/text.h"

namespace vramscope::resolve {
namespace {

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

bool IsUserFrame(const trace::Trace& trace, const tables::FrameRow& frame) {
  const std::string_view file = trace.string(frame.file);
  if (frame.kind == tables::FrameKind::kNative) {
    const std::string_view image = trace.string(frame.image);
    // Every program's first frame is the C library's, linked into the program.
    return OwnerOfImage(image) == "application" && !image.starts_with("/lib/") &&
           !image.starts_with("/lib64/") && !image.starts_with("/usr/lib") &&
           !file.ends_with("/vramscope/annotate.h") && trace.string(frame.function) != "_start";
  }
  // Code without a file of its own ("<string>", a notebook's cell) is the user's. What PyTorch
  // generates is not: the call of what the user compiled is further out.
  return !file.empty() && !Contains(file, "/site-packages/") &&
         !Contains(file, "/dist-packages/") && !Contains(file, "/lib/python3") &&
         !file.starts_with("<frozen") && !util::IsGeneratedCode(file);
}

}  // namespace vramscope::resolve
