#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-format and clang-tidy over what git knows. Needs a configured build for the compile commands.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
for tool in clang-format clang-tidy; do
  command -v "$tool" >/dev/null || {
    echo "lint: $tool is missing; install it with: apt-get install $tool" >&2
    exit 2
  }
done
git ls-files '*.cc' '*.h' '*.cu' | xargs clang-format --dry-run --Werror
git ls-files 'src/*.cc' 'examples/*.cc' | xargs -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build" \
  --warnings-as-errors='*'
