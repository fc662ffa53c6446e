#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# dist/: a wheel around the binaries of BUILD_DIR, and the source distribution. Both are looked at by twine, the wheel
# by auditwheel too; then it is installed into an empty virtual environment, where it records a program.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
venv=$build/wheel-venv
packages="build==1.* setuptools>=66 wheel twine auditwheel"
if [[ "$(cat "$venv/stamp" 2>/dev/null)" != "$packages" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  # shellcheck disable=SC2086  # several words
  "$venv/bin/python" -m pip install --disable-pip-version-check -q $packages >"$venv/setup.log" 2>&1 || {
    tail -n 5 "$venv/setup.log" >&2
    echo "wheel: pip could not install $packages; see $venv/setup.log" >&2
    exit 1
  }
  echo "$packages" >"$venv/stamp"
fi
rm -rf dist
VRAMSCOPE_PREBUILT=$build "$venv/bin/python" -m build --no-isolation --outdir dist . >"$venv/build.log" 2>&1 || {
  tail -n 5 "$venv/build.log" >&2
  exit 1
}
"$venv/bin/twine" check --strict dist/*
wheel=$(echo dist/*.whl)
"$venv/bin/auditwheel" show "$wheel" | tr -s '\n' ' ' | sed 's/$/\n/'
sources=$(tar -tzf dist/*.tar.gz)
[[ "$sources" == */src/cli/main.cc* ]] || {
  echo "wheel: the source distribution has no src/" >&2
  exit 1
}
clean=$(mktemp -d)
trap 'rm -rf "$clean"' EXIT
python3 -m venv "$clean/venv"
"$clean/venv/bin/python" -m pip install --disable-pip-version-check -q --no-deps --no-index "$wheel"
cd "$clean"
program=$clean/venv/bin/vramscope
[[ -f "$("$program" --include-dir)/vramscope/annotate.h" ]]
"$program" keywords show layers >/dev/null
"$program" run --no-report -o clean.vram -- "$clean/venv/bin/python" -c 'import vramscope; vramscope.mark("seen")'
"$program" report clean.vram >/dev/null
"$clean/venv/bin/python" -c 'import vramscope; print("wheel: recorded", len(vramscope.read("clean.vram").table("marks")), "mark")'
cd - >/dev/null
echo "wheel: $wheel ($(du -h "$wheel" | cut -f1)) works in an empty environment"
