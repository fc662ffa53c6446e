// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/agent.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "base/clock.h"
#include "probe/hooks/torch/names.h"
#include "probe/hooks/torch/torch.h"
#include "probe/platform/dynamic.h"
#include "probe/session/session.h"
#include "probe/stack/python/api.h"
#include "probe/stack/python/walk.h"

// agent.py and agent_layouts.py, ending with a 0.
extern "C" const char vramscope_agent_source[] __attribute__((visibility("hidden")));

namespace vramscope::probe {

constinit TorchState g_torch;
constinit Agent g_agent;

namespace {

int64_t ThreadTimeNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

}  // namespace

void WorkTime::Start() {
  ticks_ = Now();
  ns_ = base::MonotonicNs();
  thread_ns_ = ThreadTimeNs();
}

int64_t WorkTime::ThreadNs() const {
  return ThreadTimeNs() - thread_ns_;
}

uint64_t WorkTime::Ticks() const {
  constexpr double kLeastShare = 1.0 / 8;
  const auto ticks = static_cast<double>(Now() - ticks_);
  const auto ns = static_cast<double>(base::MonotonicNs() - ns_ + 1);
  const double share = std::clamp(static_cast<double>(ThreadNs()) / ns, kLeastShare, 1.0);
  return static_cast<uint64_t>(ticks * share);
}

void NoteRuntime(const char* key, const char* value, size_t size_bytes) {
  RecordScope scope(Want::kAlways);
  if (scope)
    scope->Append(format::Runtime{.key = {key, std::strlen(key)}, .value = {value, size_bytes}});
}

void BeginBuilding(bool moves) {
  if (moves && !g_agent.moved.load(std::memory_order_relaxed))
    g_agent.moved.store(true, std::memory_order_relaxed);
  if (g_torch.names.load(std::memory_order_relaxed) != TorchNames::kOn)
    return;
  TorchNames on = TorchNames::kOn;
  if (g_torch.names.compare_exchange_strong(on, TorchNames::kBuilding, std::memory_order_acq_rel))
    g_agent.building_since_ns.store(base::MonotonicNs(), std::memory_order_relaxed);
}

namespace {

constexpr int kFreeRuns = 8;                        // a model is often found in several steps
constexpr int64_t kBuildingAfterNs = 100'000'000;   // what is built sooner runs soon
constexpr uint64_t kSavedRest = uint64_t{1} << 32;  // ticks: 1.5 s, or 4 of a slow clock
constexpr long kStepsToCheck = 8;
constexpr int kMaxFailures = 3;
constexpr int kPyFileInput = 257;  // Py_file_input

void SwitchOff(const char* why) {
  g_torch.names.store(TorchNames::kOff, std::memory_order_release);
  NoteRuntime("module names", why, std::strlen(why));
  CountLoss(format::Loss::kModuleNames);
}

// While torch.compile has the interpreter show it every new frame of this thread, the agent's are
// none of its business.
class CompilerPause {
 public:
  CompilerPause() {
    Object const module =
        g_api.PyDict_GetItemString(g_api.PyImport_GetModuleDict(), "torch._C._dynamo.eval_frame");
    if (module == nullptr)
      return;
    set_ = g_api.PyObject_GetAttrString(module, "set_eval_frame");
    if (set_ != nullptr)
      before_ = g_api.PyObject_CallFunctionObjArgs(set_, g_api.none, nullptr);
    if (before_ == nullptr)
      g_api.PyErr_Clear();
  }
  ~CompilerPause() {
    if (before_ != nullptr && before_ != g_api.none) {
      Object error[3];
      g_api.PyErr_Fetch(&error[0], &error[1], &error[2]);
      const Owned result(g_api.PyObject_CallFunctionObjArgs(set_, before_, nullptr));
      g_api.PyErr_Restore(error[0], error[1], error[2]);
    }
    const Owned release_before(before_), release_set(set_);
  }
  CompilerPause(const CompilerPause&) = delete;
  CompilerPause& operator=(const CompilerPause&) = delete;

 private:
  Object set_ = nullptr;
  Object before_ = nullptr;
};

// The end of the part that begins at `begin`: some definitions, which two empty lines separate.
const char* EndOfPart(const char* begin) {
  constexpr size_t kPartBytes = 4096;
  const size_t size = std::strlen(begin);
  const char* const end = size > kPartBytes ? std::strstr(begin + kPartBytes, "\n\n\n") : nullptr;
  return end != nullptr ? end : begin + size;
}

// Compiles and executes the agent part by part: Python compiles in one go, the whole in 20 ms.
bool Execute(Object globals) {
  const char* const source = vramscope_agent_source;
  const size_t size_bytes = std::strlen(source) + 1;
  void* const memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  char* const text = static_cast<char*>(memory);
  bool ok = true;
  for (const char *begin = source, *end = source; *begin != '\0' && ok; begin = end) {
    end = EndOfPart(begin);
    // Empty lines stand for the parts before it: its lines keep their numbers.
    char* const part =
        std::transform(source, begin, text, [](char c) { return c == '\n' ? c : ' '; });
    *std::copy(begin, end, part) = '\0';
    const Owned code(g_api.Py_CompileString(text, "<vramscope agent>", kPyFileInput));
    const Owned done(code ? g_api.PyEval_EvalCode(code.get(), globals, globals) : nullptr);
    ok = static_cast<bool>(done);
    GiveWay();
  }
  munmap(memory, size_bytes);
  return ok;
}

bool Build() {
  g_agent.known = g_api.PyDict_New();
  g_agent.roots = g_api.PyDict_New();
  g_agent.paths = g_api.PyDict_New();
  g_agent.watchers = g_api.PyDict_New();
  const Owned globals(g_api.PyDict_New());
  if (g_agent.known == nullptr || g_agent.roots == nullptr || g_agent.paths == nullptr ||
      g_agent.watchers == nullptr || !globals || !StepsPrepare())
    return false;
  const auto put = [&](const char* name, Object value) {
    return value != nullptr && g_api.PyDict_SetItemString(globals.get(), name, value) == 0;
  };
  const Owned own_name(g_api.PyUnicode_InternFromString("_vramscope_agent"));
  const bool ok = put("__builtins__", g_api.PyEval_GetBuiltins()) &&
                  put("__name__", own_name.get()) &&
                  put("modules", g_api.PyImport_GetModuleDict()) && put("known", g_agent.known) &&
                  put("roots", g_agent.roots) && put("paths", g_agent.paths);
  if (!ok || !PutBuiltins(globals.get()) || !Execute(globals.get()))
    return false;
  g_agent.look = g_api.PyDict_GetItemString(globals.get(), "run_look");
  g_agent.search = g_api.PyDict_GetItemString(globals.get(), "run_search");
  g_agent.check = g_api.PyDict_GetItemString(globals.get(), "run_check");
  g_agent.last = g_api.PyDict_GetItemString(globals.get(), "run_last");
  for (Object const function : {g_agent.look, g_agent.search, g_agent.check, g_agent.last}) {
    if (function == nullptr)
      return false;
    g_api.Py_IncRef(function);
  }
  return true;
}

enum class Outcome : long {
  kFailed = -1,
  kLater = 0,  // PyTorch was busy
  kDone = 1,
};

// Calls one of the agent's functions; `argument` may be null. False if an exception of the
// program's is set.
bool CallAgent(Object function, Object argument, Outcome* outcome) {
  *outcome = Outcome::kFailed;
  const Owned result(g_api.PyObject_CallFunctionObjArgs(function, argument, nullptr));
  if (result) {
    *outcome = static_cast<Outcome>(g_api.PyLong_AsLong(result.get()));
    return true;
  }
  if (ExceptionIsOfProgram())
    return false;
  g_api.PyErr_Clear();
  return true;
}

enum class Run { kLook, kBuilding, kSearch, kCheck, kLast };

// Each kind rests for itself.
void Rest(Run run, uint64_t worked, uint64_t ended) {
  if (run == Run::kBuilding || run == Run::kCheck) {
    std::atomic<uint64_t>& due = run == Run::kBuilding ? g_agent.next_building : g_agent.next_check;
    // A model that is moved now and then gets its names at once: unused rest is saved.
    const uint64_t saved = ended > kSavedRest ? ended - kSavedRest : 0;
    const uint64_t next = due.load(std::memory_order_relaxed);
    due.store((next > saved ? next : saved) + kRestFactor * worked, std::memory_order_relaxed);
    return;
  }
  const bool is_free = ++g_agent.runs <= kFreeRuns;
  std::atomic<uint64_t>& next = run == Run::kSearch ? g_agent.next_search : g_agent.next_look;
  next.store(ended + (is_free ? 0 : kRestFactor * worked), std::memory_order_relaxed);
}

bool RunAgent(Run run, Object argument, Outcome* outcome) {
  *outcome = Outcome::kLater;
  if (g_agent.running)
    return true;
  const CollectorPause collector;
  g_agent.running = true;
  Object error[3];
  g_api.PyErr_Fetch(&error[0], &error[1], &error[2]);
  g_agent.scanned = 0;
  WorkTime work;
  work.Start();
  bool ok = true;
  {
    const TracingPause tracing;
    const CompilerPause pause;
    if (!g_agent.built) {
      g_agent.built = true;
      if (!Build()) {
        SwitchOff("off: the agent could not be made");
        ok = g_api.PyErr_Occurred() == nullptr || !ExceptionIsOfProgram();
        if (ok)
          g_api.PyErr_Clear();
      }
    }
    Object const function = run == Run::kSearch  ? g_agent.search
                            : run == Run::kCheck ? g_agent.check
                            : run == Run::kLast  ? g_agent.last
                                                 : g_agent.look;
    if (ok && function != nullptr)
      ok = CallAgent(function, argument, outcome);
  }
  t_thread.busy = 0;  // whatever happened while it was set
  NamesSurvey(false);
  NamesSayAgain(false);
  // A transform, say, is at work: once it is over, the modules that ran in it are looked for.
  if (*outcome == Outcome::kLater && ok && g_agent.module_wanted.load(std::memory_order_relaxed))
    BeginBuilding(false);
  if (*outcome == Outcome::kFailed && ok && ++g_agent.failures == kMaxFailures)
    SwitchOff("off: the agent failed");
  if (*outcome == Outcome::kDone && run != Run::kCheck)
    g_agent.gradients_wanted.store(false, std::memory_order_relaxed);
  if (*outcome == Outcome::kDone && g_torch.names.load() == TorchNames::kWaiting) {
    g_torch.names.store(TorchNames::kOn, std::memory_order_release);
    g_agent.runs = 0;  // those that found `import torch` under way do not delay the first names
  }
  const uint64_t worked = work.Ticks();
  Rest(run, worked > g_agent.scanned ? worked - g_agent.scanned : 0, Now());
  if (ok) {
    g_api.PyErr_Restore(error[0], error[1], error[2]);
  } else {
    const Owned first(error[0]), second(error[1]), third(error[2]);
  }
  g_agent.running = false;
  return ok;
}

int RunPending(void*) {
  Outcome outcome = Outcome::kLater;
  const Run run = g_agent.look_asked.exchange(false) ? Run::kLook : Run::kBuilding;
  const bool ok = !AgentMayRecord() || RunAgent(run, nullptr, &outcome);
  g_agent.asked.store(false, std::memory_order_release);
  return ok ? 0 : -1;
}

// Nothing has a name in the next file.
void Forget() {
  g_agent.next_look.store(0, std::memory_order_relaxed);
  g_agent.next_search.store(0, std::memory_order_relaxed);
  g_agent.next_building.store(0, std::memory_order_relaxed);
  g_agent.next_scan.store(0, std::memory_order_relaxed);
  g_agent.next_check.store(0, std::memory_order_relaxed);
  g_agent.next_walk.store(0, std::memory_order_relaxed);
  g_agent.walk_rested.store(0, std::memory_order_relaxed);
  g_agent.walk_gap = g_agent.scan_gap = 1;
  g_agent.steps_to_check = 0;
  g_agent.runs = 0;
  for (void* const set : {static_cast<void*>(g_torch.modules), static_cast<void*>(g_torch.named)}) {
    if (set != nullptr)
      madvise(set, sizeof(TorchSet), MADV_DONTNEED);  // zeros again
  }
  NamesForget();
  StepsForget();
}

void ForgetSession() {
  g_agent.held.store(true, std::memory_order_relaxed);
  if (g_torch.modules != nullptr)
    NamesRelease();
  Forget();
}

void ForkedChild() {
  CollectorForked();
  if (g_torch.modules == nullptr)
    return;
  g_agent.asked.store(false, std::memory_order_relaxed);
  g_agent.running = false;
  Forget();
}

// Names for all memory that exists are searched.
void BeginLate() {
  g_agent.survey_wanted.store(FindLoadedLibrary("libc10.so") != nullptr, std::memory_order_relaxed);
}

void ObserveOpening(const Opening& opening) {
  if (!opening.in_namespace)
    TorchObserveOpening(opening.file);
}

bool BeforePythonExit() {
  TorchLookLast();
  return g_api.PyErr_Occurred() == nullptr;
}

// Has the next event below a module ask for a walk, if one is due.
void OnAnchor() {
  if (g_torch.names.load(std::memory_order_relaxed) < TorchNames::kOn || !IsPast(g_agent.next_walk))
    return;
  g_agent.walk_due.store(true, std::memory_order_relaxed);
  g_torch.modules->LookAnew();
}

bool Prepare() {
  if (!g_api.Load() || !NamesPrepare())
    return false;
  const auto make = [] {
    void* const memory = mmap(nullptr, sizeof(TorchSet), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED ? static_cast<TorchSet*>(memory) : nullptr;
  };
  TorchSet* const named = make();
  g_torch.modules = make();
  if (named == nullptr || g_torch.modules == nullptr)
    return false;
  g_torch.named.store(named, std::memory_order_release);
  g_on_anchor.store(OnAnchor, std::memory_order_relaxed);
  g_before_python_exit.store(BeforePythonExit, std::memory_order_release);
  return true;
}

}  // namespace

const Source kTorchSource = {.opening = ObserveOpening,
                             .begin_late = BeginLate,
                             .forget = ForgetSession,
                             .forked = ForkedChild};

namespace {

void AskForRun() {
  if (!AgentMayRecord() || g_agent.asked.exchange(true, std::memory_order_acq_rel))
    return;
  if (g_api.Py_AddPendingCall(RunPending, nullptr) != 0)
    g_agent.asked.store(false, std::memory_order_release);
}

}  // namespace

void TorchLook() {
  g_agent.held.store(false, std::memory_order_relaxed);
  Outcome outcome = Outcome::kLater;
  if (AgentMayRecord())
    RunAgent(Run::kLook, nullptr, &outcome);
}

void TorchLookLast() {
  Outcome outcome = Outcome::kLater;
  if (g_agent.last == nullptr || !AgentMayRecord())
    return;
  // Steps name the gradients of what an optimizer has, not those of what none has.
  g_agent.gradients_wanted.store(true, std::memory_order_relaxed);
  RunAgent(Run::kLast, nullptr, &outcome);
}

bool AgentMayRecord() {
  return g_torch.names.load(std::memory_order_relaxed) != TorchNames::kOff &&
         !g_agent.held.load(std::memory_order_relaxed) && !TeardownBegan() && !SessionIsOff();
}

Object AgentCall(Object function, Object argument, bool* interrupted) {
  const CollectorPause collector;
  Object result = nullptr;
  {
    const TracingPause tracing;
    const CompilerPause pause;
    result = g_api.PyObject_CallFunctionObjArgs(function, argument, nullptr);
  }
  t_thread.busy = 0;  // whatever happened while it was set
  if (result != nullptr)
    return result;
  *interrupted = ExceptionIsOfProgram();
  if (!*interrupted)
    g_api.PyErr_Clear();
  return nullptr;
}

bool AgentSearch(Object tensors, bool* interrupted) {
  if (g_agent.search == nullptr || g_agent.running || !IsPast(g_agent.next_search))
    return false;
  Outcome outcome = Outcome::kLater;
  *interrupted = !RunAgent(Run::kSearch, tensors, &outcome);
  return outcome != Outcome::kLater;
}

void AgentBeforeStep(bool* interrupted) {
  if (--g_agent.steps_to_check > 0 || g_agent.check == nullptr || g_agent.running ||
      !IsPast(g_agent.next_check))
    return;
  g_agent.steps_to_check = kStepsToCheck;  // where PyTorch is busy now
  Outcome outcome = Outcome::kLater;
  *interrupted = !RunAgent(Run::kCheck, nullptr, &outcome);
}

void TorchObserveOpening(const char* file) {
  static constinit std::atomic<bool> prepared{false};
  if (!g_python.ready.load(std::memory_order_acquire) || std::strstr(file, "torch") == nullptr)
    return;
  if (!prepared.exchange(true)) {
    if (!Prepare())
      return SwitchOff("off: parts of Python's C API are missing");
    g_torch.names.store(TorchNames::kWaiting, std::memory_order_release);
  }
  // `import torch` is under way: the agent will wait for its end.
  if (g_torch.names.load(std::memory_order_relaxed) == TorchNames::kWaiting)
    TorchAsk();
}

VRAMSCOPE_NOINLINE void TorchNamedIsFreed() {
  const uint64_t rested = g_agent.walk_rested.load(std::memory_order_relaxed);
  if (rested < g_agent.next_walk.load(std::memory_order_relaxed))
    g_agent.next_walk.store(rested, std::memory_order_relaxed);
  OnAnchor();
}

VRAMSCOPE_NOINLINE void TorchBackwardEnded() {
  g_torch.in_backward.store(false, std::memory_order_relaxed);
  const uint32_t ended = g_torch.backwards_since_step.fetch_add(1, std::memory_order_relaxed) + 1;
  if (ended < 2 && g_torch.steps_seen.load(std::memory_order_relaxed))
    return;
  g_agent.gradients_wanted.store(true, std::memory_order_relaxed);
  TorchAsk();
}

void TorchObserveGraph(bool captured) {
  if (captured)
    g_agent.pools_wanted.store(true, std::memory_order_relaxed);
  if (g_agent.pools_wanted.load(std::memory_order_relaxed) &&
      g_torch.names.load(std::memory_order_relaxed) >= TorchNames::kOn)
    TorchAsk();
}

VRAMSCOPE_NOINLINE void TorchAsk() {
  if (g_agent.asked.load(std::memory_order_relaxed) || !IsPast(g_agent.next_look))
    return;
  g_agent.look_asked.store(true, std::memory_order_relaxed);
  AskForRun();
}

VRAMSCOPE_NOINLINE void TorchAskForModule() {
  if (g_torch.names.load(std::memory_order_relaxed) >= TorchNames::kOn)
    g_agent.module_wanted.store(true, std::memory_order_relaxed);
  TorchAsk();
}

VRAMSCOPE_NOINLINE bool TorchKnowsModuleOf(KnownStack* known, uint32_t seen) {
  const uintptr_t module = known->module & ~kSetUp;
  const bool moves = (known->module & kSetUpMoves) != 0;
  const bool builds_first = (known->module & kSetUpBuilds) != 0 && known->modules_seen == 0;
  if (moves || builds_first)
    BeginBuilding(moves);
  if (module != 0 && !g_torch.modules->Contains(module))
    return false;
  if (!moves)
    known->modules_seen = seen;
  if (g_agent.walk_due.load(std::memory_order_relaxed))
    AskForRun();
  return true;
}

VRAMSCOPE_NOINLINE void TorchAskBuilding(bool in_set_up) {
  if (g_agent.asked.load(std::memory_order_relaxed) || !IsPast(g_agent.next_building))
    return;
  const int64_t since_ns = g_agent.building_since_ns.load(std::memory_order_relaxed);
  if (!in_set_up || g_agent.refused.load(std::memory_order_relaxed) ||
      base::MonotonicNs() - since_ns >= kBuildingAfterNs)
    AskForRun();
}

bool TorchObserveRefusal() {
  if (g_torch.names.load(std::memory_order_relaxed) < TorchNames::kOn)
    return true;
  g_agent.refused.store(true, std::memory_order_relaxed);
  BeginBuilding(false);
  // A program that is refused memory again and again: the scan rests, and so do these looks then.
  if (IsPast(g_agent.next_scan))
    g_agent.next_building.store(0, std::memory_order_relaxed);
  TorchAskBuilding(true);
  uintptr_t module = 0;
  const void* const thread_state = g_python.this_thread_state();
  return thread_state == nullptr || ModulesInSetUp(thread_state, &module, 1) == 0;
}

}  // namespace vramscope::probe
