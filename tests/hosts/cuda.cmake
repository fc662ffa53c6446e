# SPDX-License-Identifier: Apache-2.0
# Programs on the CUDA driver API, each run with the stand-in driver (tests/e2e/test_cuda_fake.py) and
# able to run on a real one.
foreach(HOST
    driver_basic)
  add_executable(host_${HOST} ${HOST}.cc)
  set_target_properties(host_${HOST} PROPERTIES OUTPUT_NAME ${HOST})
  target_include_directories(host_${HOST} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(host_${HOST} PRIVATE vramscope_warnings Threads::Threads ${CMAKE_DL_LIBS})
endforeach()
