# Packages of the three components: for Debian and Ubuntu by `cpack -G DEB`.
set(CPACK_PACKAGE_VENDOR heddle)
if(NOT CPACK_PACKAGE_CONTACT)
  set(CPACK_PACKAGE_CONTACT "The authors of heddle <heddle@localhost>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "host-IR compiler and runtime for pipelined communication")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL lib dev tools)
set(CPACK_STRIP_FILES ON)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_LIB_PACKAGE_NAME libheddle${heddle_abi})
set(CPACK_DEBIAN_LIB_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIB_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/triggers)
set(CPACK_DEBIAN_LIB_PACKAGE_SUGGESTS libopenblas0)
set(CPACK_COMPONENT_LIB_DESCRIPTION
  "The shared library: it lowers, checks, simulates and runs programs over\nsharded tensors.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libheddle-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "libheddle${heddle_abi} (= ${PROJECT_VERSION}), libc6-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION
  "The header, the static library, files for CMake and pkg-config, and the\npages of the documentation.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME heddle-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS libopenblas0)
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
  "The command heddle, which lowers, checks, simulates, runs and measures\nprograms over sharded tensors.")

# Each package says by itself under which terms it is.
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian.cmake)
include(CPack)
