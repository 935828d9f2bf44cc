#!/bin/bash
# Builds heddle with its warnings as errors and runs all tests.
#
#   tools/test.sh            the dev preset with gcc. The release preset builds
#                            the library and the command too, and so does clang
#                            if it is installed, without what is optional
#   tools/test.sh --all      then nearly all of them under AddressSanitizer and
#                            UndefinedBehaviorSanitizer, those with threads
#                            under ThreadSanitizer, and each fuzz target for
#                            5 seconds; it is these that clang builds. Of dev
#                            what the first runs just so is neither built nor
#                            run: the preset beside-asan
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/install.sh"

presets=dev
needs=tests
case "${1-}" in
'') ;;
--all)
    presets="beside-asan asan tsan"
    needs=fuzz
    ;;
*)
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
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

if [ "$needs" = tests ] && has_command clang && has_command clang++; then
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

for preset in $presets; do
    echo "$preset: building"
    quietly cmake --preset "$preset" -DHEDDLE_FAKE_KERNELS="$root/build/kernels"
    quietly cmake --build --preset "$preset"
    spent "$preset, built"
    echo "$preset: testing"
    # Many a test waits more than it computes.
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
    echo "fuzz: building with clang, and 5 seconds a target"
    quietly cmake --preset fuzz
    quietly cmake --build --preset fuzz --target heddle heddle_tool
    tests/fuzz/run.sh 5
    spent "fuzz, searched"
fi
