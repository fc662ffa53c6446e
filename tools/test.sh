#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that `make test` checks, one step after the other; a failing step does not hide the next.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$1
results=$build/test-results
rm -rf "$results"
mkdir -p "$results"
python=.venv/bin/python
# `import torch` takes half the time from the second one on, and the tests do it hundreds of times.
unset PYTHONDONTWRITEBYTECODE
passed=0
failed=()

# Seconds of CPU are comparable whatever else the machine does.
read_cpu() {  # into $cpu; `times` knows of this shell's own children alone, so no subshell may call it
  times >"$results/cpu"
  cpu=$(awk -F '[ms ]' 'NR == 2 { printf "%d", $1 * 60 + $2 + $4 * 60 + $5 }' "$results/cpu")
}

step() {  # name, command...
  local name=$1 began=$SECONDS cpu_before
  read_cpu
  cpu_before=$cpu
  shift
  printf '\n== %s\n' "$name"
  if "$@" 2>&1 | tee "$results/$name.log"; then
    passed=$((passed + 1))
  else
    failed+=("$name")
  fi
  read_cpu
  echo "($name: $((SECONDS - began)) s, $((cpu - cpu_before)) s of CPU)"
}


# The page's modules are type-checked, and the bundle that is checked in is the one they make.
viewer() {
  tsc -p viewer/tsconfig.json && viewer/build.sh "$PWD/$results/viewer" &&
    diff -r viewer/dist "$results/viewer" && echo "viewer: types hold, viewer/dist is up to date"
}

# Two seconds; clang-tidy, which takes minutes, is `make lint`.
format() {
  git ls-files '*.cc' '*.h' '*.cu' | xargs -r -P "$(nproc)" -n 80 clang-format --dry-run --Werror &&
    echo "format: clang-format changes nothing"
}

step layers $python tools/check_layers.py
step spdx $python tools/check_spdx.py
step writes $python tools/check_writes.py
step format_table $python tools/gen_format_table.py --check
step tables_page $python tools/gen_tables_page.py --check
step results $python tools/gen_results.py --check
step words $python tools/gen_words.py --check
step format format
step ruff $python -m ruff check python tests tools bench setup.py examples
step mypy $python -m mypy
step cuda_coverage $python tools/check_cuda_coverage.py
step viewer viewer
step unit ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$(nproc)" \
  --output-junit test-results/unit.xml
# Side by side, a file at a time: they wait for clocks and processes more than they compute.
step e2e $python -m pytest tests/e2e -n "$(nproc)" --dist loadfile --durations 40 --junitxml="$results/e2e.xml" -q
step differential $python tests/differential/run.py --build "$build" --seconds 20
step instructions $python bench/instructions/run.py --build "$build" --check

echo
echo "Logs and JUnit files are in $results/"
for name in "${failed[@]}"; do
  echo "failed: $name ($results/$name.log)"
done
echo "$passed passed, ${#failed[@]} failed"
[[ ${#failed[@]} -eq 0 ]]
