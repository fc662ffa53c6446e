#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that what includes what is what docs/ARCHITECTURE.md says.

Four laws, over every file below src/:
  1. a file includes only its own layer and the layers that its vramscope_layer() lists (and theirs);
  2. those lists keep the order of the stages, STAGES below;
  3. code that runs inside the profiled program includes the C and C++ library and nothing else;
  4. folders do not include each other in a circle, a folder and the one that it is in among them.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"

# What each stage may know, besides itself and whatever those may know.
STAGES = {
    "base": [],
    "format": ["base"],
    "probe": ["format"],
    "util": ["base"],
    "tables": ["format", "util"],
    "query": ["tables"],
    "read": ["query"],
    "trace": ["tables"],
    "resolve": ["trace"],
    "import": ["tables"],
    "output": ["query"],
    "pipeline": ["resolve", "output"],
    "record": ["pipeline"],
    "checkpoint": ["record"],
    "metrics": ["record"],
    "top": ["record"],
    "cli": ["checkpoint", "metrics", "top", "import"],
}

# What is linked into a program or a shared object directly, by CMake's own commands.
TOPS = ("cli", "probe/inject")

CLOSED_STAGES = ("base", "format", "probe")
SYSTEM_HEADER = re.compile(
    r"^([a-z_0-9]+"  # the C++ library
    r"|(sys|linux|asm|arpa|netinet|bits)/[a-z_0-9-]+\.h"
    r"|(alloca|assert|cpuid|ctype|cxxabi|dirent|dlfcn|elf|endian|errno|execinfo|fcntl|features|inttypes|limits|link"
    r"|malloc|poll|pthread|sched|semaphore|setjmp|signal|spawn|stdarg|stdatomic|stddef|stdint|stdio|stdlib"
    r"|string|strings|time|unistd|unwind|x86intrin|immintrin)\.h)$"
)
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


class Layer:
    def __init__(self, name, directory, sources, deps):
        self.name = name
        self.directory = directory
        self.sources = sources
        self.deps = deps
        self.stage = stage_of(directory)


def stage_of(directory):
    path = directory.relative_to(SOURCE).as_posix()
    matches = [stage for stage in STAGES if path == stage or path.startswith(stage + "/")]
    return max(matches, key=len, default=None)


def read_layers():
    """Every vramscope_layer() call, by name."""
    layers = {}
    for listing in sorted(SOURCE.rglob("CMakeLists.txt")):
        text = re.sub(r"#[^\n]*", "", listing.read_text(encoding="utf-8"))
        for call in re.findall(r"\bvramscope_(?:[a-z]+_)?layer\(([^)]*)\)", text):
            words = call.split()
            if "$" in words[0]:
                continue  # the definition of a wrapper
            lists = {"SOURCES": [], "DEPS": [], "TESTS": [], "LIBS": []}
            current = None
            for word in words[1:]:
                if word in lists:
                    current = lists[word]
                elif word == "INTARGET":
                    current = None
                elif current is not None:
                    current.append(word)
            # Subdirectories named by sources show which layer their headers belong to.
            sources = [(listing.parent / name).resolve() for name in lists["SOURCES"] + lists["TESTS"]]
            layers[words[0]] = Layer(words[0], listing.parent, sources, lists["DEPS"])
    return layers


def owner_of(path, layers):
    """The layer of a file: it lists it, or lists its neighbours, or stands above it."""
    for layer in layers.values():
        if path in layer.sources:
            return layer
    stem = re.sub(r"_test$", "", path.stem)
    for layer in layers.values():
        if any(s.parent == path.parent and s.stem == stem for s in layer.sources):
            return layer
    for layer in layers.values():
        if any(s.parent == path.parent for s in layer.sources):
            return layer
    for folder in path.parents:
        above = [layer for layer in layers.values() if layer.directory == folder]
        if above:
            # Of several the one that has the folder's name.
            named = [layer for layer in above if layer.name == folder.name] or above
            return named[0] if len(named) == 1 else None
    return None


def is_test(path):
    return path.stem.endswith("_test") or path.parent.name == "testing"


def closure(start, edges):
    seen, pending = set(), list(edges.get(start, []))
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += edges.get(name, [])
    return seen


def circles(edges):
    """The sets of folders that reach each other by `edges`, {folder: {folder: one include}}."""
    reached = {folder: closure(folder, edges) for folder in edges}
    return {
        frozenset(other for other in reached[folder] if folder in reached.get(other, ())) | {folder}
        for folder in edges
        if folder in reached[folder]
    }


def check():
    layers = read_layers()
    problems = []
    edges = {name: layer.deps for name, layer in layers.items()}

    for layer in layers.values():
        where = layer.directory.relative_to(ROOT)
        if layer.stage is None:
            problems.append(f"{where}: layer {layer.name} stands in no stage of tools/check_layers.py")
            continue
        known = closure(layer.stage, STAGES) | {layer.stage}
        for dep in layer.deps:
            if dep not in layers:
                problems.append(f"{where}: layer {layer.name} lists {dep}, which no vramscope_layer() makes")
            elif layers[dep].stage not in known:
                problems.append(
                    f"{where}: layer {layer.name} lists {dep}, but {layer.stage} may not know {layers[dep].stage}"
                )

    folders = {}
    files = sorted(p for p in SOURCE.rglob("*") if p.suffix in (".cc", ".h", ".def", ".c", ".S"))
    for path in files:
        layer = owner_of(path, layers)
        if layer is None:
            if is_test(path):
                continue  # helpers of tests, in headers alone
            if not path.relative_to(SOURCE).as_posix().startswith(TOPS):
                problems.append(f"{path.relative_to(ROOT)}: belongs to no vramscope_layer()")
                continue
        stage = stage_of(path.parent)
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            quote, name = match.groups()
            line = text.count("\n", 0, match.start()) + 1
            where = f"{path.relative_to(ROOT)}:{line}"
            if quote == "<":
                if stage in CLOSED_STAGES and not is_test(path) and not SYSTEM_HEADER.match(name):
                    problems.append(f"{where}: <{name}>: code inside the target uses no third party")
                continue
            target = next((c for c in (SOURCE / name, path.parent / name) if c.is_file()), None)
            if target is None:
                continue  # generated, or of include/
            other = owner_of(target.resolve(), layers)
            if is_test(path) and is_test(target):
                continue
            if target.parent != path.parent and not is_test(path):
                folders.setdefault(path.parent, {}).setdefault(target.parent, f'{where}: "{name}"')
            if layer is None or other is None:
                known = closure(stage, STAGES) | {stage}
                if stage_of(target.parent) not in known:
                    problems.append(f"{where}: {stage} may not know {name}")
            elif other.name != layer.name and other.name not in closure(layer.name, edges):
                problems.append(f'{where}: layer {layer.name} includes "{name}" but does not list {other.name}')
    for circle in circles(folders):
        problems.append(f"{len(circle)} folders include each other in a circle:")
        problems += [
            f"  {first}" for folder in sorted(circle) for other, first in folders[folder].items() if other in circle
        ]
    return len(files), len(layers), problems


def main():
    files, layers, problems = check()
    for problem in problems:
        print(problem)
    if problems:
        print(f"check_layers: {len(problems)} violations")
        return 1
    print(f"check_layers: {files} files in {layers} layers keep the order")
    return 0


if __name__ == "__main__":
    sys.exit(main())
