#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures a build directory with the `dev` preset: tools/configure.sh BUILD_DIR [--program]
# With --program without tests, benchmarks and examples, unless the directory has them already: the program's
# own files compile in the same way with and without.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
parts=ON
if [[ "${2:-}" == --program ]] && ! grep -q '^VRAMSCOPE_BUILD_TESTS:.*=ON' "$build/CMakeCache.txt" 2>/dev/null; then
  parts=OFF
fi
options=(-DVRAMSCOPE_BUILD_{TESTS,BENCH,EXAMPLES}=$parts)
if command -v ccache >/dev/null; then
  options+=(-DCMAKE_{C,CXX}_COMPILER_LAUNCHER=ccache)
fi
mkdir -p "$build"
cmake --preset dev -B "$build" "${options[@]}" >"$build/configure.log" 2>&1 || {
  tail -n 20 "$build/configure.log" >&2
  exit 1
}
