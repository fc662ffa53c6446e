// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace vramscope::util {

// Whether a compiler of PyTorch's wrote that Python file: "<eval_with_key>.3 from train.py:4 in
// forward" (torch.fx, Dynamo), or a file of Inductor's cache, "zz/czzdj4....py", which is named by
// its hash.
inline bool IsGeneratedCode(std::string_view file) {
  constexpr size_t kHashedName = 40;
  if (file.starts_with("<eval_with_key>"))
    return true;
  const size_t slash = file.rfind('/');
  if (slash == std::string_view::npos || slash < 3 || file[slash - 3] != '/')
    return false;
  const std::string_view name = file.substr(slash + 1);
  return name.size() > kHashedName && name.front() == 'c' && name.ends_with(".py") &&
         file.substr(slash - 2, 2) == name.substr(1, 2);
}

}  // namespace vramscope::util
