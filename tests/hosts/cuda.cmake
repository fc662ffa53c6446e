# SPDX-License-Identifier: Apache-2.0
# Programs on the CUDA driver API, run with the stand-in driver by tests/e2e/probe/test_cuda_fake.py.
foreach(HOST
    driver_basic driver_beside driver_blocks driver_checkpoint driver_deepbind driver_event_cost driver_fork driver_handles driver_needed driver_neighbour driver_none driver_pool_kinds driver_pools
    driver_procaddress driver_refused driver_sharing driver_sleep driver_steady driver_route driver_threads driver_versions driver_vmm)
  add_executable(host_${HOST} ${HOST}.cc)
  set_target_properties(host_${HOST} PROPERTIES OUTPUT_NAME ${HOST})
  target_include_directories(host_${HOST} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/tests)
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

# The same with a search path of its own, which no other object has.
add_library(driver_plugin_own MODULE driver_plugin.cc)
target_include_directories(driver_plugin_own PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(driver_plugin_own PRIVATE fake_cuda vramscope_warnings)
add_library(driver_opener MODULE driver_opener.c)
target_link_libraries(driver_opener PRIVATE vramscope_warnings ${CMAKE_DL_LIBS})
set_target_properties(driver_plugin_own driver_opener PROPERTIES
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/own")

# A constructor that is first of all.
add_library(driver_early SHARED driver_early.cc)
target_include_directories(driver_early PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(driver_early PRIVATE vramscope_warnings ${CMAKE_DL_LIBS})
add_executable(host_driver_constructor driver_constructor.cc)
target_link_libraries(host_driver_constructor PRIVATE driver_early vramscope_warnings)
set_target_properties(host_driver_constructor PROPERTIES
  OUTPUT_NAME driver_constructor BUILD_RPATH $ORIGIN)

# One that asks the driver for memory, under the names of some that are known: tests/e2e/probe/test_overflow.py.
foreach(NAME c10_cuda nccl)
  add_library(asking_${NAME} SHARED asking_library.c)
  target_link_libraries(asking_${NAME} PRIVATE vramscope_warnings ${CMAKE_DL_LIBS})
  set_target_properties(asking_${NAME} PROPERTIES
    OUTPUT_NAME ${NAME} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/hosts/asking)
endforeach()
