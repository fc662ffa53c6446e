// SPDX-License-Identifier: Apache-2.0
#pragma once

// Binds the probe to symbol versions that every glibc since 2.28 has, wherever it is built. From
// glibc 2.34 on these functions are in libc.so.6 under a new default version, and the old version
// still exists. In older glibc they are in libdl or libpthread, which the probe lists as needed.
// Included by force into every file of the probe; tests/e2e checks the result.
#if defined(__x86_64__)
#define VRAMSCOPE_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
__asm__(".symver dladdr1,dladdr1@GLIBC_2.3.3");
__asm__(".symver dlinfo,dlinfo@GLIBC_2.3.3");
#elif defined(__aarch64__)
#define VRAMSCOPE_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
VRAMSCOPE_OLD(dladdr1);
VRAMSCOPE_OLD(dlinfo);
#endif
VRAMSCOPE_OLD(dlsym);
VRAMSCOPE_OLD(dladdr);
VRAMSCOPE_OLD(dlvsym);
VRAMSCOPE_OLD(pthread_key_create);
VRAMSCOPE_OLD(pthread_setspecific);
VRAMSCOPE_OLD(pthread_getspecific);
#undef VRAMSCOPE_OLD
