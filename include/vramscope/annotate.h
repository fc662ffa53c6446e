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

/* Names this instant. `name` is copied. */
static inline void vramscope_annotate_mark(const char* name) {
  if (vramscope_mark) {
    vramscope_mark(name);
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

}  // namespace vramscope
#endif

#endif /* VRAMSCOPE_ANNOTATE_H_ */
