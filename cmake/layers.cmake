# A layer is a folder of src/: every .cpp in it belongs to its library, every *_test.cpp of the same folder under tests/ is a test.

# baton_unity(TARGET SIZE): compiles the target's files in groups of SIZE (BATON_UNITY), each of which reads the headers once and makes
# the code of their templates once. Names in anonymous namespaces must differ inside a layer for it, and those of tests inside a folder.
# The thread sanitizer's build and the debug build compile every file alone, which proves that each includes what it uses.
function(baton_unity target size)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${BATON_UNITY} UNITY_BUILD_BATCH_SIZE ${size})
  if(BATON_UNITY)
    # The warning is about anonymous namespaces in headers, and takes the members of a group for such.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# baton_layer(NAME LINK target... [SEPARATE]): static library baton_NAME from all .cpp files below src/NAME, compiled one by one where
# SEPARATE says so.
function(baton_layer name)
  cmake_parse_arguments(arg "SEPARATE" "" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/src/(apps|bench)/main\\.cpp$")
  if(NOT sources)
    add_library(baton_${name} INTERFACE)
    target_include_directories(baton_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(baton_${name} INTERFACE ${arg_LINK})
    return()
  endif()
  add_library(baton_${name} STATIC ${sources})
  target_include_directories(baton_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(baton_${name} PUBLIC ${arg_LINK})
  if(NOT arg_SEPARATE)
    baton_unity(baton_${name} 24)
  endif()
endfunction()

# What every test runs with: loops small enough that two tests share two cores, and sanitizers that fail a test with a trace.
# intercept_tls_get_addr=0: GCC 12's LeakSanitizer takes thread-local memory of an opened module (oneDNN's) that begins 16 bytes
# into a page for glibc 2.19's, reads its bounds from what stands before it, and crashes (github.com/google/sanitizers/issues/1322).
# Without it that memory is still reached, for glibc takes it from the malloc that is watched: what leaks is still found.
set(BATON_TEST_ENVIRONMENT "OMP_NUM_THREADS=2" "OMP_WAIT_POLICY=passive")
if(BATON_SANITIZE MATCHES "address")
  list(APPEND BATON_TEST_ENVIRONMENT
       "ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:check_initialization_order=1:intercept_tls_get_addr=0"
       "UBSAN_OPTIONS=print_stacktrace=1")
elseif(BATON_SANITIZE MATCHES "thread")
  list(APPEND BATON_TEST_ENVIRONMENT
       "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/packaging/tsan.supp:second_deadlock_stack=1")
endif()
# The same for programs that run beside the tests (tests/e2e/soak.py), one NAME=VALUE a line.
list(JOIN BATON_TEST_ENVIRONMENT "\n" environment_lines)
file(WRITE ${CMAKE_BINARY_DIR}/test_environment "${environment_lines}\n")

# baton_tests(FOLDER LINK target... [COMPUTES]): the program FOLDER_tests of all *_test.cpp below tests/FOLDER, part of the target
# test_programs; the default target leaves tests out. Each file is one test of ctest, named by its path (server/http/parser_test.cpp is
# server_http_parser_test), and one process: after the program is linked, a link of that name leads to it, under which it runs that
# file (tests/support/main.cpp). The target of that name builds a program of one file in its place, for work on that file. A file that
# replaces operator new is always such a program. Files that try more cases in a long run (support/long_run.h) are registered again
# with ctest's label `long`: `make test` leaves that to `make test-long`. A test runs once, so compiling it is most of its cost: files
# are compiled in groups, and not optimised, or, where they compute references themselves (COMPUTES), a little. What they test is.
# Tests of engines have the label `ranks` (tests/CMakeLists.txt).
function(baton_tests folder)
  cmake_parse_arguments(arg "COMPUTES" "" "LINK" ${ARGN})
  if(arg_COMPUTES)
    set(level -O1 -Wno-maybe-uninitialized)  # GCC 12 warns at this level about what it does not inline
  else()
    set(level -O0)
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cpp)
  set(program ${folder}_tests)
  set(linked "")
  set(sources_of_program "")
  set(alone "")
  foreach(source ${sources})
    string(REPLACE "/" "_" name ${source})
    string(REPLACE ".cpp" "" name ${name})
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
    file(STRINGS ${source} replaces_new REGEX "^void\\* operator new")
    if(replaces_new)
      list(APPEND alone ${name})
    else()
      list(APPEND linked ${name})
      list(APPEND sources_of_program ${source})
    endif()
    add_test(NAME ${name} COMMAND ${CMAKE_BINARY_DIR}/tests/${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 ENVIRONMENT "${BATON_TEST_ENVIRONMENT}")
    file(STRINGS ${source} has_engines REGEX "support/(tiny_engine|engine_device|test_ranks)\\.h")
    if(has_engines AND folder STREQUAL "engine")
      set_property(TEST ${name} APPEND PROPERTY LABELS ranks)
    endif()
    file(STRINGS ${source} is_longer REGEX "is_long_run|engine_devices_at_each_pace")
    if(is_longer)
      add_test(NAME ${name}_of_a_long_run COMMAND ${CMAKE_BINARY_DIR}/tests/${name} --gtest_brief=1)
      set_tests_properties(${name}_of_a_long_run PROPERTIES TIMEOUT 600 LABELS long ENVIRONMENT
                                                            "${BATON_TEST_ENVIRONMENT};BATON_TEST_LONG=1")
    endif()
  endforeach()
  add_executable(${program} EXCLUDE_FROM_ALL ${sources_of_program})
  baton_unity(${program} 16)
  foreach(target ${program} ${linked} ${alone})
    target_compile_options(${target} PRIVATE "$<$<NOT:$<CONFIG:Debug>>:${level}>")
    target_link_libraries(${target} PRIVATE ${arg_LINK} baton_test_support)
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endforeach()
  add_custom_command(TARGET ${program} POST_BUILD VERBATIM
                     COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${program}> "-DNAMES=${linked}"
                             -P ${CMAKE_SOURCE_DIR}/cmake/link_tests.cmake)
  if(alone)
    add_dependencies(${program} ${alone})
  endif()
  add_dependencies(test_programs ${program})
endfunction()

# baton_micro_bench(FOLDER LINK target...): one Google Benchmark program for each bench/FOLDER/*_bench.cpp.
function(baton_micro_bench folder)
  cmake_parse_arguments(arg "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_bench.cpp)
  string(REPLACE "/" "_" prefix ${folder})
  foreach(source ${sources})
    get_filename_component(stem ${source} NAME_WE)
    set(target ${prefix}_${stem})
    add_executable(${target} EXCLUDE_FROM_ALL ${source})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    target_link_libraries(${target} PRIVATE ${arg_LINK} benchmark::benchmark benchmark::benchmark_main)
    target_compile_definitions(${target} PRIVATE BATON_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    add_dependencies(bench_programs ${target})
  endforeach()
endfunction()
