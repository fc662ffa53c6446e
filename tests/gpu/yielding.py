# SPDX-License-Identifier: Apache-2.0
"""The group `yield` of tests/gpu/run.py: a training gives the whole GPU back in its middle and goes on.

Once asked from outside (`vramscope yield`, `vramscope resume`) while somebody else uses the memory, and once asked by
the program itself (`vramscope.yield_gpu`). Its losses and weights must be those of a run that nobody disturbed.
"""

import json
import pathlib
import re
import subprocess
import sys
import threading
import time

import balance
import residual
from ledger import Recording

MIB = 1 << 20
STEPS = 150
# Takes nearly all that is free, writes it, and keeps it until its input ends.
TAKER = """
import sys, torch
free, total = torch.cuda.mem_get_info()
memory = torch.full((int(free * 0.9),), 7, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print(memory.numel(), flush=True)
sys.stdin.read()
assert int(memory[-1]) == 7
"""
# A small training that yields in its middle: the same numbers, and the same memory at the same addresses.
ITSELF = """
import json, sys, torch, vramscope
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
graph, static = torch.cuda.CUDAGraph(), torch.ones(1 << 20, device="cuda")
with torch.cuda.graph(graph):
    static.mul_(1.5)
losses = []
away = None
for step in range(20):
    loss = model(torch.full((64, 2048), float(step), device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    graph.replay()
    losses.append(loss.item())
    if step == 9 and sys.argv[1] == "yield":
        places = [parameter.data_ptr() for parameter in model.parameters()]
        with vramscope.yield_gpu() as away:
            pass
        assert places == [parameter.data_ptr() for parameter in model.parameters()]
told = None if away is None else {"bytes": away.bytes, "seconds": away.seconds}
print(json.dumps({"losses": losses, "static": static[-1].item(), "away": told}))
"""


def smi(bench, query):
    command = ["nvidia-smi", f"--query-{query}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, env=bench.environment, capture_output=True, text=True, timeout=30, check=True)
    return [line.split(", ") for line in done.stdout.splitlines() if line]


def device_mib(bench):
    return int(smi(bench, "gpu=memory.used")[0][0])


def process_mib(bench, pid):
    """What nvidia-smi lists for the process: 0 where it does not."""
    return sum(int(used) for number, used in smi(bench, "compute-apps=pid,used_memory") if number == str(pid))


def child_of(launcher):
    """The process of the training below `vramscope run`."""
    for number in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if b"train_gpt2.py" in pathlib.Path(f"/proc/{number}/cmdline").read_bytes():
            return int(number)
    raise RuntimeError("the training is not there")


class Training:
    """GPT-2 under `vramscope run`, read line by line."""

    def __init__(self, bench, command):
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env=bench.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.killer = threading.Timer(bench.limit(80), self.process.kill)
        self.killer.start()

    def until(self, start):
        for line in self.process.stdout:
            if line.startswith(start):
                return line
        raise RuntimeError(f"the training ended without a line {start!r}")

    def end(self):
        self.killer.cancel()
        self.process.kill()
        self.process.wait()


def act(bench, name, pid):
    """`vramscope yield` or `resume`: what it prints, its bytes, and how long the whole command took."""
    began = time.monotonic()
    done = subprocess.run(
        [bench.program, name, str(pid)],
        env=bench.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=bench.limit(60),
        check=False,
    )
    seconds = round(time.monotonic() - began, 2)
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr.strip()}")
    line = done.stdout.splitlines()[0]
    amount, unit = re.search(r"([\d.]+) ([KMG]iB) of device memory, in ", line).groups()
    return {"said": line, "mib": float(amount) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit], "seconds": seconds}


def recorded_with(pid, environment):
    """The environment in which a process becomes part of the same recording, so that its ledger knows all memory."""
    variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    ours = dict(entry.split("=", 1) for entry in variables if "=" in entry)
    return {**environment, **{k: v for k, v in ours.items() if k == "LD_PRELOAD" or k.startswith("VRAMSCOPE_")}}


def take_meanwhile(bench, environment):
    """Bytes that another process had while the training was away."""
    done = subprocess.run(
        [sys.executable, "-c", TAKER],
        env=environment,
        input="",
        capture_output=True,
        text=True,
        timeout=bench.limit(60),
        check=True,
    )
    return int(done.stdout)


def undisturbed(bench):
    """The training's command, and the digest of its losses and weights."""
    command = bench.example(
        "train_gpt2.py", "--device", "cuda", "--size", "gpt2", "--steps", STEPS, "--deterministic", "--digest"
    )
    command = [str(word) for word in command]
    plain = subprocess.run(
        command, env=bench.environment, capture_output=True, text=True, timeout=bench.limit(80), check=True
    )
    (expected,) = residual.prefixed(plain.stdout, "DIGEST")
    return command, expected.split()[0]


def three_times(bench):
    """What the kernel module has for the context goes with it and does not come back: no sample is off."""
    command, expected = undisturbed(bench)
    trace, page = bench.files("yield three times")
    training = Training(bench, [bench.program, "run", "-o", trace, "--html", page, "--", *command])
    said = []
    try:
        for step in ("20", "60", "100"):
            training.until(f"step {step:>4s} ")
            pid = child_of(training.process.pid)
            said.append(act(bench, "yield", pid)["said"])
            time.sleep(1)
            said.append(act(bench, "resume", pid)["said"])
        digest = training.until("DIGEST ").split()[1]
        status = training.process.wait()
    finally:
        training.end()
    _, residuals, problems = balance.judge(Recording(bench.program, trace, bench.environment))
    if status != 0:
        problems.append(f"the training ended with {status}")
    if digest != expected:
        problems.append("losses or weights differ from a run that was not disturbed")
    return {"said": said, "residuals": residuals, "problems": problems}


def from_outside(bench):
    command, expected = undisturbed(bench)
    trace, page = bench.files("yield")
    training = Training(bench, [bench.program, "run", "-o", trace, "--html", page, "--", *command])
    problems = []
    try:
        training.until("step   20 ")
        pid = child_of(training.process.pid)
        before = {"process": process_mib(bench, pid), "device": device_mib(bench)}
        yielded = act(bench, "yield", pid)
        away = {"process": process_mib(bench, pid), "device": device_mib(bench)}
        taken = take_meanwhile(bench, recorded_with(pid, bench.environment))
        resumed = act(bench, "resume", pid)
        back = {"process": process_mib(bench, pid), "device": device_mib(bench)}
        digest = training.until("DIGEST ").split()[1]
        # The recording is finished after the program.
        if training.process.wait() != 0:
            problems.append(f"the training ended with {training.process.returncode}")
    finally:
        training.end()
    if digest != expected:
        problems.append("losses or weights differ from a run that was not disturbed")
    if away["process"] != 0:
        problems.append(f"nvidia-smi still shows {away['process']} MiB of the process")
    if yielded["mib"] < 0.99 * before["process"] or before["device"] - away["device"] < 0.99 * before["process"]:
        problems.append(f"{yielded['mib']:.0f} MiB given back of {before['process']}, device {before} then {away}")
    recording = Recording(bench.program, trace, bench.environment)
    report = recording.report()
    problems += [
        f"invariant {entry['name']} is broken: {entry['detail']}"
        for entry in report["invariants"]
        if not entry["holds"]
    ]
    residuals = recording.residuals()
    if not residuals:
        problems.append("the recording has no NVML samples")
    problems += [
        f"worst residual {entry['worst_bytes']} bytes"
        for entry in residuals
        if abs(entry["worst_bytes"]) > residual.limit_of(entry)
    ]
    return {
        "before_mib": before,
        "away_mib": away,
        "back_mib": back,
        "taken_meanwhile_bytes": taken,
        "yield": yielded,
        "resume": resumed,
        "residuals": residuals,
        "problems": problems,
    }


def by_itself(bench):
    results = []
    for word in ("stay", "yield"):
        command = [sys.executable, "-c", ITSELF, word]
        if word == "yield":
            command = [bench.program, "run", "--no-report", "-o", bench.folder / "itself.vram", "--", *command]
        done = subprocess.run(
            [str(part) for part in command],
            env=bench.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=bench.limit(60),
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-1500:])
        results.append(json.loads(done.stdout))
    plain, yielded = results
    problems = []
    if (plain["losses"], plain["static"]) != (yielded["losses"], yielded["static"]):
        problems.append("losses differ from a run that did not yield")
    if yielded["away"]["bytes"] < 500 * MIB:
        problems.append(f"only {yielded['away']['bytes']} bytes were given back")
    return {"away": yielded["away"], "problems": problems}


def all_cases():
    yield "from outside", from_outside
    yield "three times", three_times
    yield "by itself", by_itself


def print_table(results):
    outside = results.get("from outside", {})
    if "yield" in outside:
        for name in ("yield", "resume"):
            print(f"{name}: {outside[name]['said']}; the command took {outside[name]['seconds']} s")
        print(f"  another process had {outside['taken_meanwhile_bytes'] / MIB:.0f} MiB meanwhile")
    away = results.get("by itself", {}).get("away")
    if away:
        print(f"by itself: {away['bytes'] / MIB:.0f} MiB away and back in {away['seconds']:.2f} s")
