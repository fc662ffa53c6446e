// SPDX-License-Identifier: Apache-2.0
// The page's files as they are, between two symbols each.
#define ASSET(name, path)              \
  .globl vramscope_viewer_##name;      \
  vramscope_viewer_##name: ;           \
  .incbin path;                        \
  .globl vramscope_viewer_##name##_end; \
  vramscope_viewer_##name##_end: ;     \
  .byte 0

  .section .rodata
  ASSET(page, VRAMSCOPE_VIEWER_PAGE)
  ASSET(style, VRAMSCOPE_VIEWER_STYLE)
  ASSET(script, VRAMSCOPE_VIEWER_SCRIPT)
  ASSET(diff_style, VRAMSCOPE_DIFF_STYLE)
  ASSET(diff_script, VRAMSCOPE_DIFF_SCRIPT)
  ASSET(ranks_script, VRAMSCOPE_RANKS_SCRIPT)

  .section .note.GNU-stack, "", %progbits
