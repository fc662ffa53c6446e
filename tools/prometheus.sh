#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# BUILD_DIR/prometheus/: Debian's prometheus and promtool for the tests. The package is not installed but unpacked: it
# would enable a service that listens on port 9090.
set -euo pipefail
target=$1/prometheus
[[ -x $target/usr/bin/promtool ]] && exit 0
command -v apt-get >/dev/null || exit 0 # the tests that need it are skipped
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
download() {
  (cd "$folder" && apt-get download -q prometheus </dev/null)
}
log=$folder/log
# The package lists of a fresh machine are absent or old.
if ! download >"$log" 2>&1; then
  as_root=()
  [[ $(id -u) -eq 0 ]] || as_root=(sudo)
  "${as_root[@]}" apt-get update -q </dev/null >"$log" 2>&1 && download >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    echo "prometheus: apt-get could not download the package prometheus" >&2
    exit 1
  }
fi
dpkg-deb -x "$folder"/prometheus_*.deb "$folder/root"
mkdir -p "$target/usr/bin"
cp "$folder/root/usr/bin/prometheus" "$folder/root/usr/bin/promtool" "$target/usr/bin/"
