# Decides whether the CUDA kernels are built, and for which devices. Sets TSM_WITH_CUDA.
# With TSM_CUDA=ON a compiler is enough: neither building nor importing the result needs a driver.

set(TSM_CUDA AUTO CACHE STRING
  "Build the CUDA kernels: AUTO (if there are nvcc and a GPU driver), ON or OFF")
set_property(CACHE TSM_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT TSM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TSM_CUDA is '${TSM_CUDA}'; accepted: AUTO, ON, OFF")
endif()

set(TSM_WITH_CUDA ${TSM_CUDA})
set(why "TSM_CUDA=${TSM_CUDA}")
if(TSM_CUDA STREQUAL "AUTO")
  set(TSM_WITH_CUDA OFF)
  # Look for the driver itself, as exposed by the kernel or WSL: the toolkit's libcuda is only a stub.
  find_file(TSM_CUDA_DRIVER NO_DEFAULT_PATH
    NAMES version nvidiactl libcuda.so.1 PATHS /proc/driver/nvidia /dev /usr/lib/wsl/lib)
  mark_as_advanced(TSM_CUDA_DRIVER)
  if(NOT TSM_CUDA_DRIVER)
    set(why "no GPU driver; TSM_CUDA=ON builds them if there is nvcc")
  else()
    include(CheckLanguage)
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
      set(why "a GPU driver, but no nvcc: put it into PATH or CUDACXX")
    else()
      execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc ERROR_QUIET)
      if(nvcc MATCHES "release ([0-9]+\\.[0-9]+)" AND CMAKE_MATCH_1 VERSION_LESS 12.1)
        message(WARNING "tsm: nvcc ${CMAKE_MATCH_1} is too old for the kernels of sm_90 "
                        "(12.1 or newer is needed); building without CUDA")
        set(why "nvcc ${CMAKE_MATCH_1} is too old")
      else()
        set(TSM_WITH_CUDA ON)
        set(why "nvcc and a GPU driver; TSM_CUDA=OFF leaves them out")
      endif()
    endif()
  endif()
endif()
message(STATUS "tsm: CUDA kernels ${TSM_WITH_CUDA} (${why})")

if(TSM_WITH_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # 90: machine code, and PTX for later devices
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  enable_language(CUDA)
endif()
