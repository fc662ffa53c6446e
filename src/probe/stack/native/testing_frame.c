// SPDX-License-Identifier: Apache-2.0
// Built twice, with frames of two sizes and the same instructions.

void CallBack(void (*function)(void));

void CallBack(void (*function)(void)) {
  volatile char memory[FRAME_BYTES];
  memory[0] = 1;
  function();
  memory[FRAME_BYTES - 1] = 2;
}
