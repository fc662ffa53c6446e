# SPDX-License-Identifier: Apache-2.0
# Language level, warnings and sanitizers, set once for the whole tree.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# Functions and lines, which back traces need; variables and types double compile and link times.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
if(VRAMSCOPE_SANITIZE AND NOT VRAMSCOPE_FUZZ)
  # Compiles in two thirds of the time, and runs unit tests fast enough.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -D_GLIBCXX_ASSERTIONS")
endif()

add_library(vramscope_warnings INTERFACE)
target_compile_options(vramscope_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wsign-conversion -Wno-missing-field-initializers
  # Files of a module compile together, so every anonymous namespace looks like a header's.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)

# The probe lives in other people's processes: it is never built with sanitizers of ours.
add_library(vramscope_offline_flags INTERFACE)
if(VRAMSCOPE_SANITIZE)
  target_compile_options(vramscope_offline_flags INTERFACE
    -fsanitize=${VRAMSCOPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(vramscope_offline_flags INTERFACE -fsanitize=${VRAMSCOPE_SANITIZE})
endif()
if(VRAMSCOPE_FUZZ)
  # Coverage of what the fuzzers drive; the fuzzers themselves add their main with -fsanitize=fuzzer.
  target_compile_options(vramscope_offline_flags INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(vramscope_offline_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
