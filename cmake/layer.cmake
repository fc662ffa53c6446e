# SPDX-License-Identifier: Apache-2.0
# One static library a module. A module that includes what it does not list here does not link,
# and tools/check_layers.py compares the include graph with the same lists.
#
#   vramscope_layer(resolve SOURCES a.cc b.cc DEPS tables trace [TESTS a_test.cc] [LIBS zstd] [INTARGET])
#
# INTARGET marks code that runs inside the profiled program: no exceptions, no RTTI, hidden symbols,
# and no sanitizers.
if(VRAMSCOPE_BUILD_TESTS)
  # Everything that reads recordings, tested: what `make test` runs under sanitizers too.
  add_custom_target(offline_tests)
endif()

function(vramscope_layer NAME)
  cmake_parse_arguments(ARG "INTARGET" "" "SOURCES;DEPS;TESTS;LIBS" ${ARGN})
  add_library(vramscope_${NAME} STATIC ${ARG_SOURCES})
  target_include_directories(vramscope_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(vramscope_${NAME} PRIVATE vramscope_warnings)
  foreach(DEP ${ARG_DEPS})
    target_link_libraries(vramscope_${NAME} PUBLIC vramscope_${DEP})
  endforeach()
  target_link_libraries(vramscope_${NAME} PUBLIC ${ARG_LIBS})
  if(ARG_INTARGET)
    target_compile_options(vramscope_${NAME} PRIVATE
      -fno-exceptions -fno-rtti -fvisibility=hidden -fno-stack-protector -fno-threadsafe-statics -O2)
  else()
    target_link_libraries(vramscope_${NAME} PUBLIC vramscope_offline_flags)
  endif()
  if(VRAMSCOPE_BUILD_TESTS AND ARG_TESTS)
    find_package(GTest REQUIRED)
    add_executable(${NAME}_test ${ARG_TESTS})
    # What is tested is optimised, as it is shipped; the tests themselves compile in half the time without.
    target_compile_options(${NAME}_test PRIVATE -O0)
    target_link_libraries(${NAME}_test PRIVATE vramscope_${NAME} vramscope_warnings GTest::gmock GTest::gtest_main)
    add_test(NAME ${NAME}_test COMMAND ${NAME}_test)
    if(NOT ARG_INTARGET)
      add_dependencies(offline_tests ${NAME}_test)
      set_tests_properties(${NAME}_test PROPERTIES LABELS offline)
    endif()
  endif()
endfunction()
