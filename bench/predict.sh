#!/bin/bash
# What `heddle simulate` predicts for the all-gather shapes of a suite, beside
# the matmul alone: the tables of docs/simulate.md. Milliseconds; `nccl` is one
# collective and then one matmul, `direct/2` has two chunks a shard.
#
#   bench/predict.sh [RANKS] [SUITE]    4 and bench/suite.json are the defaults
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
heddle=${HEDDLE:-$root/build/release/tools/heddle}
ranks=${1:-4}
apart="--comm-stream --defer-sends"

# program ROWS: of the gathered operand, on each of the ranks
program() {
    cat <<END
heddle 2
tensor program $id
mesh tp=$1
in   %a  : bf16[size tp @tp, $((m / $1)), $k]
in   %w  : bf16[$n, $k]
out  %c  : bf16[size tp @stream, $((m / $1)), $n]
temp %ag : bf16[size tp @stream, $((m / $1)), $k]
{
    %ag = set %a
    %c = matmul %ag, %w tb
}
END
}

# predict RANKS OPTION..
predict() {
    local count=$1
    shift
    program "$count" | "$heddle" simulate - "$@" | awk '$1 == "predicted" {
        printf "%.3f\n", $3 * ($4 == "us" ? 1e-3 : $4 == "s" ? 1e3 : 1) }'
}

printf '%-20s %8s %8s %8s %8s %8s %8s\n' "shape, $ranks ranks" matmul nccl \
    direct direct/2 ring ring/2
python3 -c '
import json, sys
for shape in json.load(open(sys.argv[1]))["ag"]:
    print(shape["id"], shape["M"], shape["n"], shape["K"])
' "${2:-$root/bench/suite.json}" | while read -r id m n k; do
    id=${id//-/_}
    row=$(printf '%-20s' "$id")
    row+=$(printf ' %8s' "$(predict 1)" "$(predict "$ranks" \
        --transfer pipelined --streams 1)")
    for transfer in direct ring; do
        for chunks in 1 2; do
            # shellcheck disable=SC2086
            row+=$(printf ' %8s' "$(predict "$ranks" --transfer $transfer \
                --chunks $chunks $apart)")
        done
    done
    echo "$row"
done
