# C++ tests: FOLDER/NAME is tests/cpp/FOLDER/test_NAME.cc, linked with LIBRARY. Further words are its labels:
#   THREADED   it also runs under ThreadSanitizer (make sanitize)
#   UNTRUSTED  it reads untrusted bytes; every CI run runs it under AddressSanitizer
#   GPU        it needs a CUDA device, and is skipped without one
# The targets cpp_tests, cpp_threaded_tests, cpp_untrusted_tests and cpp_gpu_tests build them;
# the default build does not.
add_custom_target(cpp_tests)
add_custom_target(cpp_threaded_tests)
add_custom_target(cpp_untrusted_tests)
add_custom_target(cpp_gpu_tests)

# One header; Debian's CMake file for it is only right in /usr.
find_path(DOCTEST_INCLUDE_DIR doctest/doctest.h)
if(NOT DOCTEST_INCLUDE_DIR)  # what is not a test is built without it
  add_custom_target(no_doctest COMMAND ${CMAKE_COMMAND} -E echo
    "error: the C++ tests need doctest; install it with: apt-get install doctest-dev, or: brew install doctest"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  foreach(target cpp_tests cpp_threaded_tests cpp_untrusted_tests cpp_gpu_tests)
    add_dependencies(${target} no_doctest)
  endforeach()
  return()
endif()
add_library(tsm_test_main OBJECT EXCLUDE_FROM_ALL tests/cpp/support/main.cc)
target_include_directories(tsm_test_main PUBLIC tests/cpp)
target_include_directories(tsm_test_main SYSTEM PUBLIC ${DOCTEST_INCLUDE_DIR})

function(tsm_test path library)
  get_filename_component(folder ${path} DIRECTORY)
  get_filename_component(name ${path} NAME)
  add_executable(test_${name} EXCLUDE_FROM_ALL tests/cpp/${folder}/test_${name}.cc)
  # assert() is active in every build type; the library is fully optimised, the tests are not,
  # which halves their compile time
  target_compile_options(test_${name} PRIVATE -UNDEBUG -O1)
  target_link_libraries(test_${name} PRIVATE ${library} tsm_test_main)
  add_test(NAME ${name} COMMAND test_${name})
  add_dependencies(cpp_tests test_${name})
  foreach(label IN LISTS ARGN)
    string(TOLOWER ${label} label)
    set_property(TEST ${name} APPEND PROPERTY LABELS ${label})
    add_dependencies(cpp_${label}_tests test_${name})
  endforeach()
endfunction()

tsm_test(c_api/handles "tsm_runtime;tsm_core")
tsm_test(core/buffer_cache tsm_core THREADED)
tsm_test(core/json tsm_core UNTRUSTED)
tsm_test(core/thread_pool tsm_core THREADED)
tsm_test(kernels/cells tsm_kernels)
tsm_test(kernels/cuda_plan tsm_training)
tsm_test(kernels/isa tsm_kernels)
tsm_test(kernels/layer tsm_training THREADED)
tsm_test(kernels/math tsm_kernels)
tsm_compile_per_isa(test_math tests/cpp/kernels/isa_math.cc)
tsm_test(kernels/matrix tsm_kernels)
tsm_test(kernels/nru tsm_core THREADED)
tsm_test(kernels/recurrence tsm_training THREADED)
tsm_test(engine/arithmetic tsm_engine)
tsm_test(engine/checksum tsm_engine UNTRUSTED)
tsm_test(engine/chunks tsm_engine THREADED)
tsm_test(engine/engine tsm_engine THREADED UNTRUSTED)
tsm_test(engine/many tsm_engine THREADED)
tsm_test(engine/model_file tsm_engine UNTRUSTED)
tsm_test(engine/pool_refusals tsm_engine THREADED)
tsm_test(engine/pool_schedules tsm_engine THREADED)
tsm_test(engine/safetensors tsm_engine UNTRUSTED)
tsm_test(engine/soak tsm_engine)
tsm_test(engine/stream_memory tsm_engine)
tsm_test(engine/text tsm_engine UNTRUSTED)

if(NOT TSM_SANITIZE)  # sanitizers have symbols and a malloc of their own, which forks may leave locked
  tsm_test(faults/fork "tsm_runtime;tsm_core")
  tsm_test(faults/out_of_memory "tsm_core;${CMAKE_DL_LIBS}")
  target_include_directories(test_out_of_memory PRIVATE cpp/include)
  target_compile_definitions(test_out_of_memory PRIVATE
    TSM_RUNTIME_LIBRARY="$<TARGET_FILE:tsm_runtime>")
  set_target_properties(test_out_of_memory PROPERTIES ENABLE_EXPORTS ON)  # its malloc
  add_dependencies(test_out_of_memory tsm_runtime)

  if(TSM_WITH_CUDA)
    # Linked with the library's static parts, so that their calls can be wrapped (failing_cuda.h).
    tsm_test(faults/out_of_memory_cuda tsm_engine GPU)
    target_sources(test_out_of_memory_cuda PRIVATE $<TARGET_OBJECTS:tsm_c_api>)
    target_include_directories(test_out_of_memory_cuda PRIVATE cpp/include)
    tsm_test(faults/replayed_cuda "tsm_training;CUDA::cudart_static" GPU)
    tsm_test(faults/training_memory_cuda "tsm_training;CUDA::cudart_static" GPU)
    foreach(test out_of_memory_cuda replayed_cuda training_memory_cuda)
      foreach(function aligned_alloc posix_memalign cudaMalloc cudaFree cudaMallocHost cudaFreeHost
          cudaStreamCreateWithFlags cudaStreamDestroy cudaGraphInstantiate cudaGraphExecDestroy)
        target_link_options(test_${test} PRIVATE LINKER:--wrap=${function})
      endforeach()
      set_tests_properties(${test} PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: no CUDA device")
    endforeach()
  endif()

endif()

if(NOT TSM_SANITIZE AND NOT TSM_COVERAGE)  # gcov's symbols are weak, too
  get_property(isa_objects GLOBAL PROPERTY TSM_ISA_OBJECTS)
  list(JOIN isa_objects "\n" isa_objects)
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/isa_objects.txt CONTENT "${isa_objects}\n")
  add_test(NAME symbols COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM}
    -DOBJECTS=${CMAKE_CURRENT_BINARY_DIR}/isa_objects.txt
    -P ${PROJECT_SOURCE_DIR}/tests/cpp/kernels/check_symbols.cmake)
endif()
