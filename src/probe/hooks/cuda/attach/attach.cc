// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/attach/attach.h"

#include <dlfcn.h>
#include <sched.h>

#include <atomic>
#include <cstring>

#include "format/records.h"
#include "probe/hooks/cuda/cuda.h"
#include "probe/hooks/cuda/entry_points/pools.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/hook_table.h"
#include "probe/hooks/cuda/state/overflow.h"
#include "probe/hooks/cuda/state/reading.h"
#include "probe/hooks/cuda/state/record.h"
#include "probe/hooks/cuda/state/requester.h"
#include "probe/platform/dynamic.h"
#include "probe/platform/symbol_table.h"
#include "probe/session/stream.h"
#include "probe/session/tables.h"

// Finding the real driver and putting the wrappers in, once a process.
namespace vramscope::probe {
namespace cuda {

#define VRAMSCOPE_CUDA_HOOK(name, rule, prototype) {#name, &vramscope_link_##name},
const HookEntry kHooks[kHookCount] = {
#include "probe/hooks/cuda/cuda_hooks.def"
};

const char* const kCallNames[kCallCount] = {
#define VRAMSCOPE_CUDA_CALL(name, prototype) #name,
#include "probe/hooks/cuda/cuda_hooks.def"
};

constinit std::atomic<void*> g_real_hooks[kHookCount]{};
constinit std::atomic<void*> g_real_calls[kCallCount]{};

namespace {

enum class AttachState : int {
  kNone,       // no driver seen
  kAttaching,  // one thread writes the tables: microseconds, no lock and no system call that blocks
  kAttached,
  kFailed,  // this driver is left alone: its symbols cannot be changed, or another tool is at work
};

constinit std::atomic<AttachState> g_state{AttachState::kNone};

// How the driver was found, and what ran before the wrappers were in place.
enum class Route {
  kOpened,    // the program was about to open it
  kLinked,    // the program is linked with it: the probe's exports come first
  kLate,      // it was loaded past the probe: slots that were bound meanwhile are changed
  kUnderWay,  // the process used it before the probe came: kept pointers are changed too
};

// Written by the thread that attaches, before g_state says so.
struct Attachment {
  char path[256];
  uintptr_t base;
  Route route;
  OtherTools tools;
};
constinit Attachment g_attachment{};

// Once a process is enough: how often says nothing.
constinit std::atomic<bool> g_namespace_noted{false};

// Real address -> number of its wrapper, for cuGetProcAddress. Hooks count from 1, the wrappers of
// overflow follow. Written before kAttached, then constant.
constinit InternTable<1024> g_wrappers{};
static_assert(kHookCount < 512);

uint64_t MakeKey(const void* real) {
  return HashMix(0, reinterpret_cast<uintptr_t>(real));
}

// Two names may share one function: the first one's wrapper stays.
void RememberWrapper(const void* real, size_t number) {
  if (g_wrappers.Find(MakeKey(real)) == 0)
    g_wrappers.Insert(MakeKey(real), static_cast<uint32_t>(number));
}

// Its usual wrapper, or the one that replaces it.
void* ChooseWrapper(size_t hook) {
  void* const other = FindOverflowWrapper(kHooks[hook].name);
  return other != nullptr ? other : kHooks[hook].link->wrapper;
}

// The wrapper of the entry whose real address this is, or nullptr.
void* FindWrapper(const void* real) {
  const size_t number = g_wrappers.Find(MakeKey(real));
  if (number == 0)
    return nullptr;
  return number <= kHookCount ? ChooseWrapper(number - 1)
                              : kOverflowWrappers[number - kHookCount - 1].wrapper;
}

// Without `redirect` the wrappers know the driver and nothing leads to them but their names.
bool FillTables(const SymbolTable& table, bool redirect) {
  ElfW(Sym) * found[kHookCount] = {};
  ElfW(Sym)* first = nullptr;
  ElfW(Sym)* last = nullptr;
  for (size_t i = 0; i < kCallCount; ++i) {
    if (const ElfW(Sym)* symbol = table.FindFunction(kCallNames[i]))
      g_real_calls[i].store(table.AddressOf(*symbol), std::memory_order_relaxed);
  }
  for (size_t i = 0; i < kHookCount; ++i) {
    ElfW(Sym)* const symbol = table.FindFunction(kHooks[i].name);
    if (symbol == nullptr)
      continue;
    found[i] = symbol;
    first = first == nullptr || symbol < first ? symbol : first;
    last = last == nullptr || symbol > last ? symbol : last;
    void* const real = table.AddressOf(*symbol);
    if (redirect)
      RememberWrapper(real, i + 1);
    g_real_hooks[i].store(real, std::memory_order_release);
  }
  // Entry points that have a wrapper with --overflow alone.
  constexpr size_t kMaxOthers = 16;
  ElfW(Sym) * others[kMaxOthers] = {};
  const size_t other_count =
      OverflowIsOn() && redirect && kOverflowWrapperCount <= kMaxOthers ? kOverflowWrapperCount : 0;
  for (size_t i = 0; i < other_count; ++i) {
    ElfW(Sym)* const symbol = table.FindFunction(kOverflowWrappers[i].name);
    if (symbol == nullptr)
      continue;
    others[i] = symbol;
    first = first == nullptr || symbol < first ? symbol : first;
    last = last == nullptr || symbol > last ? symbol : last;
    RememberWrapper(table.AddressOf(*symbol), kHookCount + i + 1);
  }
  if (first == nullptr || !redirect || !table.Unprotect(first, last))
    return false;
  for (size_t i = 0; i < kHookCount; ++i) {
    if (found[i] != nullptr)
      table.Redirect(found[i], ChooseWrapper(i));
  }
  for (size_t i = 0; i < other_count; ++i) {
    if (others[i] != nullptr)
      table.Redirect(others[i], kOverflowWrappers[i].wrapper);
  }
  table.Protect(first, last);
  return true;
}

void Forget(OtherThreads others) {
  ForgetContexts(others);
  ForgetPools(others);
  ForgetGraphs(others);
  ForgetReadings(others);
}

void* ChooseForImport(const Import& import, void*) {
  return import.object_base != g_attachment.base ? FindWrapper(import.target) : nullptr;
}

// One line for `vramscope info`, and a loss: calls through that driver are not recorded.
void NoteUnseen(const char* reason, const char* path) {
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  char text[384];
  const size_t reason_size = std::strlen(reason);
  const size_t path_size = strnlen(path, sizeof text - reason_size);
  std::memcpy(text, reason, reason_size);
  std::memcpy(text + reason_size, path, path_size);
  constexpr char kKey[] = "cuda.unseen";
  scope->Append(
      format::Runtime{.key = {kKey, sizeof kKey - 1}, .value = {text, reason_size + path_size}});
  CountLoss(format::Loss::kDriverUnseen);
}

bool IsSettled() {
  const AttachState state = g_state.load(std::memory_order_acquire);
  return state == AttachState::kAttached || state == AttachState::kFailed;
}

// Another tool's function of that name, which comes after the probe in the program's scope.
void* NextTool(size_t hook) {
  void* const found = RealDlsym(RTLD_NEXT, kHooks[hook].name);
  if (found == nullptr || found == kHooks[hook].link->wrapper || found == ChooseWrapper(hook) ||
      found == g_real_hooks[hook].load(std::memory_order_relaxed)) {
    return nullptr;
  }
  // Some programs have pointers of these names.
  Dl_info info{};
  const ElfW(Sym)* symbol = nullptr;
  const bool is_function =
      dladdr1(found, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)),
              RTLD_DL_SYMENT) != 0 &&
      symbol != nullptr && info.dli_saddr == found && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC;
  return is_function ? found : nullptr;
}

// A tool that exports the driver's names in front of it keeps its place for programs that are
// linked with it.
void LetToolsPass() {
  if (NextTool(static_cast<size_t>(HookId::cuMemAlloc_v2)) == nullptr &&
      NextTool(static_cast<size_t>(HookId::cuInit)) == nullptr) {
    return;
  }
  for (size_t i = 0; i < kHookCount; ++i) {
    if (void* const tool = NextTool(i))
      __atomic_store_n(&kHooks[i].link->target, tool, __ATOMIC_RELEASE);
  }
}

// The same for the wrappers that replace usual ones; tools stay in front.
void LeadToOverflow() {
  for (size_t i = 0; OverflowIsOn() && i < kHookCount; ++i) {
    HookLink& link = *kHooks[i].link;
    if (link.target == link.wrapper)
      __atomic_store_n(&link.target, ChooseWrapper(i), __ATOMIC_RELEASE);
  }
}

// Takes no lock of the loader between kAttaching and its end, so that a thread that waits here
// while it holds the loader's lock cannot be waited for.
void Attach(const LoadedDriver& driver, Route route) {
  SymbolTable table;
  if (!SymbolTable::OfAddress(driver.dynamic, &table) || table.FindFunction("cuInit") == nullptr)
    return;
  OtherTools tools;
  FindOtherTools(&tools);
  LookForSaver();
  AttachState state = AttachState::kNone;
  if (g_state.compare_exchange_strong(state, AttachState::kAttaching, std::memory_order_acq_rel)) {
    g_attachment.base = driver.base;
    g_attachment.route = route;
    g_attachment.tools = tools;
    std::memcpy(g_attachment.path, driver.path, strnlen(driver.path, sizeof g_attachment.path - 1));
    PrepareOverflow();
    const bool ok = FillTables(table, !tools.must_be_alone);
    g_state.store(ok ? AttachState::kAttached : AttachState::kFailed, std::memory_order_release);
    LetToolsPass();
    if (ok)
      LeadToOverflow();
    if (!ok) {
      NoteUnseen(tools.must_be_alone ? "left to another tool: " : "its symbols cannot be changed: ",
                 tools.must_be_alone ? tools.names : driver.path);
    } else if (route == Route::kUnderWay) {
      PatchImports(ChooseForImport, nullptr);
      PatchPointers(ChooseForImport, nullptr);
    } else if (route == Route::kLate && PatchImports(ChooseForImport, nullptr) != 0) {
      NoteUnseen("what was called before it was found: ", driver.path);
    }
    return;
  }
  constexpr int kMaxTurns = 10000;
  for (int turn = 0; turn < kMaxTurns && state == AttachState::kAttaching; ++turn) {
    sched_yield();
    state = g_state.load(std::memory_order_acquire);
  }
}

// A library that the probe has opened.
void AttachLibrary(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr)
    Attach({map->l_name, map->l_addr, map->l_ld}, Route::kOpened);
}

// Drivers that were loaded since the last look without a call that the probe saw. The first is
// attached to; a further one has a state of its own, which the wrappers of the first must not
// touch.
void LookForDrivers(Route route) {
  LoadedDriver driver;
  while (FindNewDriver(&driver)) {
    if (driver.base == g_attachment.base)
      continue;
    if (!IsSettled()) {
      // Kept: pointers into it are.
      RealDlopen(driver.path, RTLD_LAZY | RTLD_NOLOAD);
      Attach(driver, route);
    } else if (std::strstr(driver.path, "/wsl/") == nullptr) {
      // Under WSL the driver is a door to another file of its name, which it opens itself.
      NoteUnseen("another copy of the driver: ", driver.path);
    }
  }
}

void ObserveNamespace(const char* file) {
  if (NamesDriver(file) && !g_namespace_noted.exchange(true))
    NoteUnseen("opened in a link namespace of its own: ", file);
}

void ObserveOpening(const Opening& opening) {
  if (opening.in_namespace)
    return ObserveNamespace(opening.file);
  ObserveSaver(opening.file);
  LookForDrivers(Route::kLate);
  if (IsSettled())
    return;
  void* library = nullptr;
  if (NamesDriver(opening.file))
    library = OpenDriver(opening.file, opening.mode, opening.caller);
  else if ((opening.mode & RTLD_DEEPBIND) != 0 && (opening.mode & RTLD_NOLOAD) == 0)
    library = OpenDriverFor(opening.file, opening.caller);
  if (library != nullptr)
    AttachLibrary(library);
}

// A driver that the program is linked with.
void Begin() {
  LookForDrivers(Route::kLinked);
}

void BeginLate() {
  LookForSaver();
  CudaAttachLoaded();
}

void ForgetBetweenRecordings() {
  Forget(OtherThreads::kRun);
}

void ForkedChild() {
  if (!IsSettled())
    return;
  Forget(OtherThreads::kGone);
  ForgetOverflow();
}

// Drivers that could not be seen are a loss.
void End() {
  LookForDrivers(Route::kLate);
  if (DriversInOtherNamespaces() != 0 && !g_namespace_noted.exchange(true))
    NoteUnseen("loaded in a link namespace of its own", "");
}

// The driver chooses the version for a name, a version number and flags. Only the pointer that it
// returned is inspected. Names that are unknown, empty, or asked for to see whether they exist come
// through as they are.
template <HookId kId, class... Args>
CUresult GetProcAddress(const char* symbol, void** function, Args... args) {
  HookCall<kId> call;
  const CUresult result = call(symbol, function, args...);
  if (result == kSuccess)
    PutWrapper(function);
  return result;
}

}  // namespace

void* ResolveHook(HookId id) {
  // The constructor of a library can be first of all.
  SessionLoad();
  if (!IsSettled())
    LookForDrivers(Route::kLinked);
  return g_real_hooks[static_cast<size_t>(id)].load(std::memory_order_acquire);
}

void PutWrapper(void** function) {
  if (function == nullptr)
    return;
  if (void* const wrapper = FindWrapper(*function))
    *function = wrapper;
}

void DescribeAttachment(Stream& stream) {
  const auto note = [&stream](const char* key, const char* value) {
    stream.Append(
        format::Runtime{.key = {key, std::strlen(key)}, .value = {value, std::strlen(value)}});
  };
  static constexpr const char* kRoutes[] = {
      "before the program opened it", "by the names that the program is linked with",
      "after it was loaded, as a part of something else",
      "in a program that used it already: calls before that are not recorded"};
  note("cuda.driver", g_attachment.path);
  note("cuda.found", kRoutes[static_cast<size_t>(g_attachment.route)]);
  if (g_attachment.tools.names[0] != '\0')
    note("cuda.other_tools", g_attachment.tools.names);
}

}  // namespace cuda

const Source kCudaSource = {.begin = cuda::Begin,
                            .opening = cuda::ObserveOpening,
                            .begin_late = cuda::BeginLate,
                            .plan_imports = cuda::PlanRuntimeImports,
                            .forget = cuda::ForgetBetweenRecordings,
                            .forked = cuda::ForkedChild,
                            .end = cuda::End};

bool CudaAttachLoaded() {
  if (!cuda::IsSettled())
    cuda::LookForDrivers(cuda::Route::kUnderWay);
  return cuda::IsSettled();
}

void CudaNoteDevice(int32_t device) {
  if (CudaIsActive())
    cuda::NoteDevice(device);
}

bool CudaIsActive() {
  return cuda::g_state.load(std::memory_order_acquire) == cuda::AttachState::kAttached;
}

void CudaMarkReading() {
  if (CudaIsActive())
    cuda::TakeReading(cuda::CurrentPlace());
}

int32_t CudaDeviceOf(const void* address) {
  const uint64_t known = cuda::KnownDevices();
  if (known == 0)
    return format::kNoDevice;
  if ((known & (known - 1)) == 0)
    return __builtin_ctzll(known);
  int device = format::kNoDevice;
  auto* const ask = cuda::DriverCall<cuda::CallId::cuPointerGetAttribute>();
  if (ask != nullptr &&
      ask(&device, cuda::kPointerDevice, reinterpret_cast<uintptr_t>(address)) == cuda::kSuccess) {
    return device;
  }
  return cuda::CurrentPlace().device;
}

}  // namespace vramscope::probe

#define VRAMSCOPE_CUDA_IS_ATTACH 1
#include "probe/hooks/cuda/define_wrappers.h"
#undef VRAMSCOPE_CUDA_IS_ATTACH
