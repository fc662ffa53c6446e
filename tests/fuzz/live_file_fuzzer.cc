// SPDX-License-Identifier: Apache-2.0
// The input is the files of a directory that `run` left behind, one after the other: each begins
// where a page begins with a live file's magic, and its header says which it is. Most changes are
// of what the records say, with lengths and checksums made right again.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ask_everything.h"
#include "format/layout.h"
#include "live_mutator.h"
#include "scratch.h"

namespace {

using namespace vramscope;

// One process for this many bytes of input is enough; each is a file in the directory.
constexpr size_t kMostFiles = 4;

std::string g_directory;

void RemoveDirectory() {
  std::error_code error;
  std::filesystem::remove_all(g_directory, error);
}

std::vector<std::string> Split(std::string_view input) {
  const std::string_view magic(format::kFileMagic, sizeof format::kFileMagic);
  std::vector<std::string> files;
  size_t begin = 0;
  for (size_t at = format::kPageBytes; at < input.size(); at += format::kPageBytes) {
    if (files.size() + 1 < kMostFiles && input.substr(at).starts_with(magic)) {
      files.emplace_back(input.substr(begin, at - begin));
      begin = at;
    }
  }
  files.emplace_back(input.substr(begin));
  return files;
}

// The names that the files of an input have; the past file goes with the first process.
std::vector<std::string> NamesOf(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  size_t processes = 0;
  for (const std::string& file : files) {
    uint16_t writer = 0;
    if (file.size() >= sizeof(format::FileHeader))
      std::memcpy(&writer, file.data() + offsetof(format::FileHeader, writer), sizeof writer);
    if (writer == static_cast<uint16_t>(format::WriterKind::kPast) && processes > 0)
      names.emplace_back("100.1.past");
    else if (writer == static_cast<uint16_t>(format::WriterKind::kLauncher) && processes > 0)
      names.emplace_back(format::kLauncherFile);
    else
      names.push_back(std::to_string(100 + processes++) + ".1.vrl");
  }
  return names;
}

std::string Joined(const std::vector<std::string>& files) {
  std::string input;
  for (const std::string& file : files) {
    input.resize((input.size() + format::kPageBytes - 1) / format::kPageBytes * format::kPageBytes);
    input += file;
  }
  return input;
}

size_t Take(const std::string& made, uint8_t* data, size_t max_size) {
  if (made.size() > max_size)
    return 0;
  std::copy(made.begin(), made.end(), data);
  return made.size();
}

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data,
                                          size_t size,
                                          size_t max_size,
                                          unsigned seed) {
  constexpr unsigned kPlainChanges = 8;  // one of this many
  if (size > format::kPageBytes && seed % kPlainChanges != 0) {
    std::vector<std::string> files = Split({reinterpret_cast<const char*>(data), size});
    std::string& file = files[seed / kPlainChanges % files.size()];
    if (file.size() > format::kPageBytes)
      file = fuzz::LiveMutator(seed).Forge(file);
    if (const size_t made = Take(Joined(files), data, max_size))
      return made;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data,
                                            size_t size,
                                            const uint8_t* other,
                                            size_t other_size,
                                            uint8_t* out,
                                            size_t max_size,
                                            unsigned seed) {
  std::vector<std::string> files = Split({reinterpret_cast<const char*>(data), size});
  const std::vector<std::string> others = Split({reinterpret_cast<const char*>(other), other_size});
  std::string& file = files[seed % files.size()];
  const std::string& source = others[seed / 16 % others.size()];
  constexpr unsigned kWholeFiles = 8;  // one of this many
  if (seed / 256 % kWholeFiles == 0)
    files.push_back(source);
  else if (file.size() > format::kPageBytes && source.size() > format::kPageBytes)
    file = fuzz::LiveMutator(seed).Cross(file, source);
  return Take(Joined(files), out, max_size);
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  g_directory = fuzz::ScratchDirectory() + "/x.vram.d";
  std::filesystem::create_directories(g_directory);
  std::atexit(RemoveDirectory);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static std::vector<std::string> names;
  for (const std::string& name : names)
    std::filesystem::remove(g_directory + "/" + name);
  const std::vector<std::string> files = Split({reinterpret_cast<const char*>(data), size});
  names = NamesOf(files);
  for (size_t i = 0; i < files.size(); ++i) {
    fuzz::WriteInput(g_directory + "/" + names[i],
                     reinterpret_cast<const uint8_t*>(files[i].data()), files[i].size());
  }
  fuzz::AskLive(g_directory);
  return 0;
}
