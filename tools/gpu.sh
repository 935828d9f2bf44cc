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
heddle 2
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
# Stops one rank of a run that has no end, and sees to it that all ranks end
# within $2 milliseconds and say who.
stop_one() {
    local said status=0 victim start
    said=$(mktemp)
    "$heddle" run --device cuda $3 --iters 1000000 >"$said" 2>&1 &
    local all=$!
    sleep "$4"
    victim=$(pgrep -P $all | tail -n 1)
    start=$(date +%s%3N)
    [ -n "$victim" ] && kill -STOP "$victim"
    wait $all || status=$?
    local took=$(($(date +%s%3N) - start))
    echo "all ended $took ms later"
    cat "$said"
    [ $status -ne 0 ] && grep -q "$1" "$said" && [ $took -lt "$2" ]
}
export -f stop_one
if [ "$devices" -gt 1 ]; then
    for way in eager graph nccl nccl_graph; do
        step "a killed rank, $way" 60 "$root/tools/kills.py" --heddle "$heddle" \
            --ranks "$devices" --kills 1 --settle 8 --ways $way
    done
    for options in "" "--transport nccl"; do
        step "a stopped rank $options" 60 bash -c "stop_one \
            'waits for rank' 5000 '$small --timeout 2 $options' 8"
    done
    # Each call outside of graphs starts a thread of NCCL's: what that costs.
    for options in "--transport nccl" "--transport nccl --graph"; do
        step "$runs runs, timed, $options" 120 bash -c \
            "run $small $options --verify --iters $runs --stats"
    done
fi

# What NCCL hangs at, or writes where it must not if ranks were connected by
# what they do first. Lone sends that meet, and a send and its recv on two
# streams, are refused; without the proof they end, or are named, and touch no
# memory but their own. The rest runs.
cat >"$out/lone.hd" <<'END'
heddle 2
host program lone
param n = 1024
mesh tp=2
in   %x : f32[2@tp, n]
out  %y : f32[2@tp, n] shared
temp %e : event[]
{
    send %x[tp] to 1 - tp done %e
    %y[tp] = recv from 1 - tp
    wait %e
}
END
cat >"$out/apart.hd" <<'END'
heddle 2
host program apart
param n = 1024
mesh tp=2
streams 2
in  %x : f32[2@tp, n]
out %y : f32[2@tp, n] shared
{
    fork
    on stream 0 {
        send %x[tp] to 1 - tp
    }
    on stream 1 {
        %y[tp] = recv from 1 - tp
    }
    join
}
END
cat >"$out/sides.hd" <<'END'
heddle 2
host program sides
param n = 1024
mesh tp=2
in  %x : f32[2@tp, n]
out %y : f32[2@tp, n] shared
{
    if tp == 0 {
        group {
            send %x[tp] to 1
            %y[tp] = recv from 1
        }
    } else {
        %y[tp] = recv from 0
        send %x[tp] to 0
    }
}
END
cat >"$out/gather.hd" <<'END'
heddle 2
tensor program gather
param n = 64
mesh tp=2
in   %a : f32[2@tp, n, 64]
in   %w : f32[32, 64]
out  %c : f32[2@stream, n, 32]
temp %g : f32[2@stream, n, 64]
{
    %g = set %a
    %c = matmul %g, %w tb
}
END
cat >"$out/extremes.hd" <<'END'
heddle 2
host program extremes
mesh tp=2
in  %x : f32[2@tp, 2, 4096] shared
out %s : f32[2@tp, 4096]
out %a : f32[2, 4096]
out %t : f32[2@tp, 4096]
out %b : f32[2, 4096]
{
    %s[tp] = reduce_scatter %x[tp] max
    %a = all_reduce %x[tp] max
    %t[tp] = reduce_scatter %x[tp] min
    %b = all_reduce %x[tp] min
}
END
# A NaN on either rank, in an .npy file.
make_nans() {
    python3 - "$1" <<'END'
import array, random, struct, sys
values = [random.uniform(-1, 1) for _ in range(2 * 2 * 4096)]
for rank in range(2):
    values[rank * 8192 + random.randrange(8192)] = float("nan")
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 4096), }"
head += " " * (117 - len(head)) + "\n"
with open(sys.argv[1], "wb") as out:
    out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)))
    out.write(head.encode() + array.array("f", values).tobytes())
END
}
is_refused() {
    local said status=0
    said=$(run "$@" --transport nccl 2>&1) || status=$?
    echo "$said"
    [ $status = 1 ] && grep -q HD0708 <<<"$said"
}
# $1 before the command; ends well, or in time with the step named.
ends_named() {
    local before=$1 said status=0
    shift
    said=$($before "$heddle" run --device cuda "$@" --transport nccl \
        --no-check --timeout "$([ -n "$before" ] && echo 60 || echo 10)" 2>&1) || status=$?
    echo "$said"
    [ $status = 0 ] || { [ $status = 4 ] && grep -q 'waits for' <<<"$said"; }
}
export -f is_refused ends_named
if [ "$devices" -gt 1 ]; then
    memcheck=
    # NCCL asks for kernels of other devices, and takes a no for an answer.
    command -v compute-sanitizer >/dev/null && memcheck="compute-sanitizer
        --tool memcheck --report-api-errors no --target-processes all
        --error-exitcode 9"
    for elements in 1024 2097152; do
        n="-D n=$elements"
        for program in lone apart; do
            step "nccl refuses $program, $elements" 60 \
                bash -c "is_refused $out/$program.hd $n"
        done
        for before in "" $([ -n "$memcheck" ] && echo memcheck); do
            tool=${before:+$memcheck}
            for program in lone apart; do
                step "nccl unproven $program, $elements $before" 200 bash -c \
                    "ends_named '$(echo $tool)' $out/$program.hd $n"
            done
            step "nccl sides, $elements $before" 200 \
                $tool "$heddle" run --device cuda --transport nccl \
                "$out/sides.hd" $n --verify --iters 3
            for transfer in direct ring; do
                step "nccl $transfer apart, $elements $before" 200 \
                    $tool "$heddle" run --device cuda --transport nccl \
                    "$out/gather.hd" -D n=$((elements / 64)) --verify \
                    --iters 3 --transfer $transfer $apart
            done
        done
    done
    make_nans "$out/nans.npy"
    for way in copy sm nccl; do
        step "maxima and minima of NaNs, $way" 60 "$heddle" run --device cuda \
            --transport $way "$out/extremes.hd" --in x="$out/nans.npy" --verify
    done
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
