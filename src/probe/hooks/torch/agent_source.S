// SPDX-License-Identifier: Apache-2.0
// agent.py and agent_layouts.py as they are, ending with a 0.
  .section .rodata
  .globl vramscope_agent_source
  .hidden vramscope_agent_source
vramscope_agent_source:
  .incbin VRAMSCOPE_AGENT
  .incbin VRAMSCOPE_AGENT_LAYOUTS
  .byte 0

  .section .note.GNU-stack, "", %progbits
