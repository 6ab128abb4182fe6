# What depends on the CUDA backend: the sources that read CREST_HAVE_CUDA, the kernels, the libraries of all parts in their
# variants, and the programs.
file(GLOB_RECURSE CREST_BACKEND_SOURCES CONFIGURE_DEPENDS src/devices/*.cpp)
list(FILTER CREST_BACKEND_SOURCES INCLUDE REGEX ${CREST_CUDA_FILES})
list(FILTER CREST_BACKEND_SOURCES EXCLUDE REGEX "backend/cuda/device/")

# CREST_CUDA_FILES without the CUDA backend (have_cuda 0) or with it (1).
function(crest_backend have_cuda)
  set(objects crest_backend_${have_cuda})
  add_library(${objects} OBJECT ${CREST_BACKEND_SOURCES})
  target_link_libraries(${objects} PRIVATE crest_options crest_packages crest_devices_headers)
  precompile(${objects} ${CREST_COMMON_HEADERS})
  unite(${objects})
  target_compile_definitions(${objects} PRIVATE CREST_HAVE_CUDA=${have_cuda} CREST_EMULATION=0
    CREST_HAVE_CUDNN=$<AND:${have_cuda},$<BOOL:${CREST_CUDNN}>>)
  if(have_cuda)
    list(JOIN CREST_CUDA_ARCHS "," archs)
    target_compile_definitions(${objects} PRIVATE CREST_CUDA_ARCHS="${archs}")
    target_include_directories(${objects} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    if(CREST_CUDNN)
      target_include_directories(${objects} SYSTEM PRIVATE ${CREST_CUDNN_FRONTEND_INCLUDE} ${CREST_CUDNN_INCLUDE})
    endif()
  endif()
endfunction()

# objects_up_to(PART HAVE_CUDA KERNELS VARIABLE): the objects of a part and of those below it, devices of this variant.
function(objects_up_to last have_cuda kernels variable)
  set(objects "")
  foreach(part ${CREST_PARTS})
    get_property(of_part GLOBAL PROPERTY crest_objects_of_${part})
    list(APPEND objects ${of_part})
    if(part STREQUAL "devices")
      list(APPEND objects $<TARGET_OBJECTS:crest_backend_${have_cuda}> $<TARGET_OBJECTS:crest_kernels_${kernels}>)
    endif()
    if(part STREQUAL last)
      break()
    endif()
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()

# crest_library(NAME PART HAVE_CUDA KERNELS): a part and those below it as one archive.
# kernels: the CUDA kernels of the library. 1: for GPUs. 0: for planning, without device code. emulated: of tests.
function(crest_library library part have_cuda kernels)
  objects_up_to(${part} ${have_cuda} ${kernels} objects)
  add_library(${library} STATIC ${objects})
  set_target_properties(${library} PROPERTIES LINKER_LANGUAGE CXX)
  target_compile_definitions(${library} INTERFACE CREST_HAVE_CUDA=${have_cuda}
    CREST_EMULATION=$<STREQUAL:${kernels},emulated>)
  target_link_libraries(${library} PUBLIC crest_options crest_${part}_headers PRIVATE crest_packages)
  if(have_cuda)
    target_include_directories(${library} SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(${library} PUBLIC CUDA::cudart_static)
  endif()
endfunction()

add_library(crest_main OBJECT src/commands/cli/main.cpp)
target_link_libraries(crest_main PRIVATE crest_source_options crest_commands_headers)
target_compile_options(crest_main PRIVATE ${CREST_OPTIONS_cold})
share_precompiled(crest_main crest_base_cold)

function(crest_program program library)
  add_executable(${program} $<TARGET_OBJECTS:crest_main>)
  target_link_libraries(${program} PRIVATE ${library})
  # An installed program finds the libraries of a release archive beside itself (scripts/dist.sh), also those that they need.
  # Built with that path at once: CMake would keep its place with empty entries, and those mean the current folder.
  set_target_properties(${program} PROPERTIES LINKER_LANGUAGE CXX OUTPUT_NAME crest INSTALL_RPATH "$ORIGIN/../lib"
    BUILD_WITH_INSTALL_RPATH TRUE)
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endfunction()

# CUDA kernels: for GPUs by nvcc, and by g++ for planning and for tests (backend/cuda/device/platform.h).
file(GLOB CREST_CUDA_SOURCES CONFIGURE_DEPENDS src/devices/backend/cuda/*.cu)
add_subdirectory(src/devices/backend/cuda)
set(CREST_HAVE_CUDA 0)
if(CMAKE_CUDA_COMPILER)
  add_library(crest_kernels_1 OBJECT ${CREST_CUDA_SOURCES})
  set(gencode "")
  foreach(arch ${CREST_CUDA_ARCHS})
    list(APPEND gencode "SHELL:-gencode=arch=compute_${arch},code=sm_${arch}")
  endforeach()
  set(portable ${CREST_CUDA_ARCHS})
  list(FILTER portable EXCLUDE REGEX "a$")
  if(portable)  # a GPU that the list does not name runs the PTX of the oldest one
    list(GET portable 0 oldest)
    list(APPEND gencode "SHELL:-gencode=arch=compute_${oldest},code=compute_${oldest}")
  endif()
  if(CREST_CUDA_CHECK)  # not to compress takes an eighth less time, ptxas -O0 a fifth; cicc -O0 would cost more in ptxas
    set(optimize -O0 --no-compress "SHELL:-Xcicc -O1 -Xptxas -O0")
  else()
    set(optimize -O3 -lineinfo)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND optimize "SHELL:--compress-mode size")
    endif()
  endif()
  target_compile_options(crest_kernels_1 PRIVATE ${gencode} --expt-relaxed-constexpr ${optimize}
    "SHELL:-Xcompiler -Wall,-Wextra,-Wno-unused-parameter,-Wno-stringop-overflow")
  if(CREST_WERROR)
    target_compile_options(crest_kernels_1 PRIVATE "SHELL:-Werror all-warnings")
  endif()
  target_compile_definitions(crest_kernels_1 PRIVATE CREST_HAVE_CUDA=1 CREST_EMULATION=0)
  target_link_libraries(crest_kernels_1 PRIVATE fmt::fmt crest_devices_headers)
  # cuDNN attention needs cuDNN's headers and those of cudnn-frontend (scripts/install-deps.sh cudnn fetches the latter);
  # the library itself is opened at run time.
  execute_process(COMMAND python3 -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    OUTPUT_VARIABLE CREST_PYTHON_PACKAGES OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  find_path(CREST_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CREST_PYTHON_PACKAGES}/nvidia/cudnn/include)
  find_path(CREST_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
    HINTS $ENV{CREST_CACHE}/deps/cudnn-frontend-1.32.0/include ${CMAKE_SOURCE_DIR}/.cache/deps/cudnn-frontend-1.32.0/include)
  set(cudnn_major "")
  if(EXISTS "${CREST_CUDNN_INCLUDE}/cudnn_version.h")
    file(STRINGS "${CREST_CUDNN_INCLUDE}/cudnn_version.h" cudnn_major REGEX "^#define CUDNN_MAJOR 9")
  endif()
  if(cudnn_major AND CREST_CUDNN_FRONTEND_INCLUDE)
    set(CREST_CUDNN ON)
    # It describes graphs once; cudnn-frontend's headers take a minute to optimize.
    set_source_files_properties(src/devices/backend/cuda/cudnn_graph.cpp PROPERTIES COMPILE_OPTIONS -O1)
  else()
    message(NOTICE "No cuDNN attention kernels: cudnn.h (of version 9) is at '${CREST_CUDNN_INCLUDE}', cudnn_frontend.h at "
      "'${CREST_CUDNN_FRONTEND_INCLUDE}'. scripts/install-deps.sh cudnn fetches the latter.")
  endif()
  if(NOT CREST_CUDA STREQUAL "OFF")
    set(CREST_HAVE_CUDA 1)
  endif()
endif()

crest_backend(${CREST_HAVE_CUDA})
set(kernels ${CREST_HAVE_CUDA})
if(CREST_SANITIZE AND NOT CREST_HAVE_CUDA)  # one library for crest and its tests
  set(kernels emulated)
endif()
crest_library(crest_lib commands ${CREST_HAVE_CUDA} ${kernels})
crest_program(crest crest_lib)
install(TARGETS crest RUNTIME DESTINATION bin)
# The C++ API without the laboratory and the command line.
crest_library(crest_trainer trainer ${CREST_HAVE_CUDA} ${CREST_HAVE_CUDA})
set_target_properties(crest_trainer PROPERTIES EXCLUDE_FROM_ALL TRUE)
if(CREST_HAVE_CUDA OR CREST_SANITIZE)  # tests run kernels on the GPU, else on the emulation
  set(CREST_TEST_LIBRARY crest_lib)
else()
  set(CREST_TEST_LIBRARY crest_lib_emulated)
  crest_library(crest_lib_emulated commands 0 emulated)
  set_target_properties(crest_lib_emulated PROPERTIES EXCLUDE_FROM_ALL TRUE)
endif()
if(CREST_CUDA_PROGRAMS)
  if(NOT CREST_HAVE_CUDA)
    crest_backend(1)
  endif()
  crest_library(crest_lib_cuda commands 1 1)
  crest_program(crest_cuda crest_lib_cuda)
  add_custom_target(cuda DEPENDS crest_cuda)
  set_target_properties(crest_backend_1 crest_lib_cuda crest_cuda crest_kernels_1 PROPERTIES EXCLUDE_FROM_ALL TRUE)
  set_target_properties(crest_cuda PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
endif()

# The linker checks the parts: each is linked whole, with the parts below it and nothing else. A function that a higher part
# defines is undefined here.
if(CREST_TESTS AND NOT CREST_SANITIZE)
  set(empty ${CMAKE_BINARY_DIR}/parts/main.cpp)
  file(CONFIGURE OUTPUT ${empty} CONTENT "int main() {}\n")
  foreach(part base step devices trainer laboratory)
    objects_up_to(${part} ${CREST_HAVE_CUDA} ${CREST_HAVE_CUDA} objects)
    add_executable(part_${part} ${empty} ${objects})
    target_link_libraries(part_${part} PRIVATE crest_options crest_packages)
    set_target_properties(part_${part} PROPERTIES LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/parts)
    if(CREST_HAVE_CUDA)
      target_link_libraries(part_${part} PRIVATE CUDA::cudart_static)
    endif()
  endforeach()
endif()
