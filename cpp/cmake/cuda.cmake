# Decides whether the CUDA kernels are built, and for which devices. Sets TSM_WITH_CUDA.
# A compiler is enough: no device or driver is needed to build, nor to import what was built.

set(TSM_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO (when nvcc is found), ON or OFF")
set_property(CACHE TSM_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT TSM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TSM_CUDA is '${TSM_CUDA}'; accepted: AUTO, ON, OFF")
endif()

set(TSM_WITH_CUDA ${TSM_CUDA})
if(TSM_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  set(TSM_WITH_CUDA OFF)
  if(CMAKE_CUDA_COMPILER)
    set(TSM_WITH_CUDA ON)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc ERROR_QUIET)
    if(nvcc MATCHES "release ([0-9]+\\.[0-9]+)" AND CMAKE_MATCH_1 VERSION_LESS 12.1)
      message(WARNING "tsm: nvcc ${CMAKE_MATCH_1} is too old for the kernels of sm_90 "
                      "(12.1 or newer is needed); building without CUDA")
      set(TSM_WITH_CUDA OFF)
    endif()
  endif()
endif()
message(STATUS "tsm: CUDA kernels ${TSM_WITH_CUDA} (TSM_CUDA=${TSM_CUDA})")

if(TSM_WITH_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # 90: machine code and, for later devices, PTX
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  enable_language(CUDA)
endif()
