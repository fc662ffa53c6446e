// SPDX-License-Identifier: Apache-2.0
#include "ask_everything.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "engine/query/report.h"
#include "trace/trace.h"

namespace vramscope::fuzz {

void AskEverything(const std::string& path) {
  auto trace = trace::OpenTrace(path);
  if (!trace)
    return;
  auto analysis = engine::Analysis::Create(std::move(*trace));
  if (!analysis)
    return;
  engine::ReportQuery query;
  for (const char* instant : {"peak", "end", "0", "mark:here"}) {
    if (auto parsed = engine::ParseInstant(instant); parsed) {
      query.at = *parsed;
      (void)(*analysis)->MakeReport(query);
    }
  }
  for (const char* name : {"line", "api", "size_class", "process"}) {
    if (auto dimension = engine::ParseDimension(name); dimension) {
      query = {};
      query.by.push_back(*dimension);
      query.top = 5;
      (void)(*analysis)->MakeReport(query);
    }
  }
  (void)(*analysis)->MakeTimelines(64);
  (void)(*analysis)->MakeLives(100);
  (void)(*analysis)->ForEachLife([](const engine::Life&) {});
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
