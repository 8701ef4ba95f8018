# The fuzzers. They use libFuzzer and need clang; `make fuzz` configures a separate tree with -DTSM_FUZZ=ON.
# Only the code that reads files is instrumented. The kernels see only checked data, and the sanitizer build
# tests them.
set(fuzz_flags -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
foreach(target tsm_core tsm_engine)
  target_compile_options(${target} PRIVATE ${fuzz_flags})
endforeach()
foreach(name fuzz_model fuzz_state fuzz_text write_seeds)
  add_executable(${name} cpp/fuzz/${name}.cc)
  target_compile_options(${name} PRIVATE ${fuzz_flags})
  target_link_libraries(${name} PRIVATE tsm_engine)
  target_link_options(${name} PRIVATE -fsanitize=address,undefined)
endforeach()
target_link_options(fuzz_model PRIVATE -fsanitize=fuzzer)
target_link_options(fuzz_state PRIVATE -fsanitize=fuzzer)
target_link_options(fuzz_text PRIVATE -fsanitize=fuzzer)
