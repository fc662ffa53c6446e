// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the misbehaving programs share: tensors' storage as PyTorch allocates it (stand-in or real).
#include <stddef.h>

void* alloc_cpu(size_t size) __asm__("_ZN3c109alloc_cpuEm");
void free_cpu(void* pointer) __asm__("_ZN3c108free_cpuEPv");
