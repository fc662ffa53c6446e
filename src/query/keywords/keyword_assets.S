// SPDX-License-Identifier: Apache-2.0
// The files of share/keywords as they are, between two symbols each.
#define ASSET(name, path)                  \
  .globl vramscope_keywords_##name;        \
  vramscope_keywords_##name: ;             \
  .incbin path;                            \
  .globl vramscope_keywords_##name##_end;  \
  vramscope_keywords_##name##_end: ;       \
  .byte 0

  .section .rodata
  ASSET(layers, VRAMSCOPE_KEYWORDS_LAYERS)
  ASSET(data_structures, VRAMSCOPE_KEYWORDS_DATA_STRUCTURES)
  ASSET(tbd, VRAMSCOPE_KEYWORDS_TBD)

  .section .note.GNU-stack, "", %progbits
