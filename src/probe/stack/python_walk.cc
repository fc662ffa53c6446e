// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/python_walk.h"

#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

namespace vramscope::probe {

constinit PythonRuntime g_python;

namespace {

struct PlainReader {
  template <class T>
  VRAMSCOPE_ALWAYS_INLINE bool Get(const char* address, T* value) const {
    std::memcpy(value, address, sizeof *value);
    return true;
  }
};

// Code objects are freed and their memory used again, so the address alone does not name one. What
// is added lies in one cache line of the object.
VRAMSCOPE_ALWAYS_INLINE uint64_t HashCode(const PythonLayout& layout, const char* code) {
  const auto line = ReadAt<uint32_t>(code, layout.code_firstlineno);
  const auto file = ReadAt<uint64_t>(code, layout.code_filename);
  const auto name = ReadAt<uint64_t>(code, layout.code_name);
  return (reinterpret_cast<uintptr_t>(code) + (static_cast<uint64_t>(line) << 44)) *
             0x9e3779b97f4a7c15u +
         (file ^ (name << 23)) * 0xc2b2ae3d27d4eb4fu;
}

// One frame's share of a stack's hash. It depends on nothing before it, so that the processor works
// on many frames at once; only the chain in AddToHash() is serial.
VRAMSCOPE_ALWAYS_INLINE uint64_t HashFrame(const PythonLayout& layout,
                                           const RawPythonFrame& frame) {
  return HashCode(layout, frame.code) ^ (frame.instruction * 0x165667b19e3779f9u);
}

VRAMSCOPE_ALWAYS_INLINE uint64_t AddToHash(uint64_t hash, uint64_t frame) {
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

// Defines what is new of a stack, outermost frame first, and returns its id.
VRAMSCOPE_NOINLINE uint32_t DefineStack(Stream& stream,
                                        const PythonLayout& layout,
                                        const RawPythonFrame* frames,
                                        uint32_t depth) {
  uint32_t parent = 0;
  uint64_t hash = 1;
  for (uint32_t i = depth; i-- != 0;) {
    const uint64_t code_hash = HashCode(layout, frames[i].code);
    hash = AddToHash(hash, HashFrame(layout, frames[i]));
    uint32_t id = stream.nodes().Find(hash);
    if (id == 0) {
      const uint32_t code = InternCode(stream, layout, frames[i].code, code_hash);
      id = stream.NewId();
      if (!stream.Append(format::PyStack{.id = id,
                                         .parent = parent,
                                         .code = code,
                                         .instruction = InstructionOffset(layout, frames[i])})) {
        return 0;
      }
      if (!stream.nodes().Insert(hash, id)) {
        stream.ResetStackTables();
        stream.nodes().Insert(hash, id);
      }
    }
    parent = id;
  }
  return parent;
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

uint32_t CapturePythonStack(Stream& stream) {
  if (!g_python.ready.load(std::memory_order_acquire))
    return 0;
  const void* const thread_state = g_python.this_thread_state();
  if (thread_state == nullptr)
    return 0;  // no Python runs in this thread
  const PythonLayout& layout = g_python.layout;
  const PlainReader reader;
  const char* cursor = InnermostPythonFrame(layout, reader, thread_state);
  RawPythonFrame frames[kMaxPythonDepth];
  uint32_t depth = 0;
  uint64_t hash = 1;
  while (cursor != nullptr) {
    if (!StepPythonFrame(layout, reader, &cursor, &frames[depth]))
      continue;
    hash = AddToHash(hash, HashFrame(layout, frames[depth]));
    if (++depth == kMaxPythonDepth) {
      if (cursor != nullptr)
        CountLoss(format::Loss::kStackTooDeep);
      break;
    }
  }
  if (depth == 0)
    return 0;
  hash ^= hash >> 32;  // the best bits of a product are its upper ones
  Stream::StackSlot& slot = stream.stack_slot(hash);
  if (VRAMSCOPE_LIKELY(slot.hash == hash && slot.id != 0))
    return slot.id;
  const uint32_t id = DefineStack(stream, layout, frames, depth);
  if (id != 0)
    stream.stack_slot(hash) = {hash, id};
  return id;
}

}  // namespace vramscope::probe
