# SPDX-License-Identifier: Apache-2.0
"""Requests for memory that the stand-in driver refuses: what is told apart, and what the report says of each."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import EXECUTABLE, Browser, page_data
from places import FAKE, HOSTS, MIB, VRAMSCOPE
from refusals import PRELUDE, head, record, report


def test_a_refusal_that_the_cache_answers_is_no_out_of_memory(tmp_path):
    """PyTorch gives its cache back and asks again: the run goes on, and nobody is alarmed."""
    done = record(
        tmp_path,
        """
        old = alloc(2000 * MIB); block(old, 2000 * MIB); block(old, -2000 * MIB)
        def want():
            got = alloc(1500 * MIB)
            if got is None:
                free(old)
                got = alloc(1500 * MIB)
            block(got, 1500 * MIB)
        want()
        """,
    )
    assert "Out of memory" not in done.stderr and not list(tmp_path.glob("*.oom-*"))
    (refusal,) = json.loads(report(tmp_path, "--oom", "--json"))["refusals"]
    assert refusal["served"] and refusal["requested_bytes"] == 1500 * MIB and refusal["attempts"] == 1


def test_a_refusal_for_good_is_one_with_its_line_and_cause(tmp_path):
    """Two refusals by the driver and the allocator's own word are one; the program catches it and goes on."""
    done = record(
        tmp_path,
        """
        def build():
            got = alloc(2000 * MIB); block(got, 1900 * MIB)
        def want():
            assert alloc(1002 * MIB) is None and alloc(1002 * MIB) is None
            give_up(1000 * MIB, 0, 0, 1)
        build()
        want()
        block(alloc(2 * MIB), MIB)
        print("goes on")
        """,
    )
    assert done.stdout == "goes on\n"
    assert "Out of memory on gpu0: 1000 MiB requested at program.py" in done.stderr
    told = json.loads(report(tmp_path, "--oom", "--json"))
    (refusal,) = told["refusals"]
    assert not refusal["served"] and refusal["attempts"] == 2
    assert (refusal["requested_bytes"], refusal["asked_driver_bytes"]) == (1000 * MIB, 1002 * MIB)
    (why,) = told["explained"]
    assert why["place"].startswith("program.py:") and why["place"].endswith("in want")
    assert sum(h["bytes"] for h in why["holders"]) == why["used_bytes"]
    assert why["total_bytes"] == 4096 * MIB and why["free_bytes"] == why["total_bytes"] - why["used_bytes"]
    text = report(tmp_path, "--oom")
    assert (tmp_path / "x.oom-1").read_text() == text
    assert "Out of memory: a request for 1000 MiB failed" in report(tmp_path)
    assert "Out of memory on gpu0: 1000 MiB requested at program.py" in text.splitlines()[0]
    assert "1.86 GiB" in text.splitlines()[1] and "in build" in text.splitlines()[1], text
    # The page says the same.
    page = tmp_path / "x.html"
    report(tmp_path, "--html", page)
    (shown,) = page_data(page)["explained"]
    assert [shown["head"], f"  cause: {shown['cause']}"] == text.splitlines()[:2]
    assert shown["advice"] and all(each["text"] in text for each in shown["advice"])
    assert shown["try"] == "" and "try:" not in text  # it saves too little
    if EXECUTABLE is not None:
        with Browser() as browser:
            browser.open(page)
            told = browser.run("document.querySelector('.refusal').innerText")
            assert all(each in told for each in (shown["head"], shown["cause"], shown["advice"][0]["text"]))
            assert "Try:" not in told
            assert not browser.complaints


def test_fragmentation_is_named_with_the_block_that_pins(tmp_path):
    record(
        tmp_path,
        """
        def tiny(address):
            block(address + 300 * MIB, 2 * MIB)
        for _ in range(4):
            tiny(alloc(700 * MIB))
        assert alloc(1000 * MIB) is None
        give_up(1000 * MIB, 0, 0, 1)
        """,
    )
    text = report(tmp_path, "--oom")
    assert "cause: fragmentation: 2.73 GiB are free" in head(text) and "in tiny" in head(text), text
    assert "expandable_segments:True" in text
    # The page has the line of what saves enough.
    page = tmp_path / "x.html"
    report(tmp_path, "--html", page)
    (shown,) = page_data(page)["explained"]
    assert "expandable_segments:True" in shown["try"] and f"  try:   {shown['try']}" in text.splitlines()
    if EXECUTABLE is not None:
        with Browser() as browser:
            browser.open(page)
            assert f"Try: {shown['try']}" in browser.run("document.querySelector('.refusal').innerText").splitlines()
    (why,) = json.loads(report(tmp_path, "--oom", "--json"))["explained"]
    assert why["largest_free_range_bytes"] == 398 * MIB and why["free_in_segments_bytes"] == 4 * 698 * MIB
    assert [pin["block_bytes"] for pin in why["pins"]] == [2 * MIB] * 4


def test_a_program_that_is_killed_right_after(tmp_path):
    record(tmp_path, "alloc(2000 * MIB); alloc(1500 * MIB); os.kill(os.getpid(), signal.SIGKILL)", status=137)
    assert "Out of memory on gpu0: 1.46 GiB requested" in report(tmp_path, "--oom")


def test_a_few_are_saved_and_a_new_run_leaves_no_old_ones(tmp_path):
    """A program that tries smaller and smaller requests; a file of the user's that is in the way stays."""
    (tmp_path / "x.oom-2").write_text("mine")
    done = record(tmp_path, "for size in range(3000, 2995, -1): alloc(size * MIB)")
    assert sorted(path.name for path in tmp_path.glob("x.oom-*")) == ["x.oom-1", "x.oom-2", "x.oom-3"]
    assert (tmp_path / "x.oom-2").read_text() == "mine"
    assert "2.93 GiB" in (tmp_path / "x.oom-1").read_text()
    assert "requests failed" in report(tmp_path) and f"saved: {tmp_path}/x.oom-3" in done.stderr
    record(tmp_path, "alloc(MIB)")
    assert [path.name for path in tmp_path.glob("x.oom-*")] == ["x.oom-2"]


def test_without_a_report_the_cause_is_said_all_the_same(tmp_path):
    done = record(tmp_path, "alloc(3000 * MIB)", options=("--no-report",))
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["vramscope"] * 5
    assert "Out of memory on gpu0: 2.93 GiB requested" in done.stderr


def test_a_cpp_program_has_its_line(tmp_path):
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "VRAMSCOPE_FAKE_FAIL": "cuMemAlloc_v2:2",
    }
    subprocess.run(
        [VRAMSCOPE, "run", "-o", tmp_path / "x.vram", "--", HOSTS / "driver_needed"],
        env=environment, capture_output=True, timeout=60,
    )
    text = report(tmp_path, "--oom")
    assert "5.00 MiB requested at driver_needed.cc:" in text.splitlines()[0], text
    assert "cause: a limit below the size of the device" in text.splitlines()[1], text
    assert "cuMemAlloc_v2 requested 5.00 MiB from the driver once" in text, text


def test_it_is_told_before_the_traceback_and_waits_once(tmp_path):
    """The second one finds a report that took its time, and rests: nobody waits for it."""
    done = record(
        tmp_path,
        """
        import threading, time
        def want():
            assert alloc(5000 * MIB) is None and alloc(5000 * MIB) is None
            began = time.monotonic()
            give_up(5000 * MIB, 0, 0, 1)
            return time.monotonic() - began
        first, second = want(), want()
        assert 0.001 < first < 1.5 and second < 0.05, (first, second)
        raise MemoryError(f"waited for {first:.3f} s")
        """,
        status=1, options=("--no-report",),
    )
    lines = done.stderr.splitlines()
    told = next(i for i, line in enumerate(lines) if "Out of memory on gpu0: 4.88 GiB requested at program.py" in line)
    assert told < lines.index("Traceback (most recent call last):"), done.stderr


def test_nobody_waits_for_a_launcher_that_is_not_there(tmp_path):
    done = record(
        tmp_path,
        """
        import time
        os.kill(os.getppid(), signal.SIGSTOP)
        began = time.monotonic()
        give_up(5000 * MIB, 0, 0, 1)
        first = time.monotonic() - began
        os.kill(os.getppid(), signal.SIGCONT)
        print(f"{first:.1f}")
        """,
    )
    assert done.stdout == "1.0\n"


def test_what_a_large_device_has_in_use_is_not_rounded_away():
    golden = Path(__file__).resolve().parents[2] / "golden" / "v2.0" / "driver_standin.vram"
    said = subprocess.run([VRAMSCOPE, "report", golden, "--oom"], capture_output=True, text=True, timeout=60).stdout
    assert ", at least 613 MiB of 140 GiB in use" in said.splitlines()[0], said


def test_what_was_not_refused(tmp_path):
    record(tmp_path, "alloc(MIB)")
    assert "no failed allocation" in report(tmp_path, "--oom")
    missing = subprocess.run(
        [VRAMSCOPE, "report", tmp_path / "x.vram", "--oom=1"], capture_output=True, text=True, timeout=60
    )
    assert missing.returncode == 2 and "has no failed allocation 1: the recording has 0" in missing.stderr


@pytest.mark.parametrize("how, status", [("end", 1), ("caught", 0), ("killed", 137)])
def test_a_solver_in_cpp(tmp_path, how, status):
    """Both lines are there: of what was refused, and of what holds the memory; at once, and beside the recording."""
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "VRAMSCOPE_FAKE_TOTAL_MIB": "40000",
    }
    done = subprocess.run(
        [VRAMSCOPE, "run", "--no-report", "-o", tmp_path / "x.vram", "--", HOSTS / "driver_refused", how],
        env=environment, capture_output=True, text=True, timeout=60,
    )
    assert (done.returncode, done.stdout) == (status, "goes on\n" if how == "caught" else ""), done.stderr
    text = report(tmp_path, "--oom")
    assert re.search(r"requested at driver_refused\.cc:\d+ in .*MakePreconditioner", text.splitlines()[0]), text
    assert re.search(r"allocations of the program: .* at driver_refused\.cc:\d+ in .*MakeFields", text.splitlines()[1]), text
    assert "Out of memory on gpu0: " in done.stderr and (tmp_path / "x.oom-1").read_text() == text


def test_a_context_that_the_device_has_no_room_for(tmp_path):
    """How much that would have been the driver does not say, and nobody guesses."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    first = "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0"
    (packages / "allocator.py").write_text(
        PRELUDE.replace(first, "assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 2\nsys.exit(4)")
    )
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "PYTHONPATH": str(packages), "VRAMSCOPE_FAKE_TOTAL_MIB": "900",
    }
    done = subprocess.run(
        [VRAMSCOPE, "run", "-o", tmp_path / "x.vram", "--", sys.executable, "-c", "import allocator"],
        env=environment, capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 4, done.stderr
    text = report(tmp_path, "--oom")
    assert text.startswith("Out of memory on gpu0: an unknown amount requested"), text
    assert "cuDevicePrimaryCtxRetain requested it from the driver once" in text and "limit below" not in text, text
