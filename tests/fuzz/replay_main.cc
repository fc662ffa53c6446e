// SPDX-License-Identifier: Apache-2.0
// The main function of a fuzzer without libFuzzer: runs existing inputs, and a fixed number of
// deterministic changes of each.
//
//   fuzz_NAME [--changes N] FILE|DIRECTORY...
//
// An input that ends the process is left in fuzz_NAME.input.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
__attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data,
                                                     size_t size,
                                                     size_t max_size,
                                                     unsigned seed);
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
// Of the sanitizers, where there are any.
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());
const char* __asan_default_options();
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = 64 * 1024;

std::mt19937 g_random(1);
std::vector<uint8_t> g_input;
std::string g_program;

size_t Below(size_t limit) {
  return limit == 0 ? 0 : g_random() % limit;
}

void KeepInput() {
  const std::string name = g_program + ".input";
  if (std::FILE* file = std::fopen(name.c_str(), "wb"); file != nullptr) {
    std::fwrite(g_input.data(), 1, g_input.size(), file);
    std::fclose(file);
    std::fprintf(stderr, "%s: the input is in %s\n", g_program.c_str(), name.c_str());
  }
}

std::vector<fs::path> InputsOf(const std::vector<std::string>& arguments) {
  std::vector<fs::path> inputs;
  for (const std::string& argument : arguments) {
    if (!fs::is_directory(argument)) {
      inputs.emplace_back(argument);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(argument)) {
      if (entry.is_regular_file())
        inputs.push_back(entry.path());
    }
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

bool Read(const fs::path& path, std::vector<uint8_t>* bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return false;
  bytes->assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  return true;
}

void ChangeInput(const std::vector<uint8_t>& original) {
  g_input = original;
  g_input.resize(std::max(kMaxBytes, original.size()));
  g_input.resize(LLVMFuzzerCustomMutator != nullptr
                     ? LLVMFuzzerCustomMutator(g_input.data(), original.size(), g_input.size(),
                                               static_cast<unsigned>(g_random()))
                     : LLVMFuzzerMutate(g_input.data(), original.size(), g_input.size()));
  g_input.shrink_to_fit();  // finds reads past the end
}

}  // namespace

const char* __asan_default_options() {
  return "handle_abort=1";
}

// One to four small changes. libFuzzer's own mutator, which this replaces, learns from coverage.
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  constexpr uint8_t kBytes[] = {0, 1, 0x7f, 0x80, 0xff};
  for (size_t changes = 1 + Below(4); changes > 0; --changes) {
    const size_t at = Below(size);
    const size_t length = 1 + Below(std::min<size_t>(size - at, 16));
    switch (size == 0 ? 3 : Below(6)) {
      case 0:
        data[at] ^= static_cast<uint8_t>(1U << Below(8));
        break;
      case 1:
        data[at] = kBytes[Below(std::size(kBytes))];
        break;
      case 2:
        data[at] = static_cast<uint8_t>(g_random());
        break;
      case 3:
        if (size < max_size) {
          std::memmove(data + at + 1, data + at, size - at);
          data[at] = static_cast<uint8_t>(g_random());
          ++size;
        }
        break;
      case 4:
        std::memmove(data + at, data + at + length - 1, size - at - (length - 1));
        size -= length - 1;
        break;
      default:
        std::memmove(data + Below(size - length + 1), data + at, length);
    }
  }
  return size;
}

int main(int argc, char** argv) {
  g_program = argv[0];
  std::vector<std::string> arguments(argv + 1, argv + argc);
  int changes = 0;
  if (arguments.size() >= 2 && arguments[0] == "--changes") {
    changes = std::atoi(arguments[1].c_str());
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  if (__sanitizer_set_death_callback != nullptr)
    __sanitizer_set_death_callback(KeepInput);
  if (LLVMFuzzerInitialize != nullptr)
    LLVMFuzzerInitialize(&argc, &argv);

  const auto began = std::chrono::steady_clock::now();
  size_t runs = 0;
  const std::vector<fs::path> inputs = InputsOf(arguments);
  for (const fs::path& path : inputs) {
    std::vector<uint8_t> original;
    if (!Read(path, &original)) {
      std::fprintf(stderr, "%s: cannot read %s\n", argv[0], path.c_str());
      return 1;
    }
    g_input = original;
    for (int i = 0; i <= changes; ++i, ++runs) {
      if (i > 0)
        ChangeInput(original);
      LLVMFuzzerTestOneInput(g_input.data(), g_input.size());
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  std::printf("%s: %zu inputs, %zu runs, %.0f runs a second\n",
              fs::path(argv[0]).filename().c_str(), inputs.size(), runs,
              static_cast<double>(runs) / seconds.count());
  if (inputs.empty()) {
    std::fprintf(stderr, "%s: no inputs\n", argv[0]);
    return 1;
  }
  return 0;
}
