# The six parts, lowest first (layers.txt has their folders). A part sees only its own headers and those of the parts
# below it. All files but main.cpp belong to a part: a new file needs no line here.
set(CREST_PARTS base step devices trainer laboratory commands)

add_library(crest_source_options INTERFACE)
target_link_libraries(crest_source_options INTERFACE crest_options crest_packages)

# What is compiled twice, for programs with the CUDA backend and without, because it reads CREST_HAVE_CUDA (1 or 0). All
# else is compiled once, for both.
set(CREST_CUDA_FILES "src/devices/(backend/cuda/|device/(find|runtime).cpp)")
file(GLOB_RECURSE all CONFIGURE_DEPENDS src/*.h src/*.cpp src/*.cu tests/*.h tests/*.cpp)
foreach(file ${all})
  file(STRINGS ${file} wrong LIMIT_COUNT 1 REGEX "(ifdef|ifndef|defined)[ (]+CREST_HAVE_CUD")
  if(wrong)
    message(FATAL_ERROR "${file}: '${wrong}': CREST_HAVE_CUDA and CREST_HAVE_CUDNN are 1 or 0; write #if CREST_HAVE_CUDA")
  endif()
endforeach()

# Sets of options that files of any part may have. Each has its precompiled headers, which all parts share.
# cold: command lines, files of others, what stands around measurements, pages and verdicts take no time when they run,
# but CLI11's and JSON's headers take a minute to optimize. Not so what runs between two readings of the clock.
set(CREST_FILES_cold "/(advise|bench|charts|cli|compare|interop|lab|profile|report|store|terminal|traces|tune|watch)/")
set(CREST_OPTIONS_cold $<IF:$<CONFIG:Release>,-O1,-O0>)
set(CREST_FILES_timed "/bench/(phase_runner|profile)")
# What parses guides the fuzzer, by branches only: what parsers compare with stands in the seeds, which saves a third of
# the time.
set(CREST_FILES_unguided "/lab/(measurements?|[a-z]+_measurement|run)\\.cpp")
set(CREST_FILES_guided "/(checkpoint|core|data|device|interop|lab|measure|model|ops|plan|profile|program|settings|stats|\
store|traces|train)/")
set(CREST_GUIDE -fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
set(CREST_OPTIONS_guided ${CREST_GUIDE})

# take(SET): moves the files of a set from `sources` to `SET`.
macro(take set)
  set(${set} ${sources})
  list(FILTER ${set} INCLUDE REGEX "${CREST_FILES_${set}}")
  list(REMOVE_ITEM sources ${${set}} "")
endmacro()

# crest_objects(PART SET SOURCES...): a library of the files of a part that have the same options.
function(crest_objects part set)
  set(target crest_${part}_${set})
  add_library(${target} OBJECT ${ARGN})
  target_link_libraries(${target} PRIVATE crest_${part}_headers crest_source_options)
  target_compile_options(${target} PRIVATE ${CREST_OPTIONS_${set}})
  if(TARGET crest_base_${set} AND NOT part STREQUAL "base")
    share_precompiled(${target} crest_base_${set})
  else()
    precompile(${target} ${CREST_COMMON_HEADERS})
  endif()
  unite(${target})
  set_property(GLOBAL APPEND PROPERTY crest_objects_of_${part} $<TARGET_OBJECTS:${target}>)
endfunction()

foreach(file base/core/dtype devices/backend/cpu/reference/attention trainer/data/jinja trainer/plan/memory_plan)
  optimize_sanitized(${CMAKE_SOURCE_DIR}/src/${file}.cpp)
endforeach()

set(below "")
foreach(part ${CREST_PARTS})
  add_library(crest_${part}_headers INTERFACE)
  target_include_directories(crest_${part}_headers INTERFACE ${CMAKE_SOURCE_DIR}/src/${part})
  target_link_libraries(crest_${part}_headers INTERFACE ${below})
  set(below crest_${part}_headers)

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${part}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "cli/main.cpp$|backend/(cpu/simd|cuda/device)/|${CREST_CUDA_FILES}")
  foreach(set timed unguided guided cold)
    set(${set} "")
  endforeach()
  take(timed)
  if(CREST_FUZZ)
    take(unguided)
    take(guided)
    list(APPEND sources ${unguided})
  endif()
  take(cold)
  list(APPEND sources ${timed})
  set(normal ${sources})
  foreach(set normal cold guided)
    if(${set})
      crest_objects(${part} ${set} ${${set}})
    endif()
  endforeach()
endforeach()
include(cmake/embed.cmake)
crest_embed(crest_devices_normal devices toml embedded_devices)
crest_embed(crest_laboratory_normal calibrations json embedded_calibrations)
crest_embed(crest_laboratory_normal experiments toml embedded_experiments)
crest_embed(crest_laboratory_normal src/laboratory/watch html embedded_pages)
crest_embed(crest_trainer_normal src/trainer/store py embedded_trackers)

# The fast CPU kernels are compiled once per instruction set and chosen at run time (docs/develop/decisions.md).
file(GLOB CREST_SIMD CONFIGURE_DEPENDS src/devices/backend/cpu/simd/*.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(CREST_ISAS generic avx2 avx512)
else()
  set(CREST_ISAS generic)
endif()
set(optimize -O3)
if(CREST_SANITIZE MATCHES address)  # as all else is compiled
  set(optimize "")
endif()
set(CREST_FLAGS_generic "")
set(CREST_FLAGS_avx2 -march=x86-64-v3)
set(CREST_FLAGS_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
foreach(isa ${CREST_ISAS})
  add_library(crest_simd_${isa} OBJECT ${CREST_SIMD})
  target_link_libraries(crest_simd_${isa} PRIVATE crest_options crest_devices_headers)
  target_compile_definitions(crest_simd_${isa} PRIVATE CREST_ISA=${isa})
  target_compile_options(crest_simd_${isa} PRIVATE ${optimize} -fno-math-errno -fno-trapping-math ${CREST_FLAGS_${isa}})
  set_property(GLOBAL APPEND PROPERTY crest_objects_of_devices $<TARGET_OBJECTS:crest_simd_${isa}>)
  target_compile_definitions(crest_source_options INTERFACE CREST_HAVE_${isa})
endforeach()
