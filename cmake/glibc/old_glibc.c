// SPDX-License-Identifier: Apache-2.0
// The functions that glibc gave a new version after 2.28, by their old one, which is there still: a
// program that was linked on a new Debian runs on an old one. The linker sends all calls here,
// those of libstdc++.a and libdw.a too (--wrap, in cmake/glibc.cmake);
// tests/e2e/probe/test_old_machines.py looks for versions that are newer.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#define OLDEST_AT "GLIBC_2.4"
#define OLDEST_WAIT "GLIBC_2.3.2"
#define STAT_VERSION 1
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
#define OLDEST_AT "GLIBC_2.17"
#define OLDEST_WAIT "GLIBC_2.17"
#define STAT_VERSION 0
#endif

#define OLD(result, name, version, ...)                \
  __asm__(".symver old_" #name "," #name "@" version); \
  result old_##name(__VA_ARGS__);
#define FORWARD(result, name, parameters, arguments)  \
  __asm__(".symver old_" #name "," #name "@" OLDEST); \
  result old_##name parameters;                       \
  result __wrap_##name parameters;                    \
  result __wrap_##name parameters {                   \
    return old_##name arguments;                      \
  }

// ---- in libdl, libpthread and libm once, in libc since

FORWARD(void*, dlopen, (const char* file, int mode), (file, mode))
FORWARD(void*, dlsym, (void* handle, const char* name), (handle, name))
FORWARD(int, dlclose, (void* handle), (handle))
FORWARD(int, dladdr, (const void* address, Dl_info* info), (address, info))
FORWARD(
    int,
    pthread_create,
    (pthread_t * thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument),
    (thread, attributes, start, argument))
FORWARD(int, pthread_join, (pthread_t thread, void** result), (thread, result))
FORWARD(int, pthread_detach, (pthread_t thread), (thread))
FORWARD(int, pthread_once, (pthread_once_t * once, void (*routine)(void)), (once, routine))
FORWARD(int,
        __pthread_key_create,
        (pthread_key_t * key, void (*destructor)(void*)),
        (key, destructor))
FORWARD(int,
        pthread_key_create,
        (pthread_key_t * key, void (*destructor)(void*)),
        (key, destructor))
FORWARD(int, pthread_key_delete, (pthread_key_t key), (key))
FORWARD(void*, pthread_getspecific, (pthread_key_t key), (key))
FORWARD(int, pthread_setspecific, (pthread_key_t key, const void* value), (key, value))
FORWARD(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* old), (how, set, old))
FORWARD(int,
        pthread_rwlock_init,
        (pthread_rwlock_t * lock, const pthread_rwlockattr_t* attributes),
        (lock, attributes))
FORWARD(int, pthread_rwlock_destroy, (pthread_rwlock_t * lock), (lock))
FORWARD(int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock))
FORWARD(int, pthread_rwlock_tryrdlock, (pthread_rwlock_t * lock), (lock))
FORWARD(int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock))
FORWARD(int, pthread_rwlock_unlock, (pthread_rwlock_t * lock), (lock))
FORWARD(double, pow, (double base, double exponent), (base, exponent))
FORWARD(double, exp, (double exponent), (exponent))

// ---- functions that were macros around these

OLD(int, __xstat, OLDEST, int version, const char* path, struct stat* out)
OLD(int, __lxstat, OLDEST, int version, const char* path, struct stat* out)
OLD(int, __fxstat, OLDEST, int version, int fd, struct stat* out)
OLD(int, __fxstat64, OLDEST, int version, int fd, struct stat64* out)
OLD(int, __fxstatat, OLDEST_AT, int version, int fd, const char* path, struct stat* out, int flags)

int __wrap_stat(const char* path, struct stat* out);
int __wrap_stat(const char* path, struct stat* out) {
  return old___xstat(STAT_VERSION, path, out);
}
int __wrap_lstat(const char* path, struct stat* out);
int __wrap_lstat(const char* path, struct stat* out) {
  return old___lxstat(STAT_VERSION, path, out);
}
int __wrap_fstat(int fd, struct stat* out);
int __wrap_fstat(int fd, struct stat* out) {
  return old___fxstat(STAT_VERSION, fd, out);
}
int __wrap_fstat64(int fd, struct stat64* out);
int __wrap_fstat64(int fd, struct stat64* out) {
  return old___fxstat64(STAT_VERSION, fd, out);
}
int __wrap_fstatat(int fd, const char* path, struct stat* out, int flags);
int __wrap_fstatat(int fd, const char* path, struct stat* out, int flags) {
  return old___fxstatat(STAT_VERSION, fd, path, out, flags);
}

// ---- what came after 2.28

// libstdc++ asks whether atomics are needed: yes, always.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// A wait until a time of CLOCK_MONOTONIC came with 2.30. Before, it waits until a time of the wall
// clock: setting the clock meanwhile changes the duration.
OLD(int,
    pthread_cond_timedwait,
    OLDEST_WAIT,
    pthread_cond_t* condition,
    pthread_mutex_t* mutex,
    const struct timespec* end)
typedef int (*ClockWait)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

int __wrap_pthread_cond_clockwait(pthread_cond_t* condition,
                                  pthread_mutex_t* mutex,
                                  clockid_t clock,
                                  const struct timespec* end);
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition,
                                  pthread_mutex_t* mutex,
                                  clockid_t clock,
                                  const struct timespec* end) {
  static ClockWait known;
  ClockWait wait = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (wait == NULL) {
    wait = (ClockWait)old_dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    __atomic_store_n(&known, wait, __ATOMIC_RELAXED);
  }
  if (wait != NULL)
    return wait(condition, mutex, clock, end);
  struct timespec now;
  struct timespec wall;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &wall) != 0)
    return EINVAL;
  wall.tv_sec += end->tv_sec - now.tv_sec;
  wall.tv_nsec += end->tv_nsec - now.tv_nsec;
  if (wall.tv_nsec >= 1000000000) {
    wall.tv_nsec -= 1000000000;
    ++wall.tv_sec;
  } else if (wall.tv_nsec < 0) {
    wall.tv_nsec += 1000000000;
    --wall.tv_sec;
  }
  return old_pthread_cond_timedwait(condition, mutex, &wall);
}

// What std::random_device reads where it is there (2.36).
uint32_t __wrap_arc4random(void);
uint32_t __wrap_arc4random(void) {
  uint32_t number = 0;
  while (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
  }
  return number;
}

#ifdef DLFO_EH_SEGMENT_TYPE
// How libgcc of a glibc from 2.35 on finds the tables of an exception's frames; before, it walked
// the loaded objects itself.
struct Search {
  uintptr_t pc;
  struct dl_find_object* found;
};

static int LookAt(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  const struct Search* search = data;
  uintptr_t begin = 0;
  uintptr_t end = 0;
  void* tables = NULL;
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    const uintptr_t at = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == DLFO_EH_SEGMENT_TYPE)
      tables = (void*)at;
    if (header->p_type == PT_LOAD && search->pc >= at && search->pc - at < header->p_memsz) {
      begin = at;
      end = at + header->p_memsz;
    }
  }
  if (begin == end)
    return 0;
  search->found->dlfo_flags = 0;
  search->found->dlfo_map_start = (void*)begin;
  search->found->dlfo_map_end = (void*)end;
  search->found->dlfo_link_map = NULL;
  search->found->dlfo_eh_frame = tables;
  return tables != NULL ? 1 : -1;
}

__attribute__((visibility("hidden"))) int _dl_find_object(void* pc, struct dl_find_object* found) {
  struct Search search = {(uintptr_t)pc, found};
  return dl_iterate_phdr(LookAt, &search) == 1 ? 0 : -1;
}
#endif

// ---- the program's start

// From 2.34 on the C library runs a program's constructors; before, the program brought the
// function that does, and under the old name it is asked for it still.
typedef void (*Constructor)(int, char**, char**);
typedef int (*Main)(int, char**, char**);
OLD(int,
    __libc_start_main,
    OLDEST,
    Main main,
    int argc,
    char** argv,
    Constructor init,
    void (*fini)(void),
    void (*loader_fini)(void),
    void* stack_end)

extern const Constructor __preinit_array_start[] __attribute__((weak, visibility("hidden")));
extern const Constructor __preinit_array_end[] __attribute__((weak, visibility("hidden")));
extern const Constructor __init_array_start[] __attribute__((weak, visibility("hidden")));
extern const Constructor __init_array_end[] __attribute__((weak, visibility("hidden")));
extern void _init(void) __attribute__((visibility("hidden")));

static void RunConstructors(int argc, char** argv, char** environment) {
  for (const Constructor* one = __preinit_array_start; one < __preinit_array_end; ++one)
    (*one)(argc, argv, environment);
  _init();
  for (const Constructor* one = __init_array_start; one < __init_array_end; ++one)
    (*one)(argc, argv, environment);
}

int __wrap___libc_start_main(Main main,
                             int argc,
                             char** argv,
                             Constructor init,
                             void (*fini)(void),
                             void (*loader_fini)(void),
                             void* stack_end);
int __wrap___libc_start_main(Main main,
                             int argc,
                             char** argv,
                             Constructor init,
                             void (*fini)(void),
                             void (*loader_fini)(void),
                             void* stack_end) {
  return old___libc_start_main(main, argc, argv, init != NULL ? init : RunConstructors, fini,
                               loader_fini, stack_end);
}
