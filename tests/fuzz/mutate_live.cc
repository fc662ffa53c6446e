// SPDX-License-Identifier: Apache-2.0
// mutate_live INPUTS [SEED]: reads that many changed live recordings, each in a process of its own
// with 1 GiB of memory and 2 s of processor time. Every second one is damaged: whatever it then
// says otherwise, it must say that something is missing. The others are forged, with checksums that
// hold. An input that ends the process, or changes what is said in silence, is kept and named.
//
// mutate_live --survey DIRECTORY [FLIPS]: how many of so many single bits, flipped all over the
// committed records and headers of a recording, change what it says in silence.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "ask_everything.h"
#include "facts.h"
#include "live_mutator.h"
#include "live_seeds.h"
#include "trace/trace.h"

namespace {

namespace fs = std::filesystem;
using namespace vramscope;

constexpr uint64_t kMemoryBytes = uint64_t{1} << 30;
constexpr uint64_t kProcessorSeconds = 2;

// What a child says, in memory that both see.
struct Answer {
  bool is_whole;  // it came to the end
  bool is_refused;
  uint64_t hash;
  uint64_t events;
  char losses[4096];
};

struct Outcome {
  int status = 0;
  uint64_t processor_ms = 0;
  uint64_t memory_bytes = 0;
};

struct Seed {
  std::string name;
  std::string process;  // bytes of the process's live file
};

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteAll(const fs::path& path, const std::string& bytes) {
  fuzz::WriteInput(path, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

void Ask(const std::string& directory, bool everything, Answer* answer) {
  auto trace = trace::OpenTrace(directory, {.native_names = false});
  if (trace.ok()) {
    const fuzz::Facts facts = fuzz::FactsOf(**trace);
    answer->hash = facts.hash;
    answer->events = facts.events;
    std::strncpy(answer->losses, facts.losses.c_str(), sizeof answer->losses - 1);
    if (everything)
      fuzz::AskLive(directory);
  } else {
    answer->is_refused = true;
  }
  answer->is_whole = true;
}

Outcome InChild(const std::string& directory, Answer* answer) {
  *answer = {};
  const pid_t child = fork();
  if (child == 0) {
    const rlimit memory{kMemoryBytes, kMemoryBytes};
    const rlimit processor{kProcessorSeconds, kProcessorSeconds};
    const rlimit core{0, 0};
    setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CPU, &processor);
    setrlimit(RLIMIT_CORE, &core);
    Ask(directory, true, answer);
    _exit(0);
  }
  Outcome outcome;
  rusage usage{};
  if (child < 0 || wait4(child, &outcome.status, 0, &usage) != child) {
    std::perror("mutate_live: fork");
    std::exit(2);
  }
  outcome.processor_ms =
      static_cast<uint64_t>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
      static_cast<uint64_t>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  outcome.memory_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  return outcome;
}

std::string TextOf(const Outcome& outcome) {
  if (WIFSIGNALED(outcome.status))
    return std::string("killed by ") + strsignal(WTERMSIG(outcome.status));
  return "exit status " + std::to_string(WEXITSTATUS(outcome.status));
}

class Scratch {
 public:
  Scratch() : path_(fuzz::ScratchDirectory()) { fs::create_directories(live()); }
  ~Scratch() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  fs::path live() const { return path_ / "x.vram.d"; }

 private:
  fs::path path_;
};

int Mutate(uint64_t inputs, uint64_t first_seed) {
  const std::vector<Seed> seeds = {{"tensors", fuzz::TensorProgram()},
                                   {"driver", fuzz::DriverProgram()},
                                   {"scopes", fuzz::ScopedProgram()}};
  const std::string launcher = fuzz::Launcher();
  const std::string session = fuzz::SessionJson();
  const Scratch scratch;
  const fs::path live = scratch.live();
  auto* const answer = static_cast<Answer*>(
      mmap(nullptr, sizeof(Answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<Answer> expected;
  for (const Seed& seed : seeds) {
    WriteAll(live / "100.1.vrl", seed.process);
    WriteAll(live / "launcher.vrl", launcher);
    WriteAll(live / "session.json", session);
    InChild(live, answer);
    if (!answer->is_whole || answer->events == 0 || answer->losses[0] != '\0') {
      std::cerr << "mutate_live: the seed " << seed.name << " is not whole\n";
      return 2;
    }
    expected.push_back(*answer);
  }
  uint64_t failures = 0, refused = 0, told = 0, same = 0, slowest_ms = 0, largest_bytes = 0;
  uint64_t slowest = 0, largest = 0;  // which inputs those are
  for (uint64_t number = 0; number < inputs; ++number) {
    const uint64_t seed_number = first_seed + number;
    fuzz::LiveMutator mutator(seed_number);
    const size_t which = number / 2 % seeds.size();
    const bool is_damage = number % 2 == 0;
    const bool is_launcher = number % 16 >= 14;
    const std::string& whole = is_launcher ? launcher : seeds[which].process;
    const std::string changed = is_damage ? mutator.Damage(whole) : mutator.Forge(whole);
    WriteAll(live / "100.1.vrl", is_launcher ? seeds[which].process : changed);
    WriteAll(live / "launcher.vrl", is_launcher ? changed : launcher);
    WriteAll(live / "session.json",
             !is_damage && number % 32 == 5 ? mutator.ForgeJson(session) : session);
    const Outcome outcome = InChild(live, answer);
    if (outcome.processor_ms > slowest_ms) {
      slowest_ms = outcome.processor_ms;
      slowest = seed_number;
    }
    if (outcome.memory_bytes > largest_bytes) {
      largest_bytes = outcome.memory_bytes;
      largest = seed_number;
    }
    std::string wrong;
    if (outcome.status != 0 || !answer->is_whole) {
      wrong = TextOf(outcome);
    } else if (answer->is_refused) {
      ++refused;
    } else if (is_damage) {
      const bool is_told = std::strcmp(answer->losses, expected[which].losses) != 0;
      const bool is_same = answer->hash == expected[which].hash;
      told += is_told;
      same += is_same;
      if (!is_told && !is_same)
        wrong = "says otherwise, and no loss";
    }
    if (wrong.empty())
      continue;
    ++failures;
    const std::string kept = "mutate-live-" + std::to_string(seed_number) + ".vram.d";
    std::error_code error;
    fs::copy(live, kept, fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
    std::cout << "input " << seed_number << " (" << (is_damage ? "damage" : "forgery") << " of "
              << (is_launcher ? "the launcher's file" : seeds[which].name) << "): " << wrong
              << "; kept in " << kept << '\n';
    if (failures == 10)
      break;
  }
  std::cout << inputs << " inputs: " << failures << " failures, " << refused
            << " refused; of the damaged ones " << told << " tell it, " << same
            << " say what the whole one says; at most " << slowest_ms << " ms (input " << slowest
            << ") and " << (largest_bytes >> 20) << " MiB (input " << largest << ")\n";
  return failures == 0 ? 0 : 1;
}

// Places of the bytes that mean something: headers and committed records.
std::vector<size_t> Meaningful(const std::string& file) {
  std::vector<size_t> places;
  for (size_t i = 0; i < sizeof(format::FileHeader); ++i)
    places.push_back(i);
  for (size_t at = format::kPageBytes; at + sizeof(format::ChunkHeader) <= file.size();) {
    uint32_t magic, size, committed;
    std::memcpy(&magic, file.data() + at, 4);
    std::memcpy(&size, file.data() + at + offsetof(format::ChunkHeader, size_bytes), 4);
    std::memcpy(&committed, file.data() + at + offsetof(format::ChunkHeader, committed_bytes), 4);
    if (magic != format::kChunkMagic || size == 0) {
      at += format::kPageBytes;
      continue;
    }
    for (size_t i = 0; i < sizeof(format::ChunkHeader) + committed; ++i)
      places.push_back(at + i);
    at += size;
  }
  return places;
}

int Survey(const fs::path& directory, uint64_t flips) {
  const Scratch scratch;
  fs::copy(directory, scratch.live(),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(scratch.live())) {
    if (entry.path().extension() == ".vrl")
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Answer whole{};
  Ask(scratch.live(), false, &whole);
  std::mt19937_64 rng(1);
  uint64_t silent = 0, told = 0, same = 0;
  for (uint64_t i = 0; i < flips; ++i) {
    const fs::path& path = files[i % files.size()];
    const std::string bytes = ReadAll(path);
    const std::vector<size_t> places = Meaningful(bytes);
    std::string damaged = bytes;
    char& byte = damaged[places[rng() % places.size()]];
    byte = static_cast<char>(byte ^ 1 << rng() % 8);
    WriteAll(path, damaged);
    Answer answer{};
    Ask(scratch.live(), false, &answer);
    WriteAll(path, bytes);
    if (answer.is_refused || std::strcmp(answer.losses, whole.losses) != 0)
      ++told;
    else if (answer.hash == whole.hash)
      ++same;
    else
      ++silent;
  }
  std::cout << flips << " bits: " << told << " told, " << same << " change nothing, " << silent
            << " silent\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 3 && std::strcmp(argv[1], "--survey") == 0)
    return Survey(argv[2], argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1000);
  if (argc >= 2 && std::strtoull(argv[1], nullptr, 10) != 0)
    return Mutate(std::strtoull(argv[1], nullptr, 10),
                  argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  std::cerr << "usage: mutate_live INPUTS [SEED] | mutate_live --survey DIRECTORY [FLIPS]\n";
  return 2;
}
