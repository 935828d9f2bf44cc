# Run by cpack on what it has gathered, before it makes packages for Debian of
# it: each says by itself under which terms it is and what has changed, and
# pages of the manual are compressed, as Debian's policy demands.
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()

function(compress file)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(component lib dev tools)
  string(TOUPPER ${component} upper)
  set(usr ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr)
  set(doc ${usr}/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  file(MAKE_DIRECTORY ${doc})
  file(COPY_FILE ${CMAKE_CURRENT_LIST_DIR}/copyright ${doc}/copyright)
  file(WRITE ${doc}/changelog
    "heddle (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n"
    "  * What has changed is told in the CHANGELOG.md of libheddle-dev.\n\n"
    " -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
  compress(${doc}/changelog)
  file(GLOB pages ${usr}/share/man/man1/*.1)
  foreach(page IN LISTS pages)
    compress(${page})
  endforeach()
endforeach()
