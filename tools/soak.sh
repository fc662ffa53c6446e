#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long tests: tools/soak.sh BUILD_DIR SECONDS_EACH. make test runs a short turn of the same.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")  # tests change their directory
seconds=$2
status=0

echo "== fuzzing for $seconds s"
tools/fuzz.sh "$seconds" || status=1

echo "== fuzzing each importer for $seconds s"
tools/fuzz.sh "$seconds" import || status=1

for preset in asan tsan; do
  echo "== unit tests and what the fuzzers keep under sanitizers: $preset"
  tools/sanitized.sh "$preset" || status=1
done

echo "== 200,000 changed recordings, live and finished"
(cd "$build" && fuzz/mutate_live 100000 && fuzz/mutate_finished 100000) || status=1

echo "== 500 rounds of kills"
VRAMSCOPE_KILL_ROUNDS=500 VRAMSCOPE_BUILD="$build" .venv/bin/python -m pytest tests/e2e/record/test_kills.py -q -x ||
  status=1

echo "== a kill at each call that changes the file system; 500 rounds of runs, finishes and readers at once"
VRAMSCOPE_CRASH_POINTS=all VRAMSCOPE_CRASH_ROUNDS=250 VRAMSCOPE_BUILD="$build" .venv/bin/python -m pytest \
  tests/e2e/record/test_crash_consistency.py -q >"$build/soak.log" 2>&1 || { tail -n 40 "$build/soak.log"; status=1; }

echo "== random driver programs for $seconds s"
.venv/bin/python tests/differential/run.py --build "$build" --seconds "$seconds" || status=1

echo "== random allocator programs against PyTorch 2.9.1, 2.13.0 and 2.14.1, $seconds s each"
cmake --build "$build" --target allocator_model_driver >"$build/soak.log" &&
  python3 tests/allocator/differential.py --build "$build" --seconds "$seconds" || status=1

echo "== 10,000 tries of another user to change or read a file; 100 rounds of 2,000 short processes"
cmake --build "$build" --target cli_test >"$build/soak.log" && VRAMSCOPE_RACE_TRIES=10000 "$build/bin/cli_test" \
  --gtest_filter='*Races*' >>"$build/soak.log" 2>&1 || { tail -n 40 "$build/soak.log"; status=1; }
VRAMSCOPE_SHORT_ROUNDS=100 VRAMSCOPE_BUILD="$build" .venv/bin/python -m pytest tests/e2e/record/test_files.py -q \
  -k short_processes >>"$build/soak.log" 2>&1 || { tail -n 40 "$build/soak.log"; status=1; }

echo "== misbehaving programs and random kills for $seconds s"
end=$((SECONDS + seconds))
rounds=0
while ((SECONDS < end)); do
  if ! VRAMSCOPE_VIEWS_AT=50 VRAMSCOPE_BUILD="$build" .venv/bin/python -m pytest tests/e2e -q -x >"$build/soak.log" 2>&1; then
    tail -n 40 "$build/soak.log"
    echo "soak: round $((rounds + 1)) failed; the log is $build/soak.log"
    status=1
    break
  fi
  rounds=$((rounds + 1))
done
echo "soak: $rounds rounds of tests/e2e; status $status"
exit $status
