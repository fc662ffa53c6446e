// SPDX-License-Identifier: Apache-2.0
// Loaded by got_patch_test.cc, bound at load and bound at the first call.
int distant_answer(void);
int own_answer(void) {
  return 2;
}
int (*pointer_in_data)(void) = distant_answer;
int (*kept[2])(void);

int call_distant(void) {
  return distant_answer();
}
int call_own(void) {
  return own_answer();
}
int call_by_pointer(void) {
  return pointer_in_data();
}
