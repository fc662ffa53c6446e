# SPDX-License-Identifier: Apache-2.0
"""An engine's life on the fake driver. Takes the word `marks`: it names its phases by itself, and its functions have names
that no list has. `--die-asleep`: it is killed while it sleeps. --gpu-memory-utilization is there to be read."""
import os
import signal
import sys
import threading
import time

import gpu
import vramscope
from vllm.v1.worker.gpu_worker import Worker

STEPS = [
    ("init", "init_device"), ("load", "load_model"), ("profile", "determine_available_memory"),
    ("kv cache", "initialize_from_config"), ("capture", "compile_or_warm_up_model"), ("serve", "execute_model"),
    ("sleep", "sleep"), ("serve", "wake_up"), ("serve", "execute_model"),
]  # fmt: skip
kept = []


def keep():
    gpu.start()
    kept.append(gpu.Block(6 * gpu.MIB))


worker = Worker()
for number, (phase, method) in enumerate(STEPS):
    if "marks" in sys.argv:
        vramscope.mark("phase:" + phase)
    getattr(worker, method)()
    if method == "execute_model" and not kept:
        thread = threading.Thread(target=keep)
        thread.start()
        thread.join()
    time.sleep(0.02)
    vramscope.mark(f"{number} {method}")
    time.sleep(0.02)
    if method == "sleep" and "--die-asleep" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
if "marks" in sys.argv:
    vramscope.mark("phase:rollout")
    kept.append(gpu.Block(10 * gpu.MIB))
