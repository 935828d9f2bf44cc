#!/bin/bash
# Runs one golden case, or all of a folder.
#
#   tests/golden/run.sh BUILD CASE..    such as build/dev tests/golden/cli/moe.test
#   HEDDLE_UPDATE=1 tests/golden/run.sh BUILD CASE..
#       rewrites the .want of each from what is printed: read the diff
#
# A case is NAME.hd with NAME.want beside it, or cli/NAME.test. Its lines with RUN:
# are commands, of which all must succeed; one that ends in a backslash goes on in
# the next. In them stand
#
#   %s  %S  %file   the case, its folder, its name without the folder
#   %t              a path of its own, for what it writes
#   %want           compares what is piped into it with the .want
#   %exits N, %launch, %random    see cli/Inputs and tools/random_npy.py
#   %fakes, %nvtx   settings for the stand-ins for the vendors' libraries
#   %%              a percent sign
#
# REQUIRES: names what not every machine has; without it a case is skipped (77).
set -eu
golden=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 2 ] || {
    sed -n '4,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
build=$(cd "$1" && pwd)
shift
fakes=$build/tests/fake
tools=
for bin in /usr/lib/llvm-*/bin; do
    [ ! -x "$bin/FileCheck" ] || tools=$bin # the newest
done
libraries="env FAKE_NVRTC_CACHE=${FAKE_NVRTC_CACHE:-$fakes/kernels}"
for name in cuda cublaslt cudnn nvrtc nccl; do
    libraries+=" HEDDLE_${name^^}_LIB=$fakes/libfake_$name.so"
done

# Nothing else of the environment reaches a case. What it leaves on disk is its own.
clean=("PATH=$build/tools:$tools:$PATH" HEDDLE_CACHE_DIR=off)
for name in HEDDLE_UPDATE HEDDLE_CHAOS ASAN_OPTIONS TSAN_OPTIONS TERM TMPDIR; do
    [ -z "${!name-}" ] || clean+=("$name=${!name}")
done

has() {
    case $1 in
    nvtx) [ -e "$fakes/libfake_nvtx.so" ] ;;
    terminal) python3 -c 'import os; os.openpty()' 2>/dev/null ;;
    *) return 2 ;;
    esac
}

# The commands of a case as a script for bash, which tells the line that fails.
script_of() {
    sed -n -e 's/^.*RUN: *//p' "$1" | sed -e ':more' -e '/\\$/{N;s/\\\n/ /;b more' -e '}' \
        -e 's/%%/\x01/g' \
        -e "s|%want\>|sh $golden/want.sh $1|g" \
        -e "s|%exits\>|sh $golden/cli/Inputs/exits.sh|g" \
        -e "s|%launch\>|python3 $golden/cli/Inputs/launcher.py|g" \
        -e "s|%random\>|python3 $golden/../../tools/random_npy.py|g" \
        -e "s|%fakes\>|$libraries|g" \
        -e "s|%nvtx\>|NVTX_INJECTION64_PATH=$fakes/libfake_nvtx.so|g" \
        -e "s|%file\>|${1##*/}|g" -e "s|%s\>|$1|g" -e "s|%S\>|${1%/*}|g" -e "s|%t\>|$2|g" \
        -e 's/\x01/%/g' -e 's/.*/{ &\n} || failed "$LINENO"/'
}

run() {
    local case=$1 at script needed
    at=$build/tests/golden/${case#"$golden/"}
    mkdir -p "${at%/*}"
    while read -r needed; do
        has "$needed" || {
            echo "skipped: there is no $needed"
            return 77
        }
    done < <(sed -n 's/^.*REQUIRES: *//p' "$case")
    script="failed() { echo this failed: >&2; sed -n \"\$((\$1 - 1))p\" \"\$0\" >&2; exit 1; }"$'\n'$(script_of "$case" "$at.tmp")
    printf '%s\n' "$script" >"$at.sh"
    (cd "${at%/*}" && exec env -i "${clean[@]}" bash -o pipefail "$at.sh" </dev/null >"$at.log" 2>&1) || {
        cat "$at.log" >&2
        echo "$case fails, as a script $at.sh" >&2
        return 1
    }
}

status=0
for path; do
    path=$(realpath "$path")
    if [ -d "$path" ]; then
        for case in $(find "$path" -path '*/Inputs' -prune -o \( -name '*.hd' -o -name '*.test' \) -print); do
            run "$case" || status=1
        done
    else
        run "$path" || status=$?
    fi
done
exit "$status"
