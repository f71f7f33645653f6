# `make packages`: what CPack makes of the components of install.cmake, a Debian package each. Read at the end of install.cmake;
# packages.cmake beside this is read when CPack runs.
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_NAME ndparallel)
set(CPACK_PACKAGE_VENDOR "The ndparallel authors")
set(CPACK_PACKAGE_CONTACT "The ndparallel authors <maintainers@ndparallel.invalid>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};ndparallel;ALL;/")
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/tools/package/packages.cmake)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/tools/package/policy.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_NDP_BUILD ${CMAKE_BINARY_DIR})

# ndp_package(COMPONENT NAME SECTION SUMMARY TEXT): a line of the text begins with a capital or goes on.
function(ndp_package component name section summary text)
  string(TOUPPER ${component} upper)
  foreach(pair PACKAGE_NAME=${name} FILE_NAME=DEB-DEFAULT PACKAGE_SECTION=${section})
    string(REGEX MATCH "^([A-Z_]+)=(.*)" _ ${pair})
    set(CPACK_DEBIAN_${upper}_${CMAKE_MATCH_1} ${CMAKE_MATCH_2} PARENT_SCOPE)
  endforeach()
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
endfunction()
set(about "ndparallel trains language models with any combination of data, tensor,
sequence, context, expert and pipeline parallelism, on CPUs and on NVIDIA's
GPUs, on one host or several.")
ndp_package(program ndparallel science "training of language models with any parallelism" "${about}")
ndp_package(library libndparallel0 libs "training of language models with any parallelism (library)"
  "${about}\n.\nThis package has the library and the plugins that it and the program load.")
ndp_package(development libndparallel-dev libdevel "training of language models with any parallelism (development)"
  "${about}\n.\nThis package has what is needed to build a program with the library.")
ndp_package(cuda ndparallel-cuda science "training of language models with any parallelism (GPUs)"
  "${about}\n.\nThis package has the plugin for NVIDIA's GPUs.")
include(CPack)
