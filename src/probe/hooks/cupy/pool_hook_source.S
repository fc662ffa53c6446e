// SPDX-License-Identifier: Apache-2.0
// pool_hook.py as it is, ending with a 0.
  .section .rodata
  .globl vramscope_cupy_hook_source
  .hidden vramscope_cupy_hook_source
vramscope_cupy_hook_source:
  .incbin VRAMSCOPE_POOL_HOOK
  .byte 0

  .section .note.GNU-stack, "", %progbits
