# SPDX-License-Identifier: Apache-2.0
# vramscope_old_glibc(TARGET): the program or library runs with every glibc from 2.28 on, wherever it is linked, and
# brings its own C++ library. glibc/old_glibc.c has what its calls lead to.
set(VRAMSCOPE_WRAPPED
  dlopen dlsym dlclose dladdr
  pthread_create pthread_join pthread_detach pthread_once pthread_sigmask pthread_cond_clockwait
  __pthread_key_create pthread_key_create pthread_key_delete pthread_getspecific pthread_setspecific
  pthread_rwlock_init pthread_rwlock_destroy pthread_rwlock_rdlock pthread_rwlock_tryrdlock
  pthread_rwlock_wrlock pthread_rwlock_unlock
  stat lstat fstat fstat64 fstatat pow exp arc4random __libc_start_main)

function(vramscope_old_glibc TARGET)
  if(VRAMSCOPE_SANITIZE OR VRAMSCOPE_FUZZ OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|aarch64)$")
    return()
  endif()
  target_sources(${TARGET} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/glibc/old_glibc.c)
  # What of it nothing calls is left out.
  target_compile_options(${TARGET} PRIVATE $<$<COMPILE_LANGUAGE:C>:-ffunction-sections>)
  list(TRANSFORM VRAMSCOPE_WRAPPED PREPEND "-Wl,--wrap=" OUTPUT_VARIABLE WRAPS)
  # Before 2.34 they have what libc has since.
  target_link_options(${TARGET} PRIVATE ${WRAPS} -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  target_link_libraries(${TARGET} PRIVATE -Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0 -Wl,--as-needed)
endfunction()
