# SPDX-License-Identifier: Apache-2.0
"""Compares what a recording says of a program with what the program's oracles wrote down."""

import collections
import json
import subprocess

# Rows of other entry points are the allocator's and the driver's own.
TENSORS = "caching allocator"
EXACT = ("parameter", "gradient", "buffer", "optimizer state")
MEMTRACKER_SHARE = 0.02
NAMED_SHARE = 0.99

# All that is asked of an instant, in one report.
DIMENSIONS = ("category", "parameter", "module", "line", "api")

# MemTracker's words and ours; see oracle.py.
MEMTRACKER = {
    "PARAM": ("parameter",),
    "GRAD": ("gradient",),
    "BUFFER": ("buffer",),
    "OPT": ("optimizer state",),
    "ACT": ("activation", "input"),
    "TEMP": ("temporary",),
}


class Recording:
    """A trace, asked through the command that everybody uses."""

    def __init__(self, program, trace, device, environment=None):
        self._program, self._trace, self._environment = program, trace, environment
        self._kind = "gpu" if device == "cuda" else "cpu"
        self._rows = {}

    def report(self, *arguments):
        done = subprocess.run(
            [str(self._program), "report", str(self._trace), "--json", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"report {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def rows(self, pid, at):
        """(path, bytes) of the rows of one process on the devices of the kind at hand."""
        if at not in self._rows:
            report = self.report("--at", at, "--by", ",".join(DIMENSIONS))
            devices = {device["index"] for device in report["devices"] if device["kind"] == self._kind}
            self._rows[at] = [
                (row["pid"], dict(zip(DIMENSIONS, row["path"])), row["bytes"])
                for row in report["rows"]
                if row["device"] in devices
            ]
        return [(path, size) for owner, path, size in self._rows[at] if owner == pid]


def is_none(text):
    """Rows without a value say so in brackets."""
    return text == "" or text.startswith("(")


def names_in(text):
    """The names of a `parameter` element: aliases of one storage stand side by side."""
    return [] if is_none(text) else [name.strip() for name in text.split("=")]


def is_among(name, found):
    return any(text == name or text.endswith("." + name) for text in found)


def sums_of(rows):
    sums = collections.Counter()
    for path, size in rows:
        sums[path["category"]] += size
    return sums


def text_of(size):
    return f"{size:,} B"


def by_parameter(rows, category):
    """(first name, bytes) of what our rows say."""
    sums = collections.Counter()
    for path, size in rows:
        if path["category"] == category:
            sums[" = ".join(names_in(path["parameter"])[:1]) or path["line"]] += size
    return list(sums.items())


def by_oracle(entries, category):
    """(first name, bytes) of the oracle's storages; all states of a parameter together, as in ours."""
    sums = collections.Counter()
    for entry in entries:
        name = entry["names"][0]
        sums[name.rsplit(" ", 1)[0] if category == "optimizer state" else name] += entry["bytes"]
    return list(sums.items())


def difference(ours, theirs, limit=8):
    """What two lists of (name, bytes) do not have in common, for people."""
    left, right = collections.Counter(ours), collections.Counter(theirs)
    lines = []
    for label, found in (("only ours", left - right), ("only the oracle", right - left)):
        entries = sorted(found.items(), key=lambda entry: -entry[0][-1] * entry[1])
        for (name, size), count in entries[:limit]:
            times = f"{count} x " if count > 1 else ""
            lines.append(f"    {label}: {times}{text_of(size)} {name}")
        if len(entries) > limit:
            lines.append(f"    {label}: and {len(entries) - limit} more")
    return lines


class Comparison:
    """One program: its problems as text, its figures as rows of a table."""

    def __init__(self, recording, name, unchecked=()):
        self.recording, self.name, self._unchecked = recording, name, unchecked
        self.problems, self.figures = [], []

    def _problem(self, text, lines=()):
        self.problems.append("\n".join([f"{self.name}: {text}", *lines]))

    def with_sums(self, sums):
        """Exact bytes of what the program's objects hold, and the names of its parameters."""
        device, pid = sums["device"], sums["pid"]
        for instant in sums["instants"]:
            mark = instant["mark"]
            rows = self.recording.rows(pid, f"mark:{mark}")
            ours = sums_of(rows)
            storages = [entry for entry in instant["storages"] if entry["device"] == device]
            blocks = instant.get("other_blocks", {"bytes": 0, "requested": 0})
            figure = {
                "mark": mark,
                "ours": dict(ours),
                "oracle": {},
                "unnamed_rounding": blocks["bytes"] - blocks["requested"],
            }
            for category in EXACT:
                entries = [entry for entry in storages if entry["role"] == category]
                total = sum(entry["bytes"] for entry in entries)
                figure["oracle"][category] = total
                if ours[category] != total and category not in self._unchecked:
                    self._problem(
                        f"{mark}: {category} is {text_of(ours[category])}, the program holds {text_of(total)}",
                        difference(by_parameter(rows, category), by_oracle(entries, category)),
                    )
            self.figures.append(figure)
            for category in ("parameter", "gradient", "optimizer state"):
                if category not in self._unchecked:
                    entries = [entry for entry in storages if entry["role"] == category]
                    self._check_names(mark, rows, category, entries)

    def _check_names(self, mark, rows, category, entries):
        found = {
            name
            for path, _ in rows
            if path["category"] == category
            for name in names_in(path["parameter"])
        }
        # A state is named after its parameter, with the optimizer's name of the state appended.
        words = -1 if category == "optimizer state" else None
        names_of = [[" ".join(name.split(" ")[:words]) for name in entry["names"]] for entry in entries]
        # If there are several models, their names come first.
        missing = [
            (" or ".join(absent), entry["bytes"])
            for entry, names in zip(entries, names_of)
            if (absent := [name for name in names if not is_among(name, found)])
            # The gradient of tied weights has the name of the one that it was found by.
            and (category == "parameter" or len(absent) == len(entry["names"]))
        ]
        if missing:
            self._problem(f"{mark}: {len(missing)} storages of category {category} lack a name", difference([], missing))

    def _figure(self, mark):
        return next(figure for figure in self.figures if figure["mark"] == mark)

    def with_saved(self, saved, pid):
        """Activations at the end of forward: what autograd keeps and the program still holds."""
        device = saved["device"]
        for instant in saved["instants"]:
            mark = instant["mark"]
            if not mark.startswith("end of forward"):
                continue
            rows = self.recording.rows(pid, f"mark:{mark}")
            ours = sums_of(rows)
            theirs = [
                size
                for kind, size in [*instant["activations"], *instant["others"]]
                if kind == device
            ]
            theirs += [
                entry["bytes"]
                for entry in instant["storages"]
                if entry["device"] == device and entry["role"] == "input"
            ]
            total = sum(theirs)
            figure = self._figure(mark)
            held = ours["activation"] + ours["input"] - figure["unnamed_rounding"]
            figure["activation and input"] = held
            figure["oracle"]["activation and input"] = total
            if held != total:
                by_line = [
                    (path["line"], size)
                    for path, size in rows
                    if path["category"] in ("activation", "input", "temporary", "unknown")
                ]
                self._problem(
                    f"{mark}: activation and input are {text_of(held)}, autograd and the program hold"
                    f" {text_of(total)}",
                    [
                        *(f"    {text_of(size)} {line}" for line, size in by_line[:12]),
                        f"    the oracle's sizes: {sorted(theirs, reverse=True)[:40]}",
                        f"    ours by category: {dict(ours)}",
                    ],
                )

    def with_memtracker(self, tracked, pid):
        """Each category within 2 % of MemTracker's, or 0.1 % of its total where there is little."""
        for instant in tracked["instants"]:
            mark = instant["mark"]
            ours = sums_of(self.recording.rows(pid, f"mark:{mark}"))
            theirs = instant["memtracker"].get(tracked["device"], {})
            figure, worst = self._figure(mark), 0.0
            ours["activation"] -= figure["unnamed_rounding"]
            for kind, categories in MEMTRACKER.items():
                held, tracked_bytes = sum(ours[category] for category in categories), theirs.get(kind, 0)
                off = abs(held - tracked_bytes)
                if tracked_bytes > 0:
                    worst = max(worst, off / tracked_bytes)
                if off > max(MEMTRACKER_SHARE * tracked_bytes, 0.001 * theirs.get("TOTAL", 0)):
                    self._problem(
                        f"{mark}: {' and '.join(categories)}: {text_of(held)}, MemTracker says"
                        f" {text_of(tracked_bytes)}"
                    )
            figure["memtracker"], figure["memtracker_worst"] = theirs, worst

    def at_the_peak(self, pid):
        """The share of tensor bytes with a category other than unknown, and a module or a line."""
        rows = self.recording.rows(pid, "peak")
        tensors = [
            (path, size)
            for path, size in rows
            if path["api"] == TENSORS and path["category"] != "rounding"
        ]
        total = sum(size for _, size in tensors)
        nameless = [
            (path, size)
            for path, size in tensors
            if path["category"] == "unknown" or (is_none(path["module"]) and is_none(path["line"]))
        ]
        share = 1 - sum(size for _, size in nameless) / total if total else 0.0
        if share < NAMED_SHARE:
            nameless.sort(key=lambda entry: -entry[1])
            self._problem(
                f"peak: {share:.2%} of {text_of(total)} have a category and a module or line",
                [f"    {text_of(size)} {' | '.join(path.values())}" for path, size in nameless[:8]],
            )
        return share


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))
