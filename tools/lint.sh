#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-format and clang-tidy over what git knows: tools/lint.sh BUILD_DIR [--changed]
# The compile commands are of BUILD_DIR/lint, where each file compiles by itself. With --changed only
# over files that differ from VRAMSCOPE_LINT_BASE (the commit before): clang-tidy takes 4 to 10 s of
# CPU a file.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
for tool in clang-format clang-tidy; do
  command -v "$tool" >/dev/null || {
    echo "lint: $tool is missing; install it with: apt-get install $tool" >&2
    exit 2
  }
done
list() {  # patterns...
  if [[ -n "$base" ]]; then
    git diff --name-only --diff-filter=d "$base" -- "$@"
  else
    git ls-files "$@"
  fi
}
base=""
if [[ "${2:-}" == --changed ]]; then
  base=${VRAMSCOPE_LINT_BASE:-HEAD~1}
  git rev-parse -q --verify "$base^{commit}" >/dev/null || {
    echo "lint: $base is not in this clone; nothing to compare with, so nothing is checked"
    exit 0
  }
fi
list '*.cc' '*.h' '*.cu' | xargs -r clang-format --dry-run --Werror
tools/configure.sh "$build/lint"
cmake -B "$build/lint" -DVRAMSCOPE_FILES_AT_ONCE=1 >"$build/lint/configure.log"
list 'src/*.cc' 'examples/*.cc' | xargs -r -P "$(nproc)" -n 4 clang-tidy --quiet -p "$build/lint" \
  --warnings-as-errors='*'
echo "lint: $(list '*.cc' '*.h' '*.cu' | wc -l) files are formatted, $(list 'src/*.cc' 'examples/*.cc' | wc -l) pass clang-tidy"
