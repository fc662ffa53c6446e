#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzzers and runs them. What they find is kept in build-fuzz/findings/, what they learn in
# build-fuzz/corpus/.
#
#   tools/fuzz.sh SECONDS           all of them, for so long together
#   tools/fuzz.sh SECONDS import    that of the importers, for so long with each format's inputs
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
only=${2:-}
build=build-fuzz
mkdir -p "$build"
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake --preset fuzz "${launcher[@]}" >"$build/configure.log" 2>&1 || {
  tail -n 20 "$build/configure.log" >&2
  exit 1
}
status=0
export ASAN_OPTIONS=${ASAN_OPTIONS:-malloc_context_size=5:quarantine_size_mb=32}

# fuzz NAME LABEL SECONDS INPUTS...: what is learnt and what is found goes by the label.
fuzz() {
  local name=$1 label=$2 share=$3
  shift 3
  local log=$build/${label//\//-}.log runs each_second covered slow=""
  mkdir -p "$build/corpus/$label" "$build/findings"
  # Leaks are looked for at the end. More than 1 GiB or 5 s of processor time (TimeLimit) is a finding too; the limit here is for
  # what hangs. Weighing inputs by what is rare in them (entropic) takes longer than what most of these fuzzers test.
  if ! "$build/fuzz/fuzz_$name" -max_total_time="$share" -timeout=20 -rss_limit_mb=1024 -max_len=65536 -entropic=0 \
    -print_final_stats=1 -artifact_prefix="$build/findings/${label//\//-}-" \
    "$build/corpus/$label" "$@" >"$log" 2>&1; then
    status=1
    tail -n 40 "$log"
    echo "fuzz: $label failed; the input is in $build/findings/, the log is $log"
    return
  fi
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  each_second=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$log")
  covered=$(sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) .*/\1 edges, \2 features/p' "$log" | tail -n 1)
  [[ "$each_second" -ge 1000 ]] || slow=": below 1,000, too slow to find much"
  echo "fuzz: $label: $runs inputs, $each_second a second$slow; $covered; nothing found"
}

if [[ "$only" == import ]]; then
  cmake --build "$build" --target fuzz_import
  for inputs in tests/fuzz/corpus/import/*/; do
    fuzz import "import/$(basename "$inputs")" "$seconds" "$inputs"
  done
  exit $status
fi

cmake --build "$build" --target fuzzers
"$build/bin/make_seeds" "$build/seeds"
fuzzers=("$build"/fuzz/fuzz_*)
for fuzzer in "${fuzzers[@]}"; do
  name=$(basename "$fuzzer")
  name=${name#fuzz_}
  inputs=()
  for known in "$build/seeds/$name" "tests/fuzz/corpus/$name"; do
    [[ -d "$known" ]] && inputs+=("$known")
  done
  fuzz "$name" "$name" "$((seconds / ${#fuzzers[@]}))" "${inputs[@]}"
done
exit $status
