// SPDX-License-Identifier: Apache-2.0
// Loaded by symbol_table_test.cc, once with each kind of hash table.
int first_answer(void) {
  return 1;
}
int second_answer(void) {
  return 2;
}
int data_answer = 3;
