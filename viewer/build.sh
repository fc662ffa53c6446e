#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes viewer/dist (or the folder given) from viewer/src: one script and one style sheet. They are
# checked in, so that a machine without esbuild can build vramscope too.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/dist}
cd "$here"
esbuild src/main.js --bundle --minify --format=iife --target=es2021 --charset=utf8 \
  --log-level=warning --outfile="$out/viewer.js"
esbuild src/style.css --minify --charset=utf8 --log-level=warning --outfile="$out/viewer.css"
