# SPDX-License-Identifier: Apache-2.0
"""Programs that know nothing of vramscope, plain and with the probe, and what each of their processes recorded."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from places import DUMP, PROBE

PARAMETER, GRADIENT, BUFFER, STATE = 1, 2, 3, 4


class Process:
    """What one process recorded."""

    def __init__(self, records: list[dict]) -> None:
        self.records = records
        self.notes = {r["key"]: r["value"] for r in self.of("Runtime")}
        self.gone = [r["object"] for r in self.of("ModuleGone")]
        # address of a module -> (path, class, address of its root), the last word counting
        self.modules = {r["object"]: (r["path"] or "", r["type"], r["root"]) for r in self.of("Module")}
        self._stacks = {(r["stream"], r["id"]): r for r in self.of("PyStack")}

    def of(self, *kinds: str) -> list[dict]:
        return [r for r in self.records if r["record"] in kinds]

    def names(self, kind: int) -> set[tuple]:
        """(name, address, bytes) or, of optimizer state, (name, state, address, bytes)."""
        found = [r for r in self.of("Name") if r["kind"] == kind]
        if kind == STATE:
            return {(r["name"], r["detail"], r["address"], r["size"]) for r in found}
        return {(self._in_whole(r), r["address"], r["size"]) for r in found}

    def _in_whole(self, name: dict) -> str:
        """While a model is built, slowly, its parts can have names as roots of their own."""
        path, _, root = self.modules.get(name["owner"], ("", "", name["owner"]))
        return name["name"] if root == name["owner"] else ".".join(filter(None, (path, name["name"])))

    def objects(self, event: dict) -> list[int]:
        """Addresses of the modules that ran, the outermost first."""
        found, stack = [], self._stacks.get((event["stream"], event["stack"]))
        while stack is not None:
            if stack["object"]:
                found.insert(0, stack["object"])
            stack = self._stacks.get((event["stream"], stack["parent"]))
        return found

    def paths(self, event: dict) -> list[str]:
        return [self.modules[address][0] for address in self.objects(event)]

    def allocs(self, size: int) -> list[dict]:
        return [r for r in self.of("BlockAlloc") if r["size"] == size]


def program(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


def plain(command: list[str], **more) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)


def recorded(command: list[str], directory: Path, options: str = "cpu") -> tuple[subprocess.CompletedProcess, list[Process]]:
    """The program's outcome with the probe, and its processes, the one that recorded most first."""
    environment = {**os.environ, "LD_PRELOAD": str(PROBE), "VRAMSCOPE_DIR": str(directory), "VRAMSCOPE_OPTIONS": options}
    done = plain(command, env=environment)
    processes = []
    for path in directory.glob("*.vrl"):
        dump = subprocess.run([str(DUMP), str(path)], capture_output=True, text=True, check=True)
        processes.append(Process([json.loads(line) for line in dump.stdout.splitlines()]))
    return done, sorted(processes, key=lambda process: -len(process.records))


def record(text: str, directory: Path, options: str = "cpu") -> tuple[dict, Process]:
    """Of a program that prints one JSON object and nothing else: the object, and what was recorded."""
    done, processes = recorded(program(text), directory, options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout), processes[0]


def same_with_and_without(text: str, directory: Path) -> tuple[str, Process]:
    command = program(text)
    without = plain(command)
    done, processes = recorded(command, directory)
    assert without.returncode == 0, without.stderr
    assert (done.returncode, done.stdout) == (without.returncode, without.stdout)
    assert without_stamps(done.stderr) == without_stamps(without.stderr)
    return done.stdout, processes[0]


def without_stamps(log: str) -> str:
    """PyTorch's own warnings, without the time and the process that they begin with."""
    return re.sub(r"^([A-Z])\d{4} [\d:.]+ \d+ ", r"\1 ", log, flags=re.MULTILINE)


def tuples(rows: list[list]) -> set[tuple]:
    return {tuple(row) for row in rows}
