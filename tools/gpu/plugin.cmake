# The target ndp_cuda: the plugin of the device `cuda`, by nvcc. `make cuda` builds it; nothing else does. nvcc is called as
# any other tool is, so that a machine without it configures and builds the rest.

# CUDA 12.4 or newer: on PATH, in $CUDA_HOME, in /usr/local/cuda, or what `make deps-cuda` took from PyPI.
function(ndp_nvcc_version nvcc out)
  execute_process(COMMAND ${nvcc} --version OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" _ "${text}")
  set(${out} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()
function(ndp_nvcc_is_new accepted nvcc)
  ndp_nvcc_version(${nvcc} version)
  if(NOT version VERSION_GREATER_EQUAL 12.4)
    message(STATUS "${nvcc}: CUDA ${version} is older than 12.4")
    set(${accepted} FALSE PARENT_SCOPE)
  endif()
endfunction()
find_program(NDP_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin ${CMAKE_SOURCE_DIR}/build/cuda/bin
  VALIDATOR ndp_nvcc_is_new)

if(NOT NDP_NVCC)
  add_custom_target(ndp_cuda
    COMMAND ${CMAKE_COMMAND} -E echo "no nvcc of CUDA 12.4 or newer on PATH, in $CUDA_HOME or /usr/local/cuda: 'make deps-cuda' takes one from PyPI"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
  return()
endif()

get_filename_component(toolkit ${NDP_NVCC} REALPATH)
get_filename_component(toolkit ${toolkit} DIRECTORY)
get_filename_component(toolkit ${toolkit} DIRECTORY)
set(NDP_NVCC_FLAGS -std=c++20 -O3 -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra
  -D_GNU_SOURCE -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include)
# Ampere and Hopper as they are; newer GPUs translate the text when they load it.
set(NDP_CUDA_GPUS -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90])

file(GLOB kernels CONFIGURE_DEPENDS src/ops/cuda/*.cu src/ops/cuda/*.cc src/device/cuda/*.cc)
set(objects "")
foreach(source ${kernels})
  get_filename_component(name ${source} NAME)
  set(object ${CMAKE_BINARY_DIR}/ndp_cuda/${name}.o)
  set(language cu)
  if(name MATCHES "cc$")
    set(language c++)
  endif()
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/ndp_cuda
    COMMAND ${CMAKE_SOURCE_DIR}/tools/compile ${NDP_NVCC} ${NDP_NVCC_FLAGS} ${NDP_CUDA_GPUS} -MD -MF ${object}.d -x ${language} -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "nvcc ${name}")
  list(APPEND objects ${object})
endforeach()
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/ndp_cuda.so
  COMMAND ${NDP_NVCC} -shared -cudart static -L${toolkit}/lib -Xlinker --exclude-libs=ALL -Xlinker -z -Xlinker defs ${objects} -ldl
    -o ${CMAKE_BINARY_DIR}/ndp_cuda.so
  DEPENDS ${objects} VERBATIM COMMENT "Linking ndp_cuda.so")
add_custom_target(ndp_cuda DEPENDS ${CMAKE_BINARY_DIR}/ndp_cuda.so)
