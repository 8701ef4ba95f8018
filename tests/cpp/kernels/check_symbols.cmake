# Fails if an object of a higher instruction set shares a symbol with other code: the linker might
# pick its weak or unique symbols for code that runs on every processor, and might take the C++
# symbols that it needs from any other object.
#
#   cmake -DNM=nm -DOBJECTS=FILE -P check_symbols.cmake      FILE: one path per line
file(STRINGS ${OBJECTS} objects)
list(LENGTH objects count)
if(count EQUAL 0)
  message(FATAL_ERROR "${OBJECTS} names no object")
endif()
set(bad "")
foreach(object IN LISTS objects)
  execute_process(COMMAND ${NM} --format=bsd ${object} OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT symbols MATCHES "kIsa|training_table|kMath")
    message(FATAL_ERROR "${NM} ${object}: no table found in it")
  endif()
  string(REGEX MATCHALL "[^\n]* [WwVvu] [^\n]*|[^\n]* U _Z[^\n]*" found "${symbols}")
  foreach(line IN LISTS found)
    string(APPEND bad "\n  ${object}: ${line}")
  endforeach()
endforeach()
if(bad)
  message(FATAL_ERROR "symbols that units of one isa must not have:${bad}")
endif()
message(STATUS "${count} objects share no symbol")
