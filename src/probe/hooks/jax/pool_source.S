// SPDX-License-Identifier: Apache-2.0
// pool.py as it is, ending with a 0.
  .section .rodata
  .globl vramscope_jax_pool_source
  .hidden vramscope_jax_pool_source
vramscope_jax_pool_source:
  .incbin VRAMSCOPE_POOL
  .byte 0

  .section .note.GNU-stack, "", %progbits
