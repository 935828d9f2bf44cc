#!/bin/bash
# Builds heddle with its warnings as errors and runs its tests.
#
#   tools/test.sh            all of them, in the dev preset with gcc; compiles
#                            the library and the command optimised too, and with
#                            clang if it is installed, without what is optional
#   tools/test.sh --ci       most of them, each once, where it shows most: the
#                            command, packages and oracles optimised (the preset
#                            plain), the library under AddressSanitizer and
#                            UndefinedBehaviorSanitizer with clang, what has
#                            threads under ThreadSanitizer, each fuzz target
#                            for 5 seconds, the pages as a site, and heddle.torch
#                            with PyTorch in an environment of its own
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/install.sh"

presets=dev
needs=tests
case "${1-}" in
'') ;;
--ci)
    presets="plain asan tsan"
    needs=fuzz
    ;;
*)
    sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

install_what_is_missing "$root" "$needs" || exit 2
cd "$root"

# Prints how long it has taken so far, and for how long processors worked.
spent() {
    local ticks
    ticks=$(awk '{ print $16 + $17 }' "/proc/$$/stat")
    echo "$1: $SECONDS s so far, $((ticks / $(getconf CLK_TCK))) s of processors"
}

if [ "$needs" = tests ]; then
    if has_command clang && has_command clang++; then
        echo "clang: building"
        quietly env CC=clang CXX=clang++ cmake -S . -B build/clang -G Ninja \
            -DCMAKE_BUILD_TYPE=Debug -DHEDDLE_WERROR=ON -DHEDDLE_NVTX_HEADERS=OFF
        quietly cmake --build build/clang --target heddle heddle_tool
    fi

    # Warnings that only an optimiser sees.
    echo "release: building"
    quietly cmake --preset release
    quietly cmake --build --preset release --target heddle heddle_tool
    spent "release, built"
fi

build() {
    quietly cmake --preset "$1" -DHEDDLE_FAKE_KERNELS="$root/build/kernels"
    quietly nice -n 5 cmake --build --preset "$1"
}

# In a process group of its own, which does not outlive this script.
begin_build() {
    set -m
    build "$1" &
    building=$!
    set +m
}
building=
trap '[ -z "$building" ] || kill -- "-$building" 2>/dev/null || true' EXIT

# Many a test waits more than it computes: so several run at once, and beside them
# the next preset is built.
set -- $presets
begin_build "$1"
while [ $# -gt 0 ]; do
    preset=$1
    shift
    wait "$building" || exit 1
    spent "$preset, built"
    [ $# -eq 0 ] || begin_build "$1"
    ctest --preset "$preset" -j $(($(nproc) * 4)) --output-on-failure --no-tests=error \
        >"build/$preset/test.log" 2>&1 </dev/null || {
        cat "build/$preset/test.log" >&2
        exit 1
    }
    # The summary, which names what was skipped.
    sed -n '/tests passed/,$p' "build/$preset/test.log"
    spent "$preset, tested"
done

if [ "$needs" = fuzz ]; then
    echo "fuzz: 5 seconds a target"
    tests/fuzz/run.sh 5
    spent "fuzz, searched"

    echo "site: its pages and links"
    quietly tools/site.sh build/plain/tools/heddle || {
        code=$?
        [ "$code" -eq 77 ] || exit 1
        echo "skipped: mkdocs cannot be installed"
    }
    spent "site, made"

    echo "torch: 5 peers are killed"
    python3 python/tests/with_torch/run.py . build/plain build/torch 5 || {
        code=$?
        [ "$code" -eq 77 ] || exit 1
        echo "skipped: PyTorch cannot be installed"
    }
    spent "torch, tested"
fi
