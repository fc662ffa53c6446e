// SPDX-License-Identifier: Apache-2.0
#include "scratch.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace vramscope::fuzz {
namespace {

// No input may take a release build 2 s. Instrumented, the code takes 10 to 30 times as long, and
// one question is a small part of what is asked.
constexpr double kMostSeconds = 5;

double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

TimeLimit::TimeLimit(std::string what) : what_(std::move(what)), began_(ProcessorSeconds()) {}

TimeLimit::~TimeLimit() {
  const double seconds = ProcessorSeconds() - began_;
  if (seconds <= kMostSeconds)
    return;
  std::fprintf(stderr, "fuzz: %s took %.1f s of processor time\n", what_.c_str(), seconds);
  std::abort();
}

void WriteInput(const std::string& path, const uint8_t* data, size_t size) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(data, 1, size, file) != size || std::fclose(file) != 0) {
    std::fprintf(stderr, "fuzz: cannot write %s\n", path.c_str());
    std::abort();
  }
}

std::string ScratchDirectory() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path root =
      fs::is_directory("/dev/shm", error) ? fs::path("/dev/shm") : fs::temp_directory_path();
  const fs::path directory = root / ("vramscope-fuzz-" + std::to_string(getpid()));
  fs::create_directories(directory, error);
  return directory;
}

}  // namespace vramscope::fuzz
