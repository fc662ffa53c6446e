// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

// What /proc says of a process, and the only place that reads it. A process can end at any moment,
// also between opening one of its files and reading it: then there is nothing to say, as there is
// where memory runs out. Nothing here throws, for the threads of the launcher.
namespace vramscope::util {

// The text of /proc/PID/`name` ("stat", "task/7/children"). None where it cannot be read, or holds
// more than anybody wants; `error`, where given, is errno then.
std::optional<std::string> ReadProc(pid_t pid,
                                    const std::string& name,
                                    int* error = nullptr) noexcept;

// Every process that can be seen.
std::vector<pid_t> AllProcesses() noexcept;

// The names in the directory /proc/PID/`name` ("fd", "task").
std::vector<std::string> ListProc(pid_t pid, const std::string& name) noexcept;

// Where the symbolic link /proc/PID/`name` leads, or "".
std::string ReadProcLink(pid_t pid, const std::string& name) noexcept;

// The name of the process's program, or "".
std::string ProcCommand(pid_t pid) noexcept;

// Reads to the end, or to none where that fails or there are more than `limit_bytes`. A seam for
// tests.
std::optional<std::string> ReadToEnd(int fd, size_t limit_bytes) noexcept;

}  // namespace vramscope::util
