# SPDX-License-Identifier: Apache-2.0
# The stand-in libnvidia-ml.so.1, beside the stand-in driver: LD_LIBRARY_PATH takes both.
add_library(fake_nvml SHARED ${CMAKE_CURRENT_LIST_DIR}/nvml.c)
set_target_properties(fake_nvml PROPERTIES
  OUTPUT_NAME nvidia-ml SUFFIX .so.1 NO_SONAME ON C_VISIBILITY_PRESET hidden
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_cuda)
target_link_libraries(fake_nvml PRIVATE vramscope_warnings)
