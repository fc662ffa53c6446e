#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds example_vgg19 into BUILD_DIR/bin: build.sh BUILD_DIR [CMAKE_OPTION...]
# Where there is no nvcc it says so, and that is no failure.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
if ! command -v nvcc >/dev/null; then
  echo "vgg19: there is no nvcc on this machine; install the CUDA toolkit (13) and cuDNN 9 to build it"
  exit 0
fi
mkdir -p "$1"
build=$(cd "$1" && pwd)
shift
log=$build/vgg19.log
{ cmake -S "$here" -B "$build/vgg19" -D CMAKE_RUNTIME_OUTPUT_DIRECTORY="$build/bin" "$@" &&
  cmake --build "$build/vgg19" --parallel; } >"$log" 2>&1 || {
  tail -n 20 "$log" >&2
  echo "vgg19: not built; the whole log is $log" >&2
  exit 1
}
echo "vgg19: built $build/bin/example_vgg19"
