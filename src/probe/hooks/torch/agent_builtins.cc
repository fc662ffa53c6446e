// SPDX-License-Identifier: Apache-2.0
// The functions that agent.py can call: it finds names, and these functions write them.
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "probe/hooks/torch/agent.h"
#include "probe/hooks/torch/names.h"
#include "probe/hooks/torch/torch.h"
#include "probe/platform/dynamic.h"
#include "probe/stack/python/api.h"
#include "probe/stack/python/walk.h"

namespace vramscope::probe {
namespace {

constexpr int64_t kScanAfterNs = 1'000'000'000;  // a model that takes longer to build
constexpr int64_t kShortScan = 50'000'000;       // nanoseconds of the thread
constexpr size_t kMaxRunning = 256;
constexpr uint64_t kMostGap = 64;

Object Suppress(Object, Object flag) {
  // The agent's own tensors do not belong to the program.
  t_thread.busy = g_api.PyLong_AsLong(flag) != 0 ? kSuppressed : 0;
  return g_api.None();
}

Object NoteText(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  size_t key_size = 0, size = 0;
  const char* const key = g_api.Text(arguments[0], &key_size);
  const char* const value = g_api.Text(arguments[1], &size);
  NoteRuntime(key, value, size);
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
                    reinterpret_cast<Object>(Untagged(layout, first)) == self;
  g_api.Py_DecRef(name);
  return g_api.Truth(same);
}

// use_frames(name, module type, its mro, code of Module._apply, a cell, what is in it): from here
// on the walk tells modules, which the method `name` is called with.
Object UseFrames(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  size_t size = 0;
  const char* const call = g_api.Text(arguments[0], &size);
  const auto* const type = static_cast<const char*>(arguments[1]);
  const auto* const mro = static_cast<const char*>(arguments[2]);
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
  Object const move = arguments[3];
  g_api.Py_IncRef(move);
  modules.move = static_cast<const char*>(move);
  const char* const cell = static_cast<const char*>(arguments[4]);
  const void* content = nullptr;
  if (reader.Get(cell + kCellContent, &content) && content == arguments[5])
    modules.cell_type = ReadAt<const char*>(cell, kObjectType);
  const auto intern = [](const char* text) {
    return static_cast<const char*>(g_api.PyUnicode_InternFromString(text));
  };
  modules.constructor = intern("__init__");
  modules.forward.store(intern("forward"), std::memory_order_relaxed);
  modules.call.store(intern(call), std::memory_order_release);
  return g_api.Truth(true);
}

Object UseTensors(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  return g_api.Truth(CalibrateTensors(arguments[0], arguments[1]));
}

Object UseParts(Object, Object samples) {
  return g_api.Truth(CalibrateParts(samples));
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

// in_set_up(): the modules that are being built or moved. None if no such look is due.
Object InSetUp(Object, Object) {
  if (g_torch.names.load(std::memory_order_relaxed) != TorchNames::kBuilding)
    return g_api.None();
  const bool moved = g_agent.moved.exchange(false);
  NamesSayAgain(moved);
  Object const threads = ModulesByThread<ModulesInSetUp>();
  if (threads != nullptr && g_api.PyList_Size(threads) == 0) {
    TorchNames building = TorchNames::kBuilding;
    g_torch.names.compare_exchange_strong(building, TorchNames::kOn);
  } else if (moved) {
    g_agent.moved.store(true);  // not all of it yet
  }
  return threads;
}

// scan_is_due(why: 0 for a refusal alone, 1 where a model is built, 2 in any case, 3 at the end,
// where a short scan needs no rest): whether to scan all live objects for modules that are not
// reachable yet, such as the layers in a list that is being made.
Object ScanIsDue(Object, Object argument) {
  const long why = g_api.PyLong_AsLong(argument);
  const int64_t since_ns = g_agent.building_since_ns.load(std::memory_order_relaxed);
  const bool wanted = g_agent.refused.exchange(false) || why >= 2 ||
                      (why == 1 && base::MonotonicNs() - since_ns >= kScanAfterNs);
  g_agent.scan.Start();
  const bool is_short = why == 3 && g_agent.scan_ns < kShortScan;
  return g_api.Truth(wanted && (is_short || IsPast(g_agent.next_scan)));
}

// scan_ended(whether it found any)
Object ScanEnded(Object, Object has_found) {
  uint64_t& gap = g_agent.scan_gap;
  gap = g_api.PyLong_AsLong(has_found) != 0 ? 1 : gap < kMostGap ? 2 * gap : gap;
  g_agent.scan_ns = g_agent.scan.ThreadNs();
  const uint64_t ticks = g_agent.scan.Ticks();
  g_agent.scanned += ticks;
  g_agent.next_scan.store(Now() + gap * kRestFactor * ticks, std::memory_order_relaxed);
  return g_api.None();
}

// module_is_wanted(): whether one without a name ran since this was asked last.
Object ModuleIsWanted(Object, Object) {
  return g_api.Truth(g_agent.module_wanted.exchange(false));
}

// check_in(steps): that many steps from now the agent looks at buffers again.
Object CheckIn(Object, Object steps) {
  g_agent.steps_to_check = g_api.PyLong_AsLong(steps);
  return g_api.None();
}

// walk_is_due(): whether known models are to be walked for tensors that are others now.
Object WalkIsDue(Object, Object) {
  g_agent.walk.Start();
  return g_api.Truth(g_agent.walk_due.load(std::memory_order_relaxed));
}

// walk_ended(whether any was)
Object WalkEnded(Object, Object has_new) {
  uint64_t& gap = g_agent.walk_gap;
  gap = g_api.PyLong_AsLong(has_new) != 0 ? 1 : gap < kMostGap ? 2 * gap : gap;
  const uint64_t now = Now();
  const uint64_t rest = kRestFactor * g_agent.walk.Ticks();
  g_agent.next_walk.store(now + gap * rest, std::memory_order_relaxed);
  g_agent.walk_rested.store(now + rest, std::memory_order_relaxed);
  g_agent.walk_due.store(false, std::memory_order_relaxed);
  return g_api.None();
}

Object SayAgain(Object, Object flag) {
  NamesSayAgain(g_api.PyLong_AsLong(flag) != 0);
  return g_api.None();
}

Object IsModuleObject(Object, Object object) {
  return g_api.Truth(g_python_modules.type != nullptr && IsModule(static_cast<char*>(object)));
}

// Whether objects are of a class. Most objects are of a few types.
class ClassCheck {
 public:
  explicit ClassCheck(Object wanted) : wanted_(wanted) {}
  bool operator()(Object object) {
    Object const type = PythonApi::TypeOf(object);
    const auto address = reinterpret_cast<uintptr_t>(type);
    Answer& answer = answers_[(address >> 4 ^ address >> 14) % kAnswers];
    if (answer.type != type)
      answer = {type, wanted_ != g_api.none && g_api.PyType_IsSubtype(type, wanted_) != 0};
    return answer.is_wanted;
  }

 private:
  struct Answer {
    Object type = nullptr;
    bool is_wanted = false;
  };
  static constexpr size_t kAnswers = 256;
  Object wanted_;
  Answer answers_[kAnswers];
};

// Puts the modules among objects, and those of a class, into a list.
class Collector : public ObjectVisitor {
 public:
  explicit Collector(Object wanted) : is_of_class_(wanted) {}
  ~Collector() { Drop(); }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  bool Begin() override {
    Drop();
    found_ = g_api.PyList_New(0);
    return found_ != nullptr;
  }
  bool Visit(Object object) override {
    const bool is_wanted = IsModule(static_cast<char*>(object)) || is_of_class_(object);
    return !is_wanted || g_api.PyList_Append(found_, object) == 0;
  }
  Object Take() { return std::exchange(found_, nullptr); }

 private:
  void Drop() {
    if (found_ != nullptr)
      g_api.Py_DecRef(Take());
  }

  ClassCheck is_of_class_;
  Object found_ = nullptr;
};

// The objects can also be had as a list. It exists only in this function, where no other thread
// runs. While it exists each object has one more reference, and a tuple that a thread is making
// (PySequence_Tuple) must have only one when it gets its size.
bool VisitList(Object get_objects, Collector* collector) {
  const Owned objects(g_api.PyObject_CallFunctionObjArgs(get_objects, nullptr));
  const ptrdiff_t size = objects ? g_api.PyList_Size(objects.get()) : -1;
  bool ok = size >= 0 && collector->Begin();
  for (ptrdiff_t i = 0; i < size && ok; ++i)
    ok = collector->Visit(g_api.PyList_GetItem(objects.get(), i));
  return ok;
}

// collected(gc.get_objects, a class or None): of all objects the modules, and those of that class.
Object Collected(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  Object const wanted = arguments[1];
  if (wanted == nullptr || g_python_modules.type == nullptr)
    return g_api.PyList_New(0);
  Collector collector(wanted);
  const Visited visited = VisitObjects(&collector);
  const bool ok = visited == Visited::kNotPossible ? VisitList(arguments[0], &collector)
                                                   : visited == Visited::kAll;
  return ok ? collector.Take() : nullptr;
}

Object IsKnown(Object, Object module) {
  return g_api.Truth(g_torch.modules->Contains(reinterpret_cast<uintptr_t>(module)));
}

Object ModuleGone(Object address, Object) {
  const auto object = reinterpret_cast<uintptr_t>(g_api.PyLong_AsVoidPtr(address));
  g_torch.modules->Erase(object);
  for (Object const table : {g_agent.known, g_agent.roots, g_agent.paths, g_agent.watchers}) {
    Object const entry = g_api.PyDict_GetItemWithError(table, address);
    if (entry == nullptr)
      continue;
    g_api.Py_IncRef(entry);
    ReleaseLater(entry);
    if (g_api.PyDict_DelItem(table, address) != 0)
      g_api.PyErr_Clear();
  }
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
  if (!gone || g_api.PyDict_SetItem(g_agent.watchers, address.get(), gone.get()) != 0)
    return nullptr;
  // The collector moves the weak reference itself: that must be on its lists.
  for (Object const kept : {gone.get(), g_agent.watchers})
    g_api.PyObject_GC_UnTrack(kept);
  return g_api.PyWeakref_NewRef(module, gone.get());
}

// note_module(module, root's address, path, whether it is whole): of one that is half built more is
// to be said once it runs.
Object NoteModule(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  Object const module = arguments[0];
  const auto address = reinterpret_cast<uintptr_t>(module);
  void* const root = g_api.PyLong_AsVoidPtr(arguments[1]);
  if (RecordScope scope(Want::kAlways); scope) {
    const uint32_t path = InternText(*scope, arguments[2]);
    const uint32_t type = InternTypeName(*scope, module);
    scope->Append(format::Module{.time = Now(),
                                 .object = address,
                                 .root = reinterpret_cast<uintptr_t>(root),
                                 .path = path,
                                 .type = type});
    if (g_api.PyLong_AsLong(arguments[3]) != 0)
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

// note_tensor(kind, root's address, name, tensor, whether the module is whole, the tensor that has
// the gradient): its parameter or buffer; whether that was new. Gradients and state take no name of
// a half-built one.
Object NoteTensor(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  const auto kind = static_cast<format::NameKind>(g_api.PyLong_AsLong(arguments[0]));
  const auto owner = reinterpret_cast<uintptr_t>(g_api.PyLong_AsVoidPtr(arguments[1]));
  Object const name = arguments[2];
  Object const tensor = arguments[3];
  const uintptr_t impl = tensor != nullptr ? TensorImplOf(tensor) : 0;
  Storage storage;
  if (impl == 0 || !StorageOf(impl, &storage))
    return g_api.Truth(false);
  const bool whole = g_api.PyLong_AsLong(arguments[4]) != 0;
  Parameter* const parameter = kind == format::NameKind::kParameter && whole
                                   ? AddParameter(tensor, impl, owner, name, storage, true)
                                   : nullptr;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return g_api.Truth(false);
  const bool is_new = WriteNameIfNew(*scope, kind, owner, 0, name, nullptr, storage);
  g_torch.named.load(std::memory_order_relaxed)->Insert(storage.address);
  const bool with_gradient = g_agent.gradients_wanted || NamesInSurvey();
  if (parameter != nullptr && with_gradient)
    WriteGradient(*scope, Now(), TensorImplOf(arguments[5]), parameter);
  return g_api.Truth(is_new);
}

// note_part(root's address, name, tensor, first element, elements): a parameter that a flat one has
// in it.
Object NotePart(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  const auto owner = reinterpret_cast<uintptr_t>(g_api.PyLong_AsVoidPtr(arguments[0]));
  const uintptr_t impl = TensorImplOf(arguments[2]);
  const auto number = [&](int index) {
    return static_cast<uint64_t>(g_api.PyLong_AsLong(arguments[index])) * ElementBytesOf(impl);
  };
  Storage storage;
  if (impl == 0 || !StorageOf(impl, &storage))
    return g_api.None();
  if (RecordScope scope(Want::kAlways); scope) {
    const Part part{number(3), number(4)};
    WriteNameIfNew(*scope, format::NameKind::kParameter, owner, 0, arguments[1], nullptr, storage,
                   &part);
  }
  return g_api.None();
}

// elements_of(tensor): 0 if that is not known.
Object ElementsOfTensor(Object, Object tensor) {
  const uintptr_t impl = TensorImplOf(tensor);
  return g_api.PyLong_FromLong(impl == 0 ? 0 : static_cast<long>(ElementsOf(impl)));
}

// uses_of(tensor): references in C++, of which all of Python's are one. 0: it is no tensor.
Object UsesOf(Object, Object tensor) {
  const uintptr_t impl = TensorImplOf(tensor);
  return g_api.PyLong_FromLong(impl == 0 ? 0 : static_cast<long>(UseCountOf(impl)));
}

Object GradientsWanted(Object, Object) {
  return g_api.Truth(g_agent.gradients_wanted);
}

Object PoolsWanted(Object, Object) {
  return g_api.Truth(g_agent.pools_wanted.exchange(false));
}

// note_private_pool(address of a segment, the pool's id as text)
Object NotePrivatePool(Object, Object const* values, ptrdiff_t count) {
  const Arguments arguments{values, count};
  const auto address = reinterpret_cast<uintptr_t>(g_api.PyLong_AsVoidPtr(arguments[0]));
  RecordScope scope(Want::kAlways);
  if (scope && address != 0) {
    const uint32_t name = InternText(*scope, arguments[1]);
    scope->Append(format::Name{.time = Now(),
                               .address = address,
                               .device = format::kNoDevice,
                               .kind = static_cast<uint64_t>(format::NameKind::kPrivatePool),
                               .name = name});
  }
  return g_api.None();
}

// Whether all existing memory is to be named: once for each recording that begins in a running
// process.
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

// Whether this thread has functorch's state, without which it runs no transform (vmap, grad).
// peek_interpreter_stack makes one if there is none, and from then on each node of the graph copies
// it: 250,000 instructions a step of a 48-layer MLP. at::functorch::functorchTLSAccessor() makes
// nothing: it returns a smart pointer, whose first word is the state's address.
Object MayTransform(Object, Object) {
  using Accessor = const void* const& (*)();
  static Accessor accessor = nullptr;
  if (accessor == nullptr) {
    accessor = reinterpret_cast<Accessor>(
        FindInLoadedLibrary(kTorchLibrary, "_ZN2at9functorch20functorchTLSAccessorEv"));
  }
  return g_api.Truth(accessor == nullptr || accessor() != nullptr);
}

constinit PyMethodDef g_builtins[] = {
    {"suppress", Suppress, kMethO, nullptr},
    {"note", {.fast = NoteText}, kMethFastCall, nullptr},
    {"lost", Lost, kMethO, nullptr},
    {"ask", Ask, kMethNoArgs, nullptr},
    {"import_notice", {.fast = ImportNotice}, kMethFastCall, nullptr},
    {"is_first_argument", IsFirstArgument, kMethO, nullptr},
    {"may_transform", MayTransform, kMethNoArgs, nullptr},
    {"use_frames", {.fast = UseFrames}, kMethFastCall, nullptr},
    {"use_tensors", {.fast = UseTensors}, kMethFastCall, nullptr},
    {"use_sparse", UseSparse, kMethO, nullptr},
    {"use_parts", UseParts, kMethO, nullptr},
    {"use_nodes", UseNodes, kMethO, nullptr},
    {"running", Running, kMethNoArgs, nullptr},
    {"in_set_up", InSetUp, kMethNoArgs, nullptr},
    {"scan_is_due", ScanIsDue, kMethO, nullptr},
    {"scan_ended", ScanEnded, kMethO, nullptr},
    {"module_is_wanted", ModuleIsWanted, kMethNoArgs, nullptr},
    {"check_in", CheckIn, kMethO, nullptr},
    {"walk_is_due", WalkIsDue, kMethNoArgs, nullptr},
    {"walk_ended", WalkEnded, kMethO, nullptr},
    {"say_again", SayAgain, kMethO, nullptr},
    {"is_module", IsModuleObject, kMethO, nullptr},
    {"collected", {.fast = Collected}, kMethFastCall, nullptr},
    {"is_known", IsKnown, kMethO, nullptr},
    {"watch_module", WatchModule, kMethO, nullptr},
    {"note_module", {.fast = NoteModule}, kMethFastCall, nullptr},
    {"ignore_module", IgnoreModule, kMethO, nullptr},
    {"begin_walk", BeginWalk, kMethNoArgs, nullptr},
    {"note_tensor", {.fast = NoteTensor}, kMethFastCall, nullptr},
    {"note_part", {.fast = NotePart}, kMethFastCall, nullptr},
    {"elements_of", ElementsOfTensor, kMethO, nullptr},
    {"has_name", HasName, kMethO, nullptr},
    {"gradients_wanted", GradientsWanted, kMethNoArgs, nullptr},
    {"pools_wanted", PoolsWanted, kMethNoArgs, nullptr},
    {"note_private_pool", {.fast = NotePrivatePool}, kMethFastCall, nullptr},
    {"begins", Begins, kMethNoArgs, nullptr},
    {"surveys", Surveys, kMethO, nullptr},
    {"uses_of", UsesOf, kMethO, nullptr},
    {"gone_of", {.fast = GoneOf}, kMethFastCall, nullptr},
    {"watch_graphs", {.fast = WatchGraphs}, kMethFastCall, nullptr},
    {"name_optimizer", NameOptimizer, kMethO, nullptr},
    {"step_begin", StepBegin, kMethO, nullptr},
    {"step_end", StepEnd, kMethO, nullptr},
};

}  // namespace

bool PutBuiltins(Object globals) {
  for (PyMethodDef& method : g_builtins) {
    const Owned function(g_api.PyCFunction_NewEx(&method, nullptr, nullptr));
    if (!function || g_api.PyDict_SetItemString(globals, method.name, function.get()) != 0)
      return false;
  }
  return true;
}

}  // namespace vramscope::probe
