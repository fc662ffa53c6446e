// SPDX-License-Identifier: Apache-2.0
// ask_bombs [DIRECTORY]: asks recordings of a few KiB that say very much every question, each in a
// process of its own with 1 GiB of memory, and prints how many bytes came of it and what that took.
// Fails where a process ends for want of memory or otherwise, and where an answer is longer than an
// export may be. With DIRECTORY the recordings are written there, too.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

#include "ask_everything.h"
#include "bombs.h"
#include "output/export/export.h"
#include "scratch.h"
#include "tables/reader.h"
#include "tables/testing/random_tables.h"

namespace {

using namespace vramscope;

constexpr rlim_t kMemoryBytes = rlim_t{1} << 30;

bool Ask(const fuzz::Bomb& bomb, const fuzz::Question& question, size_t* answer_bytes) {
  const tables::testing::MemoryFile file(bomb.bytes);
  *answer_bytes = 0;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit memory{kMemoryBytes, kMemoryBytes};
    const rlimit core{0, 0};
    setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CORE, &core);
    if (const auto recording = tables::OpenDescriptor(file.fd(), "x.vram"); recording.ok())
      *answer_bytes = question.ask(**recording, fuzz::Extent::kWhole);
    _exit(0);
  }
  int status = 0;
  rusage usage{};
  if (child < 0 || wait4(child, &status, 0, &usage) != child) {
    std::perror("ask_bombs: fork");
    return false;
  }
  const double processor_s = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                             1e-6 * static_cast<double>(usage.ru_utime.tv_usec) +
                             1e-6 * static_cast<double>(usage.ru_stime.tv_usec);
  const uint64_t limit_bytes =
      output::kExportBaseBytes + output::kExportBytesPerFileByte * bomb.bytes.size();
  const bool is_fine = status == 0 && *answer_bytes <= limit_bytes;
  std::printf("%-9s %-24s %12zu bytes %6.2f s %5ld MiB\n",
              status != 0 ? "DIED"
              : is_fine   ? "ok"
                          : "TOO LONG",
              question.name.c_str(), *answer_bytes, processor_s, usage.ru_maxrss >> 10);
  return is_fine;
}

}  // namespace

int main(int argc, char** argv) {
  auto* const answer_bytes = static_cast<size_t*>(
      mmap(nullptr, sizeof(size_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (answer_bytes == MAP_FAILED) {
    std::perror("ask_bombs: mmap");
    return 2;
  }
  bool is_fine = true;
  size_t number = 0;
  for (const fuzz::Bomb& bomb : fuzz::Bombs()) {
    std::printf("\n%s: %zu bytes\n", bomb.name.c_str(), bomb.bytes.size());
    std::fflush(stdout);
    if (argc > 1) {
      const std::string path = std::string(argv[1]) + "/bomb" + std::to_string(number++) + ".vram";
      fuzz::WriteInput(path, reinterpret_cast<const uint8_t*>(bomb.bytes.data()),
                       bomb.bytes.size());
    }
    for (const fuzz::Question& question : fuzz::Questions()) {
      is_fine &= Ask(bomb, question, answer_bytes);
      std::fflush(stdout);
    }
  }
  return is_fine ? 0 : 1;
}
