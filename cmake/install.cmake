# What is installed, in three components: `lib` is what a program needs that was
# linked, `dev` what one is compiled with, `tools` the command and what it reads.
# Every path is relative to where it is read from: the folder may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
foreach(folder LIBDIR INCLUDEDIR BINDIR LIBEXECDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    message(FATAL_ERROR "CMAKE_INSTALL_${folder} is ${CMAKE_INSTALL_${folder}}, "
      "and must be a folder below the prefix")
  endif()
endforeach()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/heddle)
set(programs_folder ${CMAKE_INSTALL_LIBEXECDIR}/heddle)
set(share_folder ${CMAKE_INSTALL_DATADIR}/heddle)

foreach(library IN LISTS libraries)
  get_target_property(kind ${library} EXPORT_NAME)
  install(TARGETS ${library} EXPORT heddle-${kind}
    LIBRARY COMPONENT lib NAMELINK_COMPONENT dev
    ARCHIVE COMPONENT dev
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT heddle-${kind} NAMESPACE heddle:: COMPONENT dev
    DESTINATION ${package_folder})
endforeach()
install(DIRECTORY include/heddle COMPONENT dev
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_package_config_file(cmake/heddleConfig.cmake.in heddleConfig.cmake
  INSTALL_DESTINATION ${package_folder} NO_SET_AND_CHECK_MACRO)
# A minor version of 0.x is an ABI of its own.
write_basic_package_version_file(heddleConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/heddleConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/heddleConfigVersion.cmake
  DESTINATION ${package_folder} COMPONENT dev)

file(RELATIVE_PATH heddle_up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" heddle_up "${heddle_up}")
set(heddle_needs "-lpthread -l${CMAKE_DL_LIBS} -lm")
# Without a shared library nothing but this says what the static one needs.
set(heddle_always "")
if(NOT heddle IN_LIST libraries)
  set(heddle_always " ${heddle_needs}")
endif()
configure_file(cmake/heddle.pc.in heddle.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/heddle.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

if(HEDDLE_TOOLS)
  # Linked statically they need no path; else the library lies beside them.
  if(BUILD_SHARED_LIBS)
    file(RELATIVE_PATH from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    file(RELATIVE_PATH from_libexec /${programs_folder} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(heddle_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${from_bin}")
    set_target_properties(heddle_gen PROPERTIES
      INSTALL_RPATH "$ORIGIN/${from_libexec}")
  endif()
  set_target_properties(heddle_tool PROPERTIES EXPORT_NAME tool)
  install(TARGETS heddle_tool EXPORT heddle-tools
    RUNTIME COMPONENT tools)
  install(EXPORT heddle-tools NAMESPACE heddle:: COMPONENT tools
    DESTINATION ${package_folder})
  install(TARGETS heddle_gen RUNTIME COMPONENT tools
    DESTINATION ${programs_folder})
  set(pages ${CMAKE_CURRENT_BINARY_DIR}/tools/pages)
  install(DIRECTORY ${pages}/man1 COMPONENT tools
    DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(DIRECTORY ${pages}/bash-completion ${pages}/zsh ${pages}/fish
    DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT tools)
  install(DIRECTORY examples DESTINATION ${share_folder} COMPONENT tools)
endif()

install(FILES README.md LICENSE CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT dev)
