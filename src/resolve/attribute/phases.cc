// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/phases.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "format/enums.h"

namespace vramscope::resolve {
namespace {

// kUnknown for any other name.
Category ParseCategory(std::string_view name) {
  // As engines write it.
  if (name == "kv_cache")
    return Category::kKvCache;
  for (const Category category : format::kAllCategories) {
    if (name == CategoryName(category))
      return category;
  }
  return Category::kUnknown;
}

// Number of operators of the forward that are kept for the backward.
constexpr size_t kRecorded = size_t{1} << 16;
// An operator that allocates nothing still records a node. Its gradient belongs to the allocation
// before it, if that is recent enough.
constexpr uint64_t kFurthest = 32;

// Two engines in one process may alternate without end.

}  // namespace

Phases::Phases(const trace::Trace& trace)
    : trace_(trace), facts_(trace), processes_(trace.processes().size()) {
  for (size_t i = 0; i < processes_.size(); ++i)
    processes_[i].unnamed = trace.processes()[i].unnamed;
}

Phases::ThreadState& Phases::ThreadOf(const trace::EventContext& at) {
  if (at.thread.value == 0)
    return processes_[at.process.value].no_thread;
  if (at.thread.value >= threads_.size())
    threads_.resize(std::max<size_t>(at.thread.value + 1, trace_.threads().size()));
  return threads_[at.thread.value];
}

void Phases::EndBackward(ProcessState& process) {
  if (!process.in_backward)
    return;
  process.in_backward = false;
  ++process.ends.backwards_over;
}

void Phases::EndOptimizer(ProcessState& process) {
  if (!process.in_optimizer)
    return;
  process.in_optimizer = false;
  ++process.ends.steps_over;
}

Phase Phases::PhaseOf(trace::AutogradNode node,
                      const StackFacts& facts,
                      ProcessState& process,
                      ThreadState& thread) {
  if (node.kind == trace::AutogradNode::Kind::kBackward) {
    if (!facts.in_backward && process.has_python)
      thread.is_autograd = true;
    // A backward also increases the number when it records nodes for a second gradient or a
    // checkpoint.
    thread.has_number = false;
    return Phase::kBackward;
  }
  if (facts.phase != Phase::kOther)
    thread.is_autograd = false;
  else if (thread.is_autograd)
    return Phase::kBackward;
  bool recorded = false;
  thread.records = thread.records && facts.engine == Phase::kNone;
  if (node.kind == trace::AutogradNode::Kind::kForward) {
    recorded = thread.has_number && node.number > thread.next_number;
    thread.has_number = true;
    thread.records |= recorded && facts.engine == Phase::kNone;
    thread.next_number = node.number;
  }
  switch (facts.phase) {
    case Phase::kOther:
    case Phase::kNone:
      break;
    case Phase::kOptimizer:
      return recorded ? Phase::kForward : Phase::kOptimizer;
    case Phase::kForward:
      // A step that was not completed.
      if (thread.steps > 0 && !facts.in_step) {
        process.steps -= std::min(process.steps, thread.steps);
        thread.steps = 0;
      }
      return Phase::kForward;
    default:
      return facts.phase;
  }
  if (recorded)
    return Phase::kForward;
  if (thread.steps > 0)
    return Phase::kOptimizer;
  return thread.in_forward ? Phase::kForward : Phase::kOther;
}

// The first allocation after the number was reached is the operator's, because autograd makes the
// node before the operator runs. Each thread counts its own numbers; the latest use of a number
// wins.
void Phases::Record(const trace::EventContext& at,
                    tables::StackId stack,
                    uint64_t number,
                    ProcessState& process) {
  if (process.recorded.empty())
    process.recorded.resize(kRecorded);
  Recorded& slot = process.recorded[number & (kRecorded - 1)];
  if (slot.number == number && slot.thread == at.thread)
    return;
  slot = {number, stack, at.scope, at.thread};
  process.last_number = std::max(process.last_number, number);
}

const Phases::Recorded* Phases::Find(const ProcessState& process, uint64_t number) const {
  if (process.recorded.empty())
    return nullptr;
  for (uint64_t back = 0; back <= std::min(kFurthest, number); ++back) {
    const Recorded& slot = process.recorded[(number - back) & (kRecorded - 1)];
    if (slot.number == number - back)
      return &slot;
  }
  return nullptr;
}

// Memory of a backward belongs to the operator whose gradient it computes.
void Phases::Join(const Operator& here,
                  trace::AutogradNode node,
                  const StackFacts& facts,
                  const ProcessState& process,
                  ThreadState& thread,
                  Origin* origin) {
  if (thread.backward != process.ends.backwards_begun) {
    thread.backward = process.ends.backwards_begun;
    thread.evaluated = {};
    thread.recomputed = {};
  }
  if (facts.module_inside) {
    // A checkpoint recomputes, so its own stack has the modules.
    thread.recomputed = here;
    origin->forward = here.stack;
    return;
  }
  if (facts.checkpoint) {
    // Its graph is separate, with numbers that no forward used.
    thread.evaluated = thread.recomputed;
  } else if (node.kind == trace::AutogradNode::Kind::kBackward &&
             node.number < process.last_number) {
    // Nodes that accumulate gradients have no number. They run after the node that computed the
    // gradient.
    const Recorded* found = Find(process, node.number + 1);
    thread.evaluated = found != nullptr ? Operator{found->stack, found->scope} : Operator{};
  }
  // Sums of gradients are made between two nodes and belong to the first.
  origin->forward = thread.evaluated.stack;
  if (origin->scope.value == 0)
    origin->scope = thread.evaluated.scope;
}

void Phases::AddEnginePhase(trace::ProcessId process, std::string_view name, int64_t time_ns) {
  ProcessState& state = processes_[process.value];
  state.phase_begin_ns = std::max(state.phase_begin_ns, time_ns);
  if (engine_phases_.size() < kMostEnginePhases) {
    engine_phases_.push_back({process, std::string(name), state.phase_begin_ns});
    return;
  }
  ++unlisted_phases_;
  // The last one that is listed must end.
  if (!std::exchange(state.has_unlisted_phases, true))
    engine_phases_.push_back({process, "", state.phase_begin_ns});
}

void Phases::Enter(trace::ProcessId process, Phase phase, int64_t time_ns) {
  ProcessState& state = processes_[process.value];
  if (state.has_phase_marks || state.engine == phase)
    return;
  if (phase == Phase::kSleep)
    state.before_sleep = state.engine;
  state.engine = phase;
  AddEnginePhase(process, phase == Phase::kNone ? "" : PhaseName(phase), time_ns);
}

void Phases::On(const trace::EventContext& at, const trace::Mark& e) {
  const std::string_view text = trace_.string(e.name);
  if (!text.starts_with(kPhaseMark))
    return;
  const std::string_view name = text.substr(kPhaseMark.size());
  ProcessState& state = processes_[at.process.value];
  state.has_phase_marks = true;
  state.engine = Phase::kNone;
  for (const Phase phase : format::kAllPhases) {
    if (phase >= Phase::kInit && name == PhaseName(phase))
      state.engine = phase;
  }
  AddEnginePhase(at.process, name, at.time_ns);
}

void Phases::OnCall(const trace::EventContext& at, tables::StackId stack) {
  const StackFacts& facts = facts_.Of(stack);
  if (facts.engine != Phase::kNone && !facts.of_library)
    Enter(at.process, facts.engine, std::min(at.begin_ns, at.time_ns));
}

void Phases::OnUnbacked(trace::ProcessId process, int64_t bytes, int64_t time_ns) {
  ProcessState& state = processes_[process.value];
  const bool slept = state.unbacked_bytes > 0;
  state.unbacked_bytes += bytes;
  const bool sleeps = state.unbacked_bytes > 0;
  if (sleeps == slept || state.has_phase_marks)
    return;
  // The last mapping is of the sleep.
  if (state.engine == Phase::kSleep) {
    if (!sleeps)
      Enter(process, state.before_sleep, time_ns + 1);
    return;
  }
  // No frame says so. Memory that is allocated meanwhile keeps its phase: a ring forgets mappings.
  const Phase phase = sleeps ? Phase::kSleep : state.engine;
  AddEnginePhase(process, phase == Phase::kNone ? "" : PhaseName(phase),
                 time_ns + (sleeps ? 0 : 1));
}

// The phase of an engine that memory is allocated in; kNone: a training's phase applies.
Phase Phases::EngineOf(const trace::EventContext& at,
                       const StackFacts& facts,
                       Phase phase,
                       ProcessState& process,
                       ThreadState& thread) {
  if (facts.engine != Phase::kNone && !facts.of_library)
    Enter(at.process, facts.engine, at.time_ns);
  if (phase == Phase::kBackward || phase == Phase::kOptimizer)
    return Phase::kNone;
  if (process.has_phase_marks)
    return process.engine;
  if (facts.engine != Phase::kNone)
    return facts.engine;
  // A trainer in the same process keeps its own phases.
  if (process.trains() || thread.records || (phase != Phase::kForward && phase != Phase::kOther))
    return Phase::kNone;
  return process.engine;
}

void Phases::OnAllocated(const trace::EventContext& at,
                         tables::StackId stack,
                         tables::StackId native,
                         uint64_t sequence,
                         Origin* origin) {
  using Kind = trace::AutogradNode::Kind;
  ProcessState& process = processes_[at.process.value];
  ThreadState& thread = ThreadOf(at);
  const StackFacts& facts = facts_.Of(stack);
  const auto node = trace::AutogradNode::Of(at.has_origin ? 0 : sequence);
  process.has_python = process.has_python || stack.value != 0;
  process.knows = process.knows || node.kind != Kind::kNone || facts.phase != Phase::kOther ||
                  facts.engine != Phase::kNone || facts.module.value != 0;
  origin->scope = at.scope;
  if (facts.communication)
    origin->purpose = facts.collective ? Purpose::kCollective : Purpose::kCommunication;
  else if (facts.workspace || (native.value != 0 && facts_.Of(native).workspace))
    origin->purpose = Purpose::kWorkspace;
  origin->made = facts.category;
  if (at.has_origin) [[unlikely]]
    return TakeOrigin(at, facts.phase, origin);

  const Phase phase = PhaseOf(node, facts, process, thread);
  origin->phase = phase;
  origin->engine = EngineOf(at, facts, phase, process, thread);
  thread.in_forward = phase == Phase::kForward;
  if (phase == Phase::kBackward) {
    thread.is_program = thread.is_program || facts.in_backward;
    if (process.steps == 0)
      EndOptimizer(process);
    if (!process.in_backward) {
      process.in_backward = true;
      ++process.ends.backwards_begun;
    }
    origin->epoch = process.ends.backwards_over;
    Join({stack, at.scope}, node, facts, process, thread, origin);
    return;
  }
  // Threads that only load data run in parallel with backwards and steps, and do not end them.
  if (phase == Phase::kForward || phase == Phase::kOptimizer)
    thread.is_program = true;
  if (thread.is_program && !facts.in_backward)
    EndBackward(process);
  if (phase == Phase::kOptimizer) {
    process.in_optimizer = true;
    origin->epoch = process.ends.steps_over;
    return;
  }
  if (thread.is_program && process.steps == 0)
    EndOptimizer(process);
  origin->epoch = process.ends.backwards_begun;
  if (node.kind == Kind::kForward)
    Record(at, stack, node.number, process);
}

void Phases::On(const trace::EventContext& at, const trace::Step& e) {
  ProcessState& process = processes_[at.process.value];
  ThreadState& thread = ThreadOf(at);
  process.knows = process.stepped = true;
  thread.in_forward = false;
  // A step in a backward hook does not end the backward.
  if (!thread.is_autograd) {
    thread.is_program = true;
    EndBackward(process);
  }
  if (e.kind == format::StepKind::kBegin) {
    ++process.steps;
    ++thread.steps;
    process.in_optimizer = true;
    return;
  }
  process.steps -= std::min(process.steps, 1u);
  thread.steps -= std::min(thread.steps, 1u);
  EndOptimizer(process);
}

uint32_t Phases::CountOf(const Ends& ends, Phase phase) {
  switch (phase) {
    case Phase::kBackward:
      return ends.backwards_over;
    case Phase::kOptimizer:
      return ends.steps_over;
    default:
      return ends.backwards_begun;
  }
}

bool Phases::Outlived(const ProcessState& process, const Origin& origin) const {
  if (origin.epoch == kLivedOn || origin.epoch == kEndedWithin)
    return origin.epoch == kLivedOn;
  const uint32_t since =
      origin.epoch == kOfPast ? CountOf(process.past, origin.phase) : origin.epoch;
  return CountOf(process.ends, origin.phase) != since;
}

// Not of a backward's memory.
Category Phases::ByPhase(const ProcessState& process, bool kept, const Origin& origin) {
  if (origin.phase == Phase::kLoad)
    return Category::kInput;
  if (!kept)
    return Category::kTemporary;
  const bool of_phase = origin.phase == Phase::kForward || origin.phase == Phase::kOptimizer;
  if (!of_phase && process.unnamed)
    return Category::kUnknown;
  // Memory that a ring kept is older than the steps that it dropped.
  if (!process.trains() && origin.epoch < kOfPast)
    return Category::kRetained;
  return origin.phase == Phase::kForward     ? Category::kActivation
         : origin.phase == Phase::kOptimizer ? Category::kOptimizerState
                                             : Category::kInput;
}

// Memory that outlives a backward is a gradient if gradients have no names. If they have names, it
// is one only if a named gradient has the same operator and size.
Category Phases::OfBackward(const ProcessState& process,
                            bool freed,
                            uint64_t size_bytes,
                            const Origin& origin) const {
  const bool outlived = Outlived(process, origin);
  if (freed && !outlived)
    return Category::kTemporary;
  if (!process.has_names || origin.epoch >= kOfPast ||
      process.gradients.contains({origin.forward, size_bytes}))
    return Category::kGradient;
  return outlived ? Category::kRetained : Category::kTemporary;
}

void Phases::OnName(trace::ProcessId process,
                    format::NameKind kind,
                    const Origin& origin,
                    uint64_t size_bytes) {
  ProcessState& state = processes_[process.value];
  if (kind == format::NameKind::kParameter)
    state.has_names = true;
  else if (kind == format::NameKind::kGradient && origin.phase == Phase::kBackward)
    state.gradients.emplace(origin.forward, size_bytes);
}

// Its surrounding events are lost, and it does not show the phase of its process and thread.
void Phases::TakeOrigin(const trace::EventContext& at, Phase by_stack, Origin* origin) {
  const auto phase = static_cast<Phase>(at.origin_phase);
  origin->phase = phase <= Phase::kOptimizer ? phase : by_stack;
  if (phase > Phase::kOptimizer && phase <= Phase::kSleep)
    origin->engine = phase;
  origin->forward = at.origin_forward;
  switch (static_cast<format::OriginEnd>(at.origin_end)) {
    case format::OriginEnd::kOutlived:
      origin->epoch = kLivedOn;
      break;
    case format::OriginEnd::kWithin:
      origin->epoch = kEndedWithin;
      break;
    case format::OriginEnd::kOpen:
    default:
      origin->epoch = kOfPast;
      break;
  }
}

void Phases::On(const trace::EventContext& at, const trace::Past& e) {
  ProcessState& process = processes_[at.process.value];
  process.past = process.ends;
  process.knows = process.knows || (e.knows & 1) != 0;
  process.has_python = process.has_python || (e.knows & 2) != 0;
}

// A tag or scope that ends in a category's name, such as "halo/workspace", sets the category.
Category Phases::SaidBy(tables::StringId text) {
  if (text.value == 0)
    return Category::kUnknown;
  if (text.value >= said_.size())
    said_.resize(std::max<size_t>(text.value + 1, trace_.dictionaries().text_count()));
  uint8_t& said = said_[text.value];
  if (said == 0) {
    const std::string_view all = trace_.string(text);
    said = static_cast<uint8_t>(ParseCategory(all.substr(all.rfind('/') + 1))) + 1;
  }
  return static_cast<Category>(said - 1);
}

void Phases::Decide(trace::ProcessId process,
                    const Names& names,
                    bool freed,
                    bool by_phase,
                    uint64_t size_bytes,
                    Origin* origin) {
  const ProcessState& state = processes_[process.value];
  const auto decide = [&](Category category) {
    origin->category = origin->without_phases = category;
  };
  // Most memory has no name.
  const NameSet* const set = origin->names == 0 ? nullptr : &names.set(origin->names);
  if (set != nullptr) {
    if (const auto category = CategoryOfName(names.name(set->first).kind))
      return decide(*category);
  }
  if (origin->purpose == Purpose::kWorkspace)
    return decide(Category::kWorkspace);
  if (origin->purpose == Purpose::kTemporary)
    return decide(Category::kTemporary);
  if (origin->purpose == Purpose::kInput)
    return decide(Category::kInput);
  if (origin->purpose == Purpose::kResult)
    return decide(Category::kActivation);
  if (origin->purpose == Purpose::kCollective)
    return decide(Category::kCommunication);
  if (origin->purpose == Purpose::kCommunication) {
    // Communication memory that outlives the backward is summed gradients.
    const bool gradient = by_phase && origin->phase == Phase::kBackward &&
                          OfBackward(state, freed, size_bytes, *origin) == Category::kGradient;
    return decide(gradient ? Category::kGradient : Category::kCommunication);
  }
  if (set != nullptr) {
    decide(SaidBy(names.name(set->tag).name));
    if (origin->category != Category::kUnknown)
      return;
  }
  // A cache that grows within a training's forward is part of the graph if it lives until the
  // backward.
  if (origin->made != Category::kUnknown && origin->purpose != Purpose::kPrior &&
      !(origin->phase == Phase::kForward && state.trains() && Outlived(state, *origin)))
    return decide(origin->made);
  decide(SaidBy(origin->scope));
  if (!by_phase || origin->purpose == Purpose::kPrior)
    return;
  origin->category = origin->phase == Phase::kBackward
                         ? OfBackward(state, freed, size_bytes, *origin)
                         : ByPhase(state, !freed || Outlived(state, *origin), *origin);
}

}  // namespace vramscope::resolve
