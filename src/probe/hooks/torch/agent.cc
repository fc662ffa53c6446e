// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/agent.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstring>

#include "base/clock.h"
#include "probe/hooks/torch/autograd.h"
#include "probe/hooks/torch/names.h"
#include "probe/hooks/torch/torch.h"
#include "probe/platform/dynamic.h"
#include "probe/platform/safe_reader.h"
#include "probe/session/exit.h"
#include "probe/stack/python_walk.h"

// agent.py, ending with a 0.
extern "C" const char vramscope_agent_source[] __attribute__((visibility("hidden")));

namespace vramscope::probe {

constinit TorchState g_torch;

namespace {

constexpr int kFreeRuns = 8;                       // a model is often found in several steps
constexpr uint64_t kRestFactor = 100;              // after a run of 1 ms there is none for 100 ms
constexpr int64_t kBuildingAfterNs = 100'000'000;  // what is built sooner runs soon
constexpr int64_t kScanAfterNs = 1'000'000'000;    // a model that takes longer to build
constexpr int kMaxFailures = 3;
constexpr int kPyFileInput = 257;  // Py_file_input
constexpr size_t kMaxRunning = 256;

struct Agent {
  std::atomic<bool> asked{false};
  // Searches can be long: they rest by themselves, so that they keep nothing else waiting.
  // In ticks: an event may look again and again, and asking the system takes as long as an event.
  std::atomic<uint64_t> next_look{0}, next_search{0};
  // Looks for models that are being built have a share of their own, so that the first forward
  // never waits for them; so have scans of all that lives.
  std::atomic<uint64_t> next_building{0}, next_scan{0};
  std::atomic<bool> look_asked{false};  // not only for a model that is being built
  std::atomic<int64_t> building_since_ns{0};
  uint64_t scan_began = 0;
  std::atomic<bool> refused{false};  // memory, since the last look
  bool built = false;
  bool running = false;  // under the GIL, but a run may let go of it
  std::atomic<bool> gradients_wanted{false};
  std::atomic<bool> survey_wanted{false};
  std::atomic<bool> pools_wanted{false};  // a graph was captured since private pools were looked at
  int runs = 0;
  int failures = 0;
  Object look = nullptr, search = nullptr;
  Object known = nullptr;  // the agent's dict: address -> (weakref, root, path)
};
constinit Agent g_agent;

void Note(const char* key, const char* value, size_t size_bytes) {
  RecordScope scope(Want::kAlways);
  if (scope)
    scope->Append(format::Runtime{.key = {key, std::strlen(key)}, .value = {value, size_bytes}});
}

bool IsPast(const std::atomic<uint64_t>& ticks) {
  return Now() >= ticks.load(std::memory_order_relaxed);
}

// A stack that is new builds or moves a module, or memory was refused.
void BeginBuilding() {
  TorchNames on = TorchNames::kOn;
  if (g_torch.names.compare_exchange_strong(on, TorchNames::kBuilding, std::memory_order_acq_rel))
    g_agent.building_since_ns.store(base::MonotonicNs(), std::memory_order_relaxed);
}

void SwitchOff(const char* why) {
  g_torch.names.store(TorchNames::kOff, std::memory_order_release);
  Note("module names", why, std::strlen(why));
  CountLoss(format::Loss::kModuleNames);
}

// ---- what the agent can call --------------------------------------------------------------------

Object Suppress(Object, Object flag) {
  // The agent's own tensors are no part of the program.
  t_thread.busy = g_api.PyLong_AsLong(flag) != 0 ? kSuppressed : 0;
  return g_api.None();
}

Object NoteText(Object, Object arguments) {
  size_t key_size = 0, size = 0;
  const char* const key = g_api.Text(Argument(arguments, 0), &key_size);
  const char* const value = g_api.Text(Argument(arguments, 1), &size);
  Note(key, value, size);
  return g_api.None();
}

Object Lost(Object, Object name) {
  size_t size = 0;
  const char* const text = g_api.Text(name, &size);
  CountLoss(std::strcmp(text, "autograd") == 0 ? format::Loss::kAutogradNodes
                                               : format::Loss::kModuleNames);
  return g_api.None();
}

// `import torch` ends here, once, so this waits for no rest after the runs that found it under way.
Object Ask(Object, Object) {
  g_agent.next_look.store(0, std::memory_order_relaxed);
  TorchAsk();
  return g_api.None();
}

// Whether the walk sees that the calling function is named `forward` and has `self` as its first
// argument: read with care, because this is the proof that the offsets are right.
Object IsFirstArgument(Object, Object self) {
  const SafeReader reader;
  const PythonLayout& layout = g_python.layout;
  Object const name = g_api.PyUnicode_InternFromString("forward");
  const char* cursor = InnermostPythonFrame(layout, reader, g_python.this_thread_state());
  const char* at = cursor;
  RawPythonFrame frame{};
  bool is_python = false;
  while (cursor != nullptr && !is_python) {
    at = cursor;
    is_python = StepPythonFrame(layout, reader, &cursor, &frame);
  }
  uint64_t code_name = 0, first = 0;
  const bool same = is_python && reader.Get(frame.code + layout.code_name, &code_name) &&
                    reader.Get(at + layout.frame_locals, &first) &&
                    reinterpret_cast<Object>(code_name) == name &&
                    reinterpret_cast<Object>(Untagged(first)) == self;
  g_api.Py_DecRef(name);
  return g_api.Truth(same);
}

// use_frames(name, module type, its mro, code of Module._apply, a cell, what is in it): from here
// on the walk tells modules, which the method `name` is called with.
Object UseFrames(Object, Object arguments) {
  size_t size = 0;
  const char* const call = g_api.Text(Argument(arguments, 0), &size);
  const auto* const type = static_cast<const char*>(Argument(arguments, 1));
  const auto* const mro = static_cast<const char*>(Argument(arguments, 2));
  const SafeReader reader;
  PythonModules& modules = g_python_modules;
  const auto find = [&](const char* base, const char* value, uint32_t limit, uint32_t* offset) {
    for (*offset = 24; *offset < limit; *offset += 8) {
      const char* word = nullptr;
      if (!reader.Get(base + *offset, &word))
        return false;
      if (word == value)
        return true;
    }
    return false;
  };
  if (mro == nullptr || !find(type, mro, 512, &modules.type_mro) ||
      !find(mro, type, 48, &modules.tuple_items)) {
    return g_api.Truth(false);
  }
  g_api.Py_IncRef(const_cast<char*>(type));
  modules.type = type;
  Object const move = Argument(arguments, 3);
  g_api.Py_IncRef(move);
  modules.move = static_cast<const char*>(move);
  const char* const cell = static_cast<const char*>(Argument(arguments, 4));
  const void* content = nullptr;
  if (reader.Get(cell + kCellContent, &content) && content == Argument(arguments, 5))
    modules.cell_type = ReadAt<const char*>(cell, kObjectType);
  modules.on_set_up = BeginBuilding;
  const auto intern = [](const char* text) {
    return static_cast<const char*>(g_api.PyUnicode_InternFromString(text));
  };
  modules.constructor = intern("__init__");
  modules.forward.store(intern("forward"), std::memory_order_relaxed);
  modules.call.store(intern(call), std::memory_order_release);
  return g_api.Truth(true);
}

Object UseTensors(Object, Object arguments) {
  return g_api.Truth(CalibrateTensors(Argument(arguments, 0), Argument(arguments, 1)));
}

Object UseSparse(Object, Object samples) {
  return g_api.Truth(CalibrateSparse(samples));
}

Object UseNodes(Object, Object samples) {
  return g_api.PyLong_FromLong(CalibrateAutograd(samples));
}

// A list for each thread that has any of these modules, the outermost first.
template <size_t (*kModulesOf)(const void*, uintptr_t*, size_t)>
Object ModulesByThread() {
  Object const threads = g_api.PyList_New(0);
  if (threads == nullptr)
    return nullptr;
  Object state = g_api.PyInterpreterState_ThreadHead(g_api.PyInterpreterState_Get());
  for (; state != nullptr; state = g_api.PyThreadState_Next(state)) {
    uintptr_t modules[kMaxRunning];
    size_t count = kModulesOf(state, modules, kMaxRunning);
    if (count == 0)
      continue;
    const Owned chain(g_api.PyList_New(0));
    while (chain && count-- != 0)
      g_api.PyList_Append(chain.get(), reinterpret_cast<Object>(modules[count]));
    if (chain)
      g_api.PyList_Append(threads, chain.get());
  }
  return threads;
}

// running(): the modules that run.
Object Running(Object, Object) {
  return ModulesByThread<RunningModules>();
}

// in_set_up(): the modules that are being built or moved. None where no such look is due.
Object InSetUp(Object, Object) {
  if (g_torch.names.load(std::memory_order_relaxed) != TorchNames::kBuilding)
    return g_api.None();
  Object const threads = ModulesByThread<ModulesInSetUp>();
  if (threads != nullptr && g_api.PyList_Size(threads) == 0) {
    TorchNames building = TorchNames::kBuilding;
    g_torch.names.compare_exchange_strong(building, TorchNames::kOn);
  }
  return threads;
}

// scan_is_due(whether any is built): whether all that lives is to be looked through for modules
// that nothing leads to yet, such as the layers in a list that is being made.
Object ScanIsDue(Object, Object builds) {
  const int64_t since_ns = g_agent.building_since_ns.load(std::memory_order_relaxed);
  const bool wanted =
      g_agent.refused.exchange(false) ||
      (g_api.PyLong_AsLong(builds) != 0 && base::MonotonicNs() - since_ns >= kScanAfterNs);
  g_agent.scan_began = Now();
  return g_api.Truth(wanted && IsPast(g_agent.next_scan));
}

Object ScanEnded(Object, Object) {
  const uint64_t now = Now();
  g_agent.next_scan.store(now + kRestFactor * (now - g_agent.scan_began),
                          std::memory_order_relaxed);
  return g_api.None();
}

Object IsModuleObject(Object, Object object) {
  return g_api.Truth(g_python_modules.type != nullptr && IsModule(static_cast<char*>(object)));
}

Object IsKnown(Object, Object module) {
  return g_api.Truth(g_torch.modules->Contains(reinterpret_cast<uintptr_t>(module)));
}

Object ModuleGone(Object address, Object) {
  const auto object = reinterpret_cast<uintptr_t>(g_api.PyLong_AsVoidPtr(address));
  g_torch.modules->Erase(object);
  if (g_api.PyDict_DelItem(g_agent.known, address) != 0)
    g_api.PyErr_Clear();
  if (!AgentMayRecord())
    return g_api.None();
  if (RecordScope scope(Want::kAlways); scope)
    scope->Append(format::ModuleGone{.time = Now(), .object = object});
  return g_api.None();
}

constinit PyMethodDef g_module_gone = {"module_gone", ModuleGone, kMethO, nullptr};

// A weak reference that tells when the module dies. It runs no Python.
Object WatchModule(Object, Object module) {
  const Owned address(g_api.PyLong_FromVoidPtr(module));
  const Owned gone(g_api.PyCFunction_NewEx(&g_module_gone, address.get(), nullptr));
  return gone ? g_api.PyWeakref_NewRef(module, gone.get()) : nullptr;
}

// note_module(module, root's address, path, whether it is whole): of one that is half built more is
// to be said once it runs.
Object NoteModule(Object, Object arguments) {
  Object const module = Argument(arguments, 0);
  const auto address = reinterpret_cast<uintptr_t>(module);
  void* const root = g_api.PyLong_AsVoidPtr(Argument(arguments, 1));
  if (RecordScope scope(Want::kAlways); scope) {
    const uint32_t path = InternText(*scope, Argument(arguments, 2));
    const uint32_t type = InternTypeName(*scope, module);
    scope->Append(format::Module{.time = Now(),
                                 .object = address,
                                 .root = reinterpret_cast<uintptr_t>(root),
                                 .path = path,
                                 .type = type});
    if (g_api.PyLong_AsLong(Argument(arguments, 3)) != 0)
      g_torch.modules->Insert(address);
  }
  return g_api.None();
}

// The module has no name and will get none.
Object IgnoreModule(Object, Object module) {
  g_torch.modules->Insert(reinterpret_cast<uintptr_t>(module));
  return g_api.None();
}

Object BeginWalk(Object, Object) {
  NamesBeginWalk();
  return g_api.None();
}

// note_tensor(kind, root's address, name, tensor, whether the module is whole): its parameter or
// buffer. Gradients and state take no name of a half-built one.
Object NoteTensor(Object, Object arguments) {
  const auto kind = static_cast<format::NameKind>(g_api.PyLong_AsLong(Argument(arguments, 0)));
  const auto owner = reinterpret_cast<uintptr_t>(g_api.PyLong_AsVoidPtr(Argument(arguments, 1)));
  Object const name = Argument(arguments, 2);
  Object const tensor = Argument(arguments, 3);
  const uintptr_t impl = tensor != nullptr ? TensorImplOf(tensor) : 0;
  Storage storage;
  if (impl == 0 || !StorageOf(impl, &storage))
    return g_api.None();
  const bool whole = g_api.PyLong_AsLong(Argument(arguments, 4)) != 0;
  Parameter* const parameter = kind == format::NameKind::kParameter && whole
                                   ? AddParameter(tensor, impl, owner, name, storage, true)
                                   : nullptr;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return g_api.None();
  WriteNameIfNew(*scope, kind, owner, 0, name, nullptr, storage);
  const bool with_gradient = g_agent.gradients_wanted || NamesInSurvey();
  if (parameter != nullptr && with_gradient)
    WriteGradient(*scope, Now(), impl, parameter);
  return g_api.None();
}

Object GradientsWanted(Object, Object) {
  return g_api.Truth(g_agent.gradients_wanted);
}

Object PoolsWanted(Object, Object) {
  return g_api.Truth(g_agent.pools_wanted.exchange(false));
}

// note_private_pool(address of a segment, the pool's id as text)
Object NotePrivatePool(Object, Object arguments) {
  const auto address = reinterpret_cast<uintptr_t>(g_api.PyLong_AsVoidPtr(Argument(arguments, 0)));
  RecordScope scope(Want::kAlways);
  if (scope && address != 0) {
    const uint32_t name = InternText(*scope, Argument(arguments, 1));
    scope->Append(format::Name{.time = Now(),
                               .address = address,
                               .device = format::kNoDevice,
                               .kind = static_cast<uint64_t>(format::NameKind::kPrivatePool),
                               .name = name});
  }
  return g_api.None();
}

// Whether all that stands is to be named, which is so once for each recording of a process under
// way.
Object Begins(Object, Object) {
  return g_api.Truth(g_agent.survey_wanted.exchange(false));
}

Object Surveys(Object, Object flag) {
  NamesSurvey(g_api.PyLong_AsLong(flag) != 0);
  return g_api.None();
}

Object HasName(Object, Object tensor) {
  const uintptr_t impl = TensorImplOf(tensor);
  const Parameter* const parameter = impl != 0 ? FindParameter(tensor, impl) : nullptr;
  return g_api.Truth(parameter != nullptr && parameter->owner != 0);
}

constinit PyMethodDef g_builtins[] = {
    {"suppress", Suppress, kMethO, nullptr},
    {"note", NoteText, kMethVarArgs, nullptr},
    {"lost", Lost, kMethO, nullptr},
    {"ask", Ask, kMethNoArgs, nullptr},
    {"is_first_argument", IsFirstArgument, kMethO, nullptr},
    {"use_frames", UseFrames, kMethVarArgs, nullptr},
    {"use_tensors", UseTensors, kMethVarArgs, nullptr},
    {"use_sparse", UseSparse, kMethO, nullptr},
    {"use_nodes", UseNodes, kMethO, nullptr},
    {"running", Running, kMethNoArgs, nullptr},
    {"in_set_up", InSetUp, kMethNoArgs, nullptr},
    {"scan_is_due", ScanIsDue, kMethO, nullptr},
    {"scan_ended", ScanEnded, kMethNoArgs, nullptr},
    {"is_module", IsModuleObject, kMethO, nullptr},
    {"is_known", IsKnown, kMethO, nullptr},
    {"watch_module", WatchModule, kMethO, nullptr},
    {"note_module", NoteModule, kMethVarArgs, nullptr},
    {"ignore_module", IgnoreModule, kMethO, nullptr},
    {"begin_walk", BeginWalk, kMethNoArgs, nullptr},
    {"note_tensor", NoteTensor, kMethVarArgs, nullptr},
    {"has_name", HasName, kMethO, nullptr},
    {"gradients_wanted", GradientsWanted, kMethNoArgs, nullptr},
    {"pools_wanted", PoolsWanted, kMethNoArgs, nullptr},
    {"note_private_pool", NotePrivatePool, kMethVarArgs, nullptr},
    {"begins", Begins, kMethNoArgs, nullptr},
    {"surveys", Surveys, kMethO, nullptr},
    {"name_optimizer", NameOptimizer, kMethO, nullptr},
    {"step_begin", StepBegin, kMethO, nullptr},
    {"step_end", StepEnd, kMethO, nullptr},
};

// ---- running it ---------------------------------------------------------------------------------

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

bool Build() {
  g_agent.known = g_api.PyDict_New();
  const Owned globals(g_api.PyDict_New());
  if (g_agent.known == nullptr || !globals || !StepsPrepare())
    return false;
  const auto put = [&](const char* name, Object value) {
    return value != nullptr && g_api.PyDict_SetItemString(globals.get(), name, value) == 0;
  };
  const Owned own_name(g_api.PyUnicode_InternFromString("_vramscope_agent"));
  bool ok = put("__builtins__", g_api.PyEval_GetBuiltins()) && put("__name__", own_name.get()) &&
            put("modules", g_api.PyImport_GetModuleDict()) && put("known", g_agent.known);
  for (PyMethodDef& method : g_builtins) {
    const Owned function(g_api.PyCFunction_NewEx(&method, nullptr, nullptr));
    ok = ok && put(method.name, function.get());
  }
  if (!ok)
    return false;
  const Owned code(
      g_api.Py_CompileString(vramscope_agent_source, "<vramscope agent>", kPyFileInput));
  if (!code)
    return false;
  const Owned done(g_api.PyEval_EvalCode(code.get(), globals.get(), globals.get()));
  if (!done)
    return false;
  g_agent.look = g_api.PyDict_GetItemString(globals.get(), "run_look");
  g_agent.search = g_api.PyDict_GetItemString(globals.get(), "run_search");
  if (g_agent.look == nullptr || g_agent.search == nullptr)
    return false;
  g_api.Py_IncRef(g_agent.look);
  g_api.Py_IncRef(g_agent.search);
  return true;
}

enum class Outcome : long {
  kFailed = -1,
  kLater = 0,  // PyTorch was busy
  kDone = 1,
};

// Whether the exception that is set came out of a signal handler of the program's, which can run
// between any two instructions of the agent's. The agent lets no other out; what was raised before
// its first instruction is ours.
bool IsOfProgram() {
  if (g_api.PyErr_ExceptionMatches(*g_api.exception_type) == 0)
    return true;  // KeyboardInterrupt, SystemExit
  Object type = nullptr, value = nullptr, traceback = nullptr;
  g_api.PyErr_Fetch(&type, &value, &traceback);
  const bool entered = traceback != nullptr;
  g_api.PyErr_Restore(type, value, traceback);
  return entered;
}

// Calls one of the agent's functions; `argument` may be null. False where an exception of the
// program's is set.
bool CallAgent(Object function, Object argument, Outcome* outcome) {
  *outcome = Outcome::kFailed;
  const Owned result(g_api.PyObject_CallFunctionObjArgs(function, argument, nullptr));
  if (result) {
    *outcome = static_cast<Outcome>(g_api.PyLong_AsLong(result.get()));
    return true;
  }
  if (IsOfProgram())
    return false;
  g_api.PyErr_Clear();
  return true;
}

enum class Run { kLook, kBuilding, kSearch };

// Each kind rests for itself.
void Rest(Run run, uint64_t began, uint64_t ended) {
  const bool is_free = run != Run::kBuilding && ++g_agent.runs <= kFreeRuns;
  std::atomic<uint64_t>& next = run == Run::kBuilding ? g_agent.next_building
                                : run == Run::kSearch ? g_agent.next_search
                                                      : g_agent.next_look;
  next.store(ended + (is_free ? 0 : kRestFactor * (ended - began)), std::memory_order_relaxed);
}

bool RunAgent(Run run, Object argument, Outcome* outcome) {
  *outcome = Outcome::kLater;
  if (g_agent.running)
    return true;
  g_agent.running = true;
  Object error[3];
  g_api.PyErr_Fetch(&error[0], &error[1], &error[2]);
  const uint64_t began = Now();
  Object const thread = g_api.PyThreadState_Get();
  const bool can_hide =
      g_api.PyThreadState_EnterTracing != nullptr && g_api.PyThreadState_LeaveTracing != nullptr;
  if (can_hide)
    g_api.PyThreadState_EnterTracing(thread);
  bool ok = true;
  {
    const CompilerPause pause;
    if (!g_agent.built) {
      g_agent.built = true;
      if (!Build()) {
        SwitchOff("off: the agent could not be made");
        ok = g_api.PyErr_Occurred() == nullptr || !IsOfProgram();
        if (ok)
          g_api.PyErr_Clear();
      }
    }
    Object const function = run == Run::kSearch ? g_agent.search : g_agent.look;
    if (ok && function != nullptr)
      ok = CallAgent(function, argument, outcome);
  }
  if (can_hide)
    g_api.PyThreadState_LeaveTracing(thread);
  t_thread.busy = 0;  // whatever happened while it was set
  NamesSurvey(false);
  if (*outcome == Outcome::kFailed && ok && ++g_agent.failures == kMaxFailures)
    SwitchOff("off: the agent failed");
  if (*outcome == Outcome::kDone)
    g_agent.gradients_wanted.store(false, std::memory_order_relaxed);
  if (*outcome == Outcome::kDone && g_torch.names.load() == TorchNames::kWaiting) {
    g_torch.names.store(TorchNames::kOn, std::memory_order_release);
    g_agent.runs = 0;  // those that found `import torch` under way do not delay the first names
  }
  Rest(run, began, Now());
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
  g_agent.runs = 0;
  if (g_torch.modules != nullptr)
    madvise(g_torch.modules, sizeof(ModuleSet), MADV_DONTNEED);  // zeros again
  NamesForget();
  StepsForget();
}

void ForkedChild() {
  if (g_torch.modules == nullptr)
    return;
  g_agent.asked.store(false, std::memory_order_relaxed);
  g_agent.running = false;
  Forget();
}

// The names of all that stands are looked for.
void BeginLate() {
  g_agent.survey_wanted.store(FindLoadedLibrary("libc10.so") != nullptr, std::memory_order_relaxed);
}

void ObserveOpening(const Opening& opening) {
  if (!opening.in_namespace)
    TorchObserveOpening(opening.file);
}

bool Prepare() {
  if (!g_api.Load() || !NamesPrepare())
    return false;
  void* const memory = mmap(nullptr, sizeof(ModuleSet), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return false;
  g_torch.modules = static_cast<ModuleSet*>(memory);
  return true;
}

}  // namespace

const Source kTorchSource = {.opening = ObserveOpening,
                             .begin_late = BeginLate,
                             .forget = Forget,
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
  Outcome outcome = Outcome::kLater;
  if (AgentMayRecord())
    RunAgent(Run::kLook, nullptr, &outcome);
}

bool AgentMayRecord() {
  return g_torch.names.load(std::memory_order_relaxed) != TorchNames::kOff && !TeardownBegan() &&
         !SessionIsOff();
}

bool AgentSearch(Object tensors, bool* interrupted) {
  if (g_agent.search == nullptr || g_agent.running || !IsPast(g_agent.next_search))
    return false;
  Outcome outcome = Outcome::kLater;
  *interrupted = !RunAgent(Run::kSearch, tensors, &outcome);
  return outcome != Outcome::kLater;
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

VRAMSCOPE_NOINLINE void TorchAskBuilding() {
  if (g_agent.asked.load(std::memory_order_relaxed) || !IsPast(g_agent.next_building))
    return;
  const int64_t since_ns = g_agent.building_since_ns.load(std::memory_order_relaxed);
  if (g_agent.refused.load(std::memory_order_relaxed) ||
      base::MonotonicNs() - since_ns >= kBuildingAfterNs)
    AskForRun();
}

bool TorchObserveRefusal() {
  if (g_torch.names.load(std::memory_order_relaxed) < TorchNames::kOn)
    return true;
  g_agent.refused.store(true, std::memory_order_relaxed);
  BeginBuilding();
  // A program that is refused memory again and again: the scan rests, and so do these looks then.
  if (IsPast(g_agent.next_scan))
    g_agent.next_building.store(0, std::memory_order_relaxed);
  TorchAskBuilding();
  uintptr_t module = 0;
  const void* const thread_state = g_python.this_thread_state();
  return thread_state == nullptr || ModulesInSetUp(thread_state, &module, 1) == 0;
}

}  // namespace vramscope::probe
