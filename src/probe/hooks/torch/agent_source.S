// SPDX-License-Identifier: Apache-2.0
// agent.py as it is, ending with a 0.
  .section .rodata
  .globl vramscope_agent_source
  .hidden vramscope_agent_source
vramscope_agent_source:
  .incbin VRAMSCOPE_AGENT
  .byte 0

  .section .note.GNU-stack, "", %progbits
