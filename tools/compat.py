#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names and bytes in the oldest and the newest PyTorch, under every Python at hand: `make compat`.

    tools/compat.py BUILD                 each python3.9 and later on PATH or of pyenv, with the oldest PyTorch that is
                                          supported and pip has for it, and with the newest
    tools/compat.py BUILD PYTHON ...      these interpreters, with the PyTorch that they have

Each pair gets a virtual environment (5 GB, where PyPI has no build for CPUs alone; removed afterwards) and runs
tests/e2e/torch/test_models.py: trainings whose every parameter, gradient, buffer and optimizer state is compared with what the
program itself says, to the byte. The table goes into docs/VERSIONS.md.
"""

import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "VERSIONS.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- end -->)", re.DOTALL)
ROW = re.compile(r"^\| (\d[^|]*) \| (\d[^|]*) \|.*$", re.MULTILINE)
VERSIONS = (
    "import platform, torch, importlib.util as util\n"
    "print(platform.python_version(), torch.__version__, util.find_spec('pytest') is not None)"
)


def pythons():
    """Every CPython from 3.9 on, one of each minor version."""
    found = {}
    places = [*os.environ["PATH"].split(os.pathsep), *map(str, pathlib.Path.home().glob(".pyenv/versions/*/bin"))]
    for place in places:
        for path in sorted(pathlib.Path(place).glob("python3.*")):
            minor = re.fullmatch(r"python3\.(\d+)", path.name)
            works = minor and int(minor[1]) >= 9 and not subprocess.run(
                [path, "-c", "import ensurepip, venv"], capture_output=True, check=False
            ).returncode
            if works:
                found.setdefault(int(minor[1]), path)
    return [found[minor] for minor in sorted(found)]


def oldest(python):
    """The oldest supported PyTorch that pip has for it."""
    done = subprocess.run(
        [python, "-m", "pip", "index", "versions", "torch"], capture_output=True, text=True, check=False
    )
    listed = re.search(r"Available versions: (.*)", done.stdout)
    versions = [tuple(map(int, version.split("."))) for version in re.findall(r"[\d.]+", listed[1])] if listed else []
    supported = [version for version in versions if version >= (2, 2)]
    return ".".join(map(str, min(supported))) if supported else None


def environment(python, requirement, folder):
    """The interpreter of a new environment with that PyTorch; None where pip cannot."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", folder], check=True)
    ours = folder / "bin" / "python"
    # PyTorch before 2.3 was built for NumPy 1.
    numpy = "numpy<2" if re.match(r"torch==2\.[012]\.", requirement) else "numpy"
    done = subprocess.run(
        [ours, "-m", "pip", "install", "-q", "--no-compile", requirement, numpy, "pytest", "setuptools"],
        capture_output=True, text=True, check=False,
    )
    if done.returncode != 0:
        print(f"compat: {requirement} for {python}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return ours


def result(python, build):
    """A row of the table, of the PyTorch that this interpreter has."""
    said = subprocess.run([python, "-c", VERSIONS], capture_output=True, text=True, check=True).stdout.split()
    if said[2] != "True":
        sys.exit(f"compat: {python} has no pytest")
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/e2e/torch/test_models.py"],
        cwd=ROOT, env={**os.environ, "VRAMSCOPE_BUILD": str(build)}, capture_output=True, text=True, check=False,
    )
    last = done.stdout.strip().splitlines()[-1]
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error|skipped)", last)}
    failed = re.findall(r"^(?:FAILED|ERROR) \S+::test_(\S+)", done.stdout, re.MULTILINE)
    for name in failed:
        print(f"compat: Python {said[0]}, PyTorch {said[1]}: {name}")
    verdict = "all hold" if counts.get("passed") and not failed else ", ".join(failed) or last
    today = datetime.date.today().isoformat()
    figures = f"{counts.get('passed', 0)} of {counts.get('passed', 0) + len(failed)}"
    return (said[0], said[1].split("+")[0]), f"| {said[0]} | {said[1].split('+')[0]} | {figures} | {verdict} | {today} |"


def write(rows):
    text = PAGE.read_text()
    known = {(row[1], row[2]): row[0] for row in ROW.finditer(TABLE.search(text)[0])}
    known.update(rows)

    def order(pair):
        return [[int(part) for part in re.findall(r"\d+", version)] for version in pair]

    head = "| Python | PyTorch | checks that hold | | seen |\n|---|---|---|---|---|\n"
    PAGE.write_text(TABLE.sub(lambda _: head + "".join(known[pair] + "\n" for pair in sorted(known, key=order)), text))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    rows = dict(result(python, build) for python in sys.argv[2:])
    for python in [] if sys.argv[2:] else pythons():
        first = oldest(python)
        for requirement in ([f"torch=={first}"] if first else []) + ["torch"]:
            folder = build / "compat"
            ours = environment(python, requirement, folder)
            if ours:
                pair, row = result(ours, build)
                rows[pair] = row
                print(row, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    write(rows)
    return 1 if any("| all hold |" not in row for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
