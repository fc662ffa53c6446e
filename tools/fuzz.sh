#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers and runs them for SECONDS together: tools/fuzz.sh SECONDS. What they find is kept in
# build-fuzz/findings/, what they learn in build-fuzz/corpus/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
build=build-fuzz
mkdir -p "$build"
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake --preset fuzz "${launcher[@]}" >"$build/configure.log" 2>&1 || {
  tail -n 20 "$build/configure.log" >&2
  exit 1
}
cmake --build "$build" --target fuzzers
"$build/bin/make_seeds" "$build/seeds"

fuzzers=("$build"/fuzz/fuzz_*)
share=$((seconds / ${#fuzzers[@]}))
mkdir -p "$build/findings"
status=0
for fuzzer in "${fuzzers[@]}"; do
  name=$(basename "$fuzzer")
  name=${name#fuzz_}
  mkdir -p "$build/corpus/$name"
  log=$build/$name.log
  inputs=("$build/corpus/$name")
  for known in "$build/seeds/$name" "tests/fuzz/corpus/$name"; do
    [[ -d "$known" ]] && inputs+=("$known")
  done
  # Leaks are looked for at the end; a slow input is a finding too.
  if ! "$fuzzer" -max_total_time="$share" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$build/findings/$name-" "${inputs[@]}" >"$log" 2>&1; then
    status=1
    tail -n 40 "$log"
    echo "fuzz: $name failed; the input is in $build/findings/, the log is $log"
  else
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    each_second=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
    slow=""
    [[ "$each_second" -ge 1000 ]] || slow=": below 1,000, too slow to find much"
    echo "fuzz: $name: $runs inputs, $each_second a second$slow; nothing found"
  fi
done
exit $status
