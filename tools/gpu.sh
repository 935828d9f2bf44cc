#!/bin/bash
# Tries heddle on the GPUs of this machine and prints a table: what was tried,
# whether it went well, and milliseconds. Exits with 1 if anything did not.
#
#   tools/gpu.sh [--quick] [--only GLOB] [--bin DIR] [--out DIR]
#
#   --quick     a few runs of a small program, and no benchmark
#   --only GLOB the steps of which the names match, such as 'conformance*'
#   --bin DIR   where heddle, and device_tests if they are built, are
#               (build/release, which is built first)
#   --out DIR   where each step's output goes (build/gpu-log)
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
bin=
out=$root/build/gpu-log
only='*'
runs=10000
model=ag_linear.hd
while [ $# -gt 0 ]; do
    case $1 in
    --quick) runs=20 model= ;;
    --only | --bin | --out)
        [ $# -gt 1 ] || { echo "gpu.sh: $1 needs a value" >&2; exit 2; }
        case $1 in
        --only) only=$2 ;;
        --bin) bin=$2 ;;
        --out) out=$2 ;;
        esac
        shift
        ;;
    *)
        sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
        [ "$1" = --help ] && exit 0
        exit 2
        ;;
    esac
    shift
done
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
if [ -z "$bin" ]; then
    . "$root/tools/install.sh"
    install_what_is_missing "$root" || exit 2
    quietly cmake -S "$root" --preset release || exit 2
    quietly cmake --build "$root/build/release" || exit 2
    bin=$root/build/release
fi
find_program() {
    for place in "$bin/$1" "$bin/tools/$1" "$bin/tests/$1"; do
        [ -x "$place" ] && readlink -f "$place" && return
    done
}
heddle=$(find_program heddle)
device_tests=$(find_program device_tests)
[ -n "$heddle" ] || { echo "gpu.sh: no heddle in $bin" >&2; exit 2; }
cd "$root/examples" || exit 2
[ -n "$model" ] || model=$out/small.hd

# step NAME SECONDS COMMAND..
failed=0
table=
step() {
    local name=${1% } limit=$2 log status=0 start
    shift 2
    # shellcheck disable=SC2053
    [[ $name == $only ]] || return 0
    log=$out/$(echo "$name" | tr -cs 'a-z0-9\n' -).txt
    start=$(date +%s%3N)
    timeout -s KILL "$limit" "$@" >"$log" 2>&1 </dev/null || status=$?
    row=$(printf '%-60s %-8s %6d' "$name" \
        "$([ $status = 0 ] && echo ok || echo "exit $status")" \
        $(($(date +%s%3N) - start)))
    table=$table$row$'\n'
    echo "$row"
    [ $status = 0 ] || { failed=1; tail -n 5 "$log"; }
}
run() {
    "$heddle" run --device cuda "$@"
}
export -f run
export heddle

step env 60 "$heddle" env
devices=$("$heddle" env --json | grep -c '"uuid"')
[ "$devices" -gt 0 ] || { "$heddle" env; exit 1; }

cat >"$out/small.hd" <<'END'
heddle 1
tensor program small
mesh tp=2
in   %a : bf16[size tp @tp, 16, 64]
in   %w : bf16[32, 64]
out  %c : bf16[size tp @stream, 16, 32]
temp %g : bf16[size tp @stream, 16, 64]
{
    %g = set %a
    %c = matmul %g, %w tb act gelu
}
END

for way in copy sm nccl; do
    # NCCL takes one rank a device.
    for ranks in 1 2 4 8; do
        [ $way = nccl ] && [ $ranks -gt "$devices" ] && continue
        for graph in "" "--graph"; do
            step "$ranks ranks, $way $graph" 60 bash -c "run $model \
                -D tp=$ranks --transport $way $graph --verify --iters 20"
        done
    done
done
[ $runs -gt 100 ] && for program in *.hd; do
    step "${program%.hd}" 60 bash -c "run $program --verify --iters 10 &&
        run $program --verify --iters 10 --graph --transport sm"
done

[ "$devices" -gt 8 ] && devices=8
small="$out/small.hd -D tp=$devices"
apart="--comm-stream --defer-sends"
for options in "" "--graph" "--transfer direct $apart" \
    "--transfer direct $apart --graph" "--protocol get --streams 4"; do
    step "$runs runs $options" 120 \
        bash -c "run $small $options --verify --iters $runs"
done
for options in "" "--transfer direct $apart"; do
    step "delays $options" 120 env HEDDLE_CHAOS=7 \
        bash -c "run $small $options --verify --iters $((runs / 10))"
done
# Signals one rank of a run that has no end, and sees to it that all ranks end
# within $3 milliseconds and say who.
signal_one() {
    local said status=0 victim start
    said=$(mktemp)
    "$heddle" run --device cuda $4 --iters 1000000 >"$said" 2>&1 &
    local all=$!
    sleep "$5"
    victim=$(pgrep -P $all | tail -n 1)
    start=$(date +%s%3N)
    [ -n "$victim" ] && kill "-$1" "$victim"
    wait $all || status=$?
    local took=$(($(date +%s%3N) - start))
    echo "all ended $took ms later"
    cat "$said"
    [ $status -ne 0 ] && grep -q "$2" "$said" && [ $took -lt "$3" ]
}
export -f signal_one
if [ "$devices" -gt 1 ]; then
    for options in "" "--graph" "--transport nccl"; do
        step "a killed rank $options" 60 \
            bash -c "signal_one KILL 'rank [0-9]* was killed' 2000 '$small $options' 8"
    done
    step "a stopped rank" 60 \
        bash -c "signal_one STOP 'waits for rank' 5000 '$small --timeout 2' 8"
fi

if [ -n "$device_tests" ]; then
    export HEDDLE_TEST_DEVICE=cuda HEDDLE_TEST_QUICK=1
    for graph in 0 1; do
        step "conformance, graph $graph" 600 env HEDDLE_TEST_GRAPH=$graph \
            "$device_tests" --gtest_filter="Conformance.*"
    done
fi
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
        step "compute-sanitizer $tool" 120 compute-sanitizer --tool $tool \
            --target-processes all --error-exitcode 9 "$heddle" run $small \
            --device cuda --verify --transport sm
    done
fi
if [ "$runs" -gt 100 ]; then
    step "bench" 300 "$heddle" bench --suite "$root/bench/suite.json" \
        -D tp=$devices --device cuda --comm-stream --defer-sends --graph \
        --json "$out/bench.json"
    [ ! -e "$out/bench.txt" ] || cat "$out/bench.txt"
fi
printf '\n%s' "$table"
exit $failed
