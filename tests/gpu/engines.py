# SPDX-License-Identifier: Apache-2.0
"""The group `engines` of tests/gpu/run.py: an engine's life, CUDA graphs of a training, memory open by CUDA IPC, arrays of CuPy, Views of Kokkos.

`engine`: at nine instants weights and KV cache are what they are, to the byte, awake or asleep; the phases add up to NVML's
figure; it answers what it answers without vramscope.
`graphs`: at each instant the categories are what the program's own objects hold, to the byte, and what it computes is what
it computes without vramscope. `peers`: after each order the report names the process that keeps the memory.
"""

import importlib.util
import json
import pathlib

import residual
from ledger import Recording
from sleeping import start

PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "e2e" / "programs"
EXACT = ("parameter", "gradient", "optimizer state", "activation and input")
PEER_BYTES = 64 << 20


def compare_instant(recording, said):
    report = recording.report("--at", f"mark:{said['mark']}", "--by", "category")
    gpus = {device["index"] for device in report["devices"] if device["kind"] == "gpu"}
    sums = sums_of(report["rows"], gpus)
    found = {name: sum(sums.get(part, 0) for part in name.split(" and ")) for name in EXACT}
    problems = [
        f"at {said['mark']}: {name} is {found[name]} and not {said[name]}" for name in EXACT if found[name] != said[name]
    ]
    return {"mark": said["mark"], **found, "oracle": {name: said[name] for name in EXACT}}, problems


def graphs_case(by):
    def run(bench):
        command = [bench.python, bench.programs / "graphed_training.py", "--by", by, "--digest"]
        plain, status, error = start(bench, command, 150)
        if status != 0:
            raise RuntimeError(f"without vramscope it ended with {status}: {error}")
        trace, page = bench.files("graphs by " + by)
        output, status, error = start(bench, [bench.program, "run", "-o", trace, "--html", page, "--", *command], 150)
        if status != 0:
            raise RuntimeError(f"it ended with {status}: {error}")
        recording = Recording(bench.program, trace, bench.environment)
        instants, problems = [], []
        for line in residual.prefixed(output, "MARK"):
            found, wrong = compare_instant(recording, json.loads(line))
            instants.append(found)
            problems += wrong
        if residual.prefixed(output, "DIGEST") != residual.prefixed(plain, "DIGEST"):
            problems.append("it computes something else under vramscope")
        report = recording.report()
        problems += [f"loss: {loss}" for loss in report["losses"] if loss["name"] != "native stacks cut"]
        problems += [f"invariant {entry['name']}: {entry['detail']}" for entry in report["invariants"] if not entry["holds"]]
        return {"instants": instants, "problems": problems}

    return run


def sums_of(rows, devices):
    sums = {}
    for row in rows:
        if row["device"] in devices:
            sums[row["path"][0]] = sums.get(row["path"][0], 0) + row["bytes"]
    return sums


def engine_case(bench):
    command = [bench.python, bench.programs / "engine" / "serve.py"]
    plain, status, error = start(bench, command, 100)
    if status != 0:
        raise RuntimeError(f"without vramscope it ended with {status}: {error}")
    trace, page = bench.files("engine")
    output, status, error = start(bench, [bench.program, "run", "-o", trace, "--html", page, "--", *command], 100)
    if status != 0:
        raise RuntimeError(f"it ended with {status}: {error}")
    recording = Recording(bench.program, trace, bench.environment)
    instants, problems = [], []
    for said in map(json.loads, residual.prefixed(output, "MARK")):
        mark = said["mark"]
        report = recording.report("--at", f"mark:{mark}", "--by", "category")
        gpus = [device for device in report["devices"] if device["kind"] == "gpu"]
        devices = {device["index"] for device in gpus}
        sums, asleep = sums_of(report["rows"], devices), sums_of(report["unbacked"], devices)
        found = {name: sums.get(name, 0) for name in ("parameter", "kv cache")}
        found["asleep"] = asleep.get("parameter", 0) + asleep.get("kv cache", 0)
        problems += [f"at {mark}: {name} is {size} and not {said[name]}" for name, size in found.items() if size != said[name]]
        off = [device["residual_bytes"] for device in gpus if device["residual_bytes"]]
        problems += [f"at {mark}: the residual is {size}" for size in off]
        instants.append({"mark": mark, **found, "total": sum(device["ledger_bytes"] for device in gpus)})
    phases = [phase for phase in recording.report("--phases")["phases"] if phase["device"] in devices]
    end = recording.report("--at", "end")
    graphs = recording.report("--phases")["graphs"]
    sizes = [graph["name"].split()[0] for graph in graphs]
    if sizes != ["batch=1", "batch=8", "batch=32"]:
        problems.append(f"captured graphs: {[graph['name'] for graph in graphs]}")
    left = sum(phase["left_bytes"] for phase in phases)
    held = sum(process["ledger_bytes"] for process in end["processes"] if process["device"] in devices)
    if left != held:
        problems.append(f"phases leave {left} bytes, and the process has {held}")
    if residual.prefixed(output, "DIGEST") != residual.prefixed(plain, "DIGEST"):
        problems.append("it answers something else under vramscope")
    problems += [f"invariant {entry['name']}: {entry['detail']}" for entry in end["invariants"] if not entry["holds"]]
    tables = {"phases": phases, "graphs": graphs}
    return {
        "engine": instants,
        **{kind: {entry["name"]: entry["left_bytes"] for entry in entries} for kind, entries in tables.items()},
        "problems": problems,
    }


class Played:
    """A recording of peers.py: when each order was done, and who it says keeps the memory then."""

    def __init__(self, bench, orders):
        self.recording, output = bench.record("peers " + " ".join(orders), [bench.python, PROGRAMS / "peers.py", *orders])
        self.said = {name: int(number) for name, number in (line.split() for line in output.splitlines())}

    def open_at(self, name):
        report = self.recording.report("--at", f"@{self.said[name]}")
        fields = ("pid", "maker_pid", "bytes", "maker")
        return [tuple(entry[field] for field in fields) for entry in report.get("open_memory", [])], report

    def holders(self, name):
        """Who holds rows as large as the weights."""
        report = self.recording.report("--at", f"@{self.said[name]}", "--by", "holder,size_class,api")
        gpus = {device["index"] for device in report["devices"] if device["kind"] == "gpu"}
        return [row["path"][0] for row in report["rows"] if row["device"] in gpus and row["bytes"] == PEER_BYTES]


def peers_case(orders, expected):
    """`expected`: by order, what the maker of the memory did while the engine has it open ("" if it is not open), and
    which process holds the bytes ("" for none)."""

    def run(bench):
        played = Played(bench, orders)
        trainer, engine = played.said["trainer"], played.said["engine"]
        problems, found = [], []
        for name, (maker, holder) in expected.items():
            entries, report = played.open_at(name)
            wanted = [(engine, trainer, PEER_BYTES, maker)] if maker else []
            if entries != wanted:
                problems.append(f"after {name}: open are {entries} and not {wanted}")
            holders = played.holders(name)
            begins = f"pid {played.said[holder]} (" if holder else None
            keeps = holder == "engine"
            if [text.startswith(begins or "?") and ("keeps memory of" in text) == keeps for text in holders] != [True] * bool(holder):
                problems.append(f"after {name}: held by {holders}, and not by {holder or 'nobody'}")
            gpus = [device for device in report["devices"] if device["kind"] == "gpu"]
            found.append({"mark": name, "open": entries, "holders": holders, "residual": [device["residual_bytes"] for device in gpus]})
        return {"instants": found, "problems": problems}

    return run


def cupy_case(bench):
    """A hundred arrays with names: 99 % of what CuPy's pool has in use is by name."""
    if importlib.util.find_spec("cupy") is None:
        return {"skipped": "no CuPy on this machine", "problems": []}
    recording, output = bench.record("cupy arrays", [bench.python, PROGRAMS / "cupy_arrays.py"])
    instants, problems = [], []
    for mark, used, names in map(json.loads, output.splitlines()):
        rows = recording.report("--at", f"mark:{mark}", "--by", "tag,line")["rows"]
        found = {row["path"][0]: row["bytes"] for row in rows if row["path"][0] in names}
        problems += [f"at {mark}: {name} is {found.get(name)} and not {size}" for name, size in names.items() if found.get(name) != size]
        lines = {row["path"][1].split(":")[0] for row in rows if row["path"][0] in names}
        if lines != {"cupy_arrays.py"}:
            problems.append(f"at {mark}: lines of {lines}")
        share = sum(found.values()) / used
        if share < 0.99:
            problems.append(f"at {mark}: {share:.2%} of {used} bytes have a name")
        instants.append({"mark": mark, "used": used, "named": sum(found.values())})
    problems += [f"loss: {loss}" for loss in recording.report()["losses"]]
    return {"instants": instants, "problems": problems}


def kokkos_case(bench):
    """A hundred labelled Views: 99 % of what the program itself allocated is by label."""
    program = bench.program.parent / "gpu_kokkos_views"
    if not program.exists():
        return {"skipped": "gpu_kokkos_views is not built: it needs a Kokkos with CUDA", "problems": []}
    recording, output = bench.record("kokkos views", [program])
    instants, problems = [], []
    for mark, labels in map(json.loads, output.splitlines()):
        report = recording.report("--at", f"mark:{mark}", "--by", "tag,category")
        gpus = {device["index"] for device in report["devices"] if device["kind"] == "gpu"}
        found = {}
        for row in report["rows"]:
            if row["device"] in gpus and row["path"][1] not in ("driver", "rounding"):
                found[row["path"][0]] = found.get(row["path"][0], 0) + row["bytes"]
        problems += [f"at {mark}: {label} is {found.get(label)} and not {size}" for label, size in labels.items() if found.get(label) != size]
        used = sum(found.values())
        named = used - found.get("(none)", 0)
        if named < 0.99 * used:
            problems.append(f"at {mark}: {named / used:.2%} of {used} bytes have a name")
        problems += [f"at {mark}: the residual is {device['residual_bytes']}" for device in report["devices"] if device.get("residual_bytes")]
        instants.append({"mark": mark, "used": used, "named": named})
    problems += [f"loss: {loss}" for loss in recording.report()["losses"]]
    return {"instants": instants, "problems": problems}


def all_cases():
    yield "engine", engine_case
    yield "graphs by compile", graphs_case("compile")
    yield "graphs by callables", graphs_case("callables")
    opened = {"opened": ("holds", "trainer")}
    dropped = {**opened, "trainer-frees": ("freed", "engine")}
    yield "peers, both drop", peers_case(["trainer-frees", "engine-closes"], {**dropped, "engine-closes": ("", "")})
    yield "peers, engine drops", peers_case(["engine-closes"], {**opened, "engine-closes": ("", "trainer")})
    yield "peers, engine killed", peers_case(["trainer-frees", "engine-killed"], {**dropped, "engine-killed": ("", "")})
    yield "cupy arrays", cupy_case
    yield "kokkos views", kokkos_case
    yield "peers, trainer killed", peers_case(["trainer-killed"], {**opened, "trainer-killed": ("ended", "engine")})


def print_table(results):
    for name, result in results.items():
        if "skipped" in result:
            print(f"{name:24s} skipped: {result['skipped']}")
        for instant in result.get("engine", []):
            cells = ", ".join(f"{key} {instant[key]}" for key in ("parameter", "kv cache", "asleep", "total"))
            print(f"{name:24s} {instant['mark']:24s} {cells}")
        if "phases" in result:
            print(f"{name:24s} left by phase: {result['phases']}")
            print(f"{name:24s} left by graph: {result['graphs']}")
        for instant in result.get("instants", []):
            if "oracle" in instant:
                cells = ", ".join(f"{key} {instant[key]} ({instant['oracle'][key]})" for key in EXACT)
                print(f"{name:24s} {instant['mark']:24s} {cells}")
            elif "used" in instant:
                print(f"{name:24s} {instant['mark']:24s} {instant['named']} of {instant['used']} bytes in use have a name")
            else:
                print(f"{name:24s} {instant['mark']:24s} open {instant['open']}, held by {instant['holders']}, residual {instant['residual']}")
    print()
