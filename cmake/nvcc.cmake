# SPDX-License-Identifier: Apache-2.0
# nvcc is called directly rather than through CMake's CUDA language, which would make a missing or
# half-installed toolkit an error of the whole configuration.
find_program(VRAMSCOPE_NVCC nvcc HINTS /usr/local/cuda/bin)

# vramscope_cuda_program(TARGET source.cu static|shared): a program in bin/, with that kind of cudart.
function(vramscope_cuda_program TARGET SOURCE CUDART)
  set(PROGRAM ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${TARGET})
  add_custom_command(
    OUTPUT ${PROGRAM}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
    COMMAND ${VRAMSCOPE_NVCC} -std=c++17 -O2 -arch=compute_75 -cudart ${CUDART}
            -I ${PROJECT_SOURCE_DIR}/include -o ${PROGRAM} ${CMAKE_CURRENT_SOURCE_DIR}/${SOURCE}
    DEPENDS ${SOURCE} ${PROJECT_SOURCE_DIR}/include/vramscope/annotate.h
    COMMENT "Building ${TARGET} with ${CUDART} cudart"
    VERBATIM)
  add_custom_target(${TARGET} ALL DEPENDS ${PROGRAM})
endfunction()
