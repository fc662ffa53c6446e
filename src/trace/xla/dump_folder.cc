// SPDX-License-Identifier: Apache-2.0
#include "trace/xla/dump_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <utility>

#include "util/file.h"

namespace vramscope::trace {
namespace {

constexpr std::string_view kModulePrefix = "module_";
constexpr std::string_view kBufferSuffix = "-buffer-assignment.txt";
constexpr size_t kMostEntries = size_t{1} << 18;
constexpr size_t kMostBufferBytes = size_t{64} << 20;
constexpr size_t kMostHloBytes = size_t{256} << 20;
constexpr uint64_t kMostBytesOfAll = uint64_t{2} << 30;
// Another machine's clock may give a file its time.
constexpr int64_t kClockSlackNs = 60'000'000'000;
constexpr uint64_t kXlaGranule = 256;
constexpr char kNoDump[] = "no dump of it, as if it came from a cache of compiled programs";

// As XLA writes a module's name in the name of a file.
std::string InFileName(std::string name) {
  for (char& byte : name) {
    if (std::string_view("/\\[] ").find(byte) != std::string_view::npos)
      byte = '_';
  }
  return name;
}

// "jit_step.cpu_after_optimizations" of "module_0006.jit_step.cpu_after_optimizations"; "" of
// others.
std::string_view WithoutNumber(std::string_view stem) {
  if (!TakePrefix(kModulePrefix, &stem))
    return {};
  while (!stem.empty() && std::isdigit(static_cast<unsigned char>(stem.front())) != 0)
    stem.remove_prefix(1);
  return TakePrefix(".", &stem) ? stem : std::string_view();
}

// Whether a program that asked for `temp_bytes` may have been recorded with that many.
bool MayHaveGot(uint64_t recorded_bytes, uint64_t temp_bytes) {
  const uint64_t rounded = (temp_bytes + kXlaGranule - 1) / kXlaGranule * kXlaGranule;
  return recorded_bytes == 0 ||
         (recorded_bytes >= temp_bytes && recorded_bytes <= rounded + rounded / 4);
}

}  // namespace

XlaDumpFolder::XlaDumpFolder(std::string path, int64_t since_wall_ns, IsOwnFile is_own)
    : path_(std::move(path)), is_own_(is_own), left_bytes_(kMostBytesOfAll) {
  std::error_code error;
  size_t entries = 0;
  for (std::filesystem::directory_iterator it(path_, error), end;
       !error && it != end && ++entries <= kMostEntries; it.increment(error)) {
    const std::string name = it->path().filename().string();
    struct stat info {};
    if (!name.starts_with(kModulePrefix) || !name.ends_with(kBufferSuffix) ||
        lstat(it->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      continue;
    const int64_t time_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    if (time_ns >= since_wall_ns - kClockSlackNs)
      dumps_.push_back({name.substr(0, name.size() - kBufferSuffix.size()), time_ns});
  }
  std::sort(dumps_.begin(), dumps_.end(), [](const Dump& a, const Dump& b) {
    return WithoutNumber(a.stem) < WithoutNumber(b.stem);
  });
}

util::Result<std::string> XlaDumpFolder::Read(const std::string& name, size_t limit_bytes) {
  util::Result<std::string> text = util::ReadFile(
      path_ + "/" + name, std::min<uint64_t>(limit_bytes, left_bytes_), util::Links::kRefuse);
  if (text)
    left_bytes_ -= text->size();
  return text;
}

std::vector<XlaDumpFolder::Dump*> XlaDumpFolder::DumpsOf(const std::string& program) {
  const std::string begin = InFileName(program) + ".";
  std::vector<Dump*> found;
  auto at = std::lower_bound(
      dumps_.begin(), dumps_.end(), begin,
      [](const Dump& dump, const std::string& text) { return WithoutNumber(dump.stem) < text; });
  for (; at != dumps_.end() && WithoutNumber(at->stem).starts_with(begin); ++at) {
    Dump& dump = *at;
    if (!std::exchange(dump.is_known, true)) {
      const util::Result<std::string> text =
          Read(dump.stem + std::string(kBufferSuffix), kMostBufferBytes);
      const util::Result<uint64_t> bytes = text ? XlaTemporaryBytes(*text) : text.status();
      dump.temp_bytes = bytes ? *bytes : 0;
      dump.error = bytes ? "" : bytes.status().message();
    }
    found.push_back(&dump);
  }
  std::sort(found.begin(), found.end(), [](const Dump* a, const Dump* b) {
    return std::pair(b->time_ns, b->stem) < std::pair(a->time_ns, a->stem);
  });
  return found;
}

util::Result<XlaPeak> XlaDumpFolder::Split(const Dump& dump, const std::string& program) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::string hlo, Read(dump.stem + ".txt", kMostHloBytes));
  if (HloModuleName(hlo) != program)
    return util::Status::Error(kNoDump);
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::string buffers,
                             Read(dump.stem + std::string(kBufferSuffix), kMostBufferBytes));
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::string ranges,
                             Read(dump.stem + "-live-range.txt", kMostBufferBytes));
  return SplitXlaPeak({buffers, ranges, hlo}, is_own_);
}

util::Result<XlaDumpFolder::Found> XlaDumpFolder::Find(const std::string& program,
                                                       uint64_t recorded_bytes) {
  std::string why = kNoDump;
  std::vector<Dump*> dumps = DumpsOf(program);
  for (const Dump* const dump : dumps)
    why = dump->error.empty() ? why : dump->error;
  std::erase_if(dumps, [&](const Dump* dump) {
    return !dump->error.empty() || dump->temp_bytes == 0 ||
           !MayHaveGot(recorded_bytes, dump->temp_bytes);
  });
  std::stable_sort(dumps.begin(), dumps.end(),
                   [](const Dump* a, const Dump* b) { return a->temp_bytes > b->temp_bytes; });
  constexpr size_t kMostTries = 16;
  dumps.resize(std::min(dumps.size(), kMostTries));
  for (const Dump* const dump : dumps) {
    util::Result<XlaPeak> peak = Split(*dump, program);
    if (peak)
      return Found{dump->stem, std::move(*peak)};
    why = peak.status().message();
  }
  return util::Status::Error(why);
}

}  // namespace vramscope::trace
