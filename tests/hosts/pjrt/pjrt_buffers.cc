// SPDX-License-Identifier: Apache-2.0
// A program on PJRT plugins, as JAX is one: buffers of every origin, donated, deleted and
// destroyed, programs with temporary memory, errors, and eight threads. At each step it adds what
// the plugin has given out to the file of VRAMSCOPE_TEST_STEPS with ".xla" behind it. With
// VRAMSCOPE_TEST_CLIENT_ENDS it only destroys the clients, while memory is in use beside buffers.
// With VRAMSCOPE_TEST_EXECUTIONS=N eight threads only execute a program N times each, and it adds
// the number of executions a second. Files of the folder VRAMSCOPE_TEST_XLA_DUMP are written into
// the folder that XLA_FLAGS names, as XLA writes its dumps.
#include <pthread.h>
#include <vramscope/annotate.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../driver/steps.h"
#include "fake_plugin.h"

namespace {

using Word = uint64_t;
using Function = void* (*)(Word*);

struct Plugin {
  const Word* table = nullptr;
  const FakePlugin* fake = nullptr;

  static Plugin Open(const std::string& path) {
    void* const library = dlopen(path.c_str(), RTLD_LAZY);
    REQUIRE(library != nullptr);
    auto* const get_api = reinterpret_cast<const Word* (*)()>(dlsym(library, "GetPjrtApi"));
    auto* const fake = reinterpret_cast<const FakePlugin* (*)()>(dlsym(library, "FakePluginOf"));
    REQUIRE(get_api != nullptr && fake != nullptr);
    const Word* const table = get_api();
    REQUIRE(get_api() == table);
    return {table, fake()};
  }
  bool Has(size_t place) const { return table[0] >= (place + 6) * 8; }
  void* Call(size_t place, Word* arguments) const {
    return reinterpret_cast<Function>(table[5 + place])(arguments);
  }
  template <size_t kCount>
  void* operator()(size_t place,
                   std::initializer_list<Word> said,
                   Word (&arguments)[kCount]) const {
    std::fill(arguments, arguments + kCount, 0);
    arguments[0] = sizeof arguments;
    std::copy(said.begin(), said.end(), arguments + 2);
    return Call(place, arguments);
  }
};

Word At(const void* pointer) {
  return reinterpret_cast<Word>(pointer);
}

Word FromHost(const Plugin& plugin, int device, int64_t elements, const void* memory = nullptr) {
  Word a[15];
  REQUIRE(plugin(22,
                 {1, 2, 11, At(&elements), 1, 0, 0, 0, At(plugin.fake->device(device)), At(memory)},
                 a) == nullptr);
  return a[14];
}

void Delete(const Plugin& plugin, Word buffer) {
  Word a[3];
  REQUIRE(plugin(67, {buffer}, a) == nullptr);
}

void Destroy(const Plugin& plugin, Word buffer) {
  Word a[3];
  REQUIRE(plugin(58, {buffer}, a) == nullptr);
}

// The results of each device, one after another.
std::vector<Word> Execute(const Plugin& plugin,
                          void* program,
                          size_t devices,
                          const std::vector<Word>& inputs,
                          size_t outputs,
                          bool with_events = false) {
  std::vector<Word> made(devices * outputs);
  std::vector<const Word*> lists(devices);
  std::vector<Word*> results(devices);
  std::vector<void*> events(devices);
  const size_t count = devices == 0 ? 0 : inputs.size() / devices;
  for (size_t d = 0; d < devices; ++d) {
    lists[d] = inputs.data() + d * count;
    results[d] = made.data() + d * outputs;
  }
  Word a[10];
  void* const error = plugin(55,
                             {At(program), 0, At(lists.data()), devices, count, At(results.data()),
                              with_events ? At(events.data()) : 0, 0},
                             a);
  if (error != nullptr) {
    Word message[5];
    plugin(1, {At(error)}, message);
    std::printf("%s\n", reinterpret_cast<const char*>(message[3]));
    plugin(0, {At(error)}, message);
    return {};
  }
  return made;
}

void StepOf(const std::vector<Plugin>& plugins, const char* name) {
  Step(name);
  const char* const path = std::getenv("VRAMSCOPE_TEST_STEPS");
  if (path == nullptr)
    return;
  FILE* const file = std::fopen((std::string(path) + ".xla").c_str(), "a");
  REQUIRE(file != nullptr);
  std::fprintf(file, "%s", name);
  for (int device = 0; device < kFakeDevices; ++device) {
    uint64_t sum[3] = {};
    for (const Plugin& plugin : plugins) {
      uint64_t one[3];
      plugin.fake->count(device, &one[0], &one[1], &one[2]);
      for (int i = 0; i < 3; ++i)
        sum[i] += one[i];
    }
    for (const uint64_t value : sum)
      std::fprintf(file, " %llu", static_cast<unsigned long long>(value));
  }
  std::fprintf(file, "\n");
  std::fclose(file);
}

void EveryOrigin(const std::vector<Plugin>& plugins) {
  const Plugin& plugin = plugins[0];
  const Word first = FromHost(plugin, 0, 1000);
  const Word second = FromHost(plugin, 1, 1 << 20);
  const Word host = FromHost(plugin, 0, 4096, plugin.fake->host_memory(0));
  const Word empty = FromHost(plugin, 0, 0);
  StepOf(plugins, "from-host");
  std::vector<Word> others;
  Word a[16];
  const int64_t elements = 70'000;
  if (plugin.Has(112)) {
    REQUIRE(plugin(112, {1, At(&elements), 1, 11, 0, At(plugin.fake->device(1)), 0}, a) == nullptr);
    others.push_back(a[9]);
  }
  if (plugin.Has(104)) {
    REQUIRE(plugin(104, {123'456, 0}, a) == nullptr);
    others.push_back(a[4]);
  }
  REQUIRE(plugin(69, {second, At(plugin.fake->device(0))}, a) == nullptr);
  others.push_back(a[4]);
  if (plugin.Has(92)) {
    REQUIRE(plugin(92, {first, At(plugin.fake->host_memory(0))}, a) == nullptr);
    others.push_back(a[4]);
  }
  // A view has no memory of its own.
  if (plugin.Has(93)) {
    REQUIRE(plugin(93, {1, 2, At(&elements), 1, 11, 0, At(plugin.fake->device(0))}, a) == nullptr);
    others.push_back(a[12]);
  }
  if (plugin.Has(125)) {
    REQUIRE(plugin(125, {second}, a) == nullptr);
    others.push_back(a[5]);
  }
  StepOf(plugins, "every-origin");
  Delete(plugin, first);
  Delete(plugin, first);
  StepOf(plugins, "deleted");
  for (const Word buffer : others)
    Destroy(plugin, buffer);
  for (const Word buffer : {first, second, host, empty, Word{0}})
    Destroy(plugin, buffer);
  StepOf(plugins, "destroyed");
}

// A training: parameters that each step takes over, and a batch.
void Train(const std::vector<Plugin>& plugins) {
  const Plugin& plugin = plugins[0];
  constexpr size_t kParameters = 20;
  constexpr int64_t kElements = 50'000;
  std::vector<std::string> texts;
  for (size_t i = 0; i < kParameters; ++i) {
    const std::string leaf = "['Dense_" + std::to_string(i % 10) + "']['kernel']";
    texts.push_back((i < 10 ? "state.params" : "state.opt_state[0].mu") + leaf);
  }
  texts.push_back("batch['x']");
  std::vector<const char*> paths;
  for (const std::string& text : texts)
    paths.push_back(text.c_str());
  paths.push_back(nullptr);
  const FakeProgram step = {
      "jit_train_step", kParameters + 1, kElements * 4, kParameters, 9'000'192, 2, paths.data()};
  const FakeProgram quiet = {"jit_quiet", 0, 0, 0, 5'000'192, 1, nullptr};
  const FakeProgram fails = {"jit_fails", 1, 64, 1, 0, 1, nullptr};
  void* const program = plugin.fake->load(&step);
  std::vector<Word> parameters[2];
  for (int device = 0; device < 2; ++device) {
    for (size_t i = 0; i < kParameters; ++i)
      parameters[device].push_back(FromHost(plugin, device, kElements));
  }
  StepOf(plugins, "parameters");
  for (int i = 0; i < 6; ++i) {
    std::vector<Word> inputs;
    for (int device = 0; device < 2; ++device) {
      inputs.insert(inputs.end(), parameters[device].begin(), parameters[device].end());
      inputs.push_back(FromHost(plugin, device, 30'000));
    }
    const std::vector<Word> made = Execute(plugin, program, 2, inputs, kParameters + 1, i % 2 == 1);
    StepOf(plugins, ("running-" + std::to_string(i)).c_str());
    for (int device = 0; device < 2; ++device) {
      const size_t from = static_cast<size_t>(device) * (kParameters + 1);
      parameters[device].assign(made.begin() + static_cast<ptrdiff_t>(from),
                                made.begin() + static_cast<ptrdiff_t>(from + kParameters));
      Destroy(plugin, made[from + kParameters]);
    }
    // Some steps are waited for, by their event or a result; the others run into the next one.
    if (i == 2 && plugin.Has(72)) {
      for (int device = 0; device < 2; ++device) {
        Word ready[4];
        REQUIRE(plugin(72, {parameters[device][0]}, ready) == nullptr);
      }
    }
    if (i % 2 == 1 || i == 2)
      plugin.fake->finish();
    for (const Word input : inputs)
      Destroy(plugin, input);
    StepOf(plugins, ("step-" + std::to_string(i)).c_str());
  }
  void* const other = plugin.fake->load(&quiet);
  Execute(plugin, other, 1, {}, 0, true);
  StepOf(plugins, "no-results");
  plugin.fake->finish();
  // Neither results nor an event of the program's: its temporary memory has no end.
  const FakeProgram none = {"jit_none", 0, 0, 0, 0, 1, nullptr};
  void* const nothing = plugin.fake->load(&none);
  Execute(plugin, nothing, 1, {}, 0);
  void* const broken = plugin.fake->load(&fails);
  REQUIRE(Execute(plugin, broken, 1, {parameters[0][0]}, 1).empty());
  const Plugin& second = plugins.back();
  const Word of_second = FromHost(second, 0, 12'345);
  StepOf(plugins, "failed");
  for (void* const loaded : {program, other, nothing, broken}) {
    Word a[3];
    plugin(50, {At(loaded)}, a);
  }
  Destroy(second, of_second);
  for (int device = 0; device < 2; ++device) {
    for (const Word parameter : parameters[device])
      Destroy(plugin, parameter);
  }
  StepOf(plugins, "trained");
}

// The last --xla_dump_to of XLA_FLAGS, with or without quotes.
std::string DumpFolder() {
  const char* const flags = std::getenv("XLA_FLAGS");
  const std::string text = flags != nullptr ? flags : "", name = "--xla_dump_to=";
  size_t begin = text.rfind(name);
  if (begin == std::string::npos)
    return "";
  begin += name.size();
  const bool is_quoted = text[begin] == '"';
  begin += is_quoted ? 1 : 0;
  return text.substr(begin, text.find(is_quoted ? '"' : ' ', begin) - begin);
}

void DumpAsXla() {
  const char* const from = std::getenv("VRAMSCOPE_TEST_XLA_DUMP");
  const std::string to = DumpFolder();
  if (from == nullptr || to.empty())
    return;
  std::filesystem::create_directories(to);
  std::filesystem::copy(from, to,
                        std::filesystem::copy_options::recursive |
                            std::filesystem::copy_options::copy_symlinks |
                            std::filesystem::copy_options::overwrite_existing);
}

// What XLA has in use beside its buffers is read at marks.
void Beside(const std::vector<Plugin>& plugins) {
  const Word buffer = FromHost(plugins[0], 0, 100'000);
  const struct {
    const char* name;
    uint64_t bytes;
  } steps[] = {
      {"beside-none", 0}, {"beside-some", 12'345}, {"beside-more", 3 << 20}, {"beside-gone", 0}};
  for (const auto& step : steps) {
    plugins[0].fake->use(0, step.bytes);
    vramscope_annotate_mark(step.name);
    StepOf(plugins, step.name);
  }
  Destroy(plugins[0], buffer);
}

void Threads(const std::vector<Plugin>& plugins) {
  constexpr int kThreads = 8, kRounds = 5;
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, kThreads + 1);
  const FakeProgram said = {"jit_threads", 3, 5000, 2, 256, 1, nullptr};
  std::vector<std::thread> threads;
  std::vector<void*> programs;
  for (const Plugin& plugin : plugins)
    programs.push_back(plugin.fake->load(&said));
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      const size_t of = static_cast<size_t>(t) % plugins.size();
      const Plugin& plugin = plugins[of];
      std::vector<Word> mine;
      for (int round = 0; round < kRounds; ++round) {
        for (int i = 0; i < 300; ++i) {
          if (mine.size() < 5 || random() % 2 == 0)
            mine.push_back(FromHost(plugin, static_cast<int>(random() % 2),
                                    static_cast<int64_t>(1 + random() % 9000)));
          std::swap(mine[random() % mine.size()], mine.back());
          if (mine.size() >= 3 && random() % 4 == 0) {
            const std::vector<Word> inputs(mine.end() - 3, mine.end());
            const std::vector<Word> made = Execute(plugin, programs[of], 1, inputs, 3);
            for (const Word input : inputs)
              Destroy(plugin, input);
            mine.resize(mine.size() - 3);
            mine.insert(mine.end(), made.begin(), made.end());
          }
          while (mine.size() > 40) {
            if (random() % 2 == 0)
              Delete(plugin, mine.back());
            Destroy(plugin, mine.back());
            mine.pop_back();
          }
        }
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
      }
      for (const Word buffer : mine)
        Destroy(plugin, buffer);
    });
  }
  for (int round = 0; round < kRounds; ++round) {
    pthread_barrier_wait(&barrier);
    StepOf(plugins, ("threads-" + std::to_string(round)).c_str());
    for (const Plugin& plugin : plugins)
      plugin.fake->finish();
    vramscope_annotate_mark("read");
    StepOf(plugins, ("finished-" + std::to_string(round)).c_str());
    pthread_barrier_wait(&barrier);
  }
  for (std::thread& thread : threads)
    thread.join();
  StepOf(plugins, "joined");
}

void EndClients(const std::vector<Plugin>& plugins) {
  Destroy(plugins[0], FromHost(plugins[0], 0, 100'000));
  plugins[0].fake->use(0, 3 << 20);
  vramscope_annotate_mark("in-use");
  StepOf(plugins, "in-use");
  for (const Plugin& plugin : plugins) {
    Word a[3];
    REQUIRE(plugin(11, {1}, a) == nullptr);
  }
  StepOf(plugins, "client-ended");
}

void ExecuteOften(const std::vector<Plugin>& plugins, int count) {
  constexpr int kThreads = 8;
  const Plugin& plugin = plugins[0];
  const FakeProgram quick = {"jit_quick", 1, 64, 0, 512, 1, nullptr};
  void* const program = plugin.fake->load(&quick);
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < count; ++i)
        Destroy(plugin, Execute(plugin, program, 1, {}, 1)[0]);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  plugin.fake->finish();
  vramscope_annotate_mark("executed");
  StepOf(plugins, "executed");
  const char* const path = std::getenv("VRAMSCOPE_TEST_STEPS");
  if (path == nullptr)
    return;
  FILE* const file = std::fopen((std::string(path) + ".xla").c_str(), "a");
  REQUIRE(file != nullptr);
  std::fprintf(file, "rate %.0f\n", kThreads * count / took.count());
  std::fclose(file);
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<Plugin> plugins;
  for (int i = 1; i < count; ++i)
    plugins.push_back(Plugin::Open(arguments[i]));
  REQUIRE(!plugins.empty());
  DumpAsXla();
  Step("opened");
  if (std::getenv("VRAMSCOPE_TEST_CLIENT_ENDS") != nullptr) {
    EndClients(plugins);
    return 0;
  }
  if (const char* const executions = std::getenv("VRAMSCOPE_TEST_EXECUTIONS")) {
    ExecuteOften(plugins, std::atoi(executions));
    return 0;
  }
  EveryOrigin(plugins);
  Train(plugins);
  Beside(plugins);
  Threads(plugins);
  for (const Plugin& plugin : plugins)
    std::printf("%llu errors left\n", static_cast<unsigned long long>(plugin.fake->errors()));
  // Some are left to the end of the process.
  FromHost(plugins[0], 0, 777);
  return 0;
}
