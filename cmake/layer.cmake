# SPDX-License-Identifier: Apache-2.0
# One static library a module. A module that includes what it does not list here does not link,
# and tools/check_layers.py compares the include graph with the same lists.
#
#   vramscope_layer(resolve SOURCES a.cc b.cc DEPS tables trace [TESTS a_test.cc] [LIBS zstd] [INTARGET])
#
# INTARGET marks code that runs inside the profiled program: no exceptions, no RTTI, hidden symbols,
# and no sanitizers.
if(VRAMSCOPE_BUILD_TESTS)
  find_package(GTest REQUIRED)
  # Everything that reads recordings, tested: what runs under sanitizers too.
  add_custom_target(offline_tests)
endif()

# Most of a file's time goes into headers and templates: the files of a target share it.
function(vramscope_compile_together TARGET)
  if(VRAMSCOPE_FILES_AT_ONCE GREATER 1)
    set_target_properties(${TARGET} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${VRAMSCOPE_FILES_AT_ONCE})
  endif()
endfunction()

# vramscope_unit_test(resolve_test SOURCES a_test.cc LIBS vramscope_resolve [INTARGET])
function(vramscope_unit_test NAME)
  cmake_parse_arguments(ARG "INTARGET" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  vramscope_compile_together(${NAME})
  # What is tested is optimised, as it is shipped; the tests themselves compile in half the time without.
  target_compile_options(${NAME} PRIVATE -O0)
  target_link_libraries(${NAME} PRIVATE ${ARG_LIBS} vramscope_warnings GTest::gmock GTest::gtest_main)
  add_test(NAME ${NAME} COMMAND ${NAME})
  if(NOT ARG_INTARGET)
    add_dependencies(offline_tests ${NAME})
    set_tests_properties(${NAME} PROPERTIES LABELS offline)
  endif()
endfunction()

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
  vramscope_compile_together(vramscope_${NAME})
  if(VRAMSCOPE_BUILD_TESTS AND ARG_TESTS)
    set(KIND "")
    if(ARG_INTARGET)
      set(KIND INTARGET)
    endif()
    vramscope_unit_test(${NAME}_test ${KIND} SOURCES ${ARG_TESTS} LIBS vramscope_${NAME})
  endif()
endfunction()
