// SPDX-License-Identifier: Apache-2.0
//
// A program in C++ that opens the probe when its own libraries are at work: PROBE DIRECTORY
// [RECORDINGS]. With a number it makes this many recordings beside a running thread, and prints the
// memory of the process after the tenth and after the last one.
#include <dirent.h>
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

extern "C" void* late_cpu_tensor(std::size_t size);
extern "C" void late_cpu_delete(void* pointer);

namespace {

using Attach = int (*)(const char*, const char*);
using Detach = void (*)();

int CountLines(const char* path) {
  std::FILE* const file = std::fopen(path, "r");
  int lines = 0;
  for (int c = 0; (c = std::fgetc(file)) != EOF;)
    lines += c == '\n' ? 1 : 0;
  std::fclose(file);
  return lines;
}

int CountEntries(const char* path) {
  DIR* const folder = opendir(path);
  int entries = 0;
  while (readdir(folder) != nullptr)
    ++entries;
  closedir(folder);
  return entries;
}

int AnonymousKib() {
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  char line[256];
  int kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, "RssAnon:", 8) == 0)
      kib = std::atoi(line + 8);
  }
  std::fclose(file);
  return kib;
}

int RecordOften(Attach attach, Detach detach, const char* directory, int recordings) {
  std::atomic<bool> goes_on{true};
  std::thread other([&goes_on] {
    while (goes_on.load())
      late_cpu_delete(late_cpu_tensor(100));
  });
  int error = 0;
  for (int i = 0; i < recordings && error == 0; ++i) {
    error = attach((std::string(directory) + "/" + std::to_string(i)).c_str(), "cpu");
    for (int event = 0; event < 100; ++event)
      late_cpu_delete(late_cpu_tensor(3000));
    detach();
    if (i == 9 || i == recordings - 1) {
      std::printf("%d %d %d\n", CountLines("/proc/self/maps"), CountEntries("/proc/self/fd"),
                  AnonymousKib());
    }
  }
  goes_on.store(false);
  other.join();
  return error;
}

int RecordOnce(Attach attach, Detach detach, const char* directory, void* before) {
  if (const int error = attach(directory, "cpu"); error != 0)
    return error;
  void* const inside = late_cpu_tensor(3000);
  late_cpu_delete(before);
  late_cpu_delete(inside);
  void* const kept = late_cpu_tensor(5000);
  detach();
  late_cpu_delete(kept);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4)
    return 2;
  void* const before = late_cpu_tensor(1000);
  void* const probe = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (probe == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  auto* const attach = reinterpret_cast<Attach>(dlsym(probe, "vramscope_attach"));
  auto* const detach = reinterpret_cast<Detach>(dlsym(probe, "vramscope_detach"));
  if (attach == nullptr || detach == nullptr)
    return 4;
  return argc == 4 ? RecordOften(attach, detach, argv[2], std::atoi(argv[3]))
                   : RecordOnce(attach, detach, argv[2], before);
}
