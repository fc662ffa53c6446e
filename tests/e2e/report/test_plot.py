# SPDX-License-Identifier: Apache-2.0
"""Pictures of real recordings: every kind in every format, and one line for what cannot be drawn."""
from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import xml.etree.ElementTree as xml
import zlib
from pathlib import Path

import package
import pytest
from places import ROOT, VRAMSCOPE

GPT2 = ROOT / "examples" / "traces" / "gpt2.vram"
KINDS = ("timeline", "two-bar", "compare", "categories")

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")


def plot(*arguments: str | Path, status: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [VRAMSCOPE, "plot", *arguments], capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == (1 if status else 0), done.stderr
    return done.stderr


def has_cairo() -> bool:
    probe = "import ctypes; ctypes.CDLL('libcairo.so.2')"
    return subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode == 0


needs_cairo = pytest.mark.skipif(not has_cairo(), reason="libcairo.so.2 is not installed")


def pixels(png: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and the colours that occur, of an 8-bit PNG."""
    width, height, depth, kind = struct.unpack_from(">IIBB", png, 16)
    assert depth == 8
    bytes_each = {2: 3, 6: 4}[kind]
    data, at = b"", 8
    while at < len(png):
        size, name = struct.unpack_from(">I4s", png, at)
        if name == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += size + 12
    raw = zlib.decompress(data)
    stride = width * bytes_each
    rows, before = [], bytearray(stride)
    for y in range(height):
        start = y * (stride + 1)
        filtering, line = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        for i in range(stride):
            left = line[i - bytes_each] if i >= bytes_each else 0
            up = before[i]
            corner = before[i - bytes_each] if i >= bytes_each else 0
            if filtering == 1:
                line[i] = (line[i] + left) & 255
            elif filtering == 2:
                line[i] = (line[i] + up) & 255
            elif filtering == 3:
                line[i] = (line[i] + (left + up) // 2) & 255
            elif filtering == 4:
                p = left + up - corner
                nearest = min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))
                line[i] = (line[i] + nearest[2]) & 255
        rows.append(bytes(line))
        before = line
    colours = {row[i : i + 3] for row in rows[::8] for i in range(0, stride, bytes_each * 2)}
    return width, height, sorted(colours)


@needs_cairo
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_in_every_format(tmp_path, kind):
    for ending, magic in ((".svg", b"<?xml"), (".png", b"\x89PNG\r\n"), (".pdf", b"%PDF-")):
        picture = tmp_path / f"{kind}{ending}"
        plot(GPT2, "--kind", kind, "-o", picture, "--title", "GPT-2 <on> an H100 & more")
        assert picture.read_bytes().startswith(magic)
    root = xml.parse(tmp_path / f"{kind}.svg").getroot()
    assert float(root.get("width").removesuffix("pt")) > 300


@needs_cairo
def test_a_picture_has_the_categories_colours(tmp_path):
    plot(GPT2, "--kind", "timeline", "-o", tmp_path / "t.png")
    width, height, colours = pixels((tmp_path / "t.png").read_bytes())
    assert width > 1000 and height > 400
    assert bytes.fromhex("ffffff") in colours
    assert bytes.fromhex("2f3f4f") in colours, "the driver's"


@needs_cairo
def test_several_recordings_make_a_grid(tmp_path):
    sizes = []
    for count in (1, 4):
        plot(*[GPT2] * count, "--kind", "categories", "-o", tmp_path / "c.png")
        sizes.append(struct.unpack_from(">II", (tmp_path / "c.png").read_bytes(), 16))
    (one_wide, one_high), (four_wide, four_high) = sizes
    assert four_wide > 1.8 * one_wide and four_high > 1.8 * one_high


@needs_cairo
def test_an_expected_sum_changes_the_picture(tmp_path):
    pictures = []
    for arguments in ((), ("--expected-sum", "20G"), ("--expected-sum", "6G"), ("--at", "end")):
        plot(GPT2, "--kind", "two-bar", "-o", tmp_path / "b.svg", *arguments)
        pictures.append((tmp_path / "b.svg").read_bytes())
    assert len(set(pictures)) == 4


@needs_cairo
def test_every_dimension_and_option_has_its_picture(tmp_path):
    pictures = {}
    for name, arguments in {
        "category": ("--kind", "timeline"),
        "module": ("--kind", "timeline", "--by", "module"),
        "few": ("--kind", "timeline", "--by", "module", "--omit-below", "5%"),
        "gigabytes": ("--kind", "timeline", "--unit", "GB"),
        "peaks": ("--kind", "compare", GPT2),
        "by line": ("--kind", "compare", GPT2, "--by", "line", "--omit-below", "0.02"),
        "at the end": ("--kind", "compare", GPT2, "--at", "end"),
        "overlay": ("--kind", "timeline", GPT2, "--overlay"),
        "overlay of the host": ("--kind", "timeline", GPT2, "--overlay", "--device", "host"),
        "the host's bars": ("--kind", "categories", "--device", "host"),
        "bars": ("--kind", "categories"),
        "few bars": ("--kind", "categories", "--omit-below", "10%"),
    }.items():
        plot(GPT2, *arguments, "-o", tmp_path / "p.svg")
        pictures[name] = (tmp_path / "p.svg").read_bytes()
    assert len(set(pictures.values())) == len(pictures)


@needs_cairo
def test_from_python_a_picture_is_shown_and_saved(tmp_path):
    environment = package.make(tmp_path / "package")
    code = (
        f"import vramscope, sys\ntrace = vramscope.read({str(GPT2)!r})\n"
        f"picture = trace.plot('compare', beside=[{str(GPT2)!r}], by='phase', title='Two', device=0)\n"
        f"assert picture._repr_svg_().startswith('<?xml')\npicture.save({str(tmp_path / 'p.pdf')!r})\n"
        "try:\n    trace.plot('pie')\nexcept RuntimeError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "unknown --kind 'pie': use timeline, two-bar, compare or categories\n"
    assert (tmp_path / "p.pdf").read_bytes().startswith(b"%PDF-")


def test_a_recording_of_nothing_is_refused(tmp_path):
    subprocess.run([VRAMSCOPE, "run", "--no-report", "-o", tmp_path / "nothing.vram", "--", "true"], check=True, timeout=60)
    for kind in KINDS:
        error = plot(tmp_path / "nothing.vram", "--kind", kind, "-o", tmp_path / "p.svg", status=2)
        assert "no memory to draw" in error and "nothing.vram" in error
        assert not (tmp_path / "p.svg").exists()


def test_the_layers_dictionary_knows_the_demos_layers():
    found = subprocess.run([VRAMSCOPE, "report", GPT2, "--keywords", "layers", "--json"], capture_output=True, text=True, check=True)
    said = json.loads(found.stdout)
    (gpu,) = [device for device in said["devices"] if device["kind"] == "gpu"]
    others = [entry["bytes"] for entry in said["categories"] if entry["category"] == "Others" and entry["device"] == 0]
    assert len(others) == 1 and others[0] < 0.02 * gpu["ledger_bytes"]


def test_help_says_what_is_required():
    said = subprocess.run([VRAMSCOPE, "plot", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--kind KIND (required)" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--kind", "compare", "-o", "x.svg", "--by", "colour"), "colour"),
        (("--kind", "timeline", "-o", "x.svg", "--by", "lifetime"), "cannot be stacked by lifetime"),
        (("--kind", "two-bar", "-o", "x.svg", "--by", "module"), "--by is not for --kind two-bar"),
        (("--kind", "compare", "-o", "x.svg", "--overlay"), "--overlay is not for"),
        (("--kind", "timeline", "-o", "x.svg", "--subtract-baseline"), "with --kind timeline --overlay"),
        (("--kind", "timeline", "-o", "x.svg", "--overlay", "--by", "module"), "draws totals"),
        (("--kind", "timeline", "-o", "x.svg", "--omit-below", "2 apples"), "--omit-below 2 apples"),
        (("--kind", "timeline", "-o", "x.svg", "--omit-below", "100%"), "below 1"),
        (("--kind", "timeline", "-o", "x.svg", "--unit", "acres"), "KiB, MiB"),
        (("--kind", "pie", "-o", "x.svg"), "use timeline, two-bar, compare or categories"),
        (("--kind", "timeline", "-o", "x.jpg"), ".svg, .png or .pdf"),
        (("--kind", "timeline", "-o", "/nowhere/x.svg"), "/nowhere/x.svg"),
        (("--kind", "timeline", "-o", "x.svg", "--at", "end"), "--kind timeline"),
        (("--kind", "compare", "-o", "x.svg", "--keywords", "tbd"), "--kind compare"),
        (("--kind", "two-bar", "-o", "x.svg", "--at", "yesterday"), "yesterday"),
        (("--kind", "two-bar", "-o", "x.svg", "--keywords", "no.toml"), "no.toml"),
        (("--kind", "two-bar", "-o", "x.svg", "--at", "iter:999999"), "999999"),
        (("--kind", "timeline", "--overlay", "-o", "x.svg", "--device", "7"), "has no device '7': use one of gpu0"),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, says):
    arguments = [str(tmp_path / word) if word.startswith("x.") else word for word in arguments]
    assert says in plot(GPT2, *arguments, status=2)
    assert list(tmp_path.iterdir()) == []


def test_a_recording_is_never_overwritten(tmp_path):
    trace = tmp_path / "x.svg"
    trace.write_bytes(GPT2.read_bytes())
    assert "is the recording itself" in plot(trace, "--kind", "timeline", "-o", trace, status=2)
    assert trace.read_bytes() == GPT2.read_bytes()


def test_without_cairo_one_line_says_what_to_install(tmp_path):
    (tmp_path / "libcairo.so.2").write_text("no library")
    error = plot(GPT2, "--kind", "timeline", "-o", tmp_path / "t.svg", status=2, LD_LIBRARY_PATH=str(tmp_path))
    assert "libcairo2" in error
    assert not (tmp_path / "t.svg").exists()
    needed = subprocess.run(["readelf", "--dynamic", VRAMSCOPE], capture_output=True, text=True).stdout
    assert "cairo" not in needed, "the program starts without it"
