# SPDX-License-Identifier: Apache-2.0
"""`vramscope metrics`: live recordings and GPUs as Prometheus reads them; the dashboard of share/grafana."""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Set

import pytest
from places import BUILD, FAKE, HOSTS, MIB, ROOT, VRAMSCOPE

PACKAGE = str(ROOT / "python")
PROGRAMS = ROOT / "tests" / "e2e" / "programs"
PROMETHEUS = BUILD / "prometheus" / "usr" / "bin" / "prometheus"
PROMTOOL = PROMETHEUS.with_name("promtool")
DASHBOARD = ROOT / "share" / "grafana" / "vramscope.json"
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the fake driver is not built")
needs_prometheus = pytest.mark.skipif(not PROMETHEUS.exists(), reason="no Prometheus: see tools/prometheus.sh")

Samples = Dict[str, Dict[tuple, float]]


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Dict[str, str]:
    books = tmp_path_factory.mktemp("machine") / "books"
    return {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(books)}


@contextlib.contextmanager
def recorded(
    machine: Dict[str, str],
    file: Path,
    program: str,
    *options: str,
    command: str = "run",
    words: Sequence[str] = (),
    **more: str,
) -> Iterator[None]:
    """A recorded program that has printed "ready"; its recording is finished at the end."""
    line = [VRAMSCOPE, command, "--no-report", *options, "-o", file, "--", sys.executable, PROGRAMS / program, *words]
    with subprocess.Popen(
        [str(word) for word in line], env={**machine, **more}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.communicate("", timeout=60)


def vramscope(machine: Dict[str, str], *words: object, status: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [str(word) for word in (VRAMSCOPE, *words)], env=machine, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def parse(text: str) -> Samples:
    """Values by metric and labels."""
    samples: Samples = defaultdict(dict)
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()  # type: ignore[union-attr]
            key = tuple(sorted(LABEL.findall(labels or "")))
            assert key not in samples[name], "one sample a set of labels"
            samples[name][key] = float(value)
    return samples


def by(samples: Dict[tuple, float], *labels: str) -> Dict[tuple, float]:
    return {tuple(dict(key)[label] for label in labels): value for key, value in samples.items()}


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


@contextlib.contextmanager
def served(machine: Dict[str, str], *words: object) -> Iterator[str]:
    """The URL of `vramscope metrics --listen`, which ends without an error."""
    command = [str(word) for word in (VRAMSCOPE, "metrics", "--listen", "0", "-i", "200ms", *words)]
    with subprocess.Popen(command, env=machine, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
        assert (process.wait(20), process.stderr.read()) == (0, "")


def until(condition, seconds: float = 15):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
    return value


def live_rows(machine: Dict[str, str], live: Path) -> Dict[tuple, float]:
    report = json.loads(vramscope(machine, "report", live, "--at", "end", "--by", "process,category", "--json").stdout)
    return {tuple(row["path"]): row["bytes"] for row in report["rows"] if row["pid"] is not None}


def sampled(machine: Dict[str, str], live: Path) -> Samples:
    """The metrics of a recording, once there is a reading of its process."""
    samples = parse(vramscope(machine, "metrics", "--once", live).stdout)
    return samples if max(samples["vramscope_memory_bytes"].values(), default=0) > 64 * MIB else {}


def agreed(machine: Dict[str, str], live: Path, url: str) -> Dict[tuple, float]:
    """The report's rows by process and category, once they, the metrics and NVML's list agree."""
    rows = live_rows(machine, live)
    samples = parse(fetch(url))
    listed = sum(samples["vramscope_gpu_process_memory_bytes"].values())
    same = by(samples["vramscope_memory_bytes"], "pid", "category") == rows and sum(rows.values()) == listed
    return rows if same else {}


def free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


@contextlib.contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """The URL of a Prometheus that scrapes `target` every second."""
    config = folder / "prometheus.yml"
    config.write_text(
        "scrape_configs:\n- job_name: vramscope\n  scrape_interval: 1s\n  static_configs:\n"
        f"  - targets: ['{target}']\n"
    )
    address = f"127.0.0.1:{free_port()}"
    command = [
        PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}", "--log.level=error",
    ]
    with subprocess.Popen([str(word) for word in command], stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()


def query(server: str, expression: str) -> List[Dict[str, Any]]:
    url = f"{server}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it is starting
            return []
        raise AssertionError((expression, error.read().decode())) from error
    except OSError:
        return []  # it does not listen yet


def expressions() -> List[str]:
    board = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def described() -> Dict[str, Set[str]]:
    """The labels of every metric in the program's list."""
    text = (ROOT / "src" / "metrics" / "metrics.def").read_text()
    rows = re.findall(r'^VRAMSCOPE_METRIC\(\w+, "(\w+)", \w+, "([^"]*)"', text, re.MULTILINE)
    return {name: set(re.findall(r"\w+", labels)) for name, labels in rows}


def test_the_dashboard_names_only_metrics_and_labels_that_exist():
    metrics = described()
    labels = {"instance"}.union(*metrics.values())
    used: Set[str] = set()
    for expression in expressions():
        names = set(re.findall(r"vramscope_\w+", expression))
        assert names and names <= metrics.keys(), expression
        used |= names
        for label in re.findall(r"(\w+)=~?\"", expression):
            assert label in labels, expression
        for group in re.findall(r"(?:by|on|group_left) ?\(([^)]*)\)", expression):
            assert set(re.findall(r"\w+", group)) <= labels, expression
    assert len(used) > 10


@needs_prometheus
def test_a_prometheus_scrapes_what_the_report_has(machine, tmp_path):
    file = tmp_path / "x.vram"
    live = tmp_path / "x.vram.d"
    with recorded(machine, file, "gpu_holder.py", "--name", 'a "run"'), served(machine, tmp_path) as url:
        text = fetch(url)
        checked = subprocess.run([str(PROMTOOL), "check", "metrics"], input=text, capture_output=True, text=True)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", ""), checked.stderr
        # The recording has NVML's list of processes once a second.
        rows = until(lambda: agreed(machine, live, url))
        samples = parse(fetch(url))
        ((pid, _), *_) = rows
        assert rows[pid, "unknown"] == 64 * MIB
        assert by(samples["vramscope_memory_peak_bytes"], "pid", "category")[pid, "unknown"] == 96 * MIB
        assert by(samples["vramscope_allocations_total"], "gpu", "pid") == {("0", pid): 3}
        assert by(samples["vramscope_allocated_bytes_total"], "pid") == {(pid,): 96 * MIB}
        assert by(samples["vramscope_allocation_failures_total"], "pid") == {(pid,): 1}
        assert list(samples["vramscope_residual_bytes"].values()) == [0]
        assert by(samples["vramscope_gpu_process_memory_bytes"], "pid") == {(pid,): sum(rows.values())}
        (info,) = samples["vramscope_process_info"]
        assert dict(info)["run"] == 'a \\"run\\"' and dict(info)["command"].endswith("gpu_holder.py")
        with prometheus(tmp_path, url.split("/")[2]) as server:
            stored = until(lambda: query(server, "vramscope_memory_bytes"))
            assert {(row["metric"]["pid"], row["metric"]["category"]): float(row["value"][1]) for row in stored} == rows
            for expression in expressions():
                for variable, value in (("$instance", ".*"), ("$gpu", ".*"), ("$__rate_interval", "5s")):
                    expression = expression.replace(variable, value)
                # A rate needs two scrapes. This program has no iterations and no allocator.
                has_none = "growth" in expression or "cached" in expression
                until(lambda text=expression, ok=has_none: query(server, text) or ok)
            (joined,) = query(server, "vramscope_process_memory_peak_bytes * on(pid) group_left(run) vramscope_process_info")
            assert joined["metric"]["run"] == 'a "run"'
            os.kill(int(pid), signal.SIGKILL)
            until(lambda: not parse(fetch(url))["vramscope_memory_bytes"])
            until(lambda: not query(server, "vramscope_memory_bytes"))
    report = json.loads(vramscope(machine, "report", file, "--json", "--where", f"process={pid}").stdout)
    peak = by(samples["vramscope_process_memory_peak_bytes"], "pid")[pid,]
    assert report["devices"][0]["ledger_bytes"] == peak


def test_a_training_has_categories_iterations_growth_and_a_rank(machine, tmp_path):
    pytest.importorskip("torch")
    with recorded(machine, tmp_path / "t.vram", "cpu_training.py", "--cpu", RANK="3", PYTHONPATH=PACKAGE):
        live = tmp_path / "t.vram.d"
        samples = parse(vramscope(machine, "metrics", "--once", live).stdout)
        rows = live_rows(machine, live)
        ((pid, _), *_) = rows
        assert by(samples["vramscope_memory_bytes"], "pid", "category") | {} == {
            key: rows.get(key, 0) for key in by(samples["vramscope_memory_bytes"], "pid", "category")
        }
        assert rows.keys() <= by(samples["vramscope_memory_bytes"], "pid", "category").keys()
        assert rows[pid, "parameter"] == 4 * (256 * 512 + 512 + 512 * 16 + 16)
        assert by(samples["vramscope_memory_peak_bytes"], "category")["gradient",] == rows[pid, "parameter"]
        assert by(samples["vramscope_iterations_total"], "pid") == {(pid,): 10}
        assert by(samples["vramscope_process_info"], "rank") == {("3",): 1}
        leaks = json.loads(vramscope(machine, "leaks", live, "--json").stdout)
        grown: Dict[str, float] = defaultdict(float)
        for row in leaks["growing"]:
            grown[row["category"]] += row["bytes_per_iteration"]
        told = by(samples["vramscope_memory_growth_per_iteration_bytes"], "category")
        assert {key[0]: value for key, value in told.items() if value} == pytest.approx(grown)
        assert sum(grown.values()) == pytest.approx(MIB)


def test_a_textfile_is_whole_readable_and_removed_at_the_end(machine, tmp_path):
    file = tmp_path / "out" / "x.prom"
    file.parent.mkdir()
    command = [str(VRAMSCOPE), "metrics", "--textfile", str(file), "-i", "100ms", str(tmp_path)]
    with subprocess.Popen(command, env=machine, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(file.exists)
            first = file.stat()
            assert stat.S_IMODE(first.st_mode) == 0o644
            until(lambda: file.stat().st_ino != first.st_ino)
            for _ in range(200):
                text = file.read_text()
                assert text.startswith("# HELP vramscope_gpu_info") and text.endswith("\n")
                assert not [name for name in os.listdir(file.parent) if name.endswith(".prom") and name != "x.prom"]
        finally:
            process.send_signal(signal.SIGTERM)
        assert (process.wait(20), process.stderr.read()) == (0, "")  # type: ignore[union-attr]
    assert not list(file.parent.iterdir())
    vramscope(machine, "metrics", "--textfile", file, "--once", tmp_path)
    assert parse(file.read_text())["vramscope_recordings"] == {(): 0}


def test_a_ring_has_the_figures_of_its_report(machine, tmp_path):
    """After a compaction, of a program that is stopped: both are of one instant."""
    live = tmp_path / "x.vram.d"
    command = [VRAMSCOPE, "run", "--no-report", "--cpu", "--ring", "16MiB", "-o", tmp_path / "x.vram", "--", HOSTS / "long_run", 100_000, 400, 400]
    with subprocess.Popen([str(word) for word in command], env=machine, stderr=subprocess.PIPE, text=True) as running:
        until(lambda: list(live.glob("*.past")), 60)
        ((pid,),) = by(parse(vramscope(machine, "metrics", "--once", live).stdout)["vramscope_process_info"], "pid")
        os.kill(int(pid), signal.SIGSTOP)
        try:
            samples = parse(vramscope(machine, "metrics", "--once", live).stdout)
            rows = live_rows(machine, live)
            report = json.loads(vramscope(machine, "report", live, "--where", f"process={pid}", "--json").stdout)
        finally:
            os.kill(int(pid), signal.SIGKILL)
        running.communicate(timeout=60)
    held = by(samples["vramscope_memory_bytes"], "pid", "category")
    assert rows and {key: value for key, value in held.items() if value} == {key: value for key, value in rows.items() if value}
    (peak,) = samples["vramscope_process_memory_peak_bytes"].values()
    assert peak == report["devices"][0]["ledger_bytes"]


def test_a_damaged_recording_does_not_hide_the_others(machine, tmp_path):
    with recorded(machine, tmp_path / "good.vram", "gpu_holder.py"):
        bad = tmp_path / "bad.vram.d"
        shutil.copytree(tmp_path / "good.vram.d", bad)
        for damaged in bad.glob("*.vrl"):
            damaged.write_bytes(b"damage" * 1000)
        with (bad / "launcher.vrl").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as its launcher has it
            done = vramscope(machine, "metrics", "--once", tmp_path)
            samples = parse(done.stdout)
            assert len(samples["vramscope_process_info"]) == 1
            assert samples["vramscope_recordings_unread"] == {(): 1}
            assert done.stderr.count("\n") == 1 and str(bad) in done.stderr
        gone = vramscope(machine, "metrics", "--once", bad)
        assert gone.stderr == f"vramscope: {bad}: nothing records into it: no metrics of it\n"


def test_a_sampled_program_has_only_what_nvml_knows(machine, tmp_path):
    with recorded(machine, tmp_path / "s.vram", "gpu_holder.py", command="sample"):
        live = tmp_path / "s.vram.d"
        samples = until(lambda: sampled(machine, live))
    assert len(samples["vramscope_process_info"]) == 1
    (bytes_held,) = samples["vramscope_memory_bytes"].values()
    assert bytes_held > 64 * MIB  # its context, too
    assert not [name for name in samples if name.endswith("_total") or name == "vramscope_residual_bytes"]


def test_a_process_that_has_ended_leaves_no_series(machine, tmp_path):
    with recorded(machine, tmp_path / "x.vram", "gpu_holder.py", words=("--after-child",)):
        live = tmp_path / "x.vram.d"
        report = json.loads(vramscope(machine, "report", live, "--json").stdout)
        pids = [str(row["pid"]) for row in report["processes"]]
        ended, running = sorted(pids, key=lambda pid: Path(f"/proc/{pid}").exists())
        samples = parse(vramscope(machine, "metrics", "--once", live).stdout)
        assert by(samples["vramscope_process_info"], "pid").keys() == {(running,)}
        assert by(samples["vramscope_memory_bytes"], "pid", "category")[running, "unknown"] == 64 * MIB
        assert not [key for family in samples.values() for key in family if ("pid", ended) in key]


def test_a_recording_that_ends_between_scrapes_leaves_no_series(machine, tmp_path):
    with served(machine, tmp_path) as url:
        assert not parse(fetch(url))["vramscope_memory_bytes"]
        for _ in range(2):
            with recorded(machine, tmp_path / "x.vram", "gpu_holder.py"):
                until(lambda: parse(fetch(url))["vramscope_memory_bytes"])
            until(lambda: not parse(fetch(url))["vramscope_memory_bytes"])


def test_clients_that_say_nothing_do_not_stop_others(machine, tmp_path):
    with served(machine, tmp_path) as url, contextlib.ExitStack() as stack:
        port = int(url.split(":")[2].split("/")[0])
        for _ in range(40):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        quiet = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        quiet.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert "vramscope_recordings 0" in fetch(url)
        quiet.sendall(b"\r\n")
        assert quiet.recv(16).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "words, message",
    [
        (["--listen", "192.0.2.1:80"], "this machine does not have this address"),
        (["--listen", "localhost:80"], "HOST must be a number"),
        (["--listen", "80000"], "is not an address"),
        (["--textfile", "/nowhere/x.prom"], "/nowhere/x.prom: cannot be written: No such file"),
        (["--textfile", "x.txt"], "reads only *.prom"),
        (["--textfile", "{folder}/other.prom"], "is not a file of vramscope's metrics"),
        (["--textfile", "{folder}/x.prom", "--listen", "1"], "cannot be used together"),
        (["-i", "1us"], "-i 1us: use a time from"),
        (["no-such-recording"], "no live recording is named no-such-recording"),
    ],
)
def test_bad_input_is_one_line(machine, tmp_path, words, message):
    (tmp_path / "other.prom").write_text("other 1\n")
    done = vramscope(machine, "metrics", *[word.format(folder=tmp_path) for word in words], status=2)
    assert done.stderr.count("\n") == 1 and message in done.stderr, done.stderr
    assert (tmp_path / "other.prom").read_text() == "other 1\n"


def test_a_taken_port_is_one_line(machine):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = vramscope(machine, "metrics", "--listen", port, status=2)
    assert done.stderr == f"vramscope: --listen {port}: another program uses this port: choose another one\n"
