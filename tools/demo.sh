#!/bin/bash
# Builds heddle and runs its main job: a column-parallel linear layer over eight
# ranks, lowered to a ring pipeline, run by eight processes on matrices read from
# files, and verified against the dense answer.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/install.sh"

install_what_is_missing "$root" || exit 2
build=$root/build/demo
echo "building in $build"
quietly cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DHEDDLE_TESTS=OFF
quietly cmake --build "$build"

# Prints a command as one would type it here, then runs it.
show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

cd "$build"
ln -sfn "$root/examples" examples
ln -sf tools/heddle heddle
python3 "$root/tools/random_npy.py" 1 bf16 1024 1024 >x.npy
python3 "$root/tools/random_npy.py" 2 bf16 1024 1024 >w.npy

show cat examples/column_linear.hd
show ./heddle dump --transfer ring examples/column_linear.hd
show ./heddle check --transfer ring examples/column_linear.hd
show ./heddle run --transfer ring examples/column_linear.hd --in x=x.npy \
    --in w=w.npy --out y=y.npy --iters 10 --verify --stats
printf '\nThe answer is in %s\nSo that heddle can be typed in this shell: export PATH="%s:$PATH"\n' \
    "$build/y.npy" "$build/tools"
