// SPDX-License-Identifier: Apache-2.0
// mutate_finished INPUTS [SEED]: reads that many changed finished recordings, each in a process of
// its own with 1 GiB of memory and 2 s of processor time. Every second one is damaged: it must be
// refused, or say what is missing, or say what it said before. The others are forged: tables,
// columns and rows change, and then zstd frames and checksums are made right again. An input that
// ends the process, or changes what is said in silence, is kept and named.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ask_everything.h"
#include "facts.h"
#include "finished.h"
#include "live_seeds.h"
#include "scratch.h"
#include "tables/reader.h"
#include "tables/testing/file_model.h"
#include "tables/testing/random_tables.h"
#include "trials.h"

namespace {

namespace fs = std::filesystem;
namespace testing = vramscope::tables::testing;
using namespace vramscope;

constexpr int kMaxFailures = 10;

struct Seed {
  std::string name;
  std::string bytes;
  testing::FileModel model;
  fuzz::Answer whole{};
};

std::string Finished(const std::string& process) {
  const fs::path scratch = fuzz::ScratchDirectory();
  const fs::path live = scratch / "x.vram.d";
  fs::create_directories(live);
  for (const auto& [name, bytes] :
       {std::pair("100.1.vrl", process), std::pair("launcher.vrl", fuzz::Launcher()),
        std::pair("session.json", fuzz::SessionJson())}) {
    fuzz::WriteInput(live / name, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  const testing::MemoryFile file;
  const auto trace = trace::OpenTrace(live);
  const bool is_finished = trace && fuzz::Finish(**trace, file);
  fs::remove_all(scratch);
  return is_finished ? file.Bytes() : "";
}

void Ask(const std::string& bytes, fuzz::Answer* answer) {
  const testing::MemoryFile file(bytes);
  const auto recording = tables::OpenDescriptor(file.fd(), "x.vram");
  answer->is_refused = !recording;
  if (answer->is_refused)
    return;
  const fuzz::Facts facts = fuzz::FactsOf(**recording);
  answer->hash = facts.hash;
  answer->events = facts.events;
  answer->SetLosses(facts.losses);
  fuzz::AskEverything(**recording);
}

// What disks, memory and interrupted copies do.
std::string Damage(std::string file, std::mt19937_64* random) {
  constexpr size_t kSector = 512;
  const auto below = [&](size_t limit) { return static_cast<size_t>((*random)() % limit); };
  const auto sector = [&] {
    const size_t at = kSector * below(file.size() / kSector);
    return file.begin() + static_cast<ptrdiff_t>(at);
  };
  switch (file.size() < 2 * kSector ? 9 : below(10)) {
    case 0:
      std::fill_n(sector(), kSector, '\0');
      break;
    case 1:
      std::copy_n(sector(), kSector, sector());
      break;
    case 2: {
      const auto one = sector();
      std::swap_ranges(one, one + kSector, sector());
      break;
    }
    case 3:
      file.resize(below(file.size()));
      break;
    case 4:
      file.append(below(kSector), '\0');
      break;
    default:
      for (size_t left = 1 + below(3); left != 0; --left) {
        char& byte = file[below(file.size())];
        byte = static_cast<char>(byte ^ 1 << below(8));
      }
  }
  return file;
}

std::string Forge(testing::FileModel model, std::mt19937_64* random) {
  testing::Mutate(&model, random);
  return testing::PutTogether(model);
}

int Mutate(uint64_t inputs, uint64_t first_seed) {
  fuzz::Trials trials;
  std::vector<Seed> seeds = {{"tensors", Finished(fuzz::TensorProgram()), {}, {}},
                             {"driver", Finished(fuzz::DriverProgram()), {}, {}},
                             {"scopes", Finished(fuzz::ScopedProgram()), {}, {}}};
  for (Seed& seed : seeds) {
    seed.whole = trials.Whole(seed.name, [&](fuzz::Answer* answer) { Ask(seed.bytes, answer); });
    auto model = testing::TakeApart(seed.bytes);
    const std::string again = model ? testing::PutTogether(*model) : "";
    const auto ask_again = [&](fuzz::Answer* answer) { Ask(again, answer); };
    if (trials.Whole(seed.name, ask_again).hash != seed.whole.hash) {
      std::cerr << "mutate_finished: the seed " << seed.name << " is another one put together\n";
      return 2;
    }
    seed.model = std::move(*model);
  }
  int failures = 0;
  for (uint64_t number = 0; number < inputs && failures < kMaxFailures; ++number) {
    const uint64_t seed_number = first_seed + number;
    std::mt19937_64 random(seed_number);
    const Seed& seed = seeds[number / 2 % seeds.size()];
    const bool is_damage = number % 2 == 0;
    const std::string changed =
        is_damage ? Damage(seed.bytes, &random) : Forge(seed.model, &random);
    const std::string wrong = trials.Try(
        seed_number, [&](fuzz::Answer* answer) { Ask(changed, answer); },
        is_damage ? &seed.whole : nullptr);
    if (wrong.empty())
      continue;
    ++failures;
    const std::string kept = "mutate-finished-" + std::to_string(seed_number) + ".vram";
    fuzz::WriteInput(kept, reinterpret_cast<const uint8_t*>(changed.data()), changed.size());
    std::cout << "input " << seed_number << " (" << (is_damage ? "damage" : "forgery") << " of "
              << seed.name << "): " << wrong << "; kept in " << kept << '\n';
  }
  std::cout << "finished: " << trials.Summary() << '\n';
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc >= 2 && std::strtoull(argv[1], nullptr, 10) != 0)
    return Mutate(std::strtoull(argv[1], nullptr, 10),
                  argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  std::cerr << "usage: mutate_finished INPUTS [SEED]\n";
  return 2;
}
