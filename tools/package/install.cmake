# What `make install` puts below its prefix. The folders are the same everywhere, so that program and library find the plugin
# from where they lie themselves; all files may be moved together.
include(CMakePackageConfigHelpers)

# What a program has to link with beside libndparallel.a. It is said in words that need no development files of others.
set(STATIC_LIBRARIES ${LIBS_LIBRARIES} dnnl ${OpenMP_C_LIB_NAMES} m ${CMAKE_DL_LIBS})
list(REMOVE_DUPLICATES STATIC_LIBRARIES)
list(TRANSFORM STATIC_LIBRARIES PREPEND "-l")
foreach(library libndparallel_shared libndparallel_static)
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:include>)
endforeach()
target_link_libraries(libndparallel_static INTERFACE "$<INSTALL_INTERFACE:${STATIC_LIBRARIES}>")
set_target_properties(libndparallel_shared PROPERTIES EXPORT_NAME ndparallel)
set_target_properties(libndparallel_static PROPERTIES EXPORT_NAME ndparallel_static)

# COMPONENT is the Debian package (debian.cmake).
install(TARGETS ndparallel RUNTIME DESTINATION bin COMPONENT program)
install(TARGETS libndparallel_shared libndparallel_static EXPORT ndparallel
  LIBRARY DESTINATION lib COMPONENT library NAMELINK_COMPONENT development ARCHIVE DESTINATION lib COMPONENT development)
install(DIRECTORY include/ndparallel DESTINATION include COMPONENT development)
install(TARGETS ndp_nccl LIBRARY DESTINATION lib/ndparallel COMPONENT library)
foreach(plugin ndp_http ndp_mpi)
  if(TARGET ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION lib/ndparallel COMPONENT library)
  endif()
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/ndp_cuda.so DESTINATION lib/ndparallel COMPONENT cuda OPTIONAL) # after `make cuda`

# Manual pages, and completion where each shell looks below /usr/local.
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man1 COMPONENT program FILES_MATCHING PATTERN *.1)
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION share/man/man5 COMPONENT program FILES_MATCHING PATTERN *.5)
set(completion ${CMAKE_BINARY_DIR}/completion)
install(FILES ${completion}/ndparallel.bash DESTINATION share/bash-completion/completions COMPONENT program RENAME ndparallel)
install(FILES ${completion}/_ndparallel DESTINATION share/zsh/site-functions COMPONENT program)
install(FILES ${completion}/ndparallel.fish DESTINATION share/fish/vendor_completions.d COMPONENT program)

# pkg-config ndparallel
list(JOIN STATIC_LIBRARIES " " PC_LIBS_PRIVATE)
configure_file(tools/package/ndparallel.pc.in ndparallel.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/ndparallel.pc DESTINATION lib/pkgconfig COMPONENT development)

# find_package(ndparallel): ndparallel::ndparallel, ndparallel::ndparallel_static
set(package lib/cmake/ndparallel)
install(EXPORT ndparallel NAMESPACE ndparallel:: FILE ndparallelConfig.cmake DESTINATION ${package} COMPONENT development)
write_basic_package_version_file(ndparallelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ndparallelConfigVersion.cmake DESTINATION ${package} COMPONENT development)

include(tools/package/debian.cmake)
