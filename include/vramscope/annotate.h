/* SPDX-License-Identifier: Apache-2.0 */
#ifndef VRAMSCOPE_ANNOTATE_H_
#define VRAMSCOPE_ANNOTATE_H_

/*
 * What a C or C++ program can tell vramscope about itself. Header-only: nothing to link, and
 * without the probe in the process every call is a test of one pointer.
 *
 *   #include <vramscope/annotate.h>
 *
 *   vramscope_annotate_mark("grid ready");   then: vramscope report --at "mark:grid ready" FILE
 *
 *   VRAMSCOPE_SCOPE("solve/jacobi");         C++: everything allocated until the end of the block
 *   vramscope_annotate_tag(p, "halo", n);    names the memory that begins at p
 *
 * A program that cuts its own blocks out of large allocations says which block goes out and comes
 * back, or tags it each time it goes out:
 *
 *   vramscope_annotate_block_alloc(p, 4096, 3000, "x"); ... vramscope_annotate_block_free(p);
 *
 * Names are copied, and cut at 1 KiB. Scopes nest, to a depth of 64, and belong to the thread; a
 * pop without a push does nothing. docs/ANNOTATE.md shows what to say where.
 *
 * The names that the probe exports are weak references here. The linker keeps such a reference for
 * run time only in position-independent code (the default of current compilers), so a program built
 * with -no-pie -fno-pic that wants its annotations seen must be compiled with -fPIE.
 */

#ifdef __cplusplus
extern "C" {
#endif

/* Exported by libvramscope_probe.so; null in a process that is not recorded. */
extern void vramscope_start(void) __attribute__((weak));
extern void vramscope_stop(void) __attribute__((weak));
extern void vramscope_mark(const char* name) __attribute__((weak));
extern int vramscope_is_recording(void) __attribute__((weak));
extern void vramscope_scope_push(const char* name) __attribute__((weak));
extern void vramscope_scope_pop(void) __attribute__((weak));
extern void vramscope_tag(const void* memory, const char* name, unsigned long requested_bytes)
    __attribute__((weak));
extern void vramscope_name_pool(const void* pool, const char* name) __attribute__((weak));
extern void vramscope_block_alloc(const void* block,
                                  unsigned long bytes,
                                  unsigned long requested_bytes,
                                  const char* name) __attribute__((weak));
extern void vramscope_block_free(const void* block) __attribute__((weak));

/* Begins, or goes on with, a recording of `vramscope run --start-paused`. */
static inline void vramscope_annotate_start(void) {
  if (vramscope_start) {
    vramscope_start();
  }
}

/* Pauses the recording. What is live then stays known. */
static inline void vramscope_annotate_stop(void) {
  if (vramscope_stop) {
    vramscope_stop();
  }
}

/* Names this instant. Marks named `iteration`, or `iteration` and anything behind it, divide the
 * run into iterations. */
static inline void vramscope_annotate_mark(const char* name) {
  if (vramscope_mark) {
    vramscope_mark(name);
  }
}

/* Opens a scope of this thread: what it allocates until the matching pop carries the name. */
static inline void vramscope_annotate_scope_push(const char* name) {
  if (vramscope_scope_push) {
    vramscope_scope_push(name);
  }
}

/* Closes the innermost scope; nothing where there is none. */
static inline void vramscope_annotate_scope_pop(void) {
  if (vramscope_scope_pop) {
    vramscope_scope_pop();
  }
}

/* Names the live allocation or block that begins at `memory`, in place of any name it had. A pool
 * that hands out the same memory again tags it again. `requested_bytes` is what was asked for, 0
 * where that is not known: the rest of the allocation then shows as rounding. */
static inline void vramscope_annotate_tag(const void* memory,
                                          const char* name,
                                          unsigned long requested_bytes) {
  if (vramscope_tag) {
    vramscope_tag(memory, name, requested_bytes);
  }
}

/* Names a memory pool (CUmemoryPool, cudaMemPool_t): its bytes stand under that name. */
static inline void vramscope_annotate_name_pool(const void* pool, const char* name) {
  if (vramscope_name_pool) {
    vramscope_name_pool(pool, name);
  }
}

/* The program's own pool gives out a block of `bytes` at `block`, inside an allocation of the
 * driver's on any device; `name` may be null. `requested_bytes` is what was asked for, 0 where that
 * is not known. The stacks that are recorded with it take 1 to 4 microseconds, by
 * their depth; a tag, which has none, takes 30 ns. */
static inline void vramscope_annotate_block_alloc(const void* block,
                                                  unsigned long bytes,
                                                  unsigned long requested_bytes,
                                                  const char* name) {
  if (vramscope_block_alloc) {
    vramscope_block_alloc(block, bytes, requested_bytes, name);
  }
}

/* That block came back to the pool. */
static inline void vramscope_annotate_block_free(const void* block) {
  if (vramscope_block_free) {
    vramscope_block_free(block);
  }
}

/* 1 while this process is being recorded, else 0. */
static inline int vramscope_annotate_is_recording(void) {
  return vramscope_is_recording ? vramscope_is_recording() : 0;
}

#ifdef __cplusplus
}

namespace vramscope {

inline void Start() {
  vramscope_annotate_start();
}
inline void Stop() {
  vramscope_annotate_stop();
}
inline void Mark(const char* name) {
  vramscope_annotate_mark(name);
}
inline bool IsRecording() {
  return vramscope_annotate_is_recording() != 0;
}
inline void Tag(const void* memory, const char* name, unsigned long requested_bytes = 0) {
  vramscope_annotate_tag(memory, name, requested_bytes);
}

/* A scope for the life of the object. */
class Scope {
 public:
  explicit Scope(const char* name) { vramscope_annotate_scope_push(name); }
  ~Scope() { vramscope_annotate_scope_pop(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

}  // namespace vramscope

#define VRAMSCOPE_CONCAT_(a, b) a##b
#define VRAMSCOPE_CONCAT(a, b) VRAMSCOPE_CONCAT_(a, b)
#define VRAMSCOPE_SCOPE(name) ::vramscope::Scope VRAMSCOPE_CONCAT(vramscope_scope_, __LINE__)(name)
#endif

#endif /* VRAMSCOPE_ANNOTATE_H_ */
