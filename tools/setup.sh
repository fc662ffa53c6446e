#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a Debian machine ready: installs the Debian packages that are missing, and nothing else.
#
#   tools/setup.sh            to build everything, unit tests and benchmarks too
#   tools/setup.sh --program  to build the program and the probe, and to make .venv
#   tools/setup.sh --torch    Debian's PyTorch, for machines that cannot reach PyPI
#   tools/setup.sh --tests    what only tests need: a browser for the HTML page, tools that the probe must get along with
#   tools/setup.sh --lint     clang-format and clang-tidy;  --fuzz  libFuzzer
set -euo pipefail

program=(
  g++ cmake ninja-build ccache         # the build
  libzstd-dev libdw-dev libelf-dev     # trace compression; symbols
  zlib1g-dev liblzma-dev libbz2-dev    # what libdw needs to be linked in
  libcli11-dev libfmt-dev              # command line; text
  libtomlplusplus-dev                  # keyword dictionaries
  libprotozero-dev                     # protobuf: exports to Perfetto and pprof, profiles of JAX
  libcairo2-dev                        # plots: the headers; the library is loaded when one is drawn
  python3 python3-venv                 # the Python package
)
packages=(
  "${program[@]}" git
  libgtest-dev libgmock-dev            # unit tests
  libbenchmark-dev                     # benchmarks
  esbuild node-typescript              # the viewer: bundled and type-checked
  python3-dev                          # the Python package's tests
)
case "${1:-}" in
  --program) packages=("${program[@]}") ;;
  --lint) packages=(clang-format clang-tidy) ;;
  --fuzz) packages=(clang libclang-rt-14-dev) ;;
  --torch)
    packages=(python3-torch python3-numpy python3-pytest python3-ipython python3-setuptools python3-wheel)
    ;;
  --tests) packages=(clang-format chromium libjemalloc2 heaptrack strace valgrind openjdk-17-jre-headless) ;;
esac

missing=()
for package in "${packages[@]}"; do
  dpkg -s "$package" 2>/dev/null | grep -q '^Status: install ok installed' || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

command -v apt-get >/dev/null || {
  echo "setup: this machine has no apt-get; install these by hand: ${missing[*]}" >&2
  exit 1
}
as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || {
    echo "setup: not root and no sudo; ask an administrator for: apt-get install ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
install() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The package lists of a fresh machine are absent or old: they are fetched where it needs them.
if ! install >"$log" 2>&1; then
  if ! { "${as_root[@]}" apt-get update -q </dev/null && install; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "setup: apt-get could not install: ${missing[*]}" >&2
    exit 1
  fi
fi
