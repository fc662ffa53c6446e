// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vramscope::trace {

// What the launcher says about the session in session.json. Every part is optional.
struct SessionJson {
  std::string name;
  std::string version;
  std::vector<std::string> command;
  int64_t start_wall_ns = 0;
  std::string host;
  std::string directory;  // util::OwnedDirectory::Identity() of the one that it was written into
  std::vector<std::pair<std::string, std::string>> notes;  // all other keys, their values as text
};

// Reads as much of `text` as is JSON: a damaged file loses what comes after the damage, no more.
SessionJson ParseSessionJson(std::string_view text);

// Why no file that the recording in `directory` names (programs, sources) may be read: its names
// are anybody's, unless this user recorded it, on this machine. "" where it is so.
std::string WhyNamedFilesAreNotRead(const std::string& directory,
                                    const SessionJson& session,
                                    std::span<const std::string> live_files);

}  // namespace vramscope::trace
