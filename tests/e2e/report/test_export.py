# SPDX-License-Identifier: Apache-2.0
"""Exports of an instant: each is read by the rules of its format, and its sums are those of a report."""
from __future__ import annotations

import glob
import json
import os
import random
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from perfetto_engine import Engine
from places import ROOT, VRAMSCOPE

GPT2 = ROOT / "examples" / "traces" / "gpt2.vram"
RECORDINGS = [*sorted((ROOT / "tests" / "golden").glob("v[2-9]*/*.vram*")), GPT2]

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")


def vramscope(*arguments: str | Path) -> bytes:
    return subprocess.run([VRAMSCOPE, *arguments], capture_output=True, check=True, timeout=60).stdout


def report(recording: Path, at: str) -> dict:
    return json.loads(vramscope("report", recording, "--json", "--by", "category", "--at", at))


def instants(recording: Path) -> list[str]:
    lines = [json.loads(line) for line in vramscope("export", recording, "--to", "json").splitlines()]
    return ["peak", "end", *(f"@{line['begin_ns']}" for line in random.Random(5).sample(lines, 3))]


def ledger(recording: Path, at: str) -> dict[str, int]:
    mark = {-1: "cpu", -2: "host"}
    devices = report(recording, at)["devices"]
    return {mark.get(device["index"], f"gpu{device['index']}"): device["ledger_bytes"] for device in devices if device["ledger_bytes"]}


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_speedscope_sums_to_the_ledger(recording):
    for at in instants(recording):
        file = json.loads(vramscope("export", recording, "--to", "speedscope", "--at", at))
        # What https://www.speedscope.app/file-format-schema.json requires.
        assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
        frames, found = file["shared"]["frames"], defaultdict(int)
        assert all(isinstance(frame["name"], str) and frame["name"] for frame in frames)
        for profile in file["profiles"]:
            assert (profile["type"], profile["unit"], profile["startValue"]) == ("sampled", "bytes", 0)
            assert len(profile["samples"]) == len(profile["weights"])
            assert all(stack and all(0 <= number < len(frames) for number in stack) for stack in profile["samples"])
            assert profile["endValue"] == sum(profile["weights"])
            found[profile["name"].split(",")[0]] += profile["endValue"]
        assert found == ledger(recording, at)


def fields(data: bytes) -> dict[int, list]:
    """The fields of a protobuf message: numbers, and bytes of what is longer."""
    found, at = defaultdict(list), 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 0x80:
                return value

    while at < len(data):
        key = varint()
        assert key & 7 in (0, 2)
        value = varint()
        if key & 7 == 2:
            assert at + value <= len(data)
            value, at = data[at : at + value], at + value
        found[key >> 3].append(value)
    return found


def packed(data: bytes) -> list[int]:
    numbers, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    return numbers


class Profile:
    """A file of perftools.profiles.Profile, with each reference followed."""

    def __init__(self, data: bytes) -> None:
        profile = fields(data)
        self.texts = [text.decode() for text in profile[6]]
        assert self.texts[0] == "" and len(set(self.texts)) == len(self.texts)
        one = lambda message, field: (message[field] or [0])[0]
        self.types = [(self.texts[one(kind, 1)], self.texts[one(kind, 2)]) for kind in map(fields, profile[1])]
        self.default = self.texts[one(profile, 14)]
        functions = {one(function, 1): self.texts[one(function, 2)] for function in map(fields, profile[5])}
        locations = {}
        for location in map(fields, profile[4]):
            line = fields(location[4][0])
            locations[one(location, 1)] = (functions[one(line, 1)], one(line, 2))
        assert 0 not in functions and 0 not in locations and len(locations) == len(profile[4])
        self.samples = []
        for sample in map(fields, profile[2]):
            labels = {self.texts[one(label, 1)]: self.texts[one(label, 2)] for label in map(fields, sample[3])}
            stack = [locations[number] for number in packed(sample[1][0])]
            self.samples.append((stack, packed(sample[2][0]), labels))
            assert stack and len(self.samples[-1][1]) == len(self.types)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_pprof_sums_to_the_ledger_and_to_what_was_allocated(recording):
    for at in instants(recording):
        profile = Profile(vramscope("export", recording, "--to", "pprof", "--at", at))
        assert profile.types == [
            ("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"),
        ]
        assert profile.default == "inuse_space"
        by_device, by_category = defaultdict(int), defaultdict(int)
        for _, values, labels in profile.samples:
            if values[3]:
                by_device[labels["device"]] += values[3]
                by_category[labels["category"]] += values[3]
        assert by_device == ledger(recording, at)
        rows = defaultdict(int)
        for row in report(recording, at)["rows"]:
            rows[row["path"][0]] += row["bytes"]
        assert by_category == {name: size for name, size in rows.items() if size}


def test_pprof_has_stacks_with_lines():
    profile = Profile(vramscope("export", GPT2, "--to", "pprof"))
    largest = max(profile.samples, key=lambda sample: sample[1][3])
    assert largest[1][3] > 1 << 30 and len(largest[0]) > 3
    assert all(name and line > 0 for name, line in largest[0][1:])
    assert (largest[0][0], largest[0][-1][0]) == (("[backward]", 0), "<module>")  # innermost first
    lines = [json.loads(line) for line in vramscope("export", GPT2, "--to", "json").splitlines()]
    allocated = sum(line["bytes"] for line in lines if line["path"][-1] != "segment" and line["alloc_ns"] == line["begin_ns"])
    assert sum(values[1] for _, values, _ in profile.samples) == allocated


def pprof_program() -> str | None:
    """Go's, which comes with its tools and needs no Go beside it."""
    found = shutil.which("pprof") or shutil.which("google-pprof-go")
    return found or next(iter(sorted(glob.glob("/usr/lib/go*/pkg/tool/*/pprof"))), None)


@pytest.mark.skipif(pprof_program() is None, reason="no pprof on this machine")
def test_pprof_itself_reads_ours(tmp_path):
    (tmp_path / "ours.pb").write_bytes(vramscope("export", GPT2, "--to", "pprof"))
    command = [pprof_program(), "-top", "-unit=B", "-nodefraction=0", "-sample_index=inuse_space", tmp_path / "ours.pb"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env={**os.environ, "HOME": str(tmp_path)}).stdout
    assert f"Total samples = {sum(ledger(GPT2, 'peak').values())}B" in said.replace(",", ""), said[:600]
    assert "Linear.forward" in said and "[backward]" in said


class PerfettoTrace:
    """A perfetto.protos.Trace: counters by device and name, and slices with their annotations."""

    def __init__(self, data: bytes) -> None:
        self.counters, self.slices = defaultdict(list), []
        tracks, opened, texts = {}, {}, {}
        one = lambda message, field: (message[field] or [0])[0]
        for packet in map(fields, fields(data)[1]):
            if one(packet, 13) & 1:  # the interned texts begin anew
                texts.clear()
            for interned in map(fields, packet[12]):
                for kind, entries in interned.items():
                    for entry in map(fields, entries):
                        texts[kind, one(entry, 1)] = entry[2][0].decode()
            for track in map(fields, packet[60]):
                tracks[one(track, 1)] = (one(track, 5), track[2][0].decode())
            for event in map(fields, packet[11]):
                uuid, time_ns = one(event, 11), one(packet, 8)
                parent, name = tracks[uuid]
                if event[9] == [4]:
                    self.counters[tracks[parent][1].split(",")[0], name].append((time_ns, one(event, 30)))
                elif event[9] == [1]:
                    assert uuid not in opened, "slices of a track overlap"
                    words = {texts[3, one(a, 1)]: texts[29, a[17][0]] if a[17] else one(a, 3) or one(a, 7) for a in map(fields, event[4])}
                    opened[uuid] = (time_ns, name, texts[2, one(event, 10)], texts[1, one(event, 3)], words)
                else:
                    begin_ns, *rest = opened.pop(uuid)
                    assert begin_ns <= time_ns
                    self.slices.append((begin_ns, time_ns, *rest))
        assert not opened

    def at(self, time_ns: int) -> dict[tuple[str, str], int]:
        found = {}
        for key, steps in self.counters.items():
            before = [value for step_ns, value in steps if step_ns <= time_ns]
            if key[1] != "NVML used" and before and before[-1]:
                found[key] = before[-1]
        return found


def by_category(recording: Path, time_ns: int) -> dict[tuple[str, str], int]:
    said = defaultdict(int)
    for row in json.loads(vramscope("report", recording, "--json", "--by", "device,category", "--at", f"@{time_ns}"))["rows"]:
        device, category = row["path"]
        said[device.replace("GPU ", "gpu"), category] += row["bytes"]
    return {path: size for path, size in said.items() if size}


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_perfetto_has_the_ledger_at_every_instant_and_each_allocation(recording):
    trace = PerfettoTrace(vramscope("export", recording, "--to", "perfetto"))
    lines = [json.loads(line) for line in vramscope("export", recording, "--to", "json").splitlines()]
    assert sorted((begin_ns, words["bytes"]) for begin_ns, _, _, _, _, words in trace.slices) == sorted(
        (line["begin_ns"], line["bytes"]) for line in lines
    )
    for line in random.Random(7).sample(lines, 3):
        time_ns = line["begin_ns"]
        assert trace.at(time_ns) == by_category(recording, time_ns)


def test_perfettos_own_schema_knows_every_field():
    schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    unknown = pytest.importorskip("google.protobuf.unknown_fields").UnknownFieldSet
    data = vramscope("export", GPT2, "--to", "perfetto")
    trace = schema.Trace.FromString(data)
    bare = schema.Trace.FromString(data)
    bare.DiscardUnknownFields()
    assert bare.ByteSize() == trace.ByteSize() and len(unknown(trace)) == 0
    events = [packet.track_event for packet in trace.packet if packet.HasField("track_event")]
    rows = vramscope("export", GPT2, "--to", "json").count(b"\n")
    kinds = [event.type for event in events]
    assert kinds.count(schema.TrackEvent.TYPE_SLICE_BEGIN) == kinds.count(schema.TrackEvent.TYPE_SLICE_END) == rows
    assert kinds.count(schema.TrackEvent.TYPE_COUNTER) > 1000
    tracks = {packet.track_descriptor.uuid for packet in trace.packet if packet.HasField("track_descriptor")}
    assert {event.track_uuid for event in events} <= tracks


COUNTERS = """
SELECT name, sum(bytes) AS bytes FROM (
  SELECT name, (SELECT value FROM counter WHERE track_id = track.id AND ts <= {at} ORDER BY ts DESC LIMIT 1) AS bytes
  FROM counter_track track WHERE name != 'NVML used')
GROUP BY name HAVING sum(bytes) > 0"""

SLICES = """
SELECT slice.ts AS begin_ns, slice.dur AS duration_ns, extract_arg(slice.arg_set_id, 'debug.bytes') AS bytes,
  extract_arg(slice.arg_set_id, 'debug.line') AS line
FROM slice JOIN track ON track.id = slice.track_id"""


def test_perfettos_trace_processor_has_the_ledger_and_each_allocation(tmp_path):
    lines = [json.loads(line) for line in vramscope("export", GPT2, "--to", "json").splitlines()]
    with Engine(tmp_path) as engine:
        engine.load(vramscope("export", GPT2, "--to", "perfetto"))
        assert not [(row.name, row.value) for row in engine.query("SELECT name, value FROM stats WHERE severity = 'error' AND value > 0")]
        slices = [(row.begin_ns, row.bytes, row.line or "", row.begin_ns + row.duration_ns) for row in engine.query(SLICES)]
        last_ns = max(slice[-1] for slice in slices)  # of what was never freed
        assert sorted(slices) == sorted(
            (line["begin_ns"], line["bytes"], line["line"].replace("(none)", ""), line["free_ns"] or last_ns) for line in lines
        )
        for line in random.Random(11).sample(lines, 5):
            counters = {row.name: row.bytes for row in engine.query(COUNTERS.format(at=line["begin_ns"]))}
            ledger = defaultdict(int)
            for (_, category), size in by_category(GPT2, line["begin_ns"]).items():
                ledger[category] += size
            assert counters == ledger


def test_perfetto_slices_say_whose_they_are():
    trace = PerfettoTrace(vramscope("export", GPT2, "--to", "perfetto"))
    begin_ns, end_ns, track, name, category, words = max(trace.slices, key=lambda s: s[5]["bytes"] if s[4] == "activation" else 0)
    assert track == "allocations" and name == words.get("parameter", words["module"]) and end_ns > begin_ns
    assert words["line"] and words["stack"].endswith("<module>")
    assert ("gpu0", "NVML used") in trace.counters


def test_an_instant_is_for_formats_that_have_one(tmp_path):
    done = subprocess.run([VRAMSCOPE, "export", GPT2, "--to", "csv", "--at", "end"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--at does not apply to 'csv', which exports the whole recording" in done.stderr
    folded = vramscope("export", GPT2, "--to", "collapsed", "--at", "end").decode()
    assert sum(int(line.rpartition(" ")[2]) for line in folded.splitlines()) == sum(ledger(GPT2, "end").values())


def test_a_dash_is_standard_output(tmp_path):
    recording = RECORDINGS[0]
    written = subprocess.run([VRAMSCOPE, "export", recording, "--to", "csv", "-o", "-"], capture_output=True, check=True, cwd=tmp_path, timeout=60)
    assert written.stdout == vramscope("export", recording, "--to", "csv") != b""
    assert not list(tmp_path.iterdir())
