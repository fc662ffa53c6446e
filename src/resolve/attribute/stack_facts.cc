// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/stack_facts.h"

#include <algorithm>
#include <iterator>

#include "resolve/attribute/owners.h"
#include "util/text.h"

namespace vramscope::resolve {

// An entry of engines.def.
struct EngineFrame {
  std::string_view file;
  std::string_view function;
  Phase phase;
  Category category;
  bool of_library;
};

namespace {

constexpr EngineFrame kEngineFrames[] = {
#define VRAMSCOPE_ENGINE_FRAME(file, function, phase, category) \
  {file, function, Phase::phase, Category::category, false},
#define VRAMSCOPE_LIBRARY_FRAME(file, function, phase, category) \
  {file, function, Phase::phase, Category::category, true},
#include "resolve/attribute/engines.def"
};

// The path below the package `torch`, or "". Compares whole components, so a user's folder with a
// similar name does not match.
std::string_view BelowTorch(std::string_view file) {
  if (file.starts_with("torch/"))
    return file.substr(6);
  const size_t at = file.rfind("/torch/");
  return at == std::string_view::npos ? std::string_view() : file.substr(at + 7);
}

// "Linear.__init__" -> "__init__". Before Python 3.11 the name has no class.
std::string_view LastName(std::string_view function) {
  const size_t dot = function.rfind('.');
  return dot == std::string_view::npos ? function : function.substr(dot + 1);
}

template <size_t N>
bool IsOneOf(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// torch.distributed's own buffers, but not computation inside its frames: operators on a DTensor,
// optimizers, and wrappers of a module's forward.
bool IsCommunication(std::string_view below) {
  if (below == "nn/parallel/distributed.py")
    return true;
  if (!below.starts_with("distributed/"))
    return false;
  for (const std::string_view other :
       {"distributed/tensor/", "distributed/_tensor/", "distributed/optim/",
        "distributed/algorithms/_checkpoint/", "distributed/elastic/"}) {
    if (below.starts_with(other))
      return false;
  }
  return true;
}

bool IsBelow(std::string_view file, std::string_view end) {
  return file.ends_with(end) &&
         (file.size() == end.size() || file[file.size() - end.size() - 1] == '/');
}

// Before Python 3.11 a function's name has no class: "Class.name" never matches there.
bool IsFunction(std::string_view function, std::string_view name) {
  return util::Contains(name, ".") ? function == name : LastName(function) == name;
}

bool IsWorkspace(const std::string_view function) {
  static constexpr std::string_view kNames[] = {
      "getCUDABlasLtWorkspace",     "getNewWorkspace",
      "getCurrentCUDABlasHandle",   "getNewCUDABlasLtWorkspace",
      "getCurrentCUDASparseHandle", "run_conv_plan",
      "Workspace::Workspace",       "getWorkspace",
      "allocateWorkspace",
  };
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view name) { return util::Contains(function, name); });
}

}  // namespace

StackFactsTable::FrameSays StackFactsTable::Ask(const tables::FrameRow& frame) const {
  const std::string_view function = trace_.string(frame.function);
  if (frame.kind == tables::FrameKind::kNative)
    return IsWorkspace(function) ? FrameSays::kWorkspace : FrameSays::kNothing;
  const std::string_view file = trace_.string(frame.file);
  const std::string_view name = LastName(function);
  if (name == "__init__" || name == "reset_parameters")
    return FrameSays::kSetUp;
  if (util::IsGeneratedCode(file))
    return FrameSays::kGenerated;
  const std::string_view below = BelowTorch(file);
  if (below.empty())
    return IsUserFrame(trace_, frame) ? FrameSays::kUser : FrameSays::kNothing;
  if (below.starts_with("optim/"))
    return FrameSays::kOptimizer;
  if (below.starts_with("utils/data/"))
    return FrameSays::kLoad;
  static constexpr std::string_view kBackward[] = {"backward", "grad"};
  if ((below == "autograd/__init__.py" && IsOneOf(name, kBackward)) ||
      (below == "_tensor.py" && name == "backward") ||
      (below == "autograd/graph.py" && name == "_engine_run_backward"))
    return FrameSays::kBackward;
  if (below == "utils/checkpoint.py" && name == "backward")
    return FrameSays::kCheckpoint;
  // The state of random numbers.
  if (below == "cuda/graphs.py" && name == "capture_begin")
    return FrameSays::kWorkspace;
  if (below == "distributed/distributed_c10d.py")
    return FrameSays::kCollective;
  if (IsCommunication(below))
    return FrameSays::kCommunication;
  // Of torch.nn.Module's methods, only these call the module.
  static constexpr std::string_view kCall[] = {"_wrapped_call_impl", "_call_impl", "__call__",
                                               "_slow_forward",      "inner",      "forward"};
  if (below == "nn/modules/module.py" && !IsOneOf(name, kCall))
    return FrameSays::kSetUp;
  return FrameSays::kNothing;
}

StackFactsTable::FrameSays StackFactsTable::SaysOf(tables::FrameId frame) {
  if (frame.value >= frames_.size())
    frames_.resize(std::max<size_t>(frame.value + 1, trace_.dictionaries().frame_count()));
  FrameSays& says = frames_[frame.value];
  if (says == FrameSays::kNotAsked)
    says = Ask(trace_.frame(frame));
  return says;
}

const EngineFrame* StackFactsTable::EngineOf(tables::FrameId frame) {
  if (frame.value >= engine_frames_.size())
    engine_frames_.resize(std::max<size_t>(frame.value + 1, trace_.dictionaries().frame_count()));
  uint16_t& known = engine_frames_[frame.value];
  if (known == 0) {
    const tables::FrameRow& row = trace_.frame(frame);
    const std::string_view file = trace_.string(row.file);
    const std::string_view function = trace_.string(row.function);
    const auto* const found = row.kind != tables::FrameKind::kPython
                                  ? std::end(kEngineFrames)
                                  : std::find_if(std::begin(kEngineFrames), std::end(kEngineFrames),
                                                 [&](const EngineFrame& entry) {
                                                   return IsBelow(file, entry.file) &&
                                                          IsFunction(function, entry.function);
                                                 });
    known = found == std::end(kEngineFrames)
                ? uint16_t{1}
                : static_cast<uint16_t>(found - std::begin(kEngineFrames) + 2);
  }
  return known < 2 ? nullptr : &kEngineFrames[known - 2];
}

// Adds one inner frame. It takes precedence over the outer ones.
void StackFactsTable::Extend(StackFacts& facts, tables::StackId stack) {
  const tables::StackRow& entry = trace_.stack(stack);
  if (const EngineFrame* const engine = EngineOf(entry.frame)) {
    if (facts.engine == Phase::kNone) {
      facts.engine = engine->phase;
      facts.of_library = engine->of_library;
    }
    if (engine->category != Category::kUnknown)
      facts.category = engine->category;
  }
  const FrameSays says = SaysOf(entry.frame);
  const auto decide = [&](Phase phase) {
    facts.phase = phase;
    facts.module_inside = false;
    facts.user_inside = false;
    facts.communication = facts.collective = false;
  };
  switch (says) {
    case FrameSays::kBackward:
      decide(Phase::kBackward);
      facts.in_backward = true;
      break;
    case FrameSays::kCheckpoint:
      facts.checkpoint = true;
      break;
    case FrameSays::kOptimizer:
      decide(Phase::kOptimizer);
      facts.in_step = true;
      break;
    case FrameSays::kLoad:
      decide(Phase::kLoad);
      break;
    case FrameSays::kCommunication:
    case FrameSays::kCollective:
      facts.communication = true;
      facts.collective = says == FrameSays::kCollective;
      break;
    case FrameSays::kWorkspace:
      facts.workspace = true;
      break;
    case FrameSays::kUser:
      facts.user_inside = true;
      facts.communication = facts.collective = false;
      break;
    case FrameSays::kGenerated:
      return;  // its module is the compiler's, or is further out too
    case FrameSays::kSetUp:
    case FrameSays::kNothing:
    case FrameSays::kNotAsked:
      break;
  }
  if (trace_.dictionaries().object(stack) == 0)
    return;
  facts.module = stack;
  facts.module_inside = true;
  if (says == FrameSays::kSetUp) {
    if (facts.phase == Phase::kForward)
      facts.phase = Phase::kOther;
    return;
  }
  if (says != FrameSays::kCommunication && says != FrameSays::kCollective)
    facts.communication = facts.collective = false;
  // An optimizer's closure may call the model. A backward that calls it recomputes a checkpoint.
  if (facts.phase == Phase::kOther || facts.phase == Phase::kOptimizer)
    facts.phase = Phase::kForward;
}

const StackFacts& StackFactsTable::Find(tables::StackId stack) {
  static constexpr StackFacts kNothing;
  const size_t count = trace_.dictionaries().stack_count();
  if (stack.value == 0 || stack.value >= count)
    return kNothing;
  if (facts_.size() < count) {
    facts_.resize(count);
    known_.resize(count);
  }
  pending_.clear();
  tables::StackId at = stack;
  // A damaged trace may hold a cycle: no chain is longer than the table.
  while (at.value != 0 && at.value < count && !known_[at.value] && pending_.size() < count) {
    pending_.push_back(at);
    at = trace_.stack(at).parent;
  }
  StackFacts facts =
      at.value != 0 && at.value < count && known_[at.value] ? facts_[at.value] : StackFacts{};
  while (!pending_.empty()) {
    at = pending_.back();
    pending_.pop_back();
    Extend(facts, at);
    facts_[at.value] = facts;
    known_[at.value] = true;
  }
  return facts_[stack.value];
}

}  // namespace vramscope::resolve
