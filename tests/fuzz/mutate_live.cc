// SPDX-License-Identifier: Apache-2.0
// mutate_live INPUTS [SEED]: reads that many changed live recordings, each in a process of its own
// with 1 GiB of memory and 2 s of processor time. Every second one is damaged: whatever it then
// says otherwise, it must say that something is missing. The others are forged, with checksums that
// hold. An input that ends the process, or changes what is said in silence, is kept and named.
//
// mutate_live --survey DIRECTORY [FLIPS]: flips FLIPS single bits in the committed records and
// headers of a recording, and counts those that change its meaning without an error.
//
// mutate_live --ask DIRECTORY [QUESTION]: what reading a kept input and each question to it costs.
#include <sys/resource.h>

#include <algorithm>
#include <cinttypes>
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
#include "finished.h"
#include "live_mutator.h"
#include "live_seeds.h"
#include "scratch.h"
#include "tables/reader.h"
#include "tables/testing/random_tables.h"
#include "trace/trace.h"
#include "trials.h"

namespace {

namespace fs = std::filesystem;
using namespace vramscope;

constexpr int kMaxFailures = 10;

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

void Ask(const std::string& directory, fuzz::Answer* answer) {
  auto trace = trace::OpenTrace(directory, {.native_names = false});
  answer->is_refused = !trace.ok();
  if (answer->is_refused)
    return;
  const fuzz::Facts facts = fuzz::FactsOf(**trace);
  answer->hash = facts.hash;
  answer->events = facts.events;
  answer->SetLosses(facts.losses);
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
  const auto ask = [&](fuzz::Answer* answer) {
    Ask(live, answer);
    if (!answer->is_refused)
      fuzz::AskLive(live);
  };
  fuzz::Trials trials;
  std::vector<fuzz::Answer> whole;
  for (const Seed& seed : seeds) {
    WriteAll(live / "100.1.vrl", seed.process);
    WriteAll(live / "launcher.vrl", launcher);
    WriteAll(live / "session.json", session);
    whole.push_back(trials.Whole(seed.name, ask));
  }
  int failures = 0;
  for (uint64_t number = 0; number < inputs && failures < kMaxFailures; ++number) {
    const uint64_t seed_number = first_seed + number;
    fuzz::LiveMutator mutator(seed_number);
    const size_t which = number / 2 % seeds.size();
    const bool is_damage = number % 2 == 0;
    const bool is_launcher = number % 16 >= 14;
    const std::string& input = is_launcher ? launcher : seeds[which].process;
    const std::string changed = is_damage ? mutator.Damage(input) : mutator.Forge(input);
    WriteAll(live / "100.1.vrl", is_launcher ? seeds[which].process : changed);
    WriteAll(live / "launcher.vrl", is_launcher ? changed : launcher);
    WriteAll(live / "session.json",
             !is_damage && number % 32 == 5 ? mutator.ForgeJson(session) : session);
    const std::string wrong = trials.Try(seed_number, ask, is_damage ? &whole[which] : nullptr);
    if (wrong.empty())
      continue;
    ++failures;
    const std::string kept = "mutate-live-" + std::to_string(seed_number) + ".vram.d";
    std::error_code error;
    fs::copy(live, kept, fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
    std::cout << "input " << seed_number << " (" << (is_damage ? "damage" : "forgery") << " of "
              << (is_launcher ? "the launcher's file" : seeds[which].name) << "): " << wrong
              << "; kept in " << kept << '\n';
  }
  std::cout << "live: " << trials.Summary() << '\n';
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
  fuzz::Answer whole{};
  Ask(scratch.live(), &whole);
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
    fuzz::Answer answer{};
    Ask(scratch.live(), &answer);
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

uint64_t ProcessorMs() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
         static_cast<uint64_t>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

int AskCosts(const fs::path& directory, const std::string& only) {
  uint64_t before = ProcessorMs();
  const auto print = [&](const std::string& what, size_t bytes) {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const uint64_t now = ProcessorMs();
    std::printf("%-28s %5" PRIu64 " ms %9zu bytes, so far %4ld MiB\n", what.c_str(), now - before,
                bytes, usage.ru_maxrss >> 10);
    before = now;
  };
  fuzz::Answer answer{};
  Ask(directory, &answer);
  print("its facts", answer.events);
  const auto trace = trace::OpenTrace(directory, {.native_names = false});
  const tables::testing::MemoryFile file;
  if (!trace || !fuzz::Finish(**trace, file)) {
    std::puts("it is refused");
    return 1;
  }
  print("finish", file.Bytes().size());
  const auto recording = tables::OpenDescriptor(file.fd(), directory);
  if (!recording) {
    std::cerr << "mutate_live: " << recording.status().message() << '\n';
    return 1;
  }
  print("open", 0);
  for (const fuzz::Question& question : fuzz::Questions()) {
    if (only.empty() || only == question.name)
      print(question.name, question.ask(**recording, fuzz::Extent::kBegin));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 3 && std::strcmp(argv[1], "--survey") == 0)
    return Survey(argv[2], argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1000);
  if (argc >= 2 && std::strtoull(argv[1], nullptr, 10) != 0)
    return Mutate(std::strtoull(argv[1], nullptr, 10),
                  argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  if (argc >= 3 && std::strcmp(argv[1], "--ask") == 0)
    return AskCosts(argv[2], argc > 3 ? argv[3] : "");
  std::cerr << "usage: mutate_live INPUTS [SEED] | mutate_live --survey DIRECTORY [FLIPS] |\n"
               "       mutate_live --ask DIRECTORY [QUESTION]\n";
  return 2;
}
