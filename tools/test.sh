#!/bin/bash
# Builds heddle with its warnings as errors and runs all tests.
#
#   tools/test.sh            the dev preset with gcc. The release preset builds
#                            the library and the command too, and so does clang
#                            if it is installed, without what is optional
#   tools/test.sh --all      then nearly all of them under AddressSanitizer and
#                            UndefinedBehaviorSanitizer, those with threads
#                            under ThreadSanitizer, and each fuzz target for
#                            20 seconds
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/install.sh"

presets=dev
needs=tests
case "${1-}" in
'') ;;
--all)
    presets="dev asan tsan"
    needs=fuzz
    ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

install_what_is_missing "$root" "$needs" || exit 2
cd "$root"

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

for preset in $presets; do
    echo "$preset: building"
    quietly cmake --preset "$preset"
    quietly cmake --build --preset "$preset"
    echo "$preset: testing"
    ctest --preset "$preset" -j "$(nproc)" --output-on-failure --no-tests=error \
        >"build/$preset/test.log" 2>&1 </dev/null || {
        cat "build/$preset/test.log" >&2
        exit 1
    }
    # The summary, which names what was skipped.
    sed -n '/tests passed/,$p' "build/$preset/test.log"
done

if [ "$needs" = fuzz ]; then
    echo "fuzz: building, and 20 seconds a target"
    tests/fuzz/run.sh 20
fi
