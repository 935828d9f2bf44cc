#!/bin/bash
# Builds heddle with gcc's coverage, runs all tests, and prints for ir, steps,
# eval, lower, check, simulate and runtime which lines and branches ran. Fails below
# 95 % of lines or 90 % of branches in any but runtime, 94 % or 84 % in that.
#
#   tools/coverage.sh            builds, tests and prints
#   tools/coverage.sh --report   prints again what the last tests left
#
# Nothing is left out by hand. gcovr leaves out the branches that gcc makes for
# exceptions (C has none) and those on lines without code, such as a brace.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/install.sh"
build="$root/build/coverage"

status=0
report=no
case "${1-}" in
'') ;;
--report) report=yes ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

install_what_is_missing "$root" tests || exit 2
if ! has_command gcovr; then
    may_install && install_packages gcovr || {
        echo "gcovr is missing: sudo apt-get install gcovr" >&2
        exit 2
    }
fi
cd "$root"

if [ "$report" = no ]; then
    echo "coverage: building"
    quietly cmake --preset coverage
    quietly cmake --build --preset coverage
    find "$build" -name '*.gcda' -delete
    echo "coverage: testing"
    ctest --preset coverage -j "$(nproc)" --no-tests=error \
        >"$build/test.log" 2>&1 </dev/null || {
        cat "$build/test.log" >&2
        status=1
    }
fi

gcovr --root "$root" --object-directory "$build" "$build" \
    --filter "$root/ir/" --filter "$root/steps/" --filter "$root/eval/" \
    --filter "$root/lower/" \
    --filter "$root/check/" --filter "$root/simulate/" \
    --filter "$root/runtime/" \
    --exclude-throw-branches --exclude-unreachable-branches \
    --json "$build/coverage.json"

for folder in ir steps eval lower check simulate runtime; do
    lines=95 branches=90
    # Where a system call or a vendor's library fails, tests/faults and
    # tests/cuda make it fail; not every one of them can be made to.
    [ "$folder" != runtime ] || { lines=94 branches=84; }
    for what in --txt --branches; do
        option=
        [ "$what" = --txt ] || option=--branches
        echo
        # shellcheck disable=SC2086
        gcovr --root "$root" --add-tracefile "$build/coverage.json" \
            --filter "$root/$folder/" $option \
            --fail-under-line "$lines" --fail-under-branch "$branches" || status=1
    done
done
exit "$status"
