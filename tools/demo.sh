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

say "What this shows"
cat <<TEXT
The first line of each report above is the answer: how much memory the program
had at its peak, and for what. The tables below it list the layers and lines.

  $out/gpt2.html is the first recording as a page: open it in a browser.

Ask the recording yourself:

  $vramscope report $out/gpt2.vram --by module,category
  $vramscope leaks $out/gpt2.vram

Record your own program:

  $vramscope run -- python train.py
TEXT
