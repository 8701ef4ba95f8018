# libtsm_runtime: the C API over the engine, for embedding, without Python or training. If built with CUDA,
# the shared library also streams on GPUs and still needs no separate CUDA library.
#
#   cmake -B build/runtime -DTSM_PYTHON=OFF -DTSM_BUILD_TESTS=OFF && cmake --build build/runtime
#   cmake --install build/runtime --component runtime --prefix DIR
#
# installs the library, its headers, find_package(tsm) -> tsm::runtime, and pkg-config tsm.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

option(TSM_RUNTIME_STATIC "Also build and install libtsm_runtime.a (tsm::runtime_static)"
  ${top_level})

add_library(tsm_c_api OBJECT cpp/src/c_api/last_error.cc cpp/src/c_api/many.cc
  cpp/src/c_api/pool.cc cpp/src/c_api/text.cc cpp/src/c_api/tsm.cc)
target_include_directories(tsm_c_api PUBLIC cpp/include)
target_compile_definitions(tsm_c_api PRIVATE TSM_VERSION="${PROJECT_VERSION}")
target_link_libraries(tsm_c_api PRIVATE tsm_engine)

# Separate sections let the linker drop unused functions one by one. GNU unique symbols could be
# neither hidden in a static library nor unloaded with a shared one.
foreach(part tsm_core tsm_kernels tsm_engine tsm_no_cuda tsm_c_api)
  target_compile_options(${part} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections;-fdata-sections>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
endforeach()

get_property(has_shared GLOBAL PROPERTY TARGET_SUPPORTS_SHARED_LIBS)
set(kind STATIC)
if(has_shared)
  set(kind SHARED)
endif()
add_library(tsm_runtime ${kind} $<TARGET_OBJECTS:tsm_c_api>)
add_library(tsm::runtime ALIAS tsm_runtime)
target_link_libraries(tsm_runtime PRIVATE tsm_engine)
target_include_directories(tsm_runtime INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cpp/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# Before 1.0 a minor version may change the interface, so the library's name includes the minor
# version.
set(tsm_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_target_properties(tsm_runtime PROPERTIES
  EXPORT_NAME runtime
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  SOVERSION ${tsm_soversion})
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(script ${PROJECT_SOURCE_DIR}/cpp/cmake/runtime.map)
  target_link_options(tsm_runtime PRIVATE
    LINKER:--version-script=${script} LINKER:--gc-sections ${tsm_exclude_libs})
  if(NOT TSM_SANITIZE)
    target_link_options(tsm_runtime PRIVATE
      LINKER:-z,defs $<$<CONFIG:Release,MinSizeRel>:LINKER:--strip-all>)  # except the API
  endif()
  set_property(TARGET tsm_runtime APPEND PROPERTY LINK_DEPENDS ${script})
endif()

set(runtime_targets tsm_runtime)
if(TSM_RUNTIME_STATIC AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  # All parts are linked into one object in which only the API is global, so that names cannot
  # clash. The static library is CPU-only: with CUDA, a program would have to link CUDA's runtime as
  # well.
  set(object ${PROJECT_BINARY_DIR}/tsm_runtime.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${object} $<TARGET_OBJECTS:tsm_c_api> --whole-archive
      $<TARGET_FILE:tsm_engine> $<TARGET_FILE:tsm_no_cuda> $<TARGET_FILE:tsm_kernels>
      $<TARGET_FILE:tsm_core>
    COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=tsm_* ${object}
    DEPENDS tsm_c_api $<TARGET_OBJECTS:tsm_c_api> tsm_engine tsm_no_cuda tsm_kernels tsm_core
    COMMAND_EXPAND_LISTS VERBATIM)
  add_library(tsm_runtime_static STATIC ${object})
  target_link_libraries(tsm_runtime_static INTERFACE Threads::Threads)
  target_include_directories(tsm_runtime_static INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cpp/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(tsm_runtime_static PROPERTIES
    EXPORT_NAME runtime_static OUTPUT_NAME tsm_runtime LINKER_LANGUAGE CXX)
  list(APPEND runtime_targets tsm_runtime_static)
endif()

if(NOT has_shared)
  # A static libtsm_runtime needs the libraries of its parts, so it is used from the build (emscripten).
  message(STATUS "tsm: no shared libraries here; add_subdirectory() gives tsm::runtime, nothing is installed")
  return()
endif()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tsm)
install(TARGETS ${runtime_targets} EXPORT tsm
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
install(FILES cpp/include/tsm/pool.h cpp/include/tsm/pool.hpp cpp/include/tsm/tsm.h cpp/include/tsm/tsm.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tsm COMPONENT runtime)
install(EXPORT tsm NAMESPACE tsm:: FILE tsmTargets.cmake DESTINATION ${package} COMPONENT runtime)
configure_package_config_file(cpp/cmake/tsmConfig.cmake.in ${PROJECT_BINARY_DIR}/tsmConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tsmConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tsmConfig.cmake ${PROJECT_BINARY_DIR}/tsmConfigVersion.cmake
  DESTINATION ${package} COMPONENT runtime)
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cpp/cmake/tsm.pc.in ${PROJECT_BINARY_DIR}/tsm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tsm.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT runtime)
