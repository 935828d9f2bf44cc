#!/bin/bash
# Builds heddle with its warnings as errors and runs its tests.
#
#   tools/test.sh            all of them, in the dev preset with gcc; compiles
#                            the library and the command optimised too, and with
#                            clang if it is installed, without what is optional
#   tools/test.sh --ci       each where it shows most, many in turn: the command,
#                            and packages, oracles or pages, optimised (the preset
#                            plain); a third of the tests under AddressSanitizer
#                            and UndefinedBehaviorSanitizer with clang and each
#                            fuzz target for 2 seconds, or one time in four what
#                            has threads under ThreadSanitizer; the pages as a
#                            site, and some of heddle.torch with PyTorch in an
#                            environment of its own
#     --draw K               what is run in turn is that of draw K, not that of
#                            the number of the commit: see tests/draws.py
#
# HEDDLE_TEST_SEED is the seed of all that is drawn at random; a new one is made
# and printed where it is not set.
set -eu -o pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/install.sh"

usage() {
    sed -n '2,20s/^# \{0,1\}//p' "$0"
}

needs=tests
draw=
while [ $# -gt 0 ]; do
    case $1 in
    --ci) needs=fuzz ;;
    --draw)
        draw=${2-}
        [[ $draw =~ ^[0-9]+$ ]] || {
            echo "test.sh: --draw needs a number, not '$draw'" >&2
            exit 2
        }
        shift
        ;;
    --help)
        usage
        exit
        ;;
    *)
        echo "test.sh: unknown option $1" >&2
        usage >&2
        exit 2
        ;;
    esac
    shift
done
if [ "$needs" = tests ] && [ -n "$draw" ]; then
    echo "test.sh: --draw is of --ci: without it all tests run" >&2
    exit 2
fi
presets=dev

install_what_is_missing "$root" "$needs" || exit 2
cd "$root"
mkdir -p build

: "${HEDDLE_TEST_SEED:=$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}"
export HEDDLE_TEST_SEED
echo "HEDDLE_TEST_SEED=$HEDDLE_TEST_SEED"
if [ "$needs" = fuzz ]; then
    : "${draw:=$(git rev-list --count HEAD)}"
    presets=$(python3 tests/draws.py builds "$draw")
    python3 tests/draws.py say "$draw"
fi

# What each stage took, of the clock and of processors: said as it ends, and once
# more at the end of all.
stages=
worked=0
spent() {
    local ticks now
    ticks=$(awk '{ print $16 + $17 }' "/proc/$$/stat")
    now=$((ticks / $(getconf CLK_TCK)))
    echo "$1: $SECONDS s so far, $now s of processors"
    stages+=$(printf '%-18s %6d %11d' "$1" "$SECONDS" $((now - worked)))$'\n'
    worked=$now
}

# Says that $2 of $3 are done: on a terminal on a line that moves, else once a
# minute. The line goes when $2 is not given.
told=$SECONDS
tell() {
    if [ -t 1 ]; then
        printf '\r%s\033[K' "${2+$1: $2 of $3}"
    elif [ -n "${2-}" ] && [ $((SECONDS - told)) -ge 60 ]; then
        echo "$1: $2 of $3"
        told=$SECONDS
    fi
}

# Keeps what ctest or ninja print in $2, and says how far they have come.
follow() {
    local line
    while IFS= read -r line; do
        printf '%s\n' "$line"
        if [[ $line =~ ^\ *\[?([0-9]+)/\ *([0-9]+) ]]; then
            tell "$1" "${BASH_REMATCH[@]:1}" >&3
        fi
    done 3>&1 >"$2"
    tell "$1"
}

# Builds targets of a preset, all if none is named; of --ci those of the draw.
build() {
    local preset=$1 options= targets
    local log=build/$preset.log
    shift
    if [ -n "$draw" ]; then
        options=$(python3 tests/draws.py options "$draw" "$preset") || return 1
        targets=$(python3 tests/draws.py targets "$draw" "$preset") || return 1
        # shellcheck disable=SC2086
        set -- $targets
    fi
    # shellcheck disable=SC2086
    quietly cmake --preset "$preset" -DHEDDLE_FAKE_KERNELS="$root/build/kernels" $options
    nice -n 5 cmake --build --preset "$preset" ${1+--target "$@"} 2>&1 |
        follow "$preset, building" "$log" || {
        cat "$log" >&2
        return 1
    }
}

if [ "$needs" = tests ]; then
    if has_command clang && has_command clang++; then
        echo "clang: building"
        quietly env CC=clang CXX=clang++ cmake -S . -B build/clang -G Ninja \
            -DCMAKE_BUILD_TYPE=Debug -DHEDDLE_WERROR=ON -DHEDDLE_NVTX_HEADERS=OFF
        quietly cmake --build build/clang --target heddle heddle_tool
    fi

    # Warnings that only an optimiser sees.
    build release heddle heddle_tool
    spent "release, built"
fi

# Jobs beside this script, each in a process group of its own, which does not
# outlive it.
jobs=
begin() {
    set -m
    "$@" &
    set +m
    jobs+=" $!"
}
end_jobs() {
    local job
    for job in $jobs; do
        kill -- "-$job" 2>/dev/null || true
    done
}
trap end_jobs EXIT

# What comes from registries, asked for first, since it is waited for longest.
# What is not to be had is skipped where it is needed, with the reason.
fetch() {
    install_browser || true
    python3 python/tests/run.py . build/plain build/plain/tests/python --environment || true
} >build/fetch.log 2>&1 </dev/null
fetch_for_others() {
    python3 python/tests/with_torch/run.py . build/plain build/torch --environment || true
    tools/site.sh --environment || true
} >build/fetch_for_others.log 2>&1 </dev/null

# What needs no preset of its own: 77 says that something is not to be had.
may_skip() {
    local code=0
    "$@" </dev/null || code=$?
    [ "$code" -eq 0 ] || [ "$code" -eq 77 ]
}
search() {
    echo "fuzz: 2 seconds a target"
    tests/fuzz/run.sh 2
}
site_and_torch() {
    echo "site: its pages and links"
    may_skip quietly tools/site.sh build/plain/tools/heddle || return 1
    local some
    some=$(python3 tests/draws.py torch "$draw") || return 1
    echo "torch: $some, where 5 peers are killed"
    # shellcheck disable=SC2086
    may_skip python3 python/tests/with_torch/run.py . build/plain build/torch 5 $some
}

# The tests of a preset: those that are drawn, or all.
run_tests() {
    local log=build/$1/test.log
    if [ -n "$draw" ]; then
        python3 tests/draws.py list "$draw" "$1" >"build/$1/draw" || return 1
    else
        echo 1 >"build/$1/draw"
    fi
    ctest --preset "$1" -I "$root/build/$1/draw" -j $(($(nproc) * 3)) --no-tests=error \
        --test-output-size-passed 4096 --output-junit "$root/build/$1/tests.xml" \
        2>&1 </dev/null | follow "$1, testing" "$log" || {
        cat "$log" >&2
        return 1
    }
    grep 'tests passed' "$log"
}

# Many a test waits more than it computes: so several run at once, and beside them
# the next preset is built, and what needs none is tested. More of them at once
# take longer: ranks that look for their peers keep these from coming.
if [ "$needs" = fuzz ]; then
    begin fetch
    fetching=$!
    begin fetch_for_others
    fetching_for_others=$!
fi
set -- $presets
begin build "$1"
building=$!
while [ $# -gt 0 ]; do
    preset=$1
    shift
    wait "$building" || exit 1
    spent "$preset, built"
    if [ "$preset" = plain ]; then
        wait "$fetching" || true
        spent "fetched"
    fi
    if [ $# -gt 0 ]; then
        begin build "$1"
        building=$!
    fi
    run_tests "$preset" || exit 1
    spent "$preset, tested"
    if [ "$needs" = fuzz ] && [ "$preset" = plain ]; then
        wait "$fetching_for_others" || true
        begin site_and_torch >build/site_and_torch.log 2>&1
        others=$!
    fi
done
if [ "$needs" = fuzz ]; then
    case $presets in *asan)
        search || exit 1 # beside tests that compute it takes too long
        spent "fuzz"
        ;;
    esac
    wait "$others" || {
        cat build/site_and_torch.log >&2
        exit 1
    }
    cat build/site_and_torch.log
    spent "site, torch"
fi

echo "stage              so far  processors (s)"
printf %s "$stages"
# shellcheck disable=SC2086
python3 tests/report.py $(printf 'build/%s ' $presets)
