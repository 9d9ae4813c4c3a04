#!/bin/sh
# Installs the official clients and the conformance suite into DIR. Fast if nothing changed.
#   setup.sh DIR   ->  DIR/ts (scripts + node_modules), DIR/py (scripts), DIR/py1, DIR/py2 (virtual environments)
set -eu

if [ $# -ne 1 ]; then
    echo "usage: setup.sh DIR" >&2
    exit 2
fi
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
mkdir -p "$1"
dir=$(CDPATH='' cd -- "$1" && pwd)

missing=""
for tool in node npm python3; do
    command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
done
if [ -n "$missing" ]; then
    echo "setup.sh: missing:$missing (needed: node 20 or newer with npm, python3 3.10 or newer)" >&2
    exit 3
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "setup.sh: python3 is $(python3 --version 2>&1), 3.10 or newer is needed" >&2
    exit 3
fi
if python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
    make_venv="python3 -m venv --clear"
elif python3 -c 'import virtualenv' >/dev/null 2>&1; then
    make_venv="python3 -m virtualenv --clear -q"
elif command -v virtualenv >/dev/null 2>&1; then
    make_venv="virtualenv --clear -q"
else
    echo "setup.sh: python3 has neither the venv module (with ensurepip) nor virtualenv" >&2
    exit 3
fi

# Checksum of the given files, and of the interpreter if relevant.
sum() { cat "$@" | python3 -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'; }

# Always copy the scripts: node searches node_modules beside them.
mkdir -p "$dir/ts" "$dir/py"
cp "$here"/ts/*.mjs "$here/ts/package.json" "$here/ts/package-lock.json" "$here/ts/.npmrc" "$dir/ts/"
cp "$here"/py/*.py "$dir/py/"

stamp="$(sum "$here/ts/package.json" "$here/ts/package-lock.json")"
if [ "$(cat "$dir/ts/.stamp" 2>/dev/null || true)" != "$stamp" ]; then
    rm -f "$dir/ts/.stamp"
    (cd "$dir/ts" && npm ci --no-audit --no-fund --loglevel=error >&2)
    echo "$stamp" >"$dir/ts/.stamp"
fi

for release in 1 2; do
    pins="$here/py/requirements-$release.txt"
    venv="$dir/py$release"
    stamp="$(sum "$pins") $(python3 --version 2>&1)"
    if [ "$(cat "$venv/.stamp" 2>/dev/null || true)" != "$stamp" ]; then
        $make_venv "$venv" >&2
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$pins" >&2
        echo "$stamp" >"$venv/.stamp"
    fi
done

echo "ready: $dir"
