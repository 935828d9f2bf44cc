# Sourced by demo.sh and test.sh: sees to it that what a build needs is there.
# Installs what is missing where it may (root, or sudo without a password), and
# says exactly what to install where it may not.

has_command() {
    command -v "$1" >/dev/null 2>&1
}

has_header() {
    echo "#include <$1>" | g++ -E -x c++ - >/dev/null 2>&1
}

has_library() {
    PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -qF "$1"
}

# FileCheck and `not` come in one package, whose name has a number.
has_filecheck() {
    has_command FileCheck || ls /usr/lib/llvm-*/bin/FileCheck >/dev/null 2>&1
}

filecheck_package() {
    local known
    known=$(apt-cache search --names-only '^llvm-[0-9]+-tools$' 2>/dev/null |
        sed 's/ .*//' | sort -V)
    if [ -z "$known" ] || echo "$known" | grep -qx llvm-14-tools; then
        echo llvm-14-tools
    else
        echo "$known" | tail -n 1
    fi
}

# What the package for Python is compiled with.
has_python_headers() {
    python3 -c 'import os, sysconfig
exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null
}

# CMakePresets.json needs CMake 3.25.
has_cmake() {
    has_command cmake &&
        [ "$(printf '3.25\n%s\n' "$(cmake --version | sed -n '1s/.* //p')" |
            sort -V | head -n 1)" = 3.25 ]
}

# clang with libFuzzer and its sanitizers.
has_fuzzer() {
    has_command clang++ &&
        echo 'int LLVMFuzzerTestOneInput(const char *a, unsigned long n) { return 0; }' |
        clang -x c - -fsanitize=fuzzer,address -o /dev/null >/dev/null 2>&1
}

# Where the runtime is a package of its own, its name has clang's number.
fuzzer_packages() {
    local number
    number=$(apt-cache depends clang 2>/dev/null |
        sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p' | head -n 1)
    echo clang
    if apt-cache show "libclang-rt-$number-dev" >/dev/null 2>&1; then
        echo "libclang-rt-$number-dev"
    fi
}

# What to install for a build, for its tests if $1 is `tests`, and for fuzzing
# too if it is `fuzz`.
missing_packages() {
    has_command gcc || echo gcc libc6-dev
    has_command g++ || echo g++
    has_command cmake || echo cmake
    has_command ninja || echo ninja-build
    has_command python3 || echo python3
    has_header cjson/cJSON.h || echo libcjson-dev
    has_header xxhash.h || echo libxxhash-dev
    has_library libopenblas.so.0 || echo libopenblas0-pthread
    if [ "$1" = tests ] || [ "$1" = fuzz ]; then
        has_header gtest/gtest.h || echo libgtest-dev
        has_filecheck || filecheck_package
        has_command git || echo git
        has_command pkg-config || echo pkg-config
        has_command groff || echo groff-base
        has_command dpkg-shlibdeps || echo dpkg-dev
        has_command file || echo file
        has_command jq || echo jq
        python3 -c 'import jsonschema' >/dev/null 2>&1 ||
            echo python3-jsonschema
        has_python_headers || echo python3-dev
        python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
    fi
    if [ "$1" = fuzz ]; then
        has_fuzzer || fuzzer_packages
    fi
}

has_browser() {
    has_command chromium-headless-shell || has_command chromium ||
        has_command chromium-browser || has_command google-chrome
}

# What looks at pages, if the distribution has it: seconds, and 400 MB. Without
# it that test is skipped.
install_browser() {
    has_browser && return
    may_install || return 0
    quietly as_root apt-get update || true
    if apt-cache show chromium-headless-shell >/dev/null 2>&1; then
        install_packages chromium-headless-shell || true
    fi
}

# Prints what the command printed only if it fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 </dev/null || status=$?
    [ "$status" = 0 ] || cat "$log" >&2
    rm -f "$log"
    return "$status"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

may_install() {
    has_command apt-get &&
        { [ "$(id -u)" = 0 ] ||
            { has_command sudo && sudo -n true >/dev/null 2>&1; }; }
}

install_packages() {
    echo "installing" "$@"
    quietly as_root apt-get install -y --no-install-recommends "$@"
}

# Where the distribution's CMake is too old, as in Ubuntu 22.04, a newer one
# goes into the build directory.
install_cmake() {
    local venv="$1/build/venv"
    export PATH="$venv/bin:$PATH"
    has_cmake && return
    if may_install && ! python3 -c 'import ensurepip' >/dev/null 2>&1; then
        install_packages python3-venv || return 2
    fi
    echo "installing a newer CMake into build/venv"
    quietly python3 -m venv "$venv" &&
        quietly "$venv/bin/pip" install 'cmake>=3.25,<4' && return
    echo "CMake 3.25 or newer is needed: pip install 'cmake>=3.25'" >&2
    return 2
}

# install_what_is_missing ROOT [tests|fuzz]; 2 if something is still missing.
install_what_is_missing() {
    local missing
    missing=$(missing_packages "${2:-}" | xargs)
    if [ -n "$missing" ] && may_install; then
        # The package lists of a fresh machine are empty, and which name it is
        # may depend on them.
        quietly as_root apt-get update || true
        missing=$(missing_packages "${2:-}" | xargs)
        # shellcheck disable=SC2086
        install_packages $missing || return 2
    elif [ -n "$missing" ]; then
        echo "These packages are missing, and this user may not install them:" >&2
        echo "    sudo apt-get install $missing" >&2
        return 2
    fi
    has_cmake || install_cmake "$1"
}
