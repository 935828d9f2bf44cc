#!/bin/sh
# Builds the fuzz targets with clang and lets each search for some time.
#
#   tests/fuzz/run.sh SECONDS [TARGET..]    all targets if none is named
#
# As many search at once as there are processors. Prints for each the
# executions, executions a second, how many of the program's branches were
# reached, and what it found. What it learned is kept under
# build/fuzz/found/TARGET and used the next time. Exits with 1 if anything was
# found; the input is then under build/fuzz/found, to be replayed with
# build/asan/tests/fuzz/fuzz_TARGET FILE.
set -u
export UBSAN_OPTIONS=print_stacktrace=1
root=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${1-}
case $seconds in
'' | *[!0-9]*)
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
shift
if [ $# -eq 0 ]; then
    set -- parse fixpoint verify check against lower execute wire npy safetensors
fi

cd "$root" || exit 2
log=build/fuzz/build.log
mkdir -p build/fuzz
programs=fuzz_words
for target; do
    programs="$programs fuzz_$target"
done
# shellcheck disable=SC2086
if ! { cmake --preset asan &&
    cmake --build --preset asan --target $programs; } >"$log" 2>&1; then
    cat "$log" >&2
    exit 2
fi

# The corpora that a target begins with, and the longest input it makes.
seeds_of() {
    case $1 in
    parse | fixpoint) echo text ;;
    verify | check | against) echo "text $1" ;;
    lower | execute) echo choices ;;
    *) echo "$1" ;;
    esac
}
length_of() {
    case $1 in
    parse | fixpoint) echo 512 ;;
    wire) echo 34000 ;;
    *) echo 2048 ;;
    esac
}

search() {
    found=build/fuzz/found/$1
    log=build/fuzz/$1.log
    dictionary=
    folders=
    for folder in $(seeds_of "$1"); do
        folders="$folders tests/fuzz/corpus/$folder"
        [ "$folder" = text ] && dictionary=-dict=build/asan/tests/fuzz/heddle.dict
    done
    mkdir -p "$found"
    # shellcheck disable=SC2086
    "build/asan/tests/fuzz/fuzz_$1" -max_total_time="$seconds" \
        -timeout=10 -rss_limit_mb=2048 -max_len="$(length_of "$1")" \
        -print_final_stats=1 -artifact_prefix="build/fuzz/found/$1-" \
        $dictionary "$found" $folders >"$log" 2>&1 </dev/null
    status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
    speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log" | tail -1)
    reached=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    all=$(sed -n 's/.*PC tables (\([0-9]*\) PCs).*/\1/p' "$log" | tail -1)
    what=nothing
    if [ "$status" -ne 0 ]; then
        what=$(grep -E '^does not hold|^SUMMARY|runtime error' "$log" | head -1)
        : >build/fuzz/failed
    fi
    printf '%-12s %12s %9s %14s  %s\n' "$1" "${runs:-?}" "${speed:-?}" \
        "${reached:-?} of ${all:-?}" "${what:-exit $status}"
}

rm -f build/fuzz/failed
printf '%-12s %12s %9s %14s  %s\n' target executions a_second branches found
started=0
for target; do
    search "$target" &
    started=$((started + 1))
    [ $((started % $(nproc))) -ne 0 ] || wait
done
wait
[ ! -e build/fuzz/failed ]
