# How a whole build takes half the time: precompiled headers, and several files at once.
# Headers that most files include are compiled once. g++ loads all of them for every file: few, since with JSON among them
# a small file took twice as long as without. clang loads what a file uses.
option(CREST_PCH "precompile common headers" ON)
set(CREST_COMMON_HEADERS <algorithm> <functional> <map> <memory> <optional> <string> <vector> <fmt/format.h>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND CREST_COMMON_HEADERS <nlohmann/json.hpp>)
endif()
# The files of a folder are compiled up to 16 at a time, which halves the time of a whole build: headers and templates are
# read once for all of them. Names in unnamed namespaces must differ within a folder; not in backend/cpu/ and ops/, whose
# files have one shape. A developer may prefer small batches: one changed file compiles its whole batch.
set(CREST_UNITY_BATCH 16 CACHE STRING "how many files are compiled at once")
option(CREST_UNITY "compile several files at once" ON)
# g++ 12 warns of what it inlines from its own <string> when that is precompiled; clang, which .ci/run compiles everything
# with as well, has no such warnings to lose. clang would remember when each header was written, which differs between
# folders that share a compiler cache.
set(CREST_PCH_OPTIONS
  $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds$<SEMICOLON>-Wno-restrict$<SEMICOLON>-Wno-stringop-overflow$<SEMICOLON>-Wno-stringop-overread>
  "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")

# precompile(TARGET HEADERS...). All files of TARGET have the same options, and so have targets that share its headers:
# share_precompiled(TARGET OWNER). ccache would read the 70 MB of the result for
# every file, 0.2 s each: it takes the checksum beside it instead, of what the result is made from.
function(precompile target)
  if(NOT CREST_PCH)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE ${ARGN})
  target_compile_options(${target} PRIVATE ${CREST_PCH_OPTIONS})
  set(state "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} ${CREST_SANITIZE} ${target} ${ARGN}")
  foreach(header fmt/core.h fmt/format.h gtest/gtest.h nlohmann/json.hpp)
    find_file(file ${header} NO_CACHE)
    if(file)
      file(SHA256 ${file} hash)
      string(APPEND state " ${hash}")
      set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    endif()
    unset(file)
  endforeach()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(suffix pch)
  else()
    set(suffix gch)
  endif()
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.${suffix}.sum"
    CONTENT "${state}")
endfunction()

function(share_precompiled target owner)
  if(CREST_PCH)
    target_precompile_headers(${target} REUSE_FROM ${owner})
    target_compile_options(${target} PRIVATE ${CREST_PCH_OPTIONS})
  endif()
endfunction()

# optimize_sanitized(FILES...): these at -O1 under AddressSanitizer, where all else is -O0. For files that tests spend much
# of their time in, or that call themselves a thousand times (jinja.cpp).
function(optimize_sanitized)
  if(CREST_SANITIZE MATCHES address)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O1 SKIP_PRECOMPILE_HEADERS ON
      SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# unite(TARGET [BATCH]): compiles the files of each folder in batches of equal size.
# content_hash: xxhash.h turns on optimization for what follows it in a debug build.
set(CREST_ALONE "/core/content_hash|/ops/|/backend/cpu/[a-z0-9_]+\\.cpp|/backend/cuda/(cudnn|cudnn_graph|cublaslt|fused_nvrtc|discover|nvml)\\.cpp")
function(unite target)
  set(size ${CREST_UNITY_BATCH})
  if(ARGN AND ARGN LESS size)
    set(size ${ARGN})
  endif()
  get_target_property(files ${target} SOURCES)
  list(FILTER files EXCLUDE REGEX "${CREST_ALONE}")
  set(folders "")
  foreach(file ${files})
    file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${file})
    get_filename_component(folder ${folder} DIRECTORY)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(APPEND folders ${folder})
    list(APPEND files_of_${folder} ${file})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    list(LENGTH files_of_${folder} count)
    math(EXPR batches "(${count} + ${size} - 1) / ${size}")
    set(i 0)
    foreach(file ${files_of_${folder}})
      math(EXPR batch "${i} * ${batches} / ${count}")
      set_source_files_properties(${file} PROPERTIES UNITY_GROUP "${folder}_${batch}")
      math(EXPR i "${i} + 1")
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${CREST_UNITY} UNITY_BUILD_MODE GROUP)
endfunction()
