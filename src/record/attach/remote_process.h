// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "util/status.h"

// Another process as seen from outside: its memory, what is loaded into it, and whether it can be
// attached to. Nothing here stops or changes it.
namespace vramscope::cli {

// Reads memory of another process with process_vm_readv(2). False if a part of it is not there, or
// if that is not permitted; errno says which.
bool ReadRemote(pid_t pid, uint64_t address, void* out, size_t size_bytes);

template <class T>
bool ReadRemote(pid_t pid, uint64_t address, T* out) {
  return ReadRemote(pid, address, out, sizeof *out);
}

// One line of /proc/PID/maps.
struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t offset = 0;
  bool readable = false;
  bool writable = false;
  bool executable = false;
  std::string file;  // "" for anonymous memory, "[stack]" and the like for the kernel's
};
std::vector<Mapping> ParseMaps(std::string_view maps);

// A shared object or program that is loaded in another process. Reads its headers from memory: the
// file may be replaced since, or invisible from here.
class RemoteObject {
 public:
  // `base`: where its file's offset 0 is mapped. None if it is not a 64-bit ELF object.
  static std::optional<RemoteObject> Open(pid_t pid, uint64_t base);

  struct Symbol {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
  };
  // A defined symbol among those that it exports.
  std::optional<Symbol> Find(std::string_view name) const;

  // The rest of the last page of its code, past the end of the segment: mapped and executable, and
  // used by nothing. Empty if there is none.
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  Range UnusedCode() const { return unused_; }
  // From its first byte to its last.
  Range Extent() const { return extent_; }

 private:
  pid_t pid_ = 0;
  Range extent_;
  Range unused_;
  uint64_t bias_ = 0;     // from the file's addresses to those in memory
  uint64_t hash_ = 0;     // DT_GNU_HASH
  uint64_t symbols_ = 0;  // DT_SYMTAB
  uint64_t strings_ = 0;  // DT_STRTAB
};

// The text after "KEY:\t" in /proc/PID/status; "" without such a line.
std::string StatusValue(std::string_view status, std::string_view key);

// The effective number of a line with four, "Uid" or "Gid".
std::optional<uint64_t> EffectiveId(std::string_view status, std::string_view key);

// Whether the process has another number where it runs than here.
bool HasOwnPids(std::string_view status);

// The path by which the process has loaded this probe, "" if it has loaded none. An error if it is
// another version's: that could not be distinguished from this one by the program's calls.
util::Result<std::string> LoadedProbe(pid_t pid, const std::string& probe);

// Why a process cannot be attached to, as far as /proc says it: one line that says what to do. ""
// if nothing is known against it.
std::string WhyNotAttachable(pid_t pid);

// Why the kernel refused to let this process trace `pid`: one line that says what to do.
std::string WhyNotPermitted(pid_t pid);

// A seam for tests. `yama`: /proc/sys/kernel/yama/ptrace_scope.
struct Refusal {
  std::string who;
  pid_t pid = 0;
  std::string yama;
  bool is_root = false;      // this process
  bool is_dumpable = false;  // prctl(PR_SET_DUMPABLE) of the target
};
std::string RefusalText(const Refusal& refusal);

}  // namespace vramscope::cli
