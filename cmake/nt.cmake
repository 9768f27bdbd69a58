# Build idioms of the project: flags, libraries, programs, tests.

add_library(nt_flags INTERFACE)
target_include_directories(nt_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(nt_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
    -Wformat=2 -Wvla $<$<C_COMPILER_ID:Clang>:-Wno-sign-conversion>> # gcc's -Wconversion is without it
  $<$<AND:$<COMPILE_LANGUAGE:C>,$<BOOL:${NT_WERROR}>>:-Werror>)
if(NT_SANITIZE)
  set(san -fsanitize=${NT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(nt_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:${san}>)
  target_link_options(nt_flags INTERFACE ${san})
endif()

if(NT_FUZZ) # coverage of the libraries too: without it a fuzzer only sees its own few lines
  target_compile_options(nt_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
endif()

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# nt_dep(uv libuv>=1.44 uv_a): target nt::uv, shared or, with NT_STATIC_DEPS, the archive of that name.
function(nt_dep name spec archive)
  pkg_check_modules(dep_${name} REQUIRED IMPORTED_TARGET GLOBAL ${spec})
  add_library(nt_dep_${name} INTERFACE)
  if(NT_STATIC_DEPS)
    find_library(dep_${name}_archive NAMES lib${archive}.a REQUIRED)
    target_include_directories(nt_dep_${name} INTERFACE ${dep_${name}_INCLUDE_DIRS})
    target_link_libraries(nt_dep_${name} INTERFACE ${dep_${name}_archive} Threads::Threads dl rt m)
  else()
    target_link_libraries(nt_dep_${name} INTERFACE PkgConfig::dep_${name})
  endif()
  add_library(nt::${name} ALIAS nt_dep_${name})
endfunction()

nt_dep(uv libuv>=1.44 uv_a)
nt_dep(sqlite sqlite3>=3.37 sqlite3)
nt_dep(jansson jansson>=2.13 jansson)
nt_dep(expat expat>=2.4 expat)
nt_dep(z zlib>=1.2 z)
nt_dep(md libmd>=1.0 md)

# nt_library(store SOURCES .. DEPS nt_base nt::sqlite): static library nt_store of the calling folder.
function(nt_library name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;DEPS")
  add_library(nt_${name} STATIC ${A_SOURCES})
  target_link_libraries(nt_${name} PRIVATE nt_flags PUBLIC ${A_DEPS})
  target_include_directories(nt_${name} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

function(nt_program name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;DEPS")
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE nt_flags ${A_DEPS})
endfunction()

# nt_test(store_migrate SOURCES test_migrate.c DEPS nt_store): a cmocka program run by ctest. A skip is exit
# code 77 with a reason on stdout. TIMEOUT in seconds, 120 unless told, five times that with sanitizers.
function(nt_test name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "TIMEOUT" "SOURCES;DEPS;ENV;ARGS;LABELS")
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  if(NT_SANITIZE) # these run several times longer
    math(EXPR A_TIMEOUT "${A_TIMEOUT} * 5")
  endif()
  add_executable(test_${name} ${A_SOURCES})
  target_link_libraries(test_${name} PRIVATE nt_flags ${A_DEPS} cmocka)
  add_test(NAME ${name} COMMAND test_${name} ${A_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "NT_SOURCE_DIR=${PROJECT_SOURCE_DIR};NT_BUILD_DIR=${PROJECT_BINARY_DIR};${A_ENV}"
    LABELS "${A_LABELS}")
endfunction()

# nt_fuzz(topology_xml SOURCES .. DEPS ..): libFuzzer target with preset `fuzz`; everywhere else the same source
# replays its corpus (tests/fuzz/corpus/<name>) as a test, through tests/fuzz/replay.c.
function(nt_fuzz name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;DEPS")
  set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
  if(NT_FUZZ)
    add_executable(fuzz_${name} ${A_SOURCES})
    target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(fuzz_${name} PRIVATE nt_flags ${A_DEPS})
  else()
    add_executable(fuzz_${name} ${A_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.c)
    target_link_libraries(fuzz_${name} PRIVATE nt_flags ${A_DEPS})
    add_test(NAME fuzz_${name}_corpus COMMAND fuzz_${name} ${corpus})
    set_tests_properties(fuzz_${name}_corpus PROPERTIES TIMEOUT 600)
  endif()
endfunction()

# A folder joins the build when it has its CMakeLists.txt.
function(nt_subdirectories)
  foreach(dir IN LISTS ARGN)
    if(EXISTS ${PROJECT_SOURCE_DIR}/${dir}/CMakeLists.txt)
      add_subdirectory(${PROJECT_SOURCE_DIR}/${dir} ${PROJECT_BINARY_DIR}/${dir})
    endif()
  endforeach()
endfunction()
