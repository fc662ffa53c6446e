# SPDX-License-Identifier: Apache-2.0
"""`vramscope import`: other tools' logs become recordings."""
from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path

from browser import page_data
from places import MIB, ROOT, VRAMSCOPE

DATA = ROOT / "tests/data/import"


def call(*arguments: str | Path, folder: Path | None = None, status: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([VRAMSCOPE, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    return done


def imported(log: Path, folder: Path, *options: str) -> Path:
    file = folder / f"{log.name}.vram"
    said = call("import", log, "-o", file, *options).stderr
    assert said.count("\n") == 1 and log.name in said
    return file


def report(file: Path, *options: str) -> dict:
    said = json.loads(call("report", file, "--json", *options).stdout)
    for device in said["devices"]:
        rows = [row["bytes"] for row in said["rows"] if row["device"] == device["index"]]
        assert sum(rows) == device["ledger_bytes"]
    assert all(invariant["holds"] for invariant in said["invariants"])
    return said


def test_readings_of_nvidia_smi_are_a_sampled_recording(tmp_path):
    file = imported(DATA / "nvidia_smi_used.txt", tmp_path)
    said = report(file)
    (device,) = said["devices"]
    assert said["sampled"] is True and device["ledger_bytes"] == device["nvml_bytes"] == 4406 * MIB
    assert [report(file, "--at", str(second))["devices"][0]["ledger_bytes"] // MIB for second in range(7)] == [
        0, 230, 487, 4406, 310, 622, 0
    ]
    info = call("info", file).stdout
    assert "Imported from nvidia_smi_used.txt (nvidia-smi)" in call("report", file).stdout
    assert "one reading each second" in info and "losses      none" in info and "allocated peak" not in info
    timed = imported(DATA / "nvidia_smi_used.txt", tmp_path, "--period", "10ms")
    assert report(timed)["devices"][0]["at"]["time_ns"] == 30_000_000


def test_of_readings_alone_nothing_is_said_of_allocations(tmp_path):
    file = imported(DATA / "nvidia_smi_used.txt", tmp_path)
    assert call("diff", file, file, status=2).stderr == (
        f"vramscope: {file}: the 4.30 GiB at its peak belong to no recorded process, so nothing can be compared: "
        "record the program with `vramscope run`\n"
    )
    said = call("leaks", file).stdout
    assert said.startswith("Sampled: allocations are unknown") and "Never freed" not in said


def test_what_is_no_log_is_refused_in_a_line(tmp_path):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "poem.txt").write_text("Roses are red\n")
    (tmp_path / "kept.txt").write_text("mine")
    log = DATA / "nvidia_smi_used.txt"
    for arguments, word in [
        ([tmp_path / "empty.csv"], "is empty"),
        ([tmp_path / "poem.txt"], "unknown format: the known formats are nvidia-smi"),
        ([tmp_path / "none.csv"], "No such file"),
        ([log, "--from", "csv"], "unknown format 'csv'"),
        ([log, "--period", "fast"], "--period fast: use a number"),
        ([log, "-o", tmp_path / "kept.txt"], "is not a vramscope trace"),
    ]:
        said = call("import", *arguments, folder=tmp_path, status=2).stderr
        assert word in said and said.count("\n") == 1, said
    assert (tmp_path / "kept.txt").read_text() == "mine" and not list(tmp_path.glob("*.vram"))


def test_a_folder_becomes_one_recording_a_log(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.txt").write_text("memory.used [MiB]\n5 MiB\n")
    (logs / "a.csv").write_text("memory.used [MiB]\n6 MiB\n")
    (logs / "b.txt").write_text("memory.used [MiB]\n7 MiB\n")
    (logs / "README").write_text("What these are\n")
    said = call("import", logs, "-o", tmp_path / "out").stderr
    assert "left out" in said and "README" in said
    found = {path.name: report(path)["devices"][0]["ledger_bytes"] // MIB for path in (tmp_path / "out").iterdir()}
    assert found == {"a.txt.vram": 5, "a.csv.vram": 6, "b.vram": 7}
    (logs / "damaged.txt").write_text("memory.used [MiB]\n")
    said = call("import", logs, "-o", tmp_path / "out", status=2).stderr
    assert "1 of 4 logs could not be imported, damaged.txt first" in said


def keywords(file: Path, *options: str | Path) -> dict[tuple[int, str], dict[str, int]]:
    """By device and dictionary the categories with bytes, Others and Untrackable among them."""
    said = json.loads(call("report", file, "--json", *options).stdout)
    found: dict[tuple[int, str], dict[str, int]] = {}
    for row in said["categories"]:
        if row["bytes"] != 0:
            found.setdefault((row["device"], row["dictionary"]), {})[row["category"]] = row["bytes"]
    for table in said["tables"]:
        own = found.setdefault((table["device"], table["dictionary"]), {})
        assert sum(own.values()) == table["row_bytes"]
        if table["untrackable_bytes"] is not None:
            own["Untrackable"] = table["untrackable_bytes"]
            assert sum(own.values()) == table["expected_bytes"]
    return found


def test_the_mxnet_profilers_file_sums_to_what_its_own_analyzer_says(tmp_path):
    expected = json.loads((DATA / "mxnet_tag_mib.expected.json").read_text())
    toml = ""
    for kind, words in [("layer", "layer_kw"), ("data_struct", "data_struct_kw")]:
        toml += f'[{kind}]\ntitle = "{kind}"\nover = ["tag"]\ncase = true\n'
        for name, keys in expected[words].items():
            toml += f'[[{kind}.category]]\nname = "{name}"\nkeywords = {json.dumps(keys)}\n'
    (tmp_path / "setme.toml").write_text(toml)
    file = imported(DATA / "mxnet_tag_mib.csv", tmp_path)
    tables = keywords(file, "--keywords", tmp_path / "setme.toml", "--expected-sum", "6G")
    assert len(tables) == 2
    for kind in ["layer", "data_struct"]:
        theirs = {
            name: round((value[0] if isinstance(value, list) else value) * 1024 * MIB) for name, value in expected[kind]
        }
        if kind == "data_struct":
            theirs["Parameters"] -= 64 * MIB  # two keywords of it match optimizer_state:in_arg_weird, counted twice
        assert tables[(0, kind)] == theirs
    assert report(file)["losses"] == []


def test_the_mxnet_dump_has_devices_and_a_residual(tmp_path):
    file = imported(DATA / "mxnet_dump-pid_4711.csv", tmp_path)
    said = report(file, "--by", "tag")
    assert [(d["index"], d["ledger_bytes"], d["residual_bytes"]) for d in said["devices"]] == [
        (0, 4243456, 676036608), (1, 8192, 285933568)
    ]
    assert [process["pid"] for process in said["processes"]] == [4711, 4711] and said["losses"] == []
    by_tag = {(row["device"], *row["path"]): row["bytes"] for row in said["rows"]}
    assert by_tag[(0, "resource:temp_space (fully_connected.cc +101)")] == 4194304 and len(by_tag) == 8
    tables = keywords(file, "--keywords", "data-structures")
    assert tables[(0, "data-structures")]["Untrackable"] == 676036608
    assert tables[(1, "data-structures")] == {"Parameters": 8192, "Untrackable": 285933568}


def test_tbds_log_sums_to_what_its_own_analyzer_says(tmp_path):
    expected = json.loads((DATA / "tbd_rnn_b2.expected.json").read_text())
    file = imported(DATA / "tbd_rnn_b2.log", tmp_path)
    (table,) = keywords(file, "--keywords", "tbd").values()
    names = {
        "in_arg": "Weights", "arg_grad": "Weight Gradients", "rnn": "RNN Layer", "workspace": "Workspace",
        "optimizer": "Optimizer State", "(source)": "Source", "warning!,ctx_source_unclear": "Unknown (From C++ side)",
        "untagged": "Unknown (From Python Side)", "aux_state": "Auxiliary State",
    }
    theirs = {names[pattern]: bytes_ for pattern, (bytes_, _) in expected.items()}
    # It drops `grad of data`, cut at its blanks, and `RNN`.
    assert table == {**theirs, "Others": 128}
    assert sum(table.values()) == report(file)["devices"][0]["ledger_bytes"]
    said = report(file, "--by", "tag")
    by_tag = {row["path"][0]: row["bytes"] for row in said["rows"]}
    assert by_tag["grad of data"] == by_tag["RNN"] == 64
    assert [loss["name"] for loss in said["losses"]] == ["frees that do not say of what"]


def sheet(*arguments: str | Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(call("report", *arguments, "--csv").stdout, newline="")))


def test_a_folder_of_logs_is_one_sheet(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ["mxnet_tag_mib.csv", "mxnet_dump-pid_4711.csv", "tbd_rnn_b2.log"]:
        shutil.copy(DATA / name, logs)
    call("import", logs, "-o", tmp_path / "out")
    arguments = [tmp_path / "out", "--keywords", "tbd", "--keywords", "data-structures"]
    said = json.loads(call("report", *arguments, "--json").stdout)
    assert said["schema"] == "vramscope.keyword_sheet/1"
    columns = [column["name"] for column in said["columns"]]
    dump = "mxnet_dump-pid_4711.vram"
    assert columns == [f"{dump} gpu0", f"{dump} gpu1", "mxnet_tag_mib.vram", "tbd_rnn_b2.vram"]
    for table in said["tables"]:
        lines = [line for line in said["categories"] if line["dictionary"] == table["dictionary"]]
        assert lines[-1]["category"] == "Others"
        for i, column in enumerate(said["columns"]):
            assert sum(line["bytes"][i] for line in lines) == table["row_bytes"][i] == column["ledger_bytes"]
            if table["expected_bytes"][i] is not None:
                assert table["row_bytes"][i] + table["untrackable_bytes"][i] == table["expected_bytes"][i]
        assert sum(line["all_bytes"] for line in lines) == table["all_row_bytes"] == sum(table["row_bytes"])
    # A column is what the file's own report says.
    for number, file in [(2, "mxnet_tag_mib.vram"), (3, "tbd_rnn_b2.vram")]:
        own = json.loads(call("report", tmp_path / "out" / file, *arguments[1:], "--json").stdout)
        for line in said["categories"]:
            (same,) = [row for row in own["categories"] if (row["dictionary"], row["category"]) == (line["dictionary"], line["category"])]
            assert (same["bytes"], same["count"]) == (line["bytes"][number], line["count"][number])
    head, *rows = sheet(*arguments)
    assert head == ["dictionary", "category", "group", *columns, "all"]
    for table in said["tables"]:
        mine = [row for row in rows if row[0] == table["dictionary"]]
        for i in range(len(columns)):
            figures = [int(row[3 + i]) for row in mine if row[3 + i]]
            assert sum(figures) == (table["expected_bytes"][i] or table["row_bytes"][i])
    text = call("report", *arguments).stdout
    assert "3 recordings side by side" in text and "Untrackable" in text and " Sum of columns\n" in text
    assert "grad of data  in 4" in text and "RNN  in 4" in text, "what no keyword matches is named"
    assert "Lost in 4: frees that do not say of what: " in text
    assert all(len(line) <= 80 or "  in " in line for line in text.splitlines())
    # Files are as good as their folder; a damaged one is an error there and left out here.
    files = sorted((tmp_path / "out").iterdir())
    assert sheet(*files, *arguments[1:]) == [head, *rows]
    (tmp_path / "out" / "z.vram").write_text("nothing")
    assert sheet(*arguments) == [head, *rows]
    assert "z.vram" in call("report", *files, tmp_path / "out" / "z.vram", *arguments[1:], status=2).stderr


def test_imports_have_pages_plots_and_diffs(tmp_path):
    files = [imported(DATA / name, tmp_path) for name in ["mxnet_tag_mib.csv", "mxnet_dump-pid_4711.csv", "tbd_rnn_b2.log"]]
    for file in files:
        call("report", file, "--html", tmp_path / f"{file.stem}.html")
        call("export", file, "--to", "csv")
    call("diff", files[0], files[2])
    for kind in ["timeline", "two-bar", "compare", "categories"]:
        picture = tmp_path / f"{kind}.svg"
        done = subprocess.run([VRAMSCOPE, "plot", *files, "--kind", kind, "-o", picture], capture_output=True, text=True)
        if "libcairo" in done.stderr:
            continue  # the machine has none
        assert done.returncode == 0, done.stderr
        assert picture.stat().st_size > 0
    # Names decide what the usual pictures show, and they say what Others is.
    jax = imported(DATA / "jax_memory.prof", tmp_path)
    snapshot = imported(DATA.parent / "snapshots" / "streams.pickle.gz", tmp_path)
    said = {}
    for name, arguments in {"jax": [jax], "asked": [jax, "--keywords", "layers"], "lines": [snapshot]}.items():
        command = [VRAMSCOPE, "plot", *arguments, "--kind", "two-bar", "-o", picture]
        said[name] = subprocess.run(command, capture_output=True, text=True).stderr
    if "libcairo" not in said["jax"]:
        assert '100 % of the bar "Layer" would be Others: "Line" takes its place (--keywords layers' in said["jax"], said
        assert '100 % of the bar "Layer" is Others: buffer 4.00 KiB. ' in said["asked"], said
        assert '79 % of the bar "Layer" would be Others: "Line" takes its place' in said["lines"], said
        assert '79 % of the bar "Data structure" would be Others: it is left out' in said["lines"], said
        assert " is Others: " not in said["lines"], said


def test_events_at_addresses_and_profiles_of_an_instant(tmp_path):
    rmm = report(imported(DATA / "rmm_log.dev1.csv", tmp_path))
    (device,) = rmm["devices"]
    assert (device["index"], device["ledger_bytes"], device["at"]["time_ns"]) == (1, 1536, 500_000_000)
    said = json.loads(call("report", tmp_path / "rmm_log.dev1.csv.vram", "--oom", "--json").stdout)
    assert "4096" in json.dumps(said)
    trace = imported(DATA / "torch_profiler.json", tmp_path)
    at_peak = {row["path"][0]: row["bytes"] for row in report(trace, "--by", "category")["rows"]}
    # 2048 bytes are reserved; 500 of them were allocated before the trace and 1024 during it.
    assert sum(at_peak.values()) == 2048 and at_peak["fragmentation"] == 524
    lines = {row["path"][0]: row["bytes"] for row in report(trace, "--by", "line", "--where", "owner=PyTorch")["rows"]}
    assert lines["train.py:12 in step"] == 1024
    profile = imported(DATA / "jax_memory.prof", tmp_path)
    lines = {row["path"][0]: row["bytes"] for row in report(profile, "--by", "line")["rows"]}
    assert lines == {"a.py:12 in f": 4096}
    lines = call("report", profile).stdout.splitlines()
    title = lines.index("jax_memory.prof")
    assert lines[0].startswith("Peak 4.00 KiB on GPU 1: ") and lines[title + 3].endswith(" 4.0 KiB")
    assert lines[title + 1] == "one instant, 1 process, 1 event"
    said = call("info", profile).stdout
    assert "one instant" in said and "peak 4.00 KiB\n" in said and "pid unknown" in said
    call("report", profile, "--html", tmp_path / "x.html")
    assert page_data(tmp_path / "x.html")["instant"] is True
