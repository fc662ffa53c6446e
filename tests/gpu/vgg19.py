# SPDX-License-Identifier: Apache-2.0
"""The group `vgg19` of tests/gpu/run.py: examples/vgg19's five convolutions beside the CPU, PyTorch and NVML."""

import os
import pathlib
import re
import shutil
import subprocess

import residual

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "vgg19"
ALGORITHMS = ("direct", "im2col", "cudnn", "winograd", "fft")
BATCHES = (1, 8)
# Start-up (context, libraries of kernels) is in transit for 0.1 to 0.4 s. The programs of residual.py
# outlast it so that it is 1 % of their samples; these run for 10 s, where the same samples are 3 %.
TRANSIT_SAMPLES = 30


def environment(bench):
    """cuBLAS, cuFFT and cuDNN of Python's nvidia-* packages, for a program built on another machine."""
    try:
        import nvidia
    except ImportError:
        return bench.environment
    folders = [str(path) for place in nvidia.__path__ for path in sorted(pathlib.Path(place).glob("*/lib"))]
    folders += filter(None, [bench.environment.get("LD_LIBRARY_PATH")])
    return {**bench.environment, "LD_LIBRARY_PATH": os.pathsep.join(folders)}


def files(bench):
    """Weights and pictures for all cases, made once; the program, built here where it was not carried."""
    weights, pictures = bench.folder / "vgg19.weights", bench.folder / "vgg19-pictures.npy"
    if not pictures.exists():
        import cases
        import numpy

        if not (bench.bin / "example_vgg19").exists():
            cases.run([EXAMPLE / "build.sh", bench.build, "-DCMAKE_CUDA_ARCHITECTURES=native"], bench.environment, 300)
        cases.run([bench.python, EXAMPLE / "weights.py", weights, "--random"], bench.environment, bench.limit(60))
        shape = (max(BATCHES), 3, 224, 224)
        numpy.save(pictures, numpy.random.default_rng(224).standard_normal(shape, dtype=numpy.float32))
    return weights, pictures


def logits_file(bench, name):
    return bench.folder / f"vgg19-{name.replace(', ', '-').replace(' ', '-')}.npy"


def case(name, algorithm, batch, *options, sampled=False):
    """Records the program, holds each layer to the CPU and the ledger to NVML; `sampled`: runs it without
    the probe too, whose logits must be the same bytes."""

    def run(bench):
        import cases

        weights, pictures = files(bench)
        program = [bench.bin / "example_vgg19", "--algorithm", algorithm, "--batch", str(batch), *options]
        program += ["--weights", weights, "--image", pictures]
        logits = logits_file(bench, name)
        probed = [*program, "--check", "--output", logits]
        # With the hold the samples see each layer; the passes without show the peaks that last milliseconds.
        probed += ["--hold", "0.1", "--repeat", "2"] if sampled else []
        recording, output = bench.record(f"vgg19 {name}", probed, environment=environment(bench))
        report = recording.report("--by", "owner,tag")
        gpus = {device["index"]: device for device in report["devices"] if device["kind"] == "gpu"}
        judged = [residual.judge(entry, gpus) for entry in recording.residuals()]
        result = {
            "check": re.findall(r"^check (\S+) +(\S+)", output, re.MULTILINE),
            "largest_error": re.findall(r"^check: largest error (\S+)", output, re.MULTILINE),
            "choices": re.findall(r"^cudnn (\S+) +workspace (\d+) bytes, (.*)$", output, re.MULTILINE),
            "gpus": judged,
            "rows": [{"path": row["path"], "bytes": row["bytes"]} for row in report["rows"] if row["device"] in gpus],
        }
        problems = [f"invariant {entry['name']} is broken" for entry in report["invariants"] if not entry["holds"]]
        for gpu in judged:
            in_transit = gpu["residual"]["samples_in_transit"]
            found = [text for text in gpu.pop("problems") if not text.endswith("in transit")]
            if in_transit > max(TRANSIT_SAMPLES, residual.TRANSIT_SHARE * gpu["residual"]["samples"]):
                found.append(f"{in_transit} of {gpu['residual']['samples']} samples in transit")
            problems += found
        if not judged:
            problems.append("nothing was recorded on any GPU")
        if sampled:
            plain = logits_file(bench, name + " sampled")
            trace = bench.folder / f"{plain.stem}.vram"
            under = [bench.program, "sample", "--no-report", "-o", trace, "--"]
            output = cases.run(
                [*under, *program, "--repeat", "3", "--output", plain], environment(bench), bench.limit(60)
            )
            result["milliseconds"] = float(re.search(r"last pass (\S+) ms", output).group(1))
            result["same_logits"] = plain.read_bytes() == logits.read_bytes()
            if not result["same_logits"]:
                problems.append("the logits with the probe are not those without it")
        return {**result, "problems": problems}

    return name, run


def compare_with_pytorch(bench):
    """The logits that the cases before left, beside PyTorch's."""
    weights, pictures = files(bench)
    logits = sorted(bench.folder.glob("vgg19-*batch-*.npy"))
    if not logits:
        return {"problems": ["no case before this one left its logits"]}
    command = [bench.python, EXAMPLE / "pytorch.py", "--weights", weights, "--image", pictures, *logits]
    done = subprocess.run(
        [str(word) for word in command],
        env=bench.environment,
        capture_output=True,
        text=True,
        timeout=bench.limit(120),
        check=False,
    )
    lines = [bench.portable(line) for line in done.stdout.splitlines()]
    problems = [line for line in lines if line.endswith("too large")]
    if done.returncode != 0 and not problems:
        problems = [done.stderr.strip()[-400:]]
    return {"lines": lines, "problems": problems}


def sanitize(bench):
    """Every kernel under compute-sanitizer, on small pictures with edges that no tile fits."""
    import cases

    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        return {"skipped": "no compute-sanitizer on this machine", "problems": []}
    files(bench)
    for algorithm in ALGORITHMS:
        program = [bench.bin / "example_vgg19", "--algorithm", algorithm, "--size", "35", "--batch", "2", "--check"]
        cases.run(
            [tool, "--report-api-errors", "no", "--error-exitcode", "9", *program], environment(bench), bench.limit(60)
        )
    return {"problems": []}


def all_cases():
    for batch in BATCHES:
        for algorithm in ALGORITHMS:
            yield case(f"{algorithm}, batch {batch}", algorithm, batch, sampled=True)
    yield "PyTorch", compare_with_pytorch
    for algorithm in ALGORITHMS:
        yield case(f"{algorithm}, batch 8, resident", algorithm, 8, "--resident")
    yield case("fft, batch 1, exact size", "fft", 1, "--fft-size", "exact")
    # Transforms of these sizes need workspaces: here cuFFT's own, above the program's.
    options = ("--fft-size", "exact", "--fft-workspace", "automatic")
    yield case("fft, batch 1, exact size, automatic workspace", "fft", 1, *options)
    yield "compute-sanitizer", sanitize


def print_table(results):
    print(
        "VGG-19                                         error   peak MiB  of it named  worst residual  transit   ms a pass"
    )
    for name, result in results.items():
        if "skipped" in result:
            print(f"{name:45s} skipped: {result['skipped']}")
        for gpu in result.get("gpus", []):
            summary = gpu["residual"]
            named = sum(row["bytes"] for row in result["rows"] if "/" in row["path"][-1])
            share = f"{summary['samples_in_transit']}/{summary['samples']}"
            print(
                f"{name:45s} {result['largest_error'][0]:>7s} {residual.mib(summary['ledger_peak_bytes']):>10s}"
                f" {residual.mib(named):>12s} {residual.mib(summary['worst_bytes']):>15s} {share:>8s}"
                f" {result.get('milliseconds', '-'):>11}"
            )
        for layer, size, algorithm in result.get("choices", []):
            print(f"  {layer:8s} {algorithm}, workspace {size} bytes")
        for line in result.get("lines", []):
            print("  " + line)
    print()
