// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "probe/stack/python/layout.h"
#include "probe/stack/stacks.h"

namespace vramscope::probe {

inline constexpr uint32_t kMaxPythonDepth = 256;
inline constexpr uint32_t kCellContent = 16;  // PyCellObject.ob_ref

struct RawPythonFrame {
  const char* code;      // the code object
  uint64_t instruction;  // as the frame holds it: pointer or index
  uintptr_t object;      // the torch.nn.Module whose method this is, 0 if it is none
};

// The stack of the calling thread, whose thread state that is.
using PythonCapture = PythonStack (*)(Stream& stream, const void* thread_state);
// The walk for a layout. Offsets that are known when this is compiled are part of its code: loading
// them for each frame would take as long as the frame itself.
PythonCapture FindPythonCapture(const PythonLayout& layout);

// The interpreter of this process, as far as it is known. Written once, before `ready` is set.
struct PythonRuntime {
  std::atomic<bool> ready{false};
  std::atomic<const char*> trouble{nullptr};  // why this process has no stacks
  PythonLayout layout{};
  void* (*this_thread_state)() = nullptr;  // PyGILState_GetThisThreadState: no GIL needed
  PythonCapture capture = nullptr;         // FindPythonCapture(layout)
  uint32_t version_hex = 0;
};
extern PythonRuntime g_python;

// Finds the frames that run a method of a torch.nn.Module. Written once, the names last, when all
// of it has been proved; until then the names are null, which no function's name is.
struct PythonModules {
  std::atomic<const char*> call{nullptr};     // Module.__call__'s code: its `self` is a module
  std::atomic<const char*> forward{nullptr};  // a name that methods of other classes have too
  const char* type = nullptr;                 // torch.nn.Module
  const char* constructor = nullptr;          // the name __init__
  const char* move = nullptr;                 // Module._apply's code: `self` is what moves
  const char* cell_type = nullptr;            // of variables that a closure shares; null: not known
  uint32_t type_mro = 0;                      // PyTypeObject: the tuple of its bases
  uint32_t tuple_items = 0;                   // PyTupleObject: the first item
};
extern PythonModules g_python_modules;

// Whether the object's class is torch.nn.Module or derived from it, read from memory alone.
bool IsModule(const char* object);

// Byte offset of an instruction in its code object.
inline uint64_t InstructionOffset(const PythonLayout& layout, const RawPythonFrame& frame) {
  if (layout.instruction_is_index) {
    return static_cast<uint64_t>(static_cast<int32_t>(frame.instruction)) * layout.index_scale;
  }
  const uint64_t offset =
      frame.instruction - reinterpret_cast<uintptr_t>(frame.code + layout.code_instructions);
  return offset < (uint64_t{1} << 31) ? offset : 0;  // before the first instruction
}

inline uint64_t Untagged(const PythonLayout& layout, uint64_t reference) {
  return reference & ~uint64_t{layout.reference_tags};
}

// For the calling thread's own frames.
struct PlainReader {
  template <class T>
  VRAMSCOPE_ALWAYS_INLINE bool Get(const char* address, T* value) const {
    std::memcpy(value, address, sizeof *value);
    return true;
  }
};

// One step of the walk: reads `*cursor` through Reader, moves it to the caller, and returns whether
// the frame is a Python frame. Reader::Get<T>(address, T*) may fail (calibration) or be a plain
// load.
template <class Reader>
inline bool StepPythonFrame(const PythonLayout& layout,
                            const Reader& reader,
                            const char** cursor,
                            RawPythonFrame* frame) {
  const char* const at = *cursor;
  uint64_t code = 0, previous = 0, instruction = 0;
  uint8_t owner = 0;
  bool ok = reader.Get(at + layout.frame_previous, &previous);
  ok = ok && reader.Get(at + layout.frame_code, &code);
  if (layout.instruction_is_index) {
    int32_t index = 0;
    ok = ok && reader.Get(at + layout.frame_instruction, &index);
    instruction = static_cast<uint32_t>(index);
  } else {
    ok = ok && reader.Get(at + layout.frame_instruction, &instruction);
  }
  if (layout.frame_owner >= 0)
    ok = ok && reader.Get(at + layout.frame_owner, &owner);
  *cursor = ok ? reinterpret_cast<const char*>(previous) : nullptr;
  *frame = {reinterpret_cast<const char*>(Untagged(layout, code)), instruction, 0};
  return ok && owner < layout.first_foreign_owner && frame->code != nullptr;
}

template <class Reader>
inline const char* InnermostPythonFrame(const PythonLayout& layout,
                                        const Reader& reader,
                                        const void* thread_state) {
  const char* frame = nullptr;
  if (!reader.Get(static_cast<const char*>(thread_state) + layout.tstate_frame, &frame))
    return nullptr;
  if (layout.cframe_frame < 0 || frame == nullptr)
    return frame;
  const char* inner = nullptr;
  return reader.Get(frame + layout.cframe_frame, &inner) ? inner : nullptr;
}

// The modules whose methods a thread runs, the innermost first, at most `capacity`. Its frames must
// not change: it is the calling thread, or the caller holds the GIL.
size_t RunningModules(const void* thread_state, uintptr_t* modules, size_t capacity);
// The same of modules that a thread is building or moving: their constructors, Module._apply.
size_t ModulesInSetUp(const void* thread_state, uintptr_t* modules, size_t capacity);

// Copies the text of a str object as UTF-8 into `out`; returns its length, cut at `capacity`.
size_t CopyPythonString(const PythonLayout& layout, const char* object, char* out, size_t capacity);

}  // namespace vramscope::probe
