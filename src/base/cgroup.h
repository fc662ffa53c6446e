// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace vramscope::base {

// The names that container engines give to a process's control groups. Empty: none.
struct CgroupIds {
  std::string_view container;  // 64 hexadecimal digits
  std::string_view pod;        // Kubernetes' UID; systemd's form has `_` in place of `-`
};

// Finds them in the text of /proc/PID/cgroup, of version 1 or 2. Parts of `text`.
CgroupIds FindCgroupIds(std::string_view text);

}  // namespace vramscope::base
