// SPDX-License-Identifier: Apache-2.0
// The input is a finished NAME.vram.
#include <cstdlib>
#include <filesystem>

#include "ask_everything.h"

namespace {

std::string g_directory;

void RemoveDirectory() {
  std::error_code error;
  std::filesystem::remove_all(g_directory, error);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  g_directory = vramscope::fuzz::ScratchDirectory();
  std::atexit(RemoveDirectory);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = g_directory + "/x.vram";
  vramscope::fuzz::WriteInput(path, data, size);
  vramscope::fuzz::AskEverything(path);
  return 0;
}
