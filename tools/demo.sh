#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job, end to end: records a real PyTorch training that knows nothing of vramscope, then
# reports on a recording from an H100, so that a machine without a GPU shows GPU memory too.
set -euo pipefail
cd "$(dirname "$0")/.."
vramscope=$1/bin/vramscope
out=demo-out
mkdir -p "$out"
rm -rf "$out"/*

say() { printf '\n== %s\n\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

say "Recording a GPT that learns a play (examples/train_gpt2.py)"
show "$vramscope" run -o "$out/gpt2.vram" --html "$out/gpt2.html" -- .venv/bin/python examples/train_gpt2.py \
  --seconds 60

say "A recording from an H100 that ships with the examples: gpt2"
show "$vramscope" report examples/traces/gpt2.vram --html "$out/gpt2-h100.html"

say "Results"
for file in "$out"/*; do
  printf '  %-28s %s\n' "$file" "$(du -h --apparent-size "$file" | cut -f1)"
done
echo
echo "Open the .html files in a browser, or ask a recording yourself:"
echo "  $vramscope report $out/gpt2.vram --at mark:trained --by line"
