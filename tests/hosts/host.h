// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by the misbehaving programs: storage of tensors as PyTorch allocates it (fake or real).
#include <stddef.h>
#include <stdint.h>

void* alloc_cpu(size_t size) __asm__("_ZN3c109alloc_cpuEm");
void free_cpu(void* pointer) __asm__("_ZN3c108free_cpuEPv");
void give_up(int64_t wanted,
             size_t allocated,
             size_t reserved,
             uint16_t device) __asm__("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
