#!/bin/sh
# exits.sh CODE COMMAND..: runs a command and fails unless it exits with the
# code that is wanted.
want=$1
shift
"$@"
code=$?
[ "$code" = "$want" ] || {
    echo "exit code $code, expected $want: $*" >&2
    exit 1
}
