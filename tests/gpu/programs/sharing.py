# SPDX-License-Identifier: Apache-2.0
"""Two processes on one GPU, which grow and shrink out of step; with --ipc one also uses a tensor of the other's."""

import pacing

args = pacing.arguments(ipc=False)

import time

import torch
import torch.multiprocessing as multiprocessing


def grow_and_shrink(number, seconds, queue, done):
    torch.manual_seed(number)
    shared = None
    if queue is not None and number == 0:
        shared = torch.full((96, 1 << 20), 3.0, device="cuda")
        queue.put(shared)
    elif queue is not None:
        shared = queue.get()
    kept = []
    for turn in pacing.turns(seconds, 0.07 + 0.03 * number):
        kept.append(torch.randn(1 + turn % (5 + number), 1 << 20, device="cuda"))
        if turn % (11 + number) == 0:
            kept.clear()
            torch.cuda.empty_cache()
        torch.cuda.synchronize()
    if queue is not None and number == 1:
        print("sum", shared.sum().item())
        del shared
        done.set()
    elif queue is not None:
        done.wait()
    time.sleep(0.5)


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue, done = (context.Queue(), context.Event()) if args.ipc else (None, None)
    children = [
        context.Process(target=grow_and_shrink, args=(number, args.seconds, queue, done)) for number in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert all(child.exitcode == 0 for child in children), [child.exitcode for child in children]
