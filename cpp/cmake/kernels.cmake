# The kernels: files that are compiled once per instruction set, and the code that chooses among them.
#
# tsm_kernels: matrix products, and one step of compiled and interpreted cells (all that the runtime
# needs). tsm_training: in addition, the backward pass and the recurrence over time. The latter is
# built only if something links to it.

include(CheckCXXCompilerFlag)

# Instruction sets of this processor family, lowest first, each with its flags. "scalar" runs on every
# processor of the family.
set(tsm_isas scalar)
set(tsm_flags_scalar -DTSM_GENERIC)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma)
  set(tsm_flags_avx2 -mavx2 -mfma)
  set(tsm_flags_avx512 ${avx512})
  set(tsm_flags_avx512_vnni ${avx512} -mavx512vnni)
  set(tsm_flags_amx ${avx512} -mavx512vnni -mavx512bf16 -mamx-tile -mamx-bf16 -mamx-int8)
  set(candidates avx2 avx512 avx512_vnni amx)
  set(macros __AVX2__ __AVX512BW__ __AVX512VNNI__ __AMX_INT8__)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(tsm_flags_neon -march=armv8-a)
  set(tsm_flags_neon_dotprod -march=armv8.2-a+dotprod)
  set(candidates neon neon_dotprod)
  set(macros __ARM_NEON __ARM_FEATURE_DOTPROD)
endif()
set(TSM_ISAS all CACHE STRING
  "Instruction sets to build beside scalar: names, native (those of this machine), best (its highest), all")
if(TSM_ISAS MATCHES "^(native|best)$")
  # The sets that the compiler would use on this machine; all sets if it cannot tell.
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null
    OUTPUT_VARIABLE native RESULT_VARIABLE status ERROR_QUIET)
  foreach(isa macro IN ZIP_LISTS candidates macros)
    if(status EQUAL 0 AND NOT native MATCHES "#define ${macro} ")
      list(REMOVE_ITEM candidates ${isa})
    endif()
  endforeach()
  if(TSM_ISAS STREQUAL "best" AND status EQUAL 0)
    # Only the highest set; if that is AMX, which a system may refuse, also the one below it.
    list(POP_BACK candidates highest)
    if(highest STREQUAL "amx")
      list(POP_BACK candidates below)
    endif()
    set(candidates ${below} ${highest})
  endif()
elseif(NOT TSM_ISAS STREQUAL "all")
  foreach(isa IN LISTS TSM_ISAS)
    if(NOT isa IN_LIST candidates AND NOT isa STREQUAL "scalar")
      message(FATAL_ERROR "TSM_ISAS has '${isa}'; accepted: all, best, native, scalar, ${candidates}")
    endif()
  endforeach()
  set(candidates ${TSM_ISAS})
  list(REMOVE_ITEM candidates scalar)
endif()
foreach(isa IN LISTS candidates)
  string(REPLACE ";" " " flags "${tsm_flags_${isa}}")
  check_cxx_compiler_flag("${flags}" TSM_COMPILES_${isa})
  if(TSM_COMPILES_${isa})
    list(APPEND tsm_isas ${isa})
  endif()
endforeach()
message(STATUS "tsm: instruction sets ${tsm_isas}")

# Defines TSM_FOR_EACH_ISA(X), for the files that look up the tables of the instruction sets.
list(TRANSFORM tsm_isas REPLACE "(.+)" "X(\\1)" OUTPUT_VARIABLE entries)
list(JOIN entries " " entries)
set(tsm_generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
file(CONFIGURE OUTPUT ${tsm_generated}/kernels/built_isas.h @ONLY CONTENT
"// X(isa) for every instruction set of this build, lowest first.
#pragma once
#define TSM_FOR_EACH_ISA(X) @entries@
")

# With AVX-512 there are registers enough to interleave the dependency chains of a cell before registers are
# assigned. Up to Cascade Lake, a jump at a 32-byte boundary is not kept in the cache of decoded instructions
# (Intel's JCC erratum), which makes the speed of a short loop depend on its address.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(tsm_flags_scheduling -fschedule-insns -fsched-pressure)
  check_cxx_compiler_flag(-Wa,-mbranches-within-32B-boundaries TSM_ALIGNS_JUMPS)
  if(TSM_ALIGNS_JUMPS)
    list(APPEND tsm_flags_scheduling -Wa,-mbranches-within-32B-boundaries)
  endif()
endif()

# Compiles SOURCE into TARGET once per instruction set, in a namespace with the set's name. Adds the objects'
# paths to the global property TSM_ISA_OBJECTS, for the test that checks their symbols.
function(tsm_compile_per_isa target source)
  get_filename_component(name ${source} NAME_WE)
  foreach(isa IN LISTS tsm_isas)
    set(unit tsm_${name}_${isa})
    add_library(${unit} OBJECT EXCLUDE_FROM_ALL ${source})
    target_include_directories(${unit} PRIVATE ${PROJECT_SOURCE_DIR}/cpp/src ${tsm_generated})
    target_compile_definitions(${unit} PRIVATE TSM_ISA_NAME=${isa})
    target_compile_options(${unit} PRIVATE ${tsm_flags_${isa}} -fno-exceptions -fno-rtti)
    if(isa MATCHES "avx512|amx")
      target_compile_options(${unit} PRIVATE ${tsm_flags_scheduling})
    endif()
    if(TSM_SANITIZE)
      target_compile_definitions(${unit} PRIVATE TSM_SMALL_TILES)
    endif()
    target_link_libraries(${unit} PRIVATE tsm_flags)
    if(TSM_SANITIZE STREQUAL "address")
      # Inlining leaves thousands of local variables, which would take minutes to instrument.
      target_compile_options(${unit} PRIVATE -fno-sanitize-address-use-after-scope
        $<$<CXX_COMPILER_ID:GNU>:--param=asan-stack=0>)
    endif()
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${unit}>)
    if(NOT isa STREQUAL "scalar")
      set_property(GLOBAL APPEND PROPERTY TSM_ISA_OBJECTS $<TARGET_OBJECTS:${unit}>)
    endif()
  endforeach()
endfunction()

add_library(tsm_kernels STATIC cpp/src/kernels/cpu/isa.cc)
target_include_directories(tsm_kernels PUBLIC ${tsm_generated})
target_link_libraries(tsm_kernels PUBLIC tsm_core)
tsm_compile_per_isa(tsm_kernels cpp/src/kernels/cpu/stream/isa_stream.cc)

add_library(tsm_training STATIC EXCLUDE_FROM_ALL
  cpp/src/kernels/cpu/train/layer.cc
  cpp/src/kernels/cuda/train/teams/plan.cc
  cpp/src/kernels/cuda/train/teams/plan_estimate.cc
  cpp/src/kernels/cuda/train/teams/plan_fit.cc)
target_link_libraries(tsm_training PUBLIC tsm_kernels)
tsm_compile_per_isa(tsm_training cpp/src/kernels/cpu/train/isa_train.cc)
if(TSM_WITH_CUDA)
  target_sources(tsm_training PRIVATE
    cpp/src/kernels/cuda/replayed.cu
    cpp/src/kernels/cuda/nru/nru.cu
    cpp/src/kernels/cuda/train/cross_entropy.cu
    cpp/src/kernels/cuda/train/descent.cu
    cpp/src/kernels/cuda/train/embedding.cu
    cpp/src/kernels/cuda/train/products.cu
    cpp/src/kernels/cuda/train/regularisers.cu
    cpp/src/kernels/cuda/train/run/plans.cu
    cpp/src/kernels/cuda/train/run/recurrence.cu
    cpp/src/kernels/cuda/train/steps/steps.cc
    cpp/src/kernels/cuda/train/strided_copies.cu
    cpp/src/kernels/cuda/train/vector_links.cu)
  target_compile_definitions(tsm_training PUBLIC TSM_WITH_CUDA)
  target_link_libraries(tsm_training PUBLIC ${CMAKE_DL_LIBS})

  # The recurrence that keeps U on the chip, and the one that runs step by step: one file per cell.
  add_library(tsm_train_cuda OBJECT EXCLUDE_FROM_ALL)
  add_library(tsm_steps_cuda OBJECT EXCLUDE_FROM_ALL)
  file(STRINGS cpp/src/cells/generated/all.h cells REGEX "^#include \"cells/")
  foreach(line IN LISTS cells)
    string(REGEX REPLACE ".*generated/(.+)\\.h.*" "\\1" cell "${line}")
    configure_file(cpp/src/kernels/cuda/train/teams/cell.cu.in ${tsm_generated}/train_${cell}.cu @ONLY)
    target_sources(tsm_train_cuda PRIVATE ${tsm_generated}/train_${cell}.cu)
    configure_file(cpp/src/kernels/cuda/train/steps/cell.cu.in ${tsm_generated}/steps_${cell}.cu @ONLY)
    target_sources(tsm_steps_cuda PRIVATE ${tsm_generated}/steps_${cell}.cu)
  endforeach()
  # Flush denormals (numbers below 1e-38) to 0, even in float32 training: gradients are sums of much
  # larger numbers.
  foreach(kernels tsm_train_cuda tsm_steps_cuda)
    target_compile_options(${kernels} PRIVATE --ftz=true)
    target_link_libraries(${kernels} PRIVATE tsm_core)
    target_sources(tsm_training PRIVATE $<TARGET_OBJECTS:${kernels}>)
  endforeach()
endif()

# tsm_stream_cuda: streaming on a GPU. There is one file per cell, so that the cells compile in
# parallel. Files that need Hopper's own instructions are compiled only for sm_90a.
if(TSM_WITH_CUDA)
  add_library(tsm_stream_cuda STATIC
    cpp/src/kernels/cuda/stream/product.cu
    cpp/src/kernels/cuda/stream/many_streams_sm90.cu
    cpp/src/kernels/cuda/stream/stream.cu)
  target_link_libraries(tsm_stream_cuda PUBLIC tsm_kernels)
  set(hopper OFF)
  if(CMAKE_CUDA_ARCHITECTURES MATCHES "90")
    set(hopper ON)
    add_library(tsm_many_streams_sm90 OBJECT)
    target_link_libraries(tsm_many_streams_sm90 PRIVATE tsm_kernels)
    set_target_properties(tsm_many_streams_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)
    # Flush denormals to 0: they make no difference with bfloat16 (cells/math_cuda.cuh).
    target_compile_options(tsm_many_streams_sm90 PRIVATE --ftz=true)
    target_compile_definitions(tsm_stream_cuda PRIVATE TSM_SM90)
    target_sources(tsm_stream_cuda PRIVATE $<TARGET_OBJECTS:tsm_many_streams_sm90>)
  endif()
  file(STRINGS cpp/src/cells/generated/all.h lines REGEX "^#include \"cells/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".*generated/(.+)\\.h.*" "\\1" cell "${line}")
    configure_file(cpp/src/kernels/cuda/stream/cell.cu.in ${tsm_generated}/stream_${cell}.cu @ONLY)
    target_sources(tsm_stream_cuda PRIVATE ${tsm_generated}/stream_${cell}.cu)
    if(hopper)
      configure_file(cpp/src/kernels/cuda/stream/many_streams_sm90_cell.cu.in
        ${tsm_generated}/many_streams_sm90_${cell}.cu @ONLY)
      target_sources(tsm_many_streams_sm90 PRIVATE ${tsm_generated}/many_streams_sm90_${cell}.cu)
    endif()
  endforeach()
endif()

option(TSM_BUILD_BENCH "Build the benchmark programs of cpp/bench" OFF)
if(TSM_BUILD_BENCH)
  add_executable(matrix_bench cpp/bench/matrix_bench.cc cpp/bench/read_floor.cc)
  target_include_directories(matrix_bench PRIVATE cpp)
  target_link_libraries(matrix_bench PRIVATE tsm_kernels)
endif()
