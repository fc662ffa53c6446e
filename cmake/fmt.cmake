# SPDX-License-Identifier: Apache-2.0
# vramscope_fmt: {fmt} without its shared library (see fmt/fmt.cc). A version that fmt.cc does not know
# is taken header-only: slower to compile, and the same program.
find_path(VRAMSCOPE_FMT_INCLUDE_DIR fmt/format.h REQUIRED)
file(STRINGS ${VRAMSCOPE_FMT_INCLUDE_DIR}/fmt/core.h FMT_VERSION_LINE REGEX "#define FMT_VERSION [0-9]+")
if(FMT_VERSION_LINE MATCHES "FMT_VERSION 9[0-9][0-9][0-9][0-9]$")
  add_library(vramscope_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt/fmt.cc)
  target_include_directories(vramscope_fmt SYSTEM PUBLIC ${VRAMSCOPE_FMT_INCLUDE_DIR})
  target_link_libraries(vramscope_fmt PUBLIC vramscope_offline_flags)
else()
  add_library(vramscope_fmt INTERFACE)
  target_include_directories(vramscope_fmt SYSTEM INTERFACE ${VRAMSCOPE_FMT_INCLUDE_DIR})
  target_compile_definitions(vramscope_fmt INTERFACE FMT_HEADER_ONLY)
endif()
