// SPDX-License-Identifier: Apache-2.0
// The input is one live file of a directory that `run` left behind.
#include <cstdlib>
#include <filesystem>

#include "ask_everything.h"
#include "scratch.h"

namespace {

std::string g_directory;

void RemoveDirectory() {
  std::error_code error;
  std::filesystem::remove_all(g_directory, error);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  g_directory = vramscope::fuzz::ScratchDirectory() + "/x.vram.d";
  std::filesystem::create_directories(g_directory);
  std::atexit(RemoveDirectory);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  vramscope::fuzz::WriteInput(g_directory + "/100.1.vrl", data, size);
  vramscope::fuzz::AskLive(g_directory);
  return 0;
}
