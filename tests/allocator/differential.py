#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares vramscope's model of PyTorch's allocator with released ones, by random programs.

    tests/allocator/differential.py --build build [--version 2.13.0]... [--seconds 60] [--work build/oracle]

The wheels come from PyPI, once: 0.5 to 0.9 GB each. A program that differs is printed and kept.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

import oracle_build
import random_programs


def run(command, lines):
    environment = dict(os.environ, TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC="0")
    text = "\n".join(lines) + "\n"
    done = subprocess.run([command], input=text, capture_output=True, text=True, env=environment)
    answers = done.stdout.splitlines()
    if done.returncode != 0 or len(answers) != len(lines):
        answers.append(f"ended with {done.returncode} after {len(answers)} of {len(lines)} lines: {done.stderr[-300:]}")
    return answers


def in_one_order(answer, letters):
    """Blocks whose events are over come stream by stream, and freed pools pool by pool, in the order of a hash."""
    parts = answer.split(" ")
    begin = 0
    while begin < len(parts):
        end = begin
        while end < len(parts) and parts[end][:1] == parts[begin][:1]:
            end += 1
        if parts[begin][:1] in letters:
            parts[begin:end] = sorted(parts[begin:end])
        begin = end
    return " ".join(parts)


def first_difference(expected, actual, lines):
    """The index of the first line that differs; None: there is none."""
    released = {line.split()[1] for line in lines if line.startswith("pool") and line.endswith("release")}
    letters = "CF" if len(released) > 1 else "C"
    for index, (a, b) in enumerate(zip(expected, actual)):
        if a != b and in_one_order(a, letters) != in_one_order(b, letters):
            return index
    return None if len(expected) == len(actual) else min(len(expected), len(actual))


def compare(oracle, model, version, seed, requests):
    """(requests compared, the lines up to a difference or None, a text)"""
    lines = random_programs.make(seed, version, requests)
    expected, actual = run(oracle, lines), run(model, lines)
    at = first_difference(expected, actual, lines)
    compared = sum(line.startswith(("alloc", "free")) for line in lines[:at])
    if at is None:
        return compared, None, ""
    said = [answers[at] if at < len(answers) else "(nothing)" for answers in (expected, actual)]
    line = lines[at] if at < len(lines) else "(end)"
    return compared, lines[: at + 1], f"PyTorch {version}, seed {seed}, line {at + 1}: {line}\n  real  {said[0]}\n  model {said[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--version", action="append", dest="versions")
    parser.add_argument("--seconds", type=float, default=60, help="for each version")
    parser.add_argument("--requests", type=int, default=2000, help="of a program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=pathlib.Path)
    arguments = parser.parse_args()
    work = (arguments.work or arguments.build / "oracle").resolve()
    model = (arguments.build / "allocator" / "allocator_model_driver").resolve()
    failures = 0
    for version in arguments.versions or ["2.9.1", "2.13.0", "2.14.1"]:
        oracle = oracle_build.build(version, work)
        total, programs, end = 0, 0, time.monotonic() + arguments.seconds
        while time.monotonic() < end and failures < 5:
            seed = arguments.seed + programs
            compared, lines, text = compare(oracle, model, version, seed, arguments.requests)
            total += compared
            programs += 1
            if lines is not None:
                failures += 1
                kept = work / f"different-{version}-{seed}.txt"
                kept.write_text("\n".join(lines) + "\n", encoding="utf-8")
                print(text, kept, sep="\n  ")
        print(f"PyTorch {version}: {total} requests of {programs} programs compared")
    print(f"differential: {failures} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
