// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace vramscope::cli {

// Why the probe in a process cannot make its file in `directory`, and cannot even leave a mark
// there: the process has become another user, or sees other file systems. "" where it can, or where
// that cannot be said.
std::string WhyOutOfReach(pid_t pid, const std::string& directory);

// Whose files a process makes, out of `/proc/PID/status`. False for anything else. A seam for
// tests.
struct FileUser {
  uid_t user = 0;
  bool may_write_all = false;  // CAP_DAC_OVERRIDE
};
bool ParseFileUser(std::string_view status, FileUser* user);

}  // namespace vramscope::cli
