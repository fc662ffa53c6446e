#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes viewer/dist (or the folder given) from viewer/src: a script and a style sheet a page. They are
# checked in, so that a machine without esbuild can build vramscope too.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/dist}
cd "$here"
esbuild src/main.js --bundle --minify --format=iife --target=es2021 --charset=utf8 \
  --log-level=warning --outfile="$out/viewer.js"
esbuild src/style.css --minify --charset=utf8 --log-level=warning --outfile="$out/viewer.css"
esbuild src/diff/diff.js --bundle --minify --format=iife --target=es2021 --charset=utf8 \
  --log-level=warning --outfile="$out/diff.js"
esbuild src/diff/ranks.js --bundle --minify --format=iife --target=es2021 --charset=utf8 \
  --log-level=warning --outfile="$out/ranks.js"
esbuild src/diff/diff.css --minify --charset=utf8 --log-level=warning --outfile="$out/diff.css"
