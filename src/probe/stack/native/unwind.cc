// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/native/unwind.h"

#if defined(__x86_64__)

#include "probe/stack/native/cfi.h"
#include "probe/stack/native/rows.h"
#include "probe/stack/native/window.h"

namespace vramscope::probe {
namespace {

constinit RowCache g_rows{};

// The registers that survive a call, and the current position of this thread.
Registers RegistersOf(const WalkStart& start) {
  Registers registers{};
  registers.Put(kRegisterRbx, start.rbx);
  registers.Put(kRegisterRbp, start.rbp);
  registers.Put(kRegisterRsp, start.rsp);
  registers.Put(kRegisterR12, start.r12);
  registers.Put(kRegisterR12 + 1, start.r13);
  registers.Put(kRegisterR12 + 2, start.r14);
  registers.Put(kRegisterR12 + 3, start.r15);
  registers.Put(kReturnAddress, start.pc);
  return registers;
}

VRAMSCOPE_NOINLINE UnwindRow LearnRow(uintptr_t pc, uint64_t generation) {
  CodeModule module;
  if (!FindModule(pc - 1, &module))
    return UnwindRow(UnwindRow::kNoTable);  // not remembered: another binary can come there
  CfiRules rules;
  const UnwindRow row =
      FindRules(module, pc - 1, &rules) ? UnwindRow(rules) : UnwindRow(UnwindRow::kNoTable);
  g_rows.Insert(pc, generation, row);
  return row;
}

// The current position of a walk.
struct Frame {
  uintptr_t pc;
  uintptr_t rsp;
  uintptr_t rbp;
};

// Log of the words and rows that a walk used. Most walks need none.
struct NoLog {
  void Read(uintptr_t, uint64_t) {}
  void RbpIsAt(uintptr_t) {}
  void GoesBy(uint64_t) {}
  void NoTable() {}
};

class WalkLog {
 public:
  explicit WalkLog(NativeStackCache::Walk* walk) : walk_(walk) { walk_->read_count = 0; }

  void Read(uintptr_t address, uint64_t value) { Add(address, value); }
  // The place where rbp was last found. It matters once the walk goes by it.
  void RbpIsAt(uintptr_t address) { rbp_at_ = address; }
  void GoesBy(uint64_t rbp) {
    if (rbp_at_ != 0)
      Add(rbp_at_, rbp);
    else
      walk_->rbp = rbp;
  }
  // Other code can be mapped there unnoticed.
  void NoTable() { is_whole_ = false; }

  bool is_whole() const { return is_whole_; }

 private:
  void Add(uintptr_t address, uint64_t value) {
    if (walk_->read_count == NativeStackCache::kMaxReads)
      is_whole_ = false;
    else
      walk_->reads[walk_->read_count++] = {address, value};
  }

  NativeStackCache::Walk* walk_;
  uintptr_t rbp_at_ = 0;
  bool is_whole_ = true;
};

enum class Step {
  kDone,
  kOutermost,
  kLost,
  kNeedsMore,  // other registers than rsp and rbp
};

// Code without tables, such as what a JIT compiler makes: it may keep rbp as a frame pointer.
bool StepByFramePointer(StackWindow* window, Frame* frame) {
  constexpr uintptr_t kMaxFrameBytes = uintptr_t{1} << 20;
  const uintptr_t rbp = frame->rbp;
  uint64_t saved = 0, pc = 0;
  if (rbp < frame->rsp || rbp - frame->rsp > kMaxFrameBytes || rbp % sizeof(uint64_t) != 0 ||
      !window->Read(rbp, &saved) || !window->Read(rbp + 8, &pc) || pc == 0) {
    return false;
  }
  *frame = {pc, rbp + 16, saved};
  return true;
}

template <class Log>
VRAMSCOPE_ALWAYS_INLINE Step StepByRow(UnwindRow row, StackWindow* window, Frame* frame, Log* log) {
  uint64_t cfa = 0;
  uint64_t rbp = frame->rbp;
  switch (row.kind()) {
    case UnwindRow::kFromRsp:
      cfa = frame->rsp + static_cast<uint64_t>(row.cfa_offset());
      break;
    case UnwindRow::kFromRbp:
      log->GoesBy(frame->rbp);
      cfa = frame->rbp + static_cast<uint64_t>(row.cfa_offset());
      break;
    case UnwindRow::kFromRbpMemory:
      log->GoesBy(frame->rbp);
      if (!window->Read(frame->rbp + static_cast<uint64_t>(row.cfa_offset()), &cfa) ||
          !window->Read(frame->rbp, &rbp)) {
        return Step::kLost;
      }
      log->Read(frame->rbp + static_cast<uint64_t>(row.cfa_offset()), cfa);
      log->RbpIsAt(frame->rbp);
      break;
    case UnwindRow::kOutermost:
      return Step::kOutermost;
    case UnwindRow::kNoTable:
      log->NoTable();
      return StepByFramePointer(window, frame) ? Step::kDone : Step::kLost;
    default:
      return Step::kNeedsMore;
  }
  // Each frame lies above the one that it called, so a walk ends.
  if (VRAMSCOPE_UNLIKELY(cfa <= frame->rsp || !window->Read(cfa - 8, &frame->pc)))
    return Step::kLost;
  log->Read(cfa - 8, frame->pc);
  if (row.has_rbp()) {
    if (!window->Read(cfa + static_cast<uint64_t>(row.rbp_offset()), &rbp))
      return Step::kLost;
    log->RbpIsAt(cfa + static_cast<uint64_t>(row.rbp_offset()));
  }
  frame->rsp = cfa;
  frame->rbp = rbp;
  return frame->pc != 0 ? Step::kDone : Step::kOutermost;
}

// Frames that only a frame pointer speaks for count once they lead to code with tables.
class UnsureFrames {
 public:
  VRAMSCOPE_ALWAYS_INLINE void Note(bool has_table, size_t depth) {
    if (VRAMSCOPE_LIKELY(has_table))
      from_ = SIZE_MAX;
    else if (from_ == SIZE_MAX)
      from_ = depth;
  }
  NativeWalk End(size_t depth, WalkEnd end) const {
    return from_ < depth ? NativeWalk{from_, WalkEnd::kLost} : NativeWalk{depth, end};
  }

 private:
  size_t from_ = SIZE_MAX;
};

// Follows rsp and rbp alone. False if that is not enough.
template <class Log>
VRAMSCOPE_ALWAYS_INLINE bool WalkByRows(const WalkStart& start,
                                        uintptr_t* pcs,
                                        size_t capacity,
                                        NativeWalk* walk,
                                        Log* log) {
  const uint64_t generation = CodeGeneration();
  Frame frame{start.pc, start.rsp, start.rbp};
  StackWindow window(frame.rsp);
  UnsureFrames unsure;
  size_t depth = 0;
  for (;;) {
    UnwindRow row = g_rows.Find(frame.pc, generation);
    if (VRAMSCOPE_UNLIKELY(row.kind() == UnwindRow::kNone))
      row = LearnRow(frame.pc, generation);
    unsure.Note(row.kind() != UnwindRow::kNoTable, depth);
    const Step step = StepByRow(row, &window, &frame, log);
    if (VRAMSCOPE_UNLIKELY(step != Step::kDone)) {
      *walk = unsure.End(depth, step == Step::kOutermost ? WalkEnd::kOutermost : WalkEnd::kLost);
      return step != Step::kNeedsMore;
    }
    if (VRAMSCOPE_UNLIKELY(depth == capacity)) {
      *walk = unsure.End(depth, WalkEnd::kDepthLimit);
      return true;
    }
    pcs[depth++] = frame.pc;
  }
}

bool Find(const CfiRule& rule,
          uint32_t number,
          uint64_t cfa,
          const Registers& registers,
          StackWindow* window,
          Registers* caller) {
  const uint64_t relative = cfa + static_cast<uint64_t>(rule.value);
  uint64_t value = 0;
  switch (rule.kind) {
    case CfiRule::kSame:
      if (registers.Has(number))
        caller->Put(number, registers.value[number]);
      return true;
    case CfiRule::kUndefined:
      return true;
    case CfiRule::kOffset:
      if (!window->Read(relative, &value))
        return false;
      break;
    case CfiRule::kValueOffset:
      value = relative;
      break;
    case CfiRule::kRegister:
      if (!registers.Has(static_cast<uint64_t>(rule.value)))
        return true;
      value = registers.value[rule.value];
      break;
    case CfiRule::kExpression:
    case CfiRule::kValueExpression:
      if (!Evaluate(rule.expression(), registers, &cfa, window, &value) ||
          (rule.kind == CfiRule::kExpression && !window->Read(value, &value))) {
        return false;
      }
  }
  caller->Put(number, value);
  return true;
}

Step StepByRules(const CfiRules& rules, StackWindow* window, Registers* registers) {
  if (rules.registers[kReturnAddress].kind == CfiRule::kUndefined)
    return Step::kOutermost;
  uint64_t cfa = 0;
  if (rules.cfa.kind == CfiRule::kOffset) {
    if (!registers->Has(rules.cfa_register))
      return Step::kLost;
    cfa = registers->value[rules.cfa_register] + static_cast<uint64_t>(rules.cfa.value);
  } else if (!Evaluate(rules.cfa.expression(), *registers, nullptr, window, &cfa)) {
    return Step::kLost;
  }
  Registers caller{};
  for (uint32_t i = 0; i < kRegisterCount; ++i) {
    const bool is_return_address = i == kReturnAddress;
    if (is_return_address && rules.registers[i].kind == CfiRule::kSame)
      return Step::kLost;
    if (!Find(rules.registers[i], i, cfa, *registers, window, &caller) && is_return_address)
      return Step::kLost;
  }
  if (rules.registers[kRegisterRsp].kind == CfiRule::kSame)
    caller.Put(kRegisterRsp, cfa);
  const bool has_moved =
      caller.Has(kRegisterRsp) && caller.value[kRegisterRsp] > registers->value[kRegisterRsp];
  // A signal can be handled on another stack, above or below.
  if (!caller.Has(kReturnAddress) || (!has_moved && !rules.is_signal_frame) ||
      !caller.Has(kRegisterRsp)) {
    return Step::kLost;
  }
  *registers = caller;
  return caller.value[kReturnAddress] != 0 ? Step::kDone : Step::kOutermost;
}

Step StepWithoutRules(StackWindow* window, Registers* registers) {
  Frame frame{registers->value[kReturnAddress], registers->value[kRegisterRsp],
              registers->value[kRegisterRbp]};
  if (!registers->Has(kRegisterRbp) || !StepByFramePointer(window, &frame))
    return Step::kLost;
  *registers = {};
  registers->Put(kReturnAddress, frame.pc);
  registers->Put(kRegisterRsp, frame.rsp);
  registers->Put(kRegisterRbp, frame.rbp);
  return Step::kDone;
}

// Follows every register and reads the tables anew at each frame: for stacks with signal frames,
// and functions that find their caller by other registers. About as fast as backtrace().
VRAMSCOPE_NOINLINE NativeWalk WalkByRules(const Registers& start, uintptr_t* pcs, size_t capacity) {
  Registers registers = start;
  StackWindow window(registers.value[kRegisterRsp]);
  UnsureFrames unsure;
  bool was_interrupted = false;  // the address is of the next instruction, not after a call
  size_t depth = 0;
  for (;;) {
    const uintptr_t pc = registers.value[kReturnAddress] - (was_interrupted ? 0 : 1);
    CodeModule module;
    CfiRules rules;
    const bool has_rules = FindModule(pc, &module) && FindRules(module, pc, &rules);
    unsure.Note(has_rules, depth);
    const Step step =
        has_rules ? StepByRules(rules, &window, &registers) : StepWithoutRules(&window, &registers);
    if (step != Step::kDone)
      return unsure.End(depth, step == Step::kOutermost ? WalkEnd::kOutermost : WalkEnd::kLost);
    if (depth == capacity)
      return unsure.End(depth, WalkEnd::kDepthLimit);
    was_interrupted = has_rules && rules.is_signal_frame;
    // At the end of a function saved registers are found in what it has given back already.
    constexpr uintptr_t kRedZoneBytes = 128;
    if (was_interrupted)
      window = StackWindow(registers.value[kRegisterRsp] - kRedZoneBytes);
    pcs[depth++] = registers.value[kReturnAddress];
  }
}

}  // namespace

VRAMSCOPE_NOINLINE NativeWalk WalkNativeStack(const WalkStart& start,
                                              uintptr_t* pcs,
                                              size_t capacity) {
  NativeWalk walk;
  NoLog log;
  if (VRAMSCOPE_LIKELY(WalkByRows(start, pcs, capacity, &walk, &log)))
    return walk;
  return WalkByRules(RegistersOf(start), pcs, capacity);
}

uint32_t FindKnownWalk(const NativeStackCache& known, const WalkStart& start) {
  const uintptr_t stack_end = StackWindow::OwnEnd(start.rsp);
  return stack_end != 0 ? known.Find(start.rsp, start.rbp, stack_end, CodeGeneration()) : 0;
}

void KeepWalk(NativeStackCache* known, const WalkStart& start, uint32_t id) {
  const uintptr_t stack_end = StackWindow::OwnEnd(start.rsp);
  if (stack_end == 0)
    return;
  NativeStackCache::Walk* const kept = known->Place(start.rsp);
  if (kept == nullptr)
    return;
  *kept = {};
  kept->stack_end = stack_end;
  kept->generation = CodeGeneration();
  kept->id = id;
  uintptr_t pcs[kMaxNativeDepth];
  NativeWalk walk;
  WalkLog log(kept);
  if (WalkByRows(start, pcs, kMaxNativeDepth, &walk, &log) && log.is_whole() &&
      walk.end == WalkEnd::kOutermost)
    kept->rsp = start.rsp;  // last: a walk without it is none
}

uint64_t SeenBinaries() {
  return SeenModules();
}

void LoadNativeStacks() {
  LoadStackBounds();
  LoadModuleSearch();
}

namespace {

void ObserveOpening(const Opening&) {
  NoteUnloadedModules();
}

}  // namespace

const Source kNativeStackSource = {.opening = ObserveOpening};

}  // namespace vramscope::probe

#else  // other processors

#include <execinfo.h>
#include <link.h>

namespace vramscope::probe {
namespace {

int ReadChanges(dl_phdr_info* info, size_t size, void* data) {
  if (size >= offsetof(dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs)
    *static_cast<uint64_t*>(data) = info->dlpi_adds + info->dlpi_subs;
  return 1;
}

}  // namespace

NativeWalk WalkNativeStack(const WalkStart&, uintptr_t* pcs, size_t capacity) {
  const auto depth =
      static_cast<size_t>(backtrace(reinterpret_cast<void**>(pcs), static_cast<int>(capacity)));
  // It does not say whether there would be more.
  return {depth, depth == capacity ? WalkEnd::kDepthLimit : WalkEnd::kOutermost};
}

uint32_t FindKnownWalk(const NativeStackCache&, const WalkStart&) {
  return 0;
}
void KeepWalk(NativeStackCache*, const WalkStart&, uint32_t) {}

uint64_t SeenBinaries() {
  uint64_t changes = 0;
  dl_iterate_phdr(ReadChanges, &changes);
  return changes + 1;
}

void LoadNativeStacks() {}
const Source kNativeStackSource = {};

}  // namespace vramscope::probe

#endif
