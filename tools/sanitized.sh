#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The unit tests of everything that reads recordings, and what the fuzzers keep, under sanitizers:
#
#   tools/sanitized.sh [PRESET]     asan (address and undefined behaviour; the default) or tsan
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-asan}
build=build-$preset
mkdir -p "$build"
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake --preset "$preset" "${launcher[@]}" >"$build/configure.log" 2>&1 || {
  tail -n 20 "$build/configure.log" >&2
  exit 1
}
cmake --build "$build" --target offline_tests
ctest --test-dir "$build" -L offline --output-on-failure --no-tests=error -j "$(nproc)"
grep -a 'runs a second$' "$build/Testing/Temporary/LastTest.log"
