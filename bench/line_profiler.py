# SPDX-License-Identifier: Apache-2.0
"""Time of one training step of the 48-layer MLP of mlp_step.py while its lines are profiled.

`step` and `Sequential.forward` are profiled: some 200 line events and 300 blocks a step.

    .venv/bin/python bench/line_profiler.py                     on the CPU
    .venv/bin/python bench/line_profiler.py --device cuda --memlab DIR

DIR is a checkout of pytorch_memlab, which needs pandas and calmsize and profiles GPUs only. Before Python 3.12 all
calls of the program are slower while lines are profiled: the interpreter has a trace function and nothing better.
A process profiles and does not in turn.
"""

import argparse
import json
import pathlib
import sys

import arms

LAYERS, WIDTH, BATCH = 48, 64, 8
# pytorch_memlab keeps all of memory_stats() of every line event in memory.
MEMLAB_STEPS = 100


def make_profiler(recorder, device, functions):
    if recorder == "vramscope":
        sys.path.insert(0, str(arms.ROOT / "python"))
        from vramscope import LineProfiler

        return LineProfiler(*functions, target_gpu="cpu" if device == "cpu" else 0)
    from pytorch_memlab import LineProfiler

    return LineProfiler(*functions)


def child(device, steps, recorder, memlab):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(BATCH, WIDTH, device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        out = model(data)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    arms.step_us(step, wait, 50)
    result = {"torch": torch.__version__, "gpu": torch.cuda.get_device_name() if device == "cuda" else None}
    if recorder is None:
        result["us"] = arms.step_us(step, wait, steps)
    else:
        if memlab is not None:
            sys.path.insert(0, memlab)
        steps = MEMLAB_STEPS if recorder == "memlab" else steps
        profiler = make_profiler(recorder, device, (step, torch.nn.Sequential.forward))
        with profiler:
            arms.step_us(step, wait, 10)  # the first executions of each line are sampled
        result |= arms.in_turns(step, wait, profiler.enable, profiler.disable, steps)
        result["table_lines"] = len(str(profiler.display()).splitlines())
    print(json.dumps(result), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--recorder", choices=("vramscope", "memlab"), help=argparse.SUPPRESS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--memlab", metavar="DIR", help="a checkout of pytorch_memlab")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    args = parser.parse_args()
    if args.child:
        child(args.device, args.steps, args.recorder, args.memlab)
        return 0

    common = ["--device", args.device, "--steps", str(args.steps)]
    plan = {
        "plain": (common, lambda trace: []),
        "vramscope": ([*common, "--recorder", "vramscope"], lambda trace: []),
    }
    if args.memlab is not None and args.device == "cuda":
        plan["pytorch_memlab"] = ([*common, "--recorder", "memlab", "--memlab", args.memlab], lambda trace: [])
    results = arms.measure(__file__, plan, args.rounds)
    arms.report_steps(
        args.json,
        "line_profiler",
        results,
        lambda runs: [run.get("ratio", 1.0) for run in runs],
        device=args.device,
        shape={"layers": LAYERS, "width": WIDTH, "batch": BATCH, "steps": args.steps},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
