// SPDX-License-Identifier: Apache-2.0
// The library whose function got_patch_test_caller.c calls.
int distant_answer(void) {
  return 1;
}
