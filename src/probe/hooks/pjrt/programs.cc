// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "format/records.h"
#include "probe/hooks/pjrt/readings.h"
#include "probe/hooks/pjrt/recorded.h"

// Compiled programs: what an execution makes, what it takes over, and its temporary memory.
namespace vramscope::probe::pjrt {
namespace {

constexpr size_t kMaxProgramNameBytes = 160;
constexpr size_t kMostDevices = 16;

// The words of PJRT_LoadedExecutable_Execute's arguments.
constexpr size_t kArgumentLists = 4, kDeviceCount = 5, kArgumentCount = 6, kOutputLists = 7,
                 kCompleteEvents = 8, kExecuteDevice = 9;

// Some of a program's arguments. Those beyond its size always are in it.
class ArgumentMask {
 public:
  bool Has(size_t argument) const {
    return argument >= kSize ||
           (words_[argument / 64].load(std::memory_order_relaxed) >> (argument % 64) & 1) != 0;
  }
  void Add(size_t argument) {
    if (argument < kSize)
      words_[argument / 64].fetch_or(uint64_t{1} << (argument % 64), std::memory_order_relaxed);
  }
  void Clear() {
    for (auto& word : words_)
      word.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr size_t kSize = 2048;
  std::atomic<uint64_t> words_[kSize / 64];
};

// A PJRT_LoadedExecutable. Filled in by its first execution.
struct Program {
  // The first executions look at all arguments, and then one now and again. The others look at
  // those that a mask has.
  static constexpr uint32_t kFirstRuns = 2, kCheckAllEvery = 64;

  std::atomic<const void*> key;
  std::atomic<bool> is_whole;
  std::atomic<uint32_t> runs;
  uint32_t name_size;
  char name[kMaxProgramNameBytes];
  size_t output_count;
  std::atomic<uint64_t> temporary_bytes;
  HloNames* names;  // null: none
  ArgumentMask donated;
  ArgumentMask unnamed;  // new in each execution

  static bool ChecksAll(uint32_t run) { return run < kFirstRuns || run % kCheckAllEvery == 0; }
};

constexpr size_t kMostPrograms = 4096;  // a power of two
constexpr size_t kMostSteps = 64;
constinit Program g_programs[kMostPrograms]{};
// Where a program was destroyed: searches pass over it, and new ones take its place.
constinit const char g_gone = 0;

size_t PlaceOf(const void* key, size_t step) {
  return (static_cast<size_t>((reinterpret_cast<uintptr_t>(key) * 0x9e3779b97f4a7c15u) >> 32) +
          step) &
         (kMostPrograms - 1);
}

// Most programs are smaller by far: serializing one takes time and memory.
constexpr size_t kMostHloBytes = 256 << 20;

// What the program calls its arguments, from its optimized HLO.
HloNames* FindNames(const Plugin& plugin, const void* executable) {
  constexpr size_t kCode = 2, kCodeSize = 3, kFormat = 4, kFormatSize = 5, kWords = 6;
  Word hlo[kWords] = {sizeof hlo};
  Arguments<8> arguments(executable);
  arguments.words[kSecondWord] = reinterpret_cast<uintptr_t>(hlo);
  // Without room for the code it answers with its size.
  if (!plugin.Ask(Call::kExecutable_OptimizedProgram, &arguments) || hlo[kCodeSize] == 0 ||
      hlo[kCodeSize] > kMostHloBytes)
    return nullptr;
  const size_t size = hlo[kCodeSize];
  void* const pages =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return nullptr;
  hlo[kCode] = reinterpret_cast<uintptr_t>(pages);
  HloNames* names = nullptr;
  if (plugin.Ask(Call::kExecutable_OptimizedProgram, &arguments) && hlo[kCodeSize] <= size) {
    const auto is = [&](const char* format) {
      return hlo[kFormatSize] == std::strlen(format) &&
             std::memcmp(reinterpret_cast<const char*>(hlo[kFormat]), format, hlo[kFormatSize]) ==
                 0;
    };
    const bool has_config = is("hlo_with_config");
    if (has_config || is("hlo"))
      names = HloNames::Read(static_cast<const uint8_t*>(pages), hlo[kCodeSize], has_config);
  }
  munmap(pages, size);
  return names;
}

// `with_names`: they are kept as long as the program is in the table.
void Describe(const Plugin& plugin, const void* loaded, bool with_names, Program* program) {
  program->runs.store(0, std::memory_order_relaxed);
  program->name_size = 0;
  program->output_count = 0;
  program->temporary_bytes.store(0, std::memory_order_relaxed);
  program->names = nullptr;
  program->donated.Clear();
  program->unnamed.Clear();
  Arguments<8> get(loaded);
  if (!plugin.Ask(Call::kLoadedExecutable_GetExecutable, &get))
    return;
  auto* const executable = get.Get<const void*>(kSecondWord);
  if (Arguments<8> outputs(executable); plugin.Ask(Call::kExecutable_NumOutputs, &outputs))
    program->output_count = outputs.Get<size_t>(kSecondWord);
  if (Arguments<8> name(executable); plugin.Ask(Call::kExecutable_Name, &name)) {
    auto* const text = name.Get<const char*>(kSecondWord);
    const auto size = name.Get<size_t>(kSecondWord + 1);
    program->name_size =
        static_cast<uint32_t>(size < kMaxProgramNameBytes ? size : kMaxProgramNameBytes);
    std::memcpy(program->name, text, program->name_size);
  }
  constexpr size_t kTemporaryWord = 7;
  if (Arguments<32> stats(executable);
      plugin.Ask(Call::kExecutable_GetCompiledMemoryStats, &stats)) {
    const auto bytes = stats.Get<int64_t>(kTemporaryWord);
    program->temporary_bytes.store(bytes > 0 ? static_cast<uint64_t>(bytes) : 0,
                                   std::memory_order_relaxed);
  }
  if (with_names)
    program->names = FindNames(plugin, executable);
  Arguments<8> destroy(executable);
  plugin.Ask(Call::kExecutable_Destroy, &destroy);
}

// Null if the table has no place, or another thread is just filling it in.
Program* FindProgram(const Plugin& plugin, const void* loaded) {
  Program* empty = nullptr;
  for (size_t step = 0; step < kMostSteps; ++step) {
    Program& program = g_programs[PlaceOf(loaded, step)];
    const void* const key = program.key.load(std::memory_order_acquire);
    if (key == loaded)
      return program.is_whole.load(std::memory_order_acquire) ? &program : nullptr;
    if ((key == nullptr || key == &g_gone) && empty == nullptr)
      empty = &program;
    if (key == nullptr)
      break;
  }
  if (empty == nullptr)
    return nullptr;
  const void* expected = empty->key.load(std::memory_order_relaxed);
  if ((expected != nullptr && expected != &g_gone) ||
      !empty->key.compare_exchange_strong(expected, loaded, std::memory_order_acq_rel))
    return nullptr;
  Describe(plugin, loaded, true, empty);
  empty->is_whole.store(true, std::memory_order_release);
  return empty;
}

// Executions with temporary memory, by number. XLA gives the memory back in stream order: the next
// program on the device may use it. It ends with that program, when an event of the program's is
// ready that comes after it, or when XLA's own figure shows that it is free.
struct Execution {
  uint64_t bytes;
  uint32_t session;  // the recording that knows it
};
constexpr size_t kMostExecutions = 1024;
constinit Execution g_executions[kMostExecutions]{};
constinit std::atomic<uint64_t> g_last_execution{0};
constinit std::atomic<int32_t> g_ending{0};  // calls of OnComplete
// By plugin and device; 0: none.
constinit std::atomic<uint64_t> g_current[Plugin::kMost][kMostDevices]{};

const void* KeyOf(uint64_t execution) {
  return reinterpret_cast<const void*>(execution);
}

void EndExecution(uint64_t execution, int32_t device) {
  const Execution& ended = g_executions[execution % kMostExecutions];
  if (ended.session == g_flags.session.load(std::memory_order_relaxed))
    EndBlock(KeyOf(execution), ended.bytes, device);
}

bool EndCurrent(size_t plugin, int32_t device) {
  if (device < 0 || device >= static_cast<int32_t>(kMostDevices))
    return false;
  const uint64_t execution = g_current[plugin][device].exchange(0, std::memory_order_acq_rel);
  if (execution != 0)
    EndExecution(execution, device);
  return execution != 0;
}

// What a callback is told: the execution, its device and its plugin, in one word.
struct Watched {
  uint64_t execution;
  int32_t device;
  size_t plugin;

  void* Pack() const {
    return reinterpret_cast<void*>(execution << 8 | static_cast<uint64_t>(device) << 4 | plugin);
  }
  static Watched Unpack(void* data) {
    const auto word = reinterpret_cast<uint64_t>(data);
    return {word >> 8, static_cast<int32_t>(word >> 4 & 15), word & 15};
  }
};

// Called by XLA, in whichever thread completes the event.
void OnComplete(void* error, void* data) {
  const Watched watched = Watched::Unpack(data);
  uint64_t expected = watched.execution;
  g_ending.fetch_add(1, std::memory_order_seq_cst);
  if (g_current[watched.plugin][watched.device].compare_exchange_strong(expected, 0,
                                                                        std::memory_order_acq_rel))
    EndExecution(watched.execution, watched.device);
  g_ending.fetch_sub(1, std::memory_order_seq_cst);
  PluginAt(watched.plugin).DestroyError(error);
}

void Watch(const Plugin& plugin, void* event, uint64_t execution, int32_t device) {
  Arguments<8> on_ready(event);
  on_ready.words[kSecondWord] = reinterpret_cast<uintptr_t>(OnComplete);
  on_ready.words[kSecondWord + 1] =
      reinterpret_cast<uintptr_t>(Watched{execution, device, NumberOf(plugin)}.Pack());
  plugin.Ask(Call::kEvent_OnReady, &on_ready);
}

// JAX calls an argument that is no pytree by its variable alone, and small functions call theirs x:
// only paths are names.
bool IsPath(HloNames::Text text) {
  return text.size != 0 && (std::memchr(text.data, '[', text.size) != nullptr ||
                            std::memchr(text.data, '.', text.size) != nullptr);
}

// The arguments of a program have its names. In the first executions names of an earlier program
// give way.
void NameArguments(const Word* arguments, uint32_t run, Program* program) {
  auto* const lists = static_cast<const void* const* const*>(PointerAt(arguments, kArgumentLists));
  if (program->names == nullptr || lists == nullptr)
    return;
  RecordScope scope(Want::kTensor);
  if (!scope)
    return;
  const bool checks_all = Program::ChecksAll(run);
  for (size_t device = 0; device < WordAt(arguments, kDeviceCount); ++device) {
    for (size_t i = 0; i < WordAt(arguments, kArgumentCount); ++i) {
      if (!checks_all && !program->unnamed.Has(i))
        continue;
      const HloNames::Text path = program->names->Argument(i);
      // What has a name in the second execution is the state, and keeps it.
      if (IsPath(path) && NameBuffer(*scope, lists[device][i], path, run < Program::kFirstRuns) &&
          run != 0)
        program->unnamed.Add(i);
    }
  }
}

void EndDonated(const Plugin& plugin, const Word* arguments, bool asks_all, Program* program) {
  auto* const lists = static_cast<const void* const* const*>(PointerAt(arguments, kArgumentLists));
  const size_t count = WordAt(arguments, kArgumentCount);
  const size_t devices = WordAt(arguments, kDeviceCount);
  if (lists == nullptr)
    return;
  for (size_t device = 0; device < devices; ++device) {
    for (size_t i = 0; i < count; ++i) {
      const void* const buffer = lists[device][i];
      if ((!asks_all && !program->donated.Has(i)) || buffer == nullptr ||
          !AskIsDeleted(plugin, buffer))
        continue;
      program->donated.Add(i);
      EndBuffer(buffer);
    }
  }
}

// The devices that the execution's lists are of; how many are filled in.
size_t DevicesOf(const Plugin& plugin, const Word* arguments, const void* const** devices) {
  if (const void* const one = PointerAt(arguments, kExecuteDevice); one != nullptr) {
    *devices = nullptr;
    return 0;
  }
  Arguments<8> addressable(PointerAt(arguments, kFirstWord));
  if (!plugin.Ask(Call::kLoadedExecutable_AddressableDevices, &addressable))
    return 0;
  *devices = addressable.Get<const void* const*>(kSecondWord);
  return *devices == nullptr ? 0 : addressable.Get<size_t>(kSecondWord + 1);
}

HloNames::Text PathOfResult(const Program& program, size_t number) {
  if (program.names == nullptr)
    return {};
  const HloNames::Text path = program.names->Result(number);
  return IsPath(path) ? path : HloNames::Text();
}

struct Started {
  uint64_t execution = 0;
  int32_t device = -1;
};

void RecordResults(const Plugin& plugin, const Word* arguments, const Program& program) {
  const size_t device_count = WordAt(arguments, kDeviceCount);
  auto* const outputs = static_cast<const void* const* const*>(PointerAt(arguments, kOutputLists));
  auto* const events = static_cast<void* const*>(PointerAt(arguments, kCompleteEvents));
  const uint64_t temporary_bytes = program.temporary_bytes.load(std::memory_order_relaxed);
  Started started[kMostDevices];
  const void* const* devices = nullptr;
  const size_t known_devices = temporary_bytes != 0 ? DevicesOf(plugin, arguments, &devices) : 0;
  for (size_t d = 0; temporary_bytes != 0 && d < device_count && d < kMostDevices; ++d) {
    started[d].device =
        OrdinalOf(plugin, d < known_devices ? devices[d] : PointerAt(arguments, kExecuteDevice));
    EndCurrent(NumberOf(plugin), started[d].device);
  }
  {
    MakeScope scope(plugin, {format::XlaBlockKind::kOutput, program.name, program.name_size});
    if (!scope)
      return;
    for (size_t d = 0; d < device_count; ++d) {
      const void* const* const made =
          outputs != nullptr && program.output_count != 0 ? outputs[d] : nullptr;
      for (size_t i = 0; made != nullptr && i < program.output_count; ++i)
        scope.Buffer(made[i], PathOfResult(program, i));
      if (d >= kMostDevices || started[d].device < 0 ||
          started[d].device >= static_cast<int32_t>(kMostDevices))
        continue;
      started[d].execution = g_last_execution.fetch_add(1, std::memory_order_relaxed) + 1;
      g_executions[started[d].execution % kMostExecutions] = {
          temporary_bytes, g_flags.session.load(std::memory_order_relaxed)};
      scope.Temporary(KeyOf(started[d].execution), temporary_bytes, started[d].device);
    }
  }
  for (size_t d = 0; d < device_count && d < kMostDevices; ++d) {
    const auto [execution, device] = started[d];
    if (execution == 0)
      continue;
    // Another thread may have begun one since.
    if (const uint64_t other =
            g_current[NumberOf(plugin)][device].exchange(execution, std::memory_order_acq_rel))
      EndExecution(other, device);
    if (events != nullptr && events[d] != nullptr)
      Watch(plugin, events[d], execution, device);
  }
}

// XLA's allocator may give a program more than it asks for. An execution that raises the pool's
// peak shows how much: XLA takes the temporary memory back, by its own count, before the call
// returns.
class TemporarySize {
 public:
  TemporarySize(const Plugin& plugin, const Word* arguments, uint32_t run, Program* program)
      : plugin_(plugin), program_(program) {
    if (run >= Program::kFirstRuns || program->temporary_bytes.load(std::memory_order_relaxed) == 0)
      return;
    const void* const* devices = nullptr;
    device_ = DevicesOf(plugin, arguments, &devices) != 0 ? devices[0]
                                                          : PointerAt(arguments, kExecuteDevice);
    if (device_ != nullptr && !AskPool(plugin, device_, &before_))
      device_ = nullptr;
  }
  void Measure() {
    PoolFigures after;
    if (device_ == nullptr || !IsAlone() || !AskPool(plugin_, device_, &after) ||
        after.peak <= before_.peak)
      return;
    const uint64_t taken = after.peak - after.in_use;
    // More than that is something else.
    const uint64_t asked = RoundUp(program_->temporary_bytes.load(std::memory_order_relaxed));
    if (taken > asked && taken <= asked + asked / 4)
      program_->temporary_bytes.store(taken, std::memory_order_relaxed);
  }

 private:
  const Plugin& plugin_;
  Program* program_;
  const void* device_ = nullptr;
  PoolFigures before_;
};

void* ExecuteProgram(const Plugin& plugin, Word* arguments, Program* program) {
  constexpr uint32_t kClockEvery = 16;
  const uint32_t run = program->runs.fetch_add(1, std::memory_order_relaxed);
  if (run % kClockEvery == 0)
    MaybeRead();
  TemporarySize temporary(plugin, arguments, run, program);
  const UnderWay under_way;
  void* const error = plugin.Get(Call::kLoadedExecutable_Execute)(arguments);
  if (error == nullptr)
    temporary.Measure();
  NameArguments(arguments, run, program);
  // What it took over was given back before its results were made of it.
  EndDonated(plugin, arguments, error != nullptr || Program::ChecksAll(run), program);
  if (error == nullptr)
    RecordResults(plugin, arguments, *program);
  return error;
}

// Apart, because a program takes half a kilobyte.
VRAMSCOPE_NOINLINE void* ExecuteUnknown(const Plugin& plugin, Word* arguments) {
  Program program{};
  Describe(plugin, PointerAt(arguments, kFirstWord), false, &program);
  return ExecuteProgram(plugin, arguments, &program);
}

}  // namespace

void* Execute(const Plugin& plugin, Word* arguments) {
  if (SessionIsOff())
    return plugin.Get(Call::kLoadedExecutable_Execute)(arguments);
  if (Program* const program = FindProgram(plugin, PointerAt(arguments, kFirstWord)))
    return ExecuteProgram(plugin, arguments, program);
  return ExecuteUnknown(plugin, arguments);
}

void* DestroyExecutable(const Plugin& plugin, Word* arguments) {
  const void* const loaded = PointerAt(arguments, kFirstWord);
  for (size_t step = 0; loaded != nullptr && step < kMostSteps; ++step) {
    Program& program = g_programs[PlaceOf(loaded, step)];
    const void* const key = program.key.load(std::memory_order_acquire);
    if (key == nullptr)
      break;
    if (key != loaded)
      continue;
    program.is_whole.store(false, std::memory_order_relaxed);
    HloNames::Free(std::exchange(program.names, nullptr));
    program.key.store(&g_gone, std::memory_order_release);
    break;
  }
  return plugin.Get(Call::kLoadedExecutable_Destroy)(arguments);
}

bool IsEndingTemporary() {
  return g_ending.load(std::memory_order_seq_cst) != 0;
}

bool EndTemporaryOf(int32_t device) {
  bool has_ended = false;
  for (size_t plugin = 0; plugin < Plugin::kMost; ++plugin)
    has_ended |= EndCurrent(plugin, device);
  return has_ended;
}

// The program waits for the buffer: what ran on its device by now is over when it is ready.
void* ReadyEvent(const Plugin& plugin, Word* arguments) {
  const void* const buffer = PointerAt(arguments, kFirstWord);
  void* const error = plugin.Get(Call::kBuffer_ReadyEvent)(arguments);
  if (error != nullptr || SessionIsOff())
    return error;
  const int32_t device = RecordedDeviceOf(buffer);
  const uint64_t execution =
      device < 0 ? 0 : g_current[NumberOf(plugin)][device].load(std::memory_order_acquire);
  if (void* const event = PointerAt(arguments, kSecondWord); execution != 0 && event != nullptr)
    Watch(plugin, event, execution, device);
  return error;
}

void ForgetPrograms() {
  g_ending.store(0, std::memory_order_relaxed);
  for (auto& of_plugin : g_current) {
    for (std::atomic<uint64_t>& current : of_plugin)
      current.store(0, std::memory_order_relaxed);
  }
}

}  // namespace vramscope::probe::pjrt
