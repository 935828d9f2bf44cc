#!/bin/sh
# Compares standard input with the .want beside $1, or writes it there.
want="${1%.hd}.want"
if [ -n "${HEDDLE_UPDATE-}" ]; then
    cat >"$want"
else
    diff -u "$want" -
fi
