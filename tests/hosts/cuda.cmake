# SPDX-License-Identifier: Apache-2.0
# Programs on the CUDA driver API, run with the stand-in driver by tests/e2e/test_cuda_fake.py.
foreach(HOST
    driver_basic driver_blocks driver_deepbind driver_fork driver_needed driver_none driver_pools
    driver_procaddress driver_threads driver_vmm)
  add_executable(host_${HOST} ${HOST}.cc)
  set_target_properties(host_${HOST} PROPERTIES OUTPUT_NAME ${HOST})
  target_include_directories(host_${HOST} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(host_${HOST} PRIVATE vramscope_warnings Threads::Threads ${CMAKE_DL_LIBS})
endforeach()

# Linked with the driver; found by LD_LIBRARY_PATH, as the others find it.
add_library(driver_plugin MODULE driver_plugin.cc)
target_include_directories(driver_plugin PRIVATE ${PROJECT_SOURCE_DIR}/src)
set_target_properties(driver_plugin PROPERTIES OUTPUT_NAME driver_plugin)
foreach(HOST host_driver_needed driver_plugin)
  target_link_libraries(${HOST} PRIVATE fake_cuda vramscope_warnings)
  set_target_properties(${HOST} PROPERTIES SKIP_BUILD_RPATH ON)
endforeach()
