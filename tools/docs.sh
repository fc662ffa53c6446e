#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The documentation as a site: BUILD_DIR/site. mkdocs gets a virtual environment of its own, in BUILD_DIR/docs-venv.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
packages="mkdocs==1.6.1 mkdocs-material==9.8.1"
venv=$build/docs-venv
if [[ "$(cat "$venv/stamp" 2>/dev/null)" != "$packages" ]]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  # shellcheck disable=SC2086  # several words
  "$venv/bin/python" -m pip install --disable-pip-version-check -q $packages >"$venv/setup.log" 2>&1 || {
    tail -n 5 "$venv/setup.log" >&2
    echo "docs: pip could not install $packages; see $venv/setup.log" >&2
    exit 1
  }
  echo "$packages" >"$venv/stamp"
fi
# Without its advertisement of a successor; --strict: a warning is an error.
VRAMSCOPE_BUILD=$build NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --quiet --site-dir "$build/site"
echo "docs: $build/site/index.html"
