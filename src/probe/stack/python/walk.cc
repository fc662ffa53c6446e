// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/python/walk.h"

#include "probe/session/stream.h"

namespace vramscope::probe {

constinit PythonRuntime g_python;
constinit PythonModules g_python_modules;

namespace {

// Verdicts on classes: a class's address, with bit 0 set where it is a module. Entries replace one
// another, and each is one word, so that threads need not agree on anything.
constexpr uint32_t kTypeSlots = 1024;
constinit std::atomic<uintptr_t> g_types[kTypeSlots]{};

VRAMSCOPE_NOINLINE bool IsModuleType(const char* type, std::atomic<uintptr_t>* slot) {
  const PythonModules& known = g_python_modules;
  bool is_module = false;
  if (const auto* const mro = ReadAt<const char*>(type, known.type_mro)) {
    const auto size = ReadAt<int64_t>(mro, kTupleSize);
    for (int64_t i = 0; i < size && !is_module; ++i) {
      is_module = ReadAt<const char*>(mro, known.tuple_items + static_cast<size_t>(i) *
                                                                   sizeof(void*)) == known.type;
    }
  }
  slot->store(reinterpret_cast<uintptr_t>(type) | (is_module ? 1 : 0), std::memory_order_relaxed);
  return is_module;
}

// The first argument of a frame, null if it takes nothing: the slot may then hold a leftover object
// that no longer exists.
VRAMSCOPE_ALWAYS_INLINE uint64_t FirstArgument(const PythonLayout& layout,
                                               const char* frame,
                                               const char* code) {
  if (VRAMSCOPE_UNLIKELY(ReadAt<int32_t>(code, layout.code_argcount) == 0))
    return 0;
  return Untagged(layout, ReadAt<uint64_t>(frame, layout.frame_locals));
}

// The names that tell a module's frames, loaded once a walk.
struct ModuleNames {
  const char* call = g_python_modules.call.load(std::memory_order_acquire);
  const char* forward = g_python_modules.forward.load(std::memory_order_relaxed);

  VRAMSCOPE_ALWAYS_INLINE uintptr_t Object(const PythonLayout& layout,
                                           const char* frame,
                                           const char* code) const {
    const auto* const name = ReadAt<const char*>(code, layout.code_name);
    const bool is_call = name == call;
    if (VRAMSCOPE_LIKELY(!is_call && name != forward))
      return 0;
    const uint64_t self = FirstArgument(layout, frame, code);
    if (self == 0 || (!is_call && !IsModule(reinterpret_cast<const char*>(self))))
      return 0;
    return self;
  }
};

// The module that a frame builds or moves, 0 if it does neither. Too slow for every event:
// called for new stacks, and by code that holds the GIL.
uintptr_t ModuleInSetUp(const PythonLayout& layout,
                        const char* frame,
                        const char* code,
                        uintptr_t* how) {
  const PythonModules& known = g_python_modules;
  if (known.call.load(std::memory_order_acquire) == nullptr ||
      (code != known.move && ReadAt<const char*>(code, layout.code_name) != known.constructor))
    return 0;
  uint64_t self = FirstArgument(layout, frame, code);
  if (self != 0 && known.cell_type != nullptr &&
      ReadAt<const char*>(reinterpret_cast<const char*>(self), kObjectType) == known.cell_type)
    self = ReadAt<uint64_t>(reinterpret_cast<const char*>(self), kCellContent);
  if (self == 0 || !IsModule(reinterpret_cast<const char*>(self)))
    return 0;
  *how |= code == known.move ? kSetUpMoves : kSetUpBuilds;
  return self;
}

// Code objects are freed and their memory used again, so the address alone does not name one. The
// added fields are in one cache line of the object. Not multiplied: what it is added to is.
VRAMSCOPE_ALWAYS_INLINE uint64_t Fingerprint(const PythonLayout& layout, const char* code) {
  // The first line, and a field beside it that the same function always has.
  const auto line = ReadAt<uint64_t>(code, layout.code_firstlineno);
  const auto file = ReadAt<uint64_t>(code, layout.code_filename);
  const auto name = ReadAt<uint64_t>(code, layout.code_name);
  return ((name << 23 | name >> 41) ^ file) + line;
}

VRAMSCOPE_ALWAYS_INLINE uint64_t HashCode(const PythonLayout& layout, const char* code) {
  return HashMix(reinterpret_cast<uintptr_t>(code), Fingerprint(layout, code));
}

// The share of one frame in a stack's hash. It depends on nothing before it, so that the processor
// works on many frames at once; only the chain in AddFrameToHash() is serial. A pointer to an
// instruction says which code object that is, an index does not.
VRAMSCOPE_ALWAYS_INLINE uint64_t HashFrame(const PythonLayout& layout,
                                           const RawPythonFrame& frame) {
  uint64_t place = frame.instruction;
  if (layout.instruction_is_index)
    place += reinterpret_cast<uintptr_t>(frame.code) << 16;
  uint64_t hash = place * 0x165667b19e3779f9u + Fingerprint(layout, frame.code);
  if (VRAMSCOPE_UNLIKELY(frame.object != 0))
    hash ^= frame.object * 0xd6e8feb86659fd93u;
  return hash;
}

VRAMSCOPE_ALWAYS_INLINE uint64_t AddFrameToHash(uint64_t hash, uint64_t frame) {
  return ((hash << 31 | hash >> 33) ^ frame) * 0x9e3779b97f4a7c15u;
}

uint32_t InternPythonString(Stream& stream, const PythonLayout& layout, const char* object) {
  char text[2048];
  const size_t size = object != nullptr ? CopyPythonString(layout, object, text, sizeof text) : 0;
  return stream.InternString(text, size);
}

uint32_t InternCode(Stream& stream, const PythonLayout& layout, const char* code, uint64_t hash) {
  if (const uint32_t known = stream.codes().Find(hash))
    return known;
  format::PyCode record;
  record.file = InternPythonString(stream, layout, ReadAt<const char*>(code, layout.code_filename));
  record.name = InternPythonString(stream, layout, ReadAt<const char*>(code, layout.code_qualname));
  record.first_line = ReadAt<uint32_t>(code, layout.code_firstlineno);
  record.table_kind = static_cast<uint64_t>(layout.line_table);
  if (const char* table = ReadAt<const char*>(code, layout.code_linetable)) {
    const auto size = static_cast<uint64_t>(ReadAt<int64_t>(table, kBytesSize));
    if (size <= format::kMaxBlobBytes) {
      record.line_table = {table + kBytesData, static_cast<size_t>(size)};
    } else {
      record.table_kind = static_cast<uint64_t>(format::LineTableKind::kNone);
      CountLoss(format::Loss::kLineTableTooLarge);
    }
  }
  record.id = stream.NewId();
  if (!stream.Append(record))
    return 0;
  if (!stream.codes().Insert(hash, static_cast<uint32_t>(record.id))) {
    stream.ResetStackTables();
    stream.codes().Insert(hash, static_cast<uint32_t>(record.id));
  }
  return static_cast<uint32_t>(record.id);
}

// The frames of a stack that is new, the innermost first: at most kMaxPythonDepth. They do not
// change, because they are the calling thread's own.
uint32_t CollectFrames(const PythonLayout& layout,
                       const char* cursor,
                       RawPythonFrame* frames,
                       uintptr_t* set_up) {
  const PlainReader reader;
  const ModuleNames names;
  uint32_t depth = 0;
  while (cursor != nullptr && depth < kMaxPythonDepth) {
    const char* const at = cursor;
    if (!StepPythonFrame(layout, reader, &cursor, &frames[depth]))
      continue;
    frames[depth].object = names.Object(layout, at, frames[depth].code);
    ModuleInSetUp(layout, at, frames[depth].code, set_up);
    ++depth;
  }
  return depth;
}

// Defines the new frames of a stack, outermost first. Returns its entry in the stream, null if it
// could not be written.
VRAMSCOPE_NOINLINE KnownStack* DefineStack(Stream& stream,
                                           const char* innermost,
                                           uint64_t stack_hash) {
  const PythonLayout& layout = g_python.layout;
  RawPythonFrame frames[kMaxPythonDepth];
  uintptr_t set_up = 0;
  const uint32_t depth = CollectFrames(layout, innermost, frames, &set_up);
  uint32_t parent = 0;
  uint64_t hash = 1;
  uintptr_t object = 0;  // of the frame around: a call and the forward that it leads to are one
  for (uint32_t i = depth; i-- != 0;) {
    const uint64_t code_hash = HashCode(layout, frames[i].code);
    hash = AddFrameToHash(hash, HashFrame(layout, frames[i]));
    uint32_t id = stream.nodes().Find(hash);
    if (id == 0) {
      const uint32_t code = InternCode(stream, layout, frames[i].code, code_hash);
      id = stream.NewId();
      if (!stream.Append(
              format::PyStack{.id = id,
                              .parent = parent,
                              .code = code,
                              .instruction = InstructionOffset(layout, frames[i]),
                              .object = frames[i].object != object ? frames[i].object : 0})) {
        return nullptr;
      }
      if (!stream.nodes().Insert(hash, id)) {
        stream.ResetStackTables();
        stream.nodes().Insert(hash, id);
      }
    }
    parent = id;
    if (frames[i].object != 0)
      object = frames[i].object;
  }
  return stream.KeepStack(stack_hash, parent, object | set_up);
}

// Reads each frame once and keeps none of them: the hash identifies a known stack. `kKnown` null:
// the interpreter's layout is none of those below.
template <const PythonLayout* kKnown>
PythonStack Capture(Stream& stream, const void* thread_state) {
  const PythonLayout& layout = kKnown != nullptr ? *kKnown : g_python.layout;
  const PlainReader reader;
  const char* const innermost = InnermostPythonFrame(layout, reader, thread_state);
  const char* cursor = innermost;
  const ModuleNames names;
  uint32_t room = kMaxPythonDepth;
  uint64_t hash = 1;
  while (cursor != nullptr) {
    const char* const at = cursor;
    RawPythonFrame frame;
    if (!StepPythonFrame(layout, reader, &cursor, &frame))
      continue;
    frame.object = names.Object(layout, at, frame.code);
    hash = AddFrameToHash(hash, HashFrame(layout, frame));
    if (--room == 0) {
      if (cursor != nullptr)
        CountLoss(format::Loss::kStackTooDeep);
      break;
    }
  }
  if (room == kMaxPythonDepth)
    return {};
  hash |= 1;  // not 0
  KnownStack* stack = stream.FindStack(hash);
  if (VRAMSCOPE_UNLIKELY(stack == nullptr))
    stack = DefineStack(stream, innermost, hash);
  return {stack != nullptr ? stack->id : 0, stack};
}

char* PutUtf8(char* out, uint32_t c) {
  if (c < 0x80) {
    *out++ = static_cast<char>(c);
  } else if (c < 0x800) {
    *out++ = static_cast<char>(0xc0 | (c >> 6));
    *out++ = static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    *out++ = static_cast<char>(0xe0 | (c >> 12));
    *out++ = static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    *out++ = static_cast<char>(0x80 | (c & 0x3f));
  } else {
    *out++ = static_cast<char>(0xf0 | ((c >> 18) & 7));
    *out++ = static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    *out++ = static_cast<char>(0x80 | ((c >> 6) & 0x3f));
    *out++ = static_cast<char>(0x80 | (c & 0x3f));
  }
  return out;
}

}  // namespace

size_t CopyPythonString(const PythonLayout& layout,
                        const char* object,
                        char* out,
                        size_t capacity) {
  const auto length = static_cast<uint64_t>(ReadAt<int64_t>(object, kUnicodeLength));
  const uint32_t state = ReadAt<uint32_t>(object, kUnicodeState) >> layout.unicode_state_shift;
  const uint32_t kind = state & 7;  // bytes a character
  const bool compact = (state & 8) != 0;
  const bool ascii = (state & 16) != 0;
  if (!compact || (kind != 1 && kind != 2 && kind != 4))
    return 0;
  const char* text = object + (ascii ? layout.unicode_ascii : layout.unicode_compact);
  char* end = out;
  for (uint64_t i = 0; i < length && static_cast<size_t>(end - out) + 4 <= capacity; ++i) {
    uint32_t c = 0;
    std::memcpy(&c, text + i * kind, kind);
    end = PutUtf8(end, c);
  }
  return static_cast<size_t>(end - out);
}

bool IsModule(const char* object) {
  const auto* const type = ReadAt<const char*>(object, kObjectType);
  const auto address = reinterpret_cast<uintptr_t>(type);
  std::atomic<uintptr_t>& slot = g_types[(address >> 4 ^ address >> 14) & (kTypeSlots - 1)];
  const uintptr_t verdict = slot.load(std::memory_order_relaxed);
  if (VRAMSCOPE_LIKELY((verdict & ~uintptr_t{1}) == address))
    return (verdict & 1) != 0;
  return IsModuleType(type, &slot);
}

namespace {

// module(frame, code): the module that a frame says, or 0.
template <class Module>
size_t ModulesOf(const void* thread_state, uintptr_t* modules, size_t capacity, Module module_of) {
  const PythonLayout& layout = g_python.layout;
  const PlainReader reader;
  const char* cursor = InnermostPythonFrame(layout, reader, thread_state);
  size_t count = 0;
  while (cursor != nullptr && count < capacity) {
    const char* const at = cursor;
    RawPythonFrame frame;
    if (!StepPythonFrame(layout, reader, &cursor, &frame))
      continue;
    const uintptr_t module = module_of(at, frame.code);
    if (module != 0 && (count == 0 || modules[count - 1] != module))
      modules[count++] = module;
  }
  return count;
}

}  // namespace

size_t RunningModules(const void* thread_state, uintptr_t* modules, size_t capacity) {
  const ModuleNames names;
  return ModulesOf(thread_state, modules, capacity, [&](const char* frame, const char* code) {
    return names.Object(g_python.layout, frame, code);
  });
}

size_t ModulesInSetUp(const void* thread_state, uintptr_t* modules, size_t capacity) {
  return ModulesOf(thread_state, modules, capacity, [](const char* frame, const char* code) {
    uintptr_t how = 0;
    return ModuleInSetUp(g_python.layout, frame, code, &how);
  });
}

PythonCapture FindPythonCapture(const PythonLayout& layout) {
  return layout == kPython39    ? Capture<&kPython39>
         : layout == kPython310 ? Capture<&kPython310>
         : layout == kPython311 ? Capture<&kPython311>
         : layout == kPython312 ? Capture<&kPython312>
         : layout == kPython313 ? Capture<&kPython313>
                                : Capture<nullptr>;
}

PythonStack CapturePython(Stream& stream) {
  if (!g_python.ready.load(std::memory_order_acquire) ||
      !g_flags.python.load(std::memory_order_relaxed))
    return {};
  const void* const thread_state = g_python.this_thread_state();
  if (thread_state == nullptr)
    return {};  // no Python runs in this thread
  return g_python.capture(stream, thread_state);
}

}  // namespace vramscope::probe
