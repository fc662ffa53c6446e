# SPDX-License-Identifier: Apache-2.0
# Puts the HTML page into vramscope_output: bundled now where esbuild is there, else the bundle that
# is checked in, which `make test` compares with its sources.
find_program(VRAMSCOPE_ESBUILD esbuild)
find_program(VRAMSCOPE_NODE node)
set(VIEWER_DIR ${PROJECT_SOURCE_DIR}/viewer)
set(VIEWER_PAGE ${VIEWER_DIR}/src/page.html)
if(VRAMSCOPE_ESBUILD)
  file(GLOB_RECURSE VIEWER_SOURCES CONFIGURE_DEPENDS ${VIEWER_DIR}/src/*.js ${VIEWER_DIR}/src/*.css)
  set(VIEWER_DIST ${CMAKE_CURRENT_BINARY_DIR}/viewer)
  add_custom_command(
    OUTPUT ${VIEWER_DIST}/viewer.js ${VIEWER_DIST}/viewer.css ${VIEWER_DIST}/diff.js ${VIEWER_DIST}/diff.css ${VIEWER_DIST}/ranks.js
    COMMAND ${CMAKE_COMMAND} -E make_directory ${VIEWER_DIST}
    COMMAND ${VIEWER_DIR}/build.sh ${VIEWER_DIST}
    DEPENDS ${VIEWER_SOURCES} ${VIEWER_DIR}/build.sh
    COMMENT "Bundling the HTML page")
else()
  set(VIEWER_DIST ${VIEWER_DIR}/dist)
endif()

set(VIEWER_ASSETS ${CMAKE_CURRENT_LIST_DIR}/viewer_assets.S)
target_sources(vramscope_output PRIVATE ${VIEWER_ASSETS}
  ${VIEWER_DIST}/viewer.js ${VIEWER_DIST}/viewer.css ${VIEWER_DIST}/diff.js ${VIEWER_DIST}/diff.css ${VIEWER_DIST}/ranks.js)
set_source_files_properties(${VIEWER_ASSETS} PROPERTIES
  OBJECT_DEPENDS "${VIEWER_DIST}/viewer.js;${VIEWER_DIST}/viewer.css;${VIEWER_DIST}/diff.js;${VIEWER_DIST}/diff.css;${VIEWER_DIST}/ranks.js;${VIEWER_PAGE}"
  COMPILE_OPTIONS "-DVRAMSCOPE_VIEWER_PAGE=\"${VIEWER_PAGE}\";-DVRAMSCOPE_VIEWER_STYLE=\"${VIEWER_DIST}/viewer.css\";-DVRAMSCOPE_VIEWER_SCRIPT=\"${VIEWER_DIST}/viewer.js\";-DVRAMSCOPE_DIFF_STYLE=\"${VIEWER_DIST}/diff.css\";-DVRAMSCOPE_DIFF_SCRIPT=\"${VIEWER_DIST}/diff.js\";-DVRAMSCOPE_RANKS_SCRIPT=\"${VIEWER_DIST}/ranks.js\"")

if(VRAMSCOPE_BUILD_TESTS AND VRAMSCOPE_NODE)
  add_test(NAME viewer_test COMMAND ${VRAMSCOPE_NODE} --test ${VIEWER_DIR}/test)
endif()
