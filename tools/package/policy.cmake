# Read by CPack once the files of the packages are in place: what Debian asks of each package beside them. A copyright, a
# changelog, compressed manual pages, no debugging symbols in the static library.
function(compress file)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(name ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr)
  file(MAKE_DIRECTORY ${root}/share/doc/${name})
  file(WRITE ${root}/share/doc/${name}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ndparallel

Files: *
Copyright: 2025-2026 The ndparallel authors
License: Apache-2.0

License: Apache-2.0
 On Debian systems, the whole license is in /usr/share/common-licenses/Apache-2.0.
")
  file(WRITE ${root}/share/doc/${name}/changelog "${name} (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Built from the sources of this version.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  compress(${root}/share/doc/${name}/changelog)
  file(GLOB pages ${root}/share/man/man*/*.[1-9])
  foreach(page ${pages})
    compress(${page})
  endforeach()
  file(GLOB archives ${root}/lib/*.a)
  foreach(archive ${archives})
    execute_process(COMMAND strip --strip-debug --enable-deterministic-archives ${archive} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  file(GLOB plugins ${root}/lib/ndparallel/*.so) # nvcc's is no target of CMake, which would strip it
  foreach(plugin ${plugins})
    execute_process(COMMAND strip --strip-unneeded ${plugin} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endforeach()
