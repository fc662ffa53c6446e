# SPDX-License-Identifier: Apache-2.0
"""Time of one training step of a small 48-layer MLP: plain, under vramscope, under PyTorch's own tools.

The step is bound by Python and the allocator, so it shows what recording every tensor costs at worst.

    .venv/bin/python bench/mlp_step.py                     48 layers of width 64, batch 8, one CPU thread
    .venv/bin/python bench/mlp_step.py --device cuda       on a GPU, beside _record_memory_history too
    .venv/bin/python bench/mlp_step.py --parts             what of vramscope costs how much, instead of the peers

vramscope records names and Python stacks; torch.profiler memory and Python stacks. Two processes of the same
program differ by more than the cost that is looked for, so one process also records and pauses in turn, and
in another (--parts) the launcher, which asks NVML every 10 ms, stops and goes on in turn.
"""

import argparse
import json
import os
import pathlib
import signal
import sys

import arms

LAYERS, WIDTH, BATCH = 48, 64, 8
# torch.profiler keeps every event in memory: its arm is shorter.
PROFILED_STEPS = 150


def child(device, steps, recorder, in_turn):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if recorder in ("python", "all"):
        torch.cuda.memory._record_memory_history(stacks=recorder, max_entries=10_000_000)
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(BATCH, WIDTH, device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(data).square().mean().backward()
        optimizer.step()

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(50):
        step()
    wait()
    if recorder == "profiler":
        steps = min(steps, PROFILED_STEPS)
        profiler = torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True)
        profiler.start()

    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name() if device == "cuda" else None}
    if in_turn == "launcher":
        launcher = os.getppid()
        os.kill(launcher, signal.SIGSTOP)
        try:
            result |= arms.in_turns(
                step,
                wait,
                lambda: os.kill(launcher, signal.SIGCONT),
                lambda: os.kill(launcher, signal.SIGSTOP),
                steps // 2,
            )
        finally:
            os.kill(launcher, signal.SIGCONT)
    elif in_turn == "recording":
        sys.path.insert(0, os.fspath(arms.ROOT / "python"))
        import vramscope

        vramscope.stop()
        result |= arms.in_turns(step, wait, vramscope.start, vramscope.stop, steps // 2)
        vramscope.start()
    else:
        result["us"] = arms.step_us(step, wait, steps)
    print(json.dumps(result), flush=True)
    if recorder == "profiler":
        # Processing events now must not be part of a step.
        os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--recorder", choices=("python", "all", "profiler"), help=argparse.SUPPRESS)
    parser.add_argument("--in-turn", choices=("recording", "launcher"), help=argparse.SUPPRESS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", action="store_true", help="the probe off, paused and without Python stacks")
    parser.add_argument("--program", type=pathlib.Path, default=arms.DEFAULT_PROGRAM)
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    args = parser.parse_args()
    if args.child:
        child(args.device, args.steps, args.recorder, args.in_turn)
        return 0

    common = ["--device", args.device, "--steps", str(args.steps)]
    options = ["--cpu"] if args.device == "cpu" else []
    plan = {
        "plain": (common, lambda trace: []),
        "vramscope": (common, lambda trace: arms.vramscope_command(args.program, trace, *options)),
        "vramscope, in turn": (
            [*common, "--in-turn", "recording"],
            lambda trace: arms.vramscope_command(args.program, trace, *options),
        ),
    }
    if args.parts:
        plan["its launcher, in turn"] = (
            [*common, "--in-turn", "launcher"],
            lambda trace: arms.vramscope_command(args.program, trace, *options),
        )
        probe = ["env", f"LD_PRELOAD={args.program.parent.parent / 'lib' / 'libvramscope_probe.so'}"]
        plan["the probe, off"] = (common, lambda trace: probe)
        for name, option in {"paused": "--start-paused", "without Python stacks": "--no-python"}.items():
            plan[f"vramscope, {name}"] = (
                common,
                lambda trace, option=option: arms.vramscope_command(args.program, trace, *options, option),
            )
    elif args.device == "cuda":
        plan["recorder, stacks=python"] = ([*common, "--recorder", "python"], lambda trace: [])
    if not args.parts:
        plan["torch.profiler, memory"] = ([*common, "--recorder", "profiler"], lambda trace: [])
    results = arms.measure(__file__, plan, args.rounds)

    plain = [result["us"] for result in results["plain"]]
    arms.report_steps(
        args.json,
        "mlp_step",
        results,
        # Neighbours in time share the machine's mood: the ratio is taken within each round, or within the process.
        lambda runs: [run.get("ratio", run["us"] / base) for run, base in zip(runs, plain)],
        device=args.device,
        shape={"layers": LAYERS, "width": WIDTH, "batch": BATCH, "steps": args.steps},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
