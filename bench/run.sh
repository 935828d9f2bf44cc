#!/bin/sh
# Builds and runs the benchmarks; prints one report. A quiet machine is needed:
# compare ratios, not times.
set -eu
cd "$(dirname "$0")/.."
cmake --preset release >/dev/null
cmake --build --preset release \
    --target heddle_tool bench_compiler bench_check bench_embed bench_sessions >/dev/null
echo "date: $(date -u +%Y-%m-%d)"
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors, $(uname -sr)"
echo "command: bench/run.sh"
build/release/bench/bench_compiler build/release/tools/heddle examples/ag_linear.hd
build/release/bench/bench_check
build/release/bench/bench_embed
build/release/bench/bench_sessions
# The whole weight on every rank, and an eighth of it.
build/release/tools/heddle bench --suite - --rounds "${1:-7}" <<'END'
{"world": 8, "dtype": "f32",
 "ag": [{"id": "whole", "M": 2048, "K": 2048, "n": 2048},
        {"id": "columns", "M": 2048, "K": 2048, "n": 256}]}
END
