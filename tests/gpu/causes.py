# SPDX-License-Identifier: Apache-2.0
"""The group `causes` of tests/gpu/run.py: programs that run out of a whole GPU's memory, each for another reason.

They are those of tests/e2e/programs/causes.py, one process each under one `vramscope run`, and GPT-2 with a batch
too large, a C++ program and JAX. The first three lines of what is said of each name the reason and the line.
"""

import ast
import importlib.util
import pathlib
import re
import subprocess

import cases
from ledger import Recording

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "e2e" / "programs" / "causes.py"
TWELVE = (
    "batch", "kept_loss", "fragmentation", "another_process", "graph_pool", "communicators", "eval_graph",
    "optimizer_state", "leak", "vocabulary", "kv_cache", "workspace",
)  # fmt: skip
BESIDE = "another_process"
FORKED = [*(name for name in TWELVE if name != BESIDE), "caught"]
# Multicast is never asked for on a machine that is shared.
QUIET_NCCL = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def expected():
    for part in ast.parse(PROGRAM.read_text(encoding="utf-8")).body:
        if isinstance(part, ast.Assign) and part.targets[0].id == "EXPECTED":
            return ast.literal_eval(part.value)
    raise RuntimeError("causes.py has no EXPECTED")


def head(text):
    return [line[:200] for line in text.splitlines()[:3]]


def judged(text, patterns):
    lines = head(text)
    problems = [f"not in the first three lines: {p}" for p in patterns if not re.search(p, "\n".join(lines))]
    return {"lines": lines, "problems": problems}


def oom(bench, file, *words):
    return cases.run([bench.program, "report", file, *words], bench.environment, bench.limit(60))


def under(bench, name, command, environment=None, statuses=(0,), timeout=150):
    """Runs it recorded; its output and what stood on stderr."""
    file, _ = bench.files(name)
    done = subprocess.run(
        [str(word) for word in (bench.program, "run", "--no-report", "-o", file, "--", *command)],
        env={**bench.environment, **QUIET_NCCL, **(environment or {})},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=bench.limit(timeout), check=False,
    )  # fmt: skip
    if done.returncode not in statuses:
        raise RuntimeError(f"ended with {done.returncode}: {done.stdout[-300:]} {done.stderr[-900:]}")
    return file, done


def record_all(bench):
    """One recording of all but the one with a process beside it: the number of each one's refusal."""
    known = getattr(bench, "causes", None)
    if known is not None:
        return known
    file, done = under(bench, "causes", [bench.python, PROGRAM, ",".join(FORKED)])
    statuses = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines() if line.rsplit(" ", 1)[0] in FORKED)
    refusals = Recording(bench.program, file, bench.environment).report("--oom")["refusals"]
    numbers = [number for number, refusal in enumerate(refusals, 1) if not refusal["served"]]
    # Those that ended otherwise than by a refusal of their own have none.
    refused = [name for name in FORKED if statuses.get(name) == ("0" if name == "caught" else "3")]
    if len(numbers) != len(refused):
        raise RuntimeError(f"{len(numbers)} failed; they ended with {statuses}; {done.stderr[-600:]}")
    bench.causes = {"file": file, "statuses": statuses, "numbers": dict(zip(refused, numbers, strict=True))}
    return bench.causes


def one_of_all(name):
    def case(bench):
        recorded = record_all(bench)
        if name not in recorded["numbers"]:
            return {"lines": [], "problems": [f"it ended with {recorded['statuses'].get(name)}"]}
        return judged(oom(bench, recorded["file"], f"--oom={recorded['numbers'][name]}"), expected()[name])

    return case


def beside_another(bench):
    holder = subprocess.Popen(
        [bench.python, str(PROGRAM), "hold", "0.5"], env=bench.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if not holder.stdout.readline().startswith("holds"):
            raise RuntimeError("the other process holds nothing")
        file, _ = under(bench, BESIDE, [bench.python, PROGRAM, BESIDE], statuses=(1, 3))
    finally:
        holder.stdin.close()
        holder.wait(timeout=60)
    return judged(oom(bench, file, "--oom"), expected()[BESIDE])


def said_before(done, file, pattern):
    """Whether it stands on stderr and beside the recording, and where: before or behind what is said at the end."""
    at_once = next((line for line in done.stderr.splitlines() if re.search(pattern, line)), None)
    saved = pathlib.Path(str(file)[: -len(".vram")] + ".oom-1")
    problems = [] if at_once else ["no line on stderr"]
    return problems + ([] if saved.exists() else [f"{saved.name} was not saved"])


def gpt2(bench):
    command = bench.example("train_gpt2.py", "--device", "cuda", "--size", "gpt2", "--batch", "512", "--steps", "2")
    file, done = under(bench, "oom gpt2", command, statuses=(1,))
    result = judged(oom(bench, file, "--oom"), [r"blocks\.\d+", r"train_gpt2\.py:\d+ in \w+\.forward", "cause: "])
    problems = said_before(done, file, "Out of memory on gpu")
    # The report comes before the traceback.
    ends = done.stderr.find("OutOfMemoryError")
    order = "before" if 0 <= done.stderr.find("Out of memory on gpu") < ends else "after"
    told = f"{order} the traceback's end"
    problems += [] if order == "before" else [f"told {told}"]
    return {**result, "told": told, "problems": result["problems"] + problems}


def cpp(how, statuses):
    def case(bench):
        host = bench.folder / "driver_refused"
        source = ROOT / "tests" / "hosts" / "driver" / "driver_refused.cc"
        folders = [f"-I{ROOT / name}" for name in ("src", "include", "tests")]
        cases.run(["c++", "-std=c++20", "-O1", "-g", *folders, source, "-o", host, "-ldl"], bench.environment, 60)
        file, done = under(bench, f"oom c++ {how}", [host, how], statuses=statuses)
        patterns = [r"requested at driver_refused\.cc:\d+ in .*MakePreconditioner", r"driver_refused\.cc:\d+ in .*MakeFields"]
        result = judged(oom(bench, file, "--oom"), patterns)
        problems = said_before(done, file, "Out of memory on gpu")
        if how == "caught" and "goes on" not in done.stdout:
            problems.append("the program did not go on")
        return {**result, "problems": result["problems"] + problems}

    return case


def jax(environment):
    def case(bench):
        if importlib.util.find_spec("jax") is None:
            return {"skipped": "no jax on this machine", "problems": []}
        name = "oom jax" + "".join(" " + value for value in environment.values())
        program = bench.programs / "jax_refused.py"
        file, done = under(bench, name, [bench.python, program], environment)
        result = judged(oom(bench, file, "--oom"), [r"jax_refused\.py:\d+ in (run|attend|keep)", "cause: "])
        problems = said_before(done, file, "Out of memory on gpu")
        if "caught" not in done.stdout:
            problems.append(f"JAX was refused nothing: {done.stdout[-200:]}")
        return {**result, "program": done.stdout.splitlines()[:1], "problems": result["problems"] + problems}

    return case


def all_cases():
    for name in TWELVE:
        yield name, beside_another if name == BESIDE else one_of_all(name)
    yield "caught", one_of_all("caught")
    yield "gpt2, a batch too large", gpt2
    yield "c++", cpp("end", (1,))
    yield "c++, caught", cpp("caught", (0,))
    yield "c++, killed", cpp("killed", (137,))
    yield "jax, preallocated", jax({})
    yield "jax", jax({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})


def print_table(results):
    for name, result in results.items():
        state = "skipped" if "skipped" in result else "FAIL" if result["problems"] else "pass"
        print(f"{state:8s}{name}" + (f" ({result['told']})" if "told" in result else ""))
        for line in result.get("lines", []):
            print(f"        | {line}")
    passed = sum(not results[name]["problems"] for name in TWELVE if name in results)
    print(f"the cause is in the first three lines {passed} times of {sum(name in results for name in TWELVE)}\n")
