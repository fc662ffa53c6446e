# SPDX-License-Identifier: Apache-2.0
"""Cases that record a program and compare the ledger with NVML at every sample, for every way to the driver."""

import importlib.util
import json
import os

import ledger

MIB = 1 << 20

# The target: 0.1 % of the peak or 4 MiB, whichever is larger; 1 % of samples in transit.
RESIDUAL_SHARE = 0.001
RESIDUAL_BYTES = 4 * MIB
TRANSIT_SHARE = 0.01


def case(name, command, *, marks=False, needs=None, gpus_needed=1, owner=None, environment=None, by_itself=False, said=False):
    """A case; `needs`: a Python module it cannot do without, `owner`: who must have memory at the peak.

    `by_itself`: the program records itself, into the file that --trace names. `said`: its lines are part of the result.
    """

    def run(bench):
        if needs is not None and importlib.util.find_spec(needs) is None:
            return {"skipped": f"no {needs} on this machine", "problems": []}
        if bench.gpu_count < gpus_needed:
            return {"skipped": f"needs {gpus_needed} GPUs", "problems": []}
        record = bench.record_by_itself if by_itself else bench.record
        recording, output = record(name, command(bench), environment=environment)
        report = recording.report()
        gpus = {device["index"]: device for device in report["devices"] if device["kind"] == "gpu"}
        residuals = recording.residuals()
        if not gpus or not residuals:
            raise RuntimeError("the recording has no GPU, or no NVML samples")
        rows = [row for row in report["rows"] if row["device"] in gpus and row["pid"] is not None]
        # GPUs on which nothing was recorded are idle, or other people's.
        used = {row["device"] for row in rows}
        result = {
            "gpus": [judge(residual, gpus) for residual in residuals if residual["index"] in used],
            "owners": ledger.owners(rows),
            "losses": report["losses"],
            "trace_bytes": recording.trace.stat().st_size,
            **({"said": output.splitlines()} if said else {}),
        }
        problems = [
            f"invariant {entry['name']} is broken: {entry['detail']}"
            for entry in report["invariants"]
            if not entry["holds"]
        ]
        problems += [problem for gpu in result["gpus"] for problem in gpu.pop("problems")]
        if not result["gpus"]:
            problems.append("nothing was recorded on any GPU")
        if owner is not None and not result["owners"].get(owner):
            problems.append(f"{owner} has no memory at the peak; owners are {sorted(result['owners'])}")
        if marks:
            result["marks"] = [compare_mark(recording, json.loads(line)) for line in prefixed(output, "MARK")]
            if not result["marks"]:
                problems.append("the program printed no mark")
            problems += [
                f"mark {mark['mark']}: {key} {mark[key]} is not PyTorch's {mark[theirs]}"
                for mark in result["marks"]
                for key, theirs in (("blocks", "memory_allocated"), ("segments", "memory_reserved"))
                if mark[key] != mark[theirs]
            ]
        return {**result, "problems": problems}

    return name, run


def limit_of(residual):
    """The largest residual that the target allows, in bytes."""
    return max(RESIDUAL_BYTES, RESIDUAL_SHARE * residual["ledger_peak_bytes"])


def judge(residual, gpus):
    """The figures of one GPU, and what is wrong with them."""
    gpu = gpus[residual["index"]]
    limit = limit_of(residual)
    problems = []
    if residual["samples"] == 0:
        problems.append("no NVML sample was taken")
    if abs(residual["worst_bytes"]) > limit:
        problems.append(f"worst residual {residual['worst_bytes']} bytes, over {limit:.0f}")
    if residual["samples_in_transit"] > max(1, TRANSIT_SHARE * residual["samples"]):
        problems.append(f"{residual['samples_in_transit']} of {residual['samples']} samples in transit")
    peak = {key: gpu[key] for key in ("nvml_bytes", "ledger_bytes", "residual_bytes")}
    return {"peak": peak, "residual": residual, "problems": problems}


def prefixed(output, word):
    return [line[len(word) + 1 :] for line in output.splitlines() if line.startswith(word + " ")]


def compare_mark(recording, printed):
    report = recording.report("--at", f"mark:{printed['mark']}")
    return {**printed, **ledger.torch_totals(report)}


def _training(script, *arguments):
    return lambda bench: bench.example(script, "--device", "cuda", "--marks", *arguments)


def _built(name, *arguments):
    return lambda bench: [bench.bin / name, *arguments]


def _script(name, *arguments):
    return lambda bench: [bench.python, str(bench.programs / name), *arguments]


def _trainings():
    """ResNet-50 and GPT-2 with each of PyTorch's allocators. Only the first reports its blocks."""
    allocators = {
        "": {},
        ", expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        ", async": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"},
    }
    for label, environment in allocators.items():
        marks = label != ", async"
        # cuDNN's kernels are loaded whole, once: the first run pays for that with samples in transit.
        steps = "540" if label == "" else "450"
        yield case(
            "resnet50" + label,
            _training("train_resnet50.py", "--steps", steps),
            marks=marks,
            environment=environment,
        )
        yield case(
            "gpt2" + label,
            _training("train_gpt2.py", "--size", "gpt2", "--steps", "150"),
            marks=marks,
            environment=environment,
        )


def all_cases():
    """(name, function) of every case that one GPU is enough for, the most telling first."""
    # Long enough for the share of samples in transit to say something: a context alone takes 0.1 s,
    # a library of kernels that is loaded whole another 0.1 to 0.3 s.
    jacobi = ("4096", "250000")
    yield from _trainings()
    yield case("jax, preallocated", _script("jax_matmul.py", "--seconds", "24"), needs="jax")
    yield case(
        "jax",
        _script("jax_matmul.py"),
        needs="jax",
        environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )
    yield case("cupy", _script("cupy_pools.py", "--seconds", "24"), needs="cupy", owner="cuFFT")
    yield case(
        "numba",
        _script("numba_vectors.py", "--seconds", "36"),
        needs="numba",
        environment={"CUDA_HOME": os.environ.get("CUDA_HOME", "/usr/local/cuda")},
    )
    yield case("triton", _script("triton_softmax.py", "--seconds", "24"), needs="triton")
    yield case("cuda_driver", _built("example_cuda_driver", "--hold", "20"))
    yield case("cudart, static", _built("example_cuda_runtime_static", *jacobi))
    yield case("cudart, shared", _built("example_cuda_runtime_shared", *jacobi))
    yield case("vmm", _built("gpu_vmm", "--seconds", "28"))
    yield case("graphs", _built("gpu_graphs", "--seconds", "22"))
    yield case("local memory", _built("gpu_local_memory"))
    yield case("torch graphs", _script("torch_graph.py"))
    yield case("late start", _script("late_start.py"), marks=True, by_itself=True)
    yield case("rmm", _script("rmm_pools.py", "--seconds", "24"), needs="rmm")
    # Two contexts made and two ended: more time to outlast.
    yield case("two processes", _script("sharing.py", "--seconds", "80"))
    yield case("two processes, IPC", _script("sharing.py", "--ipc", "--seconds", "80"))


def cases_of_two_gpus():
    yield case("ddp, NCCL", _script("ddp_nccl.py", "--seconds", "30"), gpus_needed=2, owner="NCCL")
    yield case("mesh, NCCL", _script("ddp_nccl.py", "--mesh", "--seconds", "60"), gpus_needed=4, owner="NCCL")


def mib(value):
    return "-" if value is None else f"{value / MIB:.1f}"


def print_table(results):
    print("MiB                     peak     NVML   ledger    worst      p99  samples transit estimated")
    for name, result in results.items():
        if "skipped" in result:
            print(f"{name:20s} skipped: {result['skipped']}")
        for gpu in result.get("gpus", []):
            peak, residual = gpu["peak"], gpu["residual"]
            share = residual["estimated_bytes"] / max(1, residual["ledger_peak_bytes"])
            print(
                f"{name:20s} {mib(residual['ledger_peak_bytes']):>8s} {mib(peak['nvml_bytes']):>8s}"
                f" {mib(peak['ledger_bytes']):>8s} {mib(residual['worst_bytes']):>8s}"
                f" {mib(residual['p99_bytes']):>8s} {residual['samples']:8d}"
                f" {residual['samples_in_transit']:7d} {share:8.1%}"
            )
        for mark in result.get("marks", []):
            print(
                f"  at {mark['mark']}: blocks {mark['blocks']}, PyTorch {mark['memory_allocated']};"
                f" segments {mark['segments']}, PyTorch {mark['memory_reserved']}"
            )
        if "owners" in result:
            owners = sorted(result["owners"].items(), key=lambda entry: -entry[1])
            print("  " + ", ".join(f"{owner} {mib(size)}" for owner, size in owners[:6]))
    print()
