# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs that make processes and threads, one way an argument. Prints what must not change."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time


def squares(number: int) -> int:
    import torch

    return int(torch.full((1000,), number).sum())


class Numbers:
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int):
        import torch

        return torch.full((64,), float(index))


def loader(way: str) -> None:
    from torch.utils.data import DataLoader

    batches = DataLoader(Numbers(), batch_size=4, num_workers=2 if way == "fork" else 1, multiprocessing_context=way)
    print([batch.sum().item() for batch in batches])


def share(queue, done) -> None:
    tensor = queue.get()
    tensor += 1
    done.put(float(tensor.sum()))


def shared_tensors() -> None:
    import torch
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("fork")
    queue, done = context.Queue(), context.Queue()
    child = context.Process(target=share, args=(queue, done))
    child.start()
    tensor = torch.ones(1000)
    queue.put(tensor)
    print(done.get(timeout=60), float(tensor.sum()))
    child.join()
    print(child.exitcode)


def fork_in_thread() -> None:
    import torch

    def work() -> None:
        child = os.fork()
        if child == 0:
            status = 3 if float(torch.ones(100).sum()) == 100.0 else 4
            os._exit(status)
        results.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    results: list[int] = []
    keep = torch.ones(10)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(results, keep.sum().item())


def terminated_pool() -> None:
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(squares, range(6)))
        pool.apply_async(time.sleep, (60,))
    sleeper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    sleeper.start()
    os.kill(sleeper.pid, signal.SIGTERM)
    sleeper.join()
    print(sleeper.exitcode)
    print([subprocess.run([sys.executable, "-S", "-c", f"exit({n})"]).returncode for n in range(3)])


def daemon_threads() -> None:
    import torch

    def work() -> None:
        kept = [torch.ones(50) for _ in range(100)]
        ready.release()
        while kept:
            time.sleep(0.001)

    ready = threading.Semaphore(0)
    for _ in range(3):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(3):
        ready.acquire()
    print("finalising")


def profiled() -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        left, right = torch.ones(64, 64), torch.ones(64, 64)
        (left @ right).relu().sum()
    print(sorted((e.key, e.count, e.cpu_memory_usage, e.self_cpu_memory_usage) for e in profiler.key_averages()))


WAYS = {
    "loader-fork": lambda: loader("fork"),
    "loader-spawn": lambda: loader("spawn"),
    "loader-forkserver": lambda: loader("forkserver"),
    "shared": shared_tensors,
    "fork-in-thread": fork_in_thread,
    "terminated-pool": terminated_pool,
    "daemon-threads": daemon_threads,
    "profiled": profiled,
}

if __name__ == "__main__":
    for word in sys.argv[1:]:
        WAYS[word]()
