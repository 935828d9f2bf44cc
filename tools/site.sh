#!/bin/sh
# The pages as a site, in build/site, with an environment of its own: mkdocs with
# its theme material, from PyPI. It fails where a link leads nowhere. Where no
# package registry is reached, exit code 77.
#
#   tools/site.sh [HEDDLE]        # the command, whose --help becomes pages;
#                                 # without it that of build/dev, which is built
#   tools/site.sh --environment   # the environment alone
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
heddle=${1-}
venv=$root/build/site-venv
cd "$root"
if [ -z "$heddle" ]; then
    heddle=$root/build/dev/tools/heddle
    [ -f build/dev/build.ninja ] || cmake --preset dev
    cmake --build --preset dev --target heddle_tool
elif [ "$heddle" != --environment ] && [ ! -x "$heddle" ]; then
    echo "site.sh: there is no command $heddle: build it, or name none, and site.sh does" >&2
    exit 2
fi
if [ ! -x "$venv/bin/mkdocs" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --only-binary :all: 'mkdocs-material==9.*' || exit 77
fi
[ "$heddle" != --environment ] || exit 0
python3 tools/site.py "$root" "$heddle" build/site-pages
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict # not -q, which would hide and allow all warnings
echo "build/site/index.html"
