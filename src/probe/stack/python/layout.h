// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "format/enums.h"

namespace vramscope::probe {

// The offsets that a stack needs in one CPython version. Byte offsets in the structs named on the
// right.
struct PythonLayout {
  uint32_t tstate_frame;    // PyThreadState: the current frame, or the _PyCFrame that holds it
  int32_t cframe_frame;     // _PyCFrame.current_frame (3.11, 3.12); -1: tstate_frame is the frame
  uint32_t frame_previous;  // frame: its caller
  uint32_t frame_code;      // frame: code object
  uint32_t frame_instruction;   // frame: pointer to the instruction, or f_lasti (int) up to 3.10
  int32_t frame_owner;          // frame: one byte; -1: there is none
  uint32_t frame_locals;        // frame: its local variables, the arguments first
  uint8_t first_foreign_owner;  // owners from this value on are not Python frames
  uint8_t reference_tags;       // bits of a frame's references that do not belong to the address
  bool instruction_is_index;    // f_lasti; otherwise a pointer into the code object
  uint8_t index_scale;          // bytes per unit of f_lasti
  uint32_t code_filename, code_name, code_qualname, code_firstlineno, code_argcount,
      code_linetable;          // PyCodeObject
  uint32_t code_variables;     // PyCodeObject: names of the local variables, a tuple
  uint32_t code_instructions;  // PyCodeObject: where the instruction pointer counts from
  format::LineTableKind line_table;
  uint32_t unicode_state_shift;  // PyASCIIObject.state: bits of `interned`, before `kind`
  uint32_t unicode_ascii;        // first character of a compact ASCII string
  uint32_t unicode_compact;      // first character of another compact string

  bool operator==(const PythonLayout&) const = default;
};

// PyASCIIObject.state of some releases of 3.14.
inline constexpr uint32_t kWideInterned = 16;

// Include/cpython/frameobject.h and code.h of 3.9 and 3.10.
constexpr PythonLayout PythonFrameObjects(uint32_t lasti,
                                          uint32_t locals,
                                          uint8_t scale,
                                          format::LineTableKind table) {
  return {.tstate_frame = 24,
          .cframe_frame = -1,
          .frame_previous = 24,
          .frame_code = 32,
          .frame_instruction = lasti,
          .frame_owner = -1,
          .frame_locals = locals,
          .first_foreign_owner = 0xff,
          .reference_tags = 0,
          .instruction_is_index = true,
          .index_scale = scale,
          .code_filename = 104,
          .code_name = 112,
          .code_qualname = 112,  // co_qualname came with 3.11
          .code_firstlineno = 40,
          .code_argcount = 16,
          .code_linetable = 120,
          .code_variables = 72,
          .code_instructions = 0,
          .line_table = table,
          .unicode_state_shift = 2,
          .unicode_ascii = 48,
          .unicode_compact = 72};
}
inline constexpr PythonLayout kPython39 =
    PythonFrameObjects(104, 360, 1, format::LineTableKind::kLnotab);
inline constexpr PythonLayout kPython310 =
    PythonFrameObjects(96, 352, 2, format::LineTableKind::kPep626);

// Include/internal/pycore_frame.h and Include/cpython/{pystate,code}.h of 3.11 and 3.12.
inline constexpr PythonLayout kPython311 = {.tstate_frame = 56,
                                            .cframe_frame = 8,
                                            .frame_previous = 48,
                                            .frame_code = 32,
                                            .frame_instruction = 56,
                                            .frame_owner = -1,  // a byte, but all are Python frames
                                            .frame_locals = 72,
                                            .first_foreign_owner = 0xff,
                                            .reference_tags = 0,
                                            .instruction_is_index = false,
                                            .index_scale = 1,
                                            .code_filename = 112,
                                            .code_name = 120,
                                            .code_qualname = 128,
                                            .code_firstlineno = 72,
                                            .code_argcount = 56,
                                            .code_linetable = 136,
                                            .code_variables = 96,
                                            .code_instructions = 184,
                                            .line_table = format::LineTableKind::kLocations,
                                            .unicode_state_shift = 2,
                                            .unicode_ascii = 48,
                                            .unicode_compact = 72};
inline constexpr PythonLayout kPython312 = {.tstate_frame = 56,
                                            .cframe_frame = 0,
                                            .frame_previous = 8,
                                            .frame_code = 0,
                                            .frame_instruction = 56,
                                            .frame_owner = 70,
                                            .frame_locals = 72,
                                            .first_foreign_owner = 3,
                                            .reference_tags = 0,
                                            .instruction_is_index = false,
                                            .index_scale = 1,
                                            .code_filename = 112,
                                            .code_name = 120,
                                            .code_qualname = 128,
                                            .code_firstlineno = 68,
                                            .code_argcount = 52,
                                            .code_linetable = 136,
                                            .code_variables = 96,
                                            .code_instructions = 192,
                                            .line_table = format::LineTableKind::kLocations,
                                            .unicode_state_shift = 2,
                                            .unicode_ascii = 40,
                                            .unicode_compact = 56};
// _PyRuntime's own description in 3.13: fields as in 3.12, no _PyCFrame.
inline constexpr PythonLayout kPython313 = [] {
  PythonLayout layout = kPython312;
  layout.tstate_frame = 72;
  layout.cframe_frame = -1;
  layout.code_instructions = 200;
  return layout;
}();

// The layout of `version_hex` (PY_VERSION_HEX), from CPython's headers for 3.9 to 3.12 and from the
// table that newer interpreters carry at the head of _PyRuntime (`runtime`, may be null). False
// when the version is not known. The result is a claim: it is verified before use.
bool FindPythonLayout(uint32_t version_hex, const void* runtime, PythonLayout* layout);

// Offsets common to every supported version on 64-bit machines.
inline constexpr uint32_t kObjectType = 8;
inline constexpr uint32_t kTupleSize = 16;
inline constexpr uint32_t kUnicodeLength = 16;
inline constexpr uint32_t kUnicodeState = 32;
inline constexpr uint32_t kBytesSize = 16;
inline constexpr uint32_t kBytesData = 32;

template <class T>
inline T ReadAt(const void* object, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(object) + offset, sizeof value);
  return value;
}

}  // namespace vramscope::probe
