// SPDX-License-Identifier: Apache-2.0
#include "probe/stack/python_layout.h"

namespace vramscope::probe {
namespace {

using format::LineTableKind;

// Include/cpython/frameobject.h and code.h of 3.9 and 3.10.
constexpr PythonLayout FrameObjects(uint32_t lasti,
                                    uint32_t locals,
                                    uint8_t scale,
                                    LineTableKind table) {
  return {.tstate_frame = 24,
          .cframe_frame = -1,
          .frame_previous = 24,
          .frame_code = 32,
          .frame_instruction = lasti,
          .frame_owner = -1,
          .frame_locals = locals,
          .first_foreign_owner = 0xff,
          .instruction_is_index = true,
          .index_scale = scale,
          .code_filename = 104,
          .code_name = 112,
          .code_qualname = 112,  // co_qualname came with 3.11
          .code_firstlineno = 40,
          .code_linetable = 120,
          .code_instructions = 0,
          .line_table = table,
          .unicode_state_shift = 2,
          .unicode_ascii = 48,
          .unicode_compact = 72};
}
constexpr PythonLayout k39 = FrameObjects(104, 360, 1, LineTableKind::kLnotab);
constexpr PythonLayout k310 = FrameObjects(96, 352, 2, LineTableKind::kPep626);

// Include/internal/pycore_frame.h and Include/cpython/{pystate,code}.h of 3.11 and 3.12.
constexpr PythonLayout k311 = {.tstate_frame = 56,
                               .cframe_frame = 8,
                               .frame_previous = 48,
                               .frame_code = 32,
                               .frame_instruction = 56,
                               .frame_owner = 69,
                               .frame_locals = 72,
                               .first_foreign_owner = 3,
                               .instruction_is_index = false,
                               .index_scale = 1,
                               .code_filename = 112,
                               .code_name = 120,
                               .code_qualname = 128,
                               .code_firstlineno = 72,
                               .code_linetable = 136,
                               .code_instructions = 184,
                               .line_table = LineTableKind::kLocations,
                               .unicode_state_shift = 2,
                               .unicode_ascii = 48,
                               .unicode_compact = 72};
constexpr PythonLayout k312 = {.tstate_frame = 56,
                               .cframe_frame = 0,
                               .frame_previous = 8,
                               .frame_code = 0,
                               .frame_instruction = 56,
                               .frame_owner = 70,
                               .frame_locals = 72,
                               .first_foreign_owner = 3,
                               .instruction_is_index = false,
                               .index_scale = 1,
                               .code_filename = 112,
                               .code_name = 120,
                               .code_qualname = 128,
                               .code_firstlineno = 68,
                               .code_linetable = 136,
                               .code_instructions = 192,
                               .line_table = LineTableKind::kLocations,
                               .unicode_state_shift = 2,
                               .unicode_ascii = 40,
                               .unicode_compact = 56};

// _Py_DebugOffsets (Include/internal/pycore_debug_offsets.h): a cookie, then 64-bit words in
// groups. `group` is where the thread state's group begins, `frame_words` the size of the frame's
// group.
bool FromDebugOffsets(const void* runtime,
                      uint32_t version_hex,
                      size_t group,
                      size_t frame_words,
                      PythonLayout* layout) {
  if (runtime == nullptr || std::memcmp(runtime, "xdebugpy", 8) != 0)
    return false;
  const auto word = [&](size_t index) {
    return static_cast<uint32_t>(ReadAt<uint64_t>(runtime, index * 8));
  };
  if (word(1) != version_hex || word(2) != 0)
    return false;  // another build, or free-threaded
  constexpr size_t kThreadStateWords = 9;
  const size_t frame = group + kThreadStateWords;
  const size_t code = frame + frame_words;
  *layout = k312;
  layout->tstate_frame = word(group + 4);
  layout->cframe_frame = -1;
  layout->frame_previous = word(frame + 1);
  layout->frame_code = word(frame + 2);
  layout->frame_instruction = word(frame + 3);
  layout->frame_locals = word(frame + 4);
  layout->frame_owner = static_cast<int32_t>(word(frame + 5));
  layout->code_filename = word(code + 1);
  layout->code_name = word(code + 2);
  layout->code_qualname = word(code + 3);
  layout->code_linetable = word(code + 4);
  layout->code_firstlineno = word(code + 5);
  layout->code_instructions = word(code + 9);
  return true;
}

}  // namespace

bool FindPythonLayout(uint32_t version_hex, const void* runtime, PythonLayout* layout) {
  switch (version_hex >> 16) {
    case 0x0309:
      *layout = k39;
      return true;
    case 0x030a:
      *layout = k310;
      return true;
    case 0x030b:
      *layout = k311;
      return true;
    case 0x030c:
      *layout = k312;
      return true;
    case 0x030d:
      return FromDebugOffsets(runtime, version_hex, 19, 6, layout);
    case 0x030e:
      // Two words more for the interpreter state and for the frame; strings keep `interned` in
      // sixteen bits.
      if (!FromDebugOffsets(runtime, version_hex, 21, 8, layout))
        return false;
      layout->unicode_state_shift = 16;
      return true;
    default:
      return false;
  }
}

}  // namespace vramscope::probe
