# The Python module. pybind11 comes from the CMake path or from the interpreter's packages.
option(TSM_PYTHON "Build the Python module; OFF if only libtsm_runtime is wanted" ON)
if(NOT TSM_PYTHON)
  return()
endif()
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(pybind11 2.13 CONFIG QUIET)
if(NOT pybind11_FOUND)
  # Do not use `-m pybind11 --cmakedir`, which puts quotes around a path that contains a space.
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import pybind11; print(pybind11.get_cmake_dir())"
    OUTPUT_VARIABLE pybind11_hint OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_package(pybind11 2.13 CONFIG REQUIRED HINTS "${pybind11_hint}")
endif()
pybind11_add_module(_core MODULE NO_EXTRAS
  cpp/bindings/core.cc
  cpp/bindings/errors.cc
  cpp/bindings/training.cc
  cpp/bindings/launches.cc
  cpp/bindings/halves.cc
  cpp/bindings/arrays.cc
  cpp/bindings/cancel.cc
  cpp/bindings/feeding.cc
  cpp/bindings/lifetime.cc
  cpp/bindings/pool.cc
  cpp/bindings/runtime.cc
  cpp/bindings/text.cc
  cpp/bindings/bench.cc)
# A unity build with a few files instead of thirteen: pybind11's headers take ten seconds to compile in each.
set_target_properties(_core PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
target_compile_definitions(_core PRIVATE TSM_VERSION="${PROJECT_VERSION}")
target_link_libraries(_core PRIVATE tsm_engine tsm_training tsm_bench ${CMAKE_DL_LIBS})
# Hide cudart's symbols: our calls must not bind to another library's cudart.
target_link_options(_core PRIVATE ${tsm_exclude_libs})
if(TSM_ISAS STREQUAL "best")  # the quick build: these three units take a third less time
  target_compile_options(_core PRIVATE -O1)
endif()
install(TARGETS _core LIBRARY DESTINATION tsm/runtime COMPONENT python)
