// SPDX-License-Identifier: Apache-2.0
// Linked with a library whose constructor uses the driver (driver_early.cc).
extern "C" int EarlyAllocate(unsigned long long bytes);

int main() {
  return EarlyAllocate(5u << 20);
}
