// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small compiler vocabulary for code that runs inside the profiled program.

#define VRAMSCOPE_LIKELY(x) __builtin_expect(!!(x), 1)
#define VRAMSCOPE_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define VRAMSCOPE_NOINLINE __attribute__((noinline))
#define VRAMSCOPE_ALWAYS_INLINE inline __attribute__((always_inline))
#define VRAMSCOPE_EXPORT extern "C" __attribute__((visibility("default")))

// Thread-local storage of a preloaded object can use the static TLS block: one instruction instead
// of a call. Only trivially destructible types may live there (see docs/HOST_SAFETY.md).
#define VRAMSCOPE_TLS __attribute__((tls_model("initial-exec"))) thread_local
