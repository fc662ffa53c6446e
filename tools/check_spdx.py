#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every source file says its licence on its first line (or after a `#!` or doctype line)."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".cc", ".h", ".c", ".S", ".cu", ".def", ".py", ".sh", ".js", ".mjs", ".ts", ".css", ".html", ".cmake"}
SUFFIXES |= {".map", ".toml", ".lds"}
NAMES = {"CMakeLists.txt", "Makefile", ".clang-tidy", "run"}
WANTED = "SPDX-License-Identifier: Apache-2.0"


def tracked_files():
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode == 0:
        return [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    return [path for path in ROOT.rglob("*") if path.is_file()]  # a source archive has no git


def main():
    missing = []
    count = 0
    for path in tracked_files():
        if path.suffix not in SUFFIXES and path.name not in NAMES:
            continue
        # Data are not source, and viewer/dist/ is generated from viewer/src/.
        if not path.is_file() or {"data", "testdata", "dist"} & set(path.relative_to(ROOT).parts):
            continue
        count += 1
        with path.open(encoding="utf-8", errors="replace") as file:
            head = [file.readline() for _ in range(2)]
        if WANTED not in head[0] and not (head[0].startswith(("#!", "<!")) and WANTED in head[1]):
            missing.append(path.relative_to(ROOT))
    for path in missing:
        print(f"{path}: the first line does not say {WANTED}")
    print(f"check_spdx: {count - len(missing)} of {count} files say their licence")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
