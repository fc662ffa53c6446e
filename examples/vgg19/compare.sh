#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the five algorithms at batch 1 and 8, sampled and probed, and draws what they took:
#   compare.sh [BUILD_DIR [OUTPUT_DIR]]        (default: build, vgg19-out)
# BUILD_DIR/bin has vramscope and, from `make vgg19`, example_vgg19.
set -euo pipefail
build=$(realpath "${1:-build}")
out=${2:-vgg19-out}
here=$(cd "$(dirname "$0")" && pwd)
vramscope=$build/bin/vramscope
program=$build/bin/example_vgg19
for needed in "$vramscope" "$program"; do
  [[ -x $needed ]] || {
    echo "compare.sh: $needed is missing; run 'make build vgg19'" >&2
    exit 2
  }
done
mkdir -p "$out"
weights=$out/weights.bin
[[ -f $weights ]] || python3 "$here/weights.py" "$weights"

over_time=(--kind timeline --overlay --subtract-baseline)
for batch in 1 8; do
  probed=()
  sampled=()
  for algorithm in direct im2col cudnn winograd fft; do
    name=$algorithm-$batch
    options=(--algorithm "$algorithm" --batch "$batch" --weights "$weights" --repeat 3)
    "$vramscope" sample --no-report --name "$algorithm" -o "$out/$name-sampled.vram" -- "$program" "${options[@]}"
    "$vramscope" run --no-report --name "$algorithm" -o "$out/$name.vram" -- "$program" "${options[@]}"
    probed+=("$out/$name.vram")
    sampled+=("$out/$name-sampled.vram")
    "$vramscope" report "$out/$name.vram" --by tag >"$out/$name.txt"
    # The spikes that the sampled run has no sample of stand out of it.
    "$vramscope" plot "${over_time[@]}" --title "VGG-19, $algorithm, batch $batch: probed and sampled" \
      -o "$out/$name.svg" "$out/$name.vram" "$out/$name-sampled.vram"
  done
  "$vramscope" plot "${over_time[@]}" --title "VGG-19, batch $batch" -o "$out/batch-$batch.svg" "${probed[@]}"
  "$vramscope" plot "${over_time[@]}" --title "VGG-19, batch $batch, sampled" \
    -o "$out/batch-$batch-sampled.svg" "${sampled[@]}"
  "$vramscope" diff "$out/cudnn-$batch.vram" "$out/fft-$batch.vram" >"$out/cudnn-fft-$batch.txt"
done
for algorithm in direct im2col cudnn winograd fft; do
  "$vramscope" diff "$out/$algorithm-1.vram" "$out/$algorithm-8.vram" >"$out/$algorithm-1-8.txt"
done
echo "recordings, tables and figures are in $out/"
