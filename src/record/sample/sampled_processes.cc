// SPDX-License-Identifier: Apache-2.0
#include "record/sample/sampled_processes.h"

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "util/proc.h"

namespace vramscope::cli {
namespace {

constexpr size_t kMostCommandBytes = 4096;  // a record must fit into a chunk

}  // namespace

std::vector<std::string> CommandLineOf(pid_t pid) {
  std::vector<std::string> words;
  const std::optional<std::string> text = util::ReadProc(pid, "cmdline");
  if (!text)
    return words;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\0', begin), text->size());
    words.push_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

SampledProcesses::SampledProcesses(LiveFileWriter& file,
                                   pid_t root,
                                   const std::vector<std::string>& command,
                                   const std::string& executable)
    : file_(file), root_(root) {
  ProcessStat stat;
  if (ReadProcessStat(root, &stat))
    known_.emplace(root, stat.start_ticks);
  Write(stat, root, static_cast<uint64_t>(base::MonotonicNs()), command, executable);
}

void SampledProcesses::OnListed(pid_t pid, uint64_t time_ns) {
  ProcessStat stat;
  if (!ReadProcessStat(pid, &stat) || known_.contains({pid, stat.start_ticks}) ||
      !IsBelow(pid, root_))
    return;
  known_.emplace(pid, stat.start_ticks);
  Write(stat, pid, time_ns, CommandLineOf(pid), util::ReadProcLink(pid, "exe"));
}

void SampledProcesses::Write(const ProcessStat& stat,
                             pid_t pid,
                             uint64_t time_ns,
                             const std::vector<std::string>& command,
                             const std::string& executable) {
  std::string text;
  for (const std::string& word : command)
    text += (text.empty() ? "" : " ") + word;
  text.resize(std::min(text.size(), kMostCommandBytes));
  format::SampledProcess record;
  record.time = time_ns;
  record.pid = static_cast<uint64_t>(pid);
  record.parent_pid = static_cast<uint64_t>(stat.parent);
  record.command = {text.data(), text.size()};
  record.executable = {executable.data(), executable.size()};
  file_.Write(record);
}

}  // namespace vramscope::cli
