# SPDX-License-Identifier: Apache-2.0
# vgg19_cuda: cuBLAS, cuFFT and cuDNN, of the system or of Python's nvidia-* packages, which PyTorch
# brings along. VGG19_PYTHON_PACKAGES is the folder that has nvidia/ in it; by default python3's.
if(NOT DEFINED VGG19_PYTHON_PACKAGES)
  execute_process(
    COMMAND python3 -c "import nvidia, os; print(os.path.dirname(list(nvidia.__path__)[0]))"
    OUTPUT_VARIABLE VGG19_PYTHON_PACKAGES OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(VGG19_PYTHON_PACKAGES "${VGG19_PYTHON_PACKAGES}" CACHE PATH "The folder that has nvidia/ in it")
file(GLOB VGG19_PACKAGES "${VGG19_PYTHON_PACKAGES}/nvidia/*")

add_library(vgg19_cuda INTERFACE)
target_include_directories(vgg19_cuda SYSTEM INTERFACE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
# Python's packages have the library with its version alone.
foreach(ENTRY cublas_v2.h:cublas:13 cufft.h:cufft:12 cudnn.h:cudnn:9)
  string(REPLACE ":" ";" ENTRY ${ENTRY})
  list(GET ENTRY 0 HEADER)
  list(GET ENTRY 1 NAME)
  list(GET ENTRY 2 VERSION)
  find_path(VGG19_${NAME}_INCLUDE ${HEADER}
    HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${VGG19_PACKAGES} PATH_SUFFIXES include)
  find_library(VGG19_${NAME}_LIBRARY NAMES ${NAME} lib${NAME}.so.${VERSION}
    HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} ${VGG19_PACKAGES} PATH_SUFFIXES lib lib64)
  if(NOT VGG19_${NAME}_INCLUDE OR NOT VGG19_${NAME}_LIBRARY)
    message(FATAL_ERROR "vgg19: ${HEADER} or lib${NAME}.so.${VERSION} is not there: install the CUDA "
      "toolkit and cuDNN 9, or `pip install nvidia-cublas nvidia-cufft nvidia-cudnn-cu13` and give "
      "-D VGG19_PYTHON_PACKAGES=the folder that then has nvidia/ in it")
  endif()
  target_include_directories(vgg19_cuda SYSTEM INTERFACE ${VGG19_${NAME}_INCLUDE})
  target_link_libraries(vgg19_cuda INTERFACE ${VGG19_${NAME}_LIBRARY})
  message(STATUS "vgg19: ${NAME} is ${VGG19_${NAME}_LIBRARY}")
endforeach()
